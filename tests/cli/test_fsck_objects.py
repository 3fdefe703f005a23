"""`penstock fsck` on object storage: archives and queues."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.archive import Catalog
from penstock.queue import Producer, ProducerSettings
from tests.cli.archives import Archive, make_archive
from tests.cli.queues import batches, folder_of, make_queue
from tests.cli.running import fsck, run
from tests.log.small_logs import flip
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from penstock.storage.metadata import Entry


@pytest.fixture
def archive(data: Path) -> Archive:
    """Three objects of two partitions, with 87 messages."""
    return make_archive(data)


@pytest.fixture
def queue(tmp_path: Path) -> str:
    """The URL of a queue with three batches of two entries, one of them acknowledged."""
    return make_queue((tmp_path / "queue").as_uri())


def fsck_archive(archive: Archive, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The same, of an archive."""
    return fsck(archive.objects, *arguments, "--metadata", archive.metadata)


# --- archives ----------------------------------------------------------------------------------


def test_sound_archive_exits_with_0(archive: Archive) -> None:
    """After every object was read."""
    code, found = fsck_archive(archive)
    size = sum(path.stat().st_size for path in archive.files)
    assert (code, found["sound"], found["archives"], found["messages"]) == (0, True, 2, 87)
    assert (found["files_checked"], found["bytes_checked"]) == (3, size)
    text = run("fsck", archive.objects, "--metadata", archive.metadata).out.splitlines()
    assert text[-1] == "sound"


def test_flipped_byte_of_an_object_is_found(archive: Archive) -> None:
    """The file is named so that `inspect` takes it, with the messages that it costs."""
    flip(archive.files[0], 200)
    code, found = fsck_archive(archive)
    (row,) = found["damage"]
    assert (code, row["file"]) == (1, archive.files[0].as_uri())
    assert (row["position"], row["first_offset"], row["messages_lost"]) == (80, 0, 60)
    assert found["messages_lost"] == 60


def test_missing_object_costs_what_was_in_it(archive: Archive) -> None:
    """The descriptor says what that was."""
    archive.files[1].unlink()
    (row,) = fsck_archive(archive)[1]["damage"]
    assert (row["kind"], row["first_offset"], row["messages_lost"]) == ("missing", 60, 20)


