"""`penstock serve` with an archive: the log goes on in object storage, and survives its disk."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

from penstock.archive import ArchiveReader, Catalog
from penstock.model import Topic
from penstock.otel import Signal
from penstock.storage.metadata import open_metadata
from penstock.storage.objects import open_objects
from penstock.store.messages import decode_raw
from tests.server.running import Server, serving, until
from tests.server.samples import traces
from tests.servers.etcd import EtcdServer  # noqa: TC001 - pytest reads the annotations
from tests.servers.fixtures import etcd, s3
from tests.servers.seaweed import S3Server  # noqa: TC001 - the same

__all__ = ["etcd", "s3"]
T = Signal.TRACES
TRACES = Topic("default", "traces")


def config_of(url: str, metadata: str, *, lease: str = "5s", **objects: str) -> dict[str, Any]:
    """Uploads soon, and lets go soon."""
    return {
        "archive": {
            "url": url,
            "objects": objects,
            "metadata": metadata,
            "upload_interval": "100ms",
            "lease": lease,
        },
    }


def archived(config: dict[str, Any]) -> list[bytes]:
    """The requests in the archive, in the order of their offsets."""
    return asyncio.run(_archived(config["archive"]))


async def _archived(archive: dict[str, Any]) -> list[bytes]:
    objects = open_objects(archive["url"], archive["objects"])
    metadata = open_metadata(archive["metadata"])
    reader, found = ArchiveReader(Catalog(objects, metadata, TRACES), 0), list[bytes]()
    while (batch := await reader.read_batch()) is not None:
        found += [decode_raw(message) or b"" for message in batch.messages]
    await objects.close()
    await metadata.close()
    return found


def test_topic_goes_on_when_its_disk_is_lost(
    s3: S3Server,
    etcd: EtcdServer,
    tmp_path: Path,
) -> None:
    """What was archived is there, and offsets go on behind it; another machine takes over."""
    config = config_of(s3.place(), etcd.place(), **s3.options)
    with serving(tmp_path / "one", config=config) as server:
        for number in range(5):
            assert server.post(T, traces(f"first {number}")).status == 200
        until(lambda: len(archived(config)) == 5)
        topic = "/default/traces/0"
        until(lambda: server.metric("penstock_archive_lag_messages", topic=topic) == 0)
        assert server.metric("penstock_archive_messages_total", topic=topic) == 5
        server.kill()
    shutil.rmtree(tmp_path / "one")
    with serving(tmp_path / "two", config=config) as server:
        until(lambda: server.post(T, traces("second")).status == 200)
        assert server.stop() == 0
    expected = [traces(f"first {number}") for number in range(5)] + [traces("second")]
    assert archived(config) == expected


def test_second_owner_is_refused_while_the_first_lives(
    etcd: EtcdServer,
    tmp_path: Path,
) -> None:
    """Its clients are told to come again, and may when the first has stopped."""
    config = config_of((tmp_path / "objects").as_uri(), etcd.place(), lease="10m")
    with serving(tmp_path / "one", config=config) as first:
        assert first.post(T, traces("a")).status == 200
        with serving(tmp_path / "two", config=config) as second:
            refused = second.post(T, traces("b"))
            assert (refused.status, "retry-after" in refused.headers) == (429, True)
            assert first.post(T, traces("c")).status == 200
            assert first.stop() == 0
            until(lambda: second.post(T, traces("d")).status == 200)
            assert second.stop() == 0
    assert archived(config) == [traces(name) for name in "acd"]


def test_archive_and_buffer_exclude_each_other(tmp_path: Path) -> None:
    """In one sentence."""
    url = (tmp_path / "objects").as_uri()
    server = Server.begin(tmp_path / "data", "--buffer", url, config={"archive": {"url": url}})
    assert server.wait() == 1
    assert "archive.url goes with a log" in server.errors
