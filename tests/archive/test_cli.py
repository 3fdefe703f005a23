"""Rules of `penstock archive`: what it prints, and what it leaves in the stores."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from penstock.archive.catalog import Catalog
from penstock.archive.reader import ArchiveReader
from penstock.cli.app import cli
from penstock.log import Log
from penstock.model.errors import LeaseHeld
from penstock.storage import DataDirectory
from penstock.storage.metadata import Leases, open_metadata
from penstock.storage.objects import open_objects
from tests.archive.worlds import TOPIC, drained, message, messages
from tests.cli.running import run
from tests.servers.loops import in_loop

if TYPE_CHECKING:
    from tests.servers.etcd import EtcdServer
    from tests.servers.seaweed import S3Server


def _data(folder: Path, count: int) -> Path:
    """A data directory as a stopped server leaves it."""
    directory = DataDirectory(folder / "data")
    directory.create()
    with Log.open(directory.partition(TOPIC).log_folder) as log:
        log.append_many([message(log.end_offset + at) for at in range(count)])
    return directory.root


def _run(*arguments: str, env: dict[str, str] | None = None) -> str:
    done = CliRunner().invoke(cli, ["archive", *arguments], catch_exceptions=False, env=env)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_upload_and_status(tmp_path: Path) -> None:
    """What is uploaded is shown; a second upload has nothing to do; more is added."""
    data, objects = _data(tmp_path, 1500), f"--objects=file://{tmp_path}/objects"
    where = [f"--data-dir={data}", objects]
    assert "nothing is archived yet" in _run("status", *where)
    assert "1 objects, 1500 messages" in _run("upload", *where)
    assert "0 objects, 0 messages" in _run("upload", *where)
    _data(tmp_path, 10)
    (row,) = json.loads(_run("upload", "--json", "--zstd", *where, "/default/traces"))
    assert (row["topic"], row["partition"], row["messages"]) == ("/default/traces", 0, 10)
    (status,) = json.loads(_run("status", "--json", *where))
    assert (status["start_offset"], status["end_offset"], status["objects"]) == (0, 1510, 2)
    assert status["owner"] is None
    assert "/default/traces" in _run("status", *where)


def test_objects_that_the_metadata_do_not_know_are_not_nothing(tmp_path: Path) -> None:
    """Whoever asks on an empty disk is told, and not that nothing is archived."""
    data, objects = _data(tmp_path, 100), f"--objects=file://{tmp_path}/objects"
    _run("upload", f"--data-dir={data}", objects)
    answer = run("archive", "status", f"--data-dir={tmp_path}/empty", objects)
    assert answer.is_one_sentence()
    assert "knows nothing of them" in answer.err


@in_loop
async def test_upload_to_real_servers(tmp_path: Path, s3: S3Server, etcd: EtcdServer) -> None:
    """Endpoint and credentials come from the environment."""
    data, objects, metadata = _data(tmp_path, 2000), s3.place(), etcd.place()
    environment = {name.upper(): value for name, value in s3.options.items()}
    where = [f"--data-dir={data}", f"--objects={objects}", f"--metadata={metadata}"]
    await asyncio.to_thread(_run, "upload", *where, env=environment)
    opened = open_metadata(metadata)
    catalog = Catalog(open_objects(objects, s3.options), opened, TOPIC)
    assert await drained(ArchiveReader(catalog, 0)) == messages(0, 2000)
    await opened.close()


@in_loop
async def test_an_owner_that_lives_is_not_disturbed(tmp_path: Path) -> None:
    """The error says who has the topic."""
    data = _data(tmp_path, 10)
    metadata = open_metadata(f"file://{data}/metadata.db")
    catalog = Catalog(open_objects("memory://"), metadata, TOPIC)
    lease = await Leases(metadata).acquire(catalog.lease_name, "server-7")
    where = [f"--data-dir={data}", f"--objects=file://{tmp_path}/objects", "--wait=0"]
    with pytest.raises(LeaseHeld, match="server-7"):
        await asyncio.to_thread(_run, "upload", *where)
    lease.check()
    await metadata.close()


def test_a_missing_option_is_a_usage_error() -> None:
    """Exit code 2, and the option's name."""
    done = CliRunner().invoke(cli, ["archive", "status"], env={"PENSTOCK_ARCHIVE_OBJECTS": ""})
    assert done.exit_code == 2
    assert "--objects" in done.stderr