def test_object_that_retention_removes_meanwhile_is_no_damage(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its descriptor was there when the list of them was read."""
    original = Catalog.entries

    async def entries(catalog: Catalog) -> list[Entry]:
        found = await original(catalog)
        if catalog.partition == 0:
            await catalog.metadata.commit({}, deletes=[catalog.descriptor_key(0)])
            archive.files[0].unlink()
        return found

    monkeypatch.setattr(Catalog, "entries", entries)
    code, found = fsck_archive(archive)
    assert (code, found["damage"], found["messages"]) == (0, [], 27)


def test_object_without_a_descriptor_is_a_note(archive: Archive) -> None:
    """What a crash left is removed by the next cleaning."""
    orphan = archive.files[0].with_name(f"data-{60:020d}-{70:020d}.frames")
    orphan.write_bytes(b"half of it")
    code, found = fsck_archive(archive)
    assert (code, len(found["notes"])) == (0, 1)
    assert orphan.name in found["notes"][0]


def test_archive_without_metadata_is_a_usage_error(archive: Archive) -> None:
    """Objects alone do not say what should be there."""
    answer = run("fsck", archive.objects)
    assert (answer.code, answer.out) == (2, "")
    assert "--metadata" in answer.err


@pytest.mark.parametrize("is_gone", [True, False])
def test_lost_descriptors_are_made_again(archive: Archive, tmp_path: Path, is_gone: bool) -> None:
    """From the objects alone; what was archived can be read then."""
    other = archive._replace(metadata=(tmp_path / "other.db").as_uri())
    if not is_gone:
        assert "knows nothing of them" in run("archive", "status", *other.options).err
        (tmp_path / "other.db").touch()
        code, found = fsck_archive(other)
        kinds = [(row["kind"], row["messages_lost"]) for row in found["damage"]]
        assert (code, sorted(kinds)) == (1, [("metadata", 7), ("metadata", 80)])
    code, found = fsck_archive(other, "--repair")
    assert (code, found["repaired"], found["not_repaired"]) == (0, True, None)
    assert (found["after"]["sound"], found["after"]["messages"]) == (True, 87)
    answer = run("tail", "--no-follow", "--from", "0", *other.options, "traces")
    assert len(answer.out.splitlines()) == 87


def test_repair_of_a_damaged_object_says_that_it_cannot(archive: Archive) -> None:
    """And changes nothing."""
    flip(archive.files[0], 200)
    before = archive.files[0].read_bytes()
    code, found = fsck_archive(archive, "--repair")
    assert (code, found["after"]["sound"]) == (1, False)
    assert "can be brought back" in found["not_repaired"]
    assert archive.files[0].read_bytes() == before


def test_metadata_of_another_archive_is_damage(archive: Archive) -> None:
    """Its descriptors speak of other objects."""
    identity = archive.folder / "penstock/storage/topics/default/traces/archive"
    identity.write_text(identity.read_text().replace('"id": "', '"id": "00'))
    code, found = fsck_archive(archive)
    assert (code, [row["kind"] for row in found["damage"]]) == (1, ["identity"])


# --- queues ------------------------------------------------------------------------------------


def test_sound_queue_exits_with_0(queue: str) -> None:
    """Consumed batches that were not collected yet are a note."""
    code, found = fsck(queue)
    counted = (found["queues"], found["batches"], found["messages"])
    assert (code, found["sound"], counted) == (0, True, (1, 2, 4))
    assert found["notes"] == ["ingest: 1 batch consumed or not enqueued yet"]
    assert run("fsck", queue).out.splitlines()[-1] == "sound"


def test_data_directory_is_found_by_its_url_too(data: Path) -> None:
    """A URL is as good as a path."""
    assert fsck(data.as_uri())[1]["messages"] == 67
    assert fsck(next(data.rglob("*.wal")).as_uri())[1]["files_checked"] == 1


def test_queue_is_found_by_its_folder_too(queue: str) -> None:
    """A path is as good as a URL."""
    assert fsck(folder_of(queue))[1]["batches"] == 2


def test_damaged_batch_is_found(queue: str) -> None:
    """With the entries that it costs."""
    flip(batches(queue)[1], 3)
    code, found = fsck(queue)
    (row,) = found["damage"]
    assert (code, row["file"], row["kind"]) == (1, batches(queue)[1].as_uri(), "batch")
    assert (row["messages_lost"], found["messages"]) == (2, 2)


@pytest.mark.parametrize("lost", [["manifest"], ["manifest", "manifest.id"]])
def test_lost_manifest_is_damage(queue: str, lost: list[str]) -> None:
    """Also where nothing but batches says that there was a queue; repair says that it cannot."""
    for name in lost:
        (folder_of(queue) / "ingest" / name).unlink()
    code, found = fsck(queue, "--repair")
    assert (code, [row["kind"] for row in found["damage"]]) == (1, ["manifest"])
    assert "one copy" in found["not_repaired"]
    assert found["repaired"] is False
    lines = run("fsck", "--repair", queue).out.splitlines()
    assert lines[-2].startswith("  not repaired: ")
    assert lines[-1].startswith("1 damaged place, ")


def test_manifest_elsewhere_is_found_where_told(tmp_path: Path) -> None:
    """And only there."""
    url = (tmp_path / "queue").as_uri()
    settings = ProducerSettings(manifest_path="other/list", data_path_prefix="other/data")
    with Producer.open(url, settings) as producer:
        producer.produce([b"one"], b"").watcher.wait(PATIENCE_S)
    assert run("fsck", url).is_one_sentence()
    where = ["--manifest-path", "other/list", "--data-path-prefix", "other/data"]
    assert fsck(url, *where)[1]["batches"] == 1


# --- both --------------------------------------------------------------------------------------


def test_archive_and_queue_below_one_url_are_both_verified(archive: Archive) -> None:
    """Whichever is there."""
    make_queue(archive.objects)
    code, found = fsck_archive(archive)
    assert (code, found["archives"], found["queues"], found["messages"]) == (0, 2, 1, 91)


@pytest.mark.parametrize("url", ["ftp://somewhere/else", "s3://", "file://host/folder"])
def test_url_of_nothing_is_a_usage_error(url: str) -> None:
    """It says which there are."""
    answer = run("fsck", url)
    assert (answer.code, answer.out) == (2, "")
    assert "file:///" in answer.err


def test_place_that_does_not_exist_is_not_made(tmp_path: Path) -> None:
    """Looking changes nothing."""
    assert run("fsck", (tmp_path / "nowhere").as_uri()).is_one_sentence()
    assert not (tmp_path / "nowhere").exists()
