"""`penstock fsck` and `penstock inspect` on a real S3 server and on a real etcd."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.storage.objects import open_objects
from tests.cli.queues import make_queue
from tests.cli.running import run
from tests.cli.test_fsck_objects import fsck
from tests.cli.test_inspect_objects import inspect
from tests.servers.fixtures import etcd, s3
from tests.servers.loops import in_loop

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.servers.etcd import EtcdServer
    from tests.servers.seaweed import S3Server

__all__ = ["etcd", "s3"]


def test_real_server_is_verified(data: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Endpoint and credentials come from the environment."""
    for name, value in s3.options.items():
        monkeypatch.setenv(name.upper(), value)
    url = make_queue(s3.place())
    where = ["--objects", url, "--metadata", (data / "metadata.db").as_uri()]
    assert run("archive", "upload", "--data-dir", data, *where).code == 0
    code, found = fsck(url, *where[2:])
    assert (code, found["archives"], found["queues"], found["messages"]) == (0, 2, 1, 71)


def test_objects_of_a_real_server_are_explained(
    data: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object, a file that belongs on a disk, and all that is below a prefix."""
    for name, value in s3.options.items():
        monkeypatch.setenv(name.upper(), value)
    url = make_queue(s3.place())
    said = inspect(f"{url}/ingest/manifest")
    assert (said["kind"], said["path"]) == ("queue manifest", f"{url}/ingest/manifest")
    assert inspect(url)["kind"] == "queue"
    log = next(data.rglob("*.wal"))
    asyncio.run(open_objects(url, s3.options).put(f"copies/{log.name}", log.read_bytes()))
    assert inspect(f"{url}/copies/{log.name}")["kind"] == "log file"
    asyncio.run(open_objects(url, s3.options).put("ingest/manifest", b"rubbish"))
    answer = run("inspect", f"{url}/ingest/manifest")
    assert answer.is_one_sentence()
    assert f"{url}/ingest/manifest" in answer.err
    assert run("inspect", f"{url}/nothing").is_one_sentence()


@in_loop
async def test_etcd_is_explained_as_a_metadata_store(data: Path, etcd: EtcdServer) -> None:
    """By its URL."""
    place = etcd.place()
    objects = (data / "objects").as_uri()
    where = ["--data-dir", str(data), "--objects", objects, "--metadata", place]
    assert (await asyncio.to_thread(run, "archive", "upload", *where)).code == 0
    said = await asyncio.to_thread(inspect, place)
    assert [row["messages"] for row in said["archives"]] == [60, 7]
