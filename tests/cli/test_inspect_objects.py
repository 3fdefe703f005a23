"""`penstock inspect` explains what a queue and an archive keep, wherever that is."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import TYPE_CHECKING

import pytest

from penstock.archive import Catalog
from penstock.archive.format import encode_descriptor
from penstock.storage.metadata import open_metadata
from penstock.storage.objects import open_objects
from tests.cli.archives import Archive, make_archive
from tests.cli.queues import batches, folder_of, make_queue
from tests.cli.running import TRACES, inspect, run
from tests.log.small_logs import flip, message_for
from tests.queue.helpers import Queue
from tests.queue.plain_objects import PlainObjects
from tests.servers.loops import in_loop

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def archive(data: Path) -> Archive:
    """Three objects of two partitions, with 87 messages."""
    return make_archive(data)


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    """The folder of a queue with three batches of two entries, one of them acknowledged."""
    return folder_of(make_queue((tmp_path / "queue").as_uri()))


# --- the archive -------------------------------------------------------------------------------


def test_archived_object_is_explained(archive: Archive) -> None:
    """Whose it is, what is in it, and its first messages."""
    path = archive.files[1]
    said = inspect(path, "--frames", "2")
    assert (said["kind"], said["bytes"]) == ("archive object", path.stat().st_size)
    assert (said["start_offset"], said["end_offset"], said["messages"]) == (60, 80, 20)
    assert [frame["offset"] for frame in said["frames"]] == [60, 61]
    assert said["frames"][0]["bytes"] == len(message_for(60))


def test_path_and_url_say_the_same(archive: Archive) -> None:
    """Of an object and of all of them."""
    for path in (archive.files[0], archive.folder):
        by_path, by_url = inspect(path), inspect(path.as_uri())
        assert {**by_url, "path": None} == {**by_path, "path": None}


def test_archive_is_explained_by_its_folder(archive: Archive) -> None:
    """How many objects of which partition."""
    rows = inspect(archive.folder)["archive"]
    assert [(row["topic"], row["partition"], row["objects"]) for row in rows] == [
        ("/default/traces", 0, 2),
        ("/default/traces", 1, 1),
    ]


def test_metadata_store_is_explained(archive: Archive) -> None:
    """With the archives that it describes."""
    said = inspect(archive.metadata)
    first, second = said["archives"]
    assert (said["kind"], first["descriptors"], first["messages"]) == ("metadata store", 2, 80)
    assert (second["start_offset"], second["end_offset"]) == (0, 7)


@in_loop
async def test_descriptor_in_a_file_is_explained(archive: Archive, tmp_path: Path) -> None:
    """Its index is counted."""
    metadata = open_metadata(archive.metadata)
    first = await Catalog(open_objects("memory://"), metadata, TRACES).first()
    await metadata.close()
    assert first is not None
    (tmp_path / "descriptor").write_bytes(encode_descriptor(first))
    said = await asyncio.to_thread(inspect, tmp_path / "descriptor")
    assert (said["kind"], said["end_offset"]) == ("archive descriptor", 60)
    assert said["offset_index"] == len(first.offset_index)


def test_identity_and_checkpoint_of_an_archive_are_explained(archive: Archive, data: Path) -> None:
    """The one stands with the objects, the other with the log."""
    identity = archive.folder / "penstock/storage/topics/default/traces/archive"
    assert inspect(identity)["kind"] == "archive identity"
    (checkpoint,) = (data / "topics/default/traces/0").glob("archive.ckpt")
    said = inspect(checkpoint)
    assert (said["kind"], said["checksum"], said["offset"]) == ("archive checkpoint", "good", 80)


@pytest.mark.parametrize("position", [10, 70, 200])
def test_damaged_archived_object_is_an_error(archive: Archive, position: int) -> None:
    """Whichever byte it is."""
    path = archive.files[0]
    flip(path, position)
    answer = run("inspect", path)
    assert answer.is_one_sentence()
    assert str(path) in answer.err


def test_truncated_archived_object_is_an_error(archive: Archive) -> None:
    """It ends within a block."""
    path = archive.files[0]
    path.write_bytes(path.read_bytes()[:-1])
    assert "ends within a block" in run("inspect", path).err


# --- the queue ---------------------------------------------------------------------------------


def test_batch_is_explained(queue: Path) -> None:
    """With its first entries."""
    path = batches(queue.as_uri())[0]
    said = inspect(path, "--frames", "1")
    assert (said["kind"], said["format_version"], said["records"]) == ("queue batch", 2, 2)
    assert said["frames"] == [{"index": 0, "bytes": 3, "preview": "one"}]
    assert said["batch_id"] == path.stem


def test_batch_that_was_set_aside_is_explained(queue: Path, tmp_path: Path) -> None:
    """Its name says first which partition it was to become."""
    path = batches(queue.as_uri())[0]
    aside = tmp_path / f"default.traces.0.{path.name}"
    shutil.copy(path, aside)
    said = inspect(aside)
    assert (said["kind"], said["batch_id"]) == ("queue batch", path.stem)


def test_manifest_is_explained(queue: Path) -> None:
    """What waits, and the first of it."""
    said = inspect(queue / "ingest" / "manifest", "--frames", "1")
    assert (said["kind"], said["format_version"]) == ("queue manifest", 2)
    assert (said["first_sequence"], said["next_sequence"], said["waiting"]) == (1, 3, 2)
    (entry,) = said["entries"]
    assert (entry["sequence"], entry["records"], entry["calls"]) == (1, 2, 1)


def test_identity_and_owner_of_a_queue_are_explained(queue: Path) -> None:
    """And that their checksums hold."""
    manifest = inspect(queue / "ingest" / "manifest")
    said = inspect(queue / "ingest" / "manifest.id")
    assert (said["kind"], said["queue_id"]) == ("queue identity", manifest["queue_id"])
    said = inspect(queue / "ingest" / "owner.id")
    assert (said["checksum"], said["manifest_path"]) == ("good", "ingest/manifest")


def test_every_file_in_the_folder_of_a_queue_is_explained(queue: Path) -> None:
    """Also the locks, by which a folder does what object storage does."""
    files = [path for path in queue.rglob("*") if path.is_file()]
    kinds = {inspect(path)["kind"] for path in files}
    assert {"queue manifest", "lock of objects in a folder"} <= kinds


def test_queue_is_explained_by_its_folder(queue: Path) -> None:
    """As `queue status` does."""
    said = inspect(queue)
    assert (said["kind"], said["waiting"], said["next_sequence"]) == ("queue", 2, 3)


@pytest.mark.parametrize("version", [1, 2])
@in_loop
async def test_both_versions_are_explained(tmp_path: Path, version: int) -> None:
    """Version 1 by what its footer says, whatever its name; chunks are of version 2 alone."""
    plain = PlainObjects()
    producer = await (made := Queue(plain, version=version)).producer(tail_bytes=150)
    await made.produced(producer, *[b"%d" % number for number in range(12)])
    await producer.close()
    kinds = set()
    for key, data in plain.objects.items():
        path = tmp_path / key.rpartition("/")[2]
        path.write_bytes(data)
        said = await asyncio.to_thread(inspect, path)
        kinds.add(said["kind"])
        assert said.get("format_version") in (1, version)
    assert ("queue manifest chunk" in kinds) == (version == 2)
    assert {"queue manifest", "queue batch", "queue identity"} <= kinds


@pytest.mark.parametrize("name", ["manifest", "manifest.id", "batch"])
def test_damaged_object_of_a_queue_is_an_error(queue: Path, name: str) -> None:
    """Named, in one sentence."""
    path = batches(queue.as_uri())[0] if name == "batch" else queue / "ingest" / name
    text = path.read_bytes()
    path.write_bytes(text.replace(b"queue_id", b"queue_ix") if name.endswith("id") else text[:-2])
    answer = run("inspect", path)
    assert answer.is_one_sentence()
    assert str(path) in answer.err


# --- by URL ------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"penstock": "x"}', b"\x00" * 22, b"x" * 500])
def test_foreign_object_is_refused(tmp_path: Path, data: bytes) -> None:
    """Rather than explained as something that it is not."""
    (tmp_path / "object").write_bytes(data)
    answer = run("inspect", tmp_path / "object")
    assert answer.is_one_sentence()
    assert "is no file that Penstock writes" in answer.err


def test_unknown_scheme_is_a_usage_error() -> None:
    """It says which there are."""
    answer = run("inspect", "ftp://somewhere/else")
    assert (answer.code, answer.out) == (2, "")
    assert json.dumps("s3://").strip('"') in answer.err
