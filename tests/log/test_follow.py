"""Reading a log's folder from outside its writer: no gap, no duplicate, no false alarm."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from penstock.log import Environment, Log
from penstock.log.follow import FolderReader
from penstock.log.verify import repair_log
from penstock.metrics import Metrics
from penstock.model import LogSettings, SystemClock
from penstock.model.errors import OffsetUnavailable
from penstock.storage import LocalFiles
from tests.log.small_logs import (
    QUICK,
    InterruptedFiles,
    append,
    flip,
    flip_message,
    message_for,
    messages_for,
    truncate_before,
    wal,
    write_killed_log,
    write_log,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES = LocalFiles()
FORGETFUL = LogSettings(retention_bytes=0)


def follow(folder: Path, start: int | str = "earliest") -> FolderReader:
    """A reader of the folder."""
    return FolderReader(FILES, folder, start)


def drain(reader: FolderReader) -> dict[int, bytes]:
    """What there is to read now; two looks without a message are the end."""
    found: dict[int, bytes] = {}
    looks = 0
    while looks < 2:
        looks += 1
        while (batch := reader.read_batch()) is not None:
            looks = 0
            for offset, message in enumerate(batch.messages, batch.first_offset):
                assert offset not in found
                found[offset] = message
    return found


def expected(*ranges: range) -> dict[int, bytes]:
    """The messages of these offsets."""
    return {offset: message_for(offset) for offsets in ranges for offset in offsets}


def forget_below(log: Log, floor: int) -> None:
    """Lets retention remove what lies below."""
    log.set_floor(floor)
    log.enforce_retention()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """An open, empty log with small files."""
    with Log.open(tmp_path / "log", QUICK, env=Environment(metrics=Metrics())) as log:
        yield log


# --- reading on --------------------------------------------------------------------------------


def test_closed_log_is_read_to_its_end(tmp_path: Path) -> None:
    """Over all files, in the order of offsets."""
    reader = follow(write_log(tmp_path / "log"))
    assert list(drain(reader).items()) == list(expected(range(60)).items())
    assert (reader.position, reader.lost) == (60, [])
    reader.close()


def test_killed_log_is_read_to_its_end(tmp_path: Path) -> None:
    """Also what stands in a file that was never finished."""
    reader = follow(write_killed_log(tmp_path / "log"))
    assert drain(reader) == expected(range(60))
    assert reader.lost == []
    reader.close()


def test_messages_are_seen_as_they_come(log: Log, tmp_path: Path) -> None:
    """A look at the end finds nothing, and later finds what came since."""
    reader = follow(tmp_path / "log")
    assert reader.read_batch() is None
    for end in (1, 2, 30):
        before = reader.position
        append(log, end - before)
        assert drain(reader) == expected(range(before, end))
    reader.close()


def test_rotation_between_two_looks_leaves_no_gap(log: Log, tmp_path: Path) -> None:
    """However many files were finished since the last look."""
    reader = follow(tmp_path / "log")
    found: dict[int, bytes] = {}
    for count in (1, 1500, 3000, 10, 2000):
        append(log, count)
        found |= drain(reader)
    assert len(log.sealed_files) >= 4
    assert found == expected(range(6511))
    assert reader.lost == []
    reader.close()


def test_reader_beside_a_writer_sees_each_message_once(log: Log, tmp_path: Path) -> None:
    """At its own pace, over rotations, while a thread appends without a pause."""
    total, wrote = 8000, threading.Event()

    def write() -> None:
        for start in range(0, total, 16):
            log.append_many(messages_for(range(start, start + 16)))
            wrote.set()
        log.flush()
        wrote.set()

    writer = threading.Thread(target=write)
    writer.start()
    reader, found = follow(tmp_path / "log"), list[bytes]()
    while reader.position < total:
        batch = reader.read_batch()
        if batch is None:
            wrote.wait(0.01)  # paces the loop; nothing relies on it
            wrote.clear()
            continue
        assert batch.first_offset == len(found)
        found += batch.messages
    writer.join()
    reader.close()
    assert found == messages_for(range(total))
    assert reader.lost == []


@pytest.mark.parametrize("start", [0, 1, 19, 20, 33, 50, 59, 60])
def test_reading_begins_at_any_offset(tmp_path: Path, start: int) -> None:
    """In the middle of a file, at its edges, and at the end."""
    reader = follow(write_log(tmp_path / "log"), start)
    assert drain(reader) == expected(range(start, 60))
    reader.close()


def test_reading_begins_behind_many_index_entries(log: Log, tmp_path: Path) -> None:
    """A sealed file's index leads close to the offset; not one message more is returned."""
    append(log, 4000)
    log.close()
    reader = follow(tmp_path / "log", 3210)
    assert drain(reader) == expected(range(3210, 4000))
    reader.close()


def test_latest_sees_only_what_comes_after(log: Log, tmp_path: Path) -> None:
    """Nothing of what is there already."""
    append(log, 10)
    reader = follow(tmp_path / "log", "latest")
    assert drain(reader) == {}
    append(log, 5)
    assert drain(reader) == expected(range(10, 15))
    reader.close()


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_reader_may_come_before_the_log(tmp_path: Path, start: str) -> None:
    """A topic that nobody wrote to yet is empty, and followed from its first message on."""
    reader = follow(tmp_path / "log", start)
    assert reader.read_batch() is None
    write_log(tmp_path / "log", (5, 5))
    assert drain(reader) == expected(range(10))
    reader.close()


def test_closed_reader_reads_on_where_it_was(tmp_path: Path) -> None:
    """Closing gives back the file, not the position."""
    reader = follow(write_log(tmp_path / "log"))
    batch = reader.read_batch()
    assert batch is not None
    reader.close()
    assert drain(reader) == expected(range(len(batch.messages), 60))
    reader.close()


def test_restarts_of_the_writer_are_followed(tmp_path: Path) -> None:
    """Each one finishes its file and begins another."""
    folder = write_log(tmp_path / "log", (5,))
    reader = follow(folder)
    found = drain(reader)
    for count in (5, 7):
        write_log(folder, (count,))
        found |= drain(reader)
    assert found == expected(range(17))
    assert reader.lost == []
    reader.close()


def test_restart_of_an_idle_writer_is_followed(tmp_path: Path) -> None:
    """It replaces its empty file by another of the same name, which is where messages then go."""
    folder = tmp_path / "log"
    Log.open(folder, QUICK, env=Environment(metrics=Metrics())).close()
    reader = follow(folder, "latest")
    assert drain(reader) == {}
    with Log.open(folder, QUICK, env=Environment(metrics=Metrics())) as log:
        append(log, 5)
        assert drain(reader) == expected(range(5))
    reader.close()


def test_recovery_after_a_kill_is_followed(tmp_path: Path) -> None:
    """It replaces the unfinished file by a sealed copy, under the reader."""
    folder = write_killed_log(tmp_path / "log")
    reader = follow(folder)
    found = drain(reader)
    write_log(folder, (5,))
    found |= drain(reader)
    assert found == expected(range(65))
    assert reader.lost == []
    reader.close()


# --- retention ---------------------------------------------------------------------------------


def test_offset_below_the_beginning_is_refused(tmp_path: Path) -> None:
    """The error says which offsets there are."""
    folder = write_log(tmp_path / "log")
    with Log.open(folder, FORGETFUL, env=Environment(metrics=Metrics())) as log:
        forget_below(log, 50)
    with pytest.raises(OffsetUnavailable) as caught:
        follow(folder, 49)
    assert (caught.value.earliest, caught.value.end) == (50, 60)
    reader = follow(folder)
    assert drain(reader) == expected(range(50, 60))
    reader.close()


def test_offset_beyond_the_end_is_refused(tmp_path: Path) -> None:
    """It was not written yet."""
    with pytest.raises(OffsetUnavailable) as caught:
        follow(write_log(tmp_path / "log"), 61)
    assert (caught.value.earliest, caught.value.end) == (0, 60)


def test_file_is_read_on_after_retention_removed_it(tmp_path: Path) -> None:
    """A file that is open is read to its end; what went with the next ones is reported."""
    folder = write_log(tmp_path / "log")
    reader = follow(folder)
    assert reader.read_batch() is not None
    with Log.open(folder, FORGETFUL, env=Environment(metrics=Metrics())) as log:
        forget_below(log, 50)
    assert drain(reader) == expected(range(50, 60))
    assert [(lost.first_offset, lost.end_offset) for lost in reader.lost] == [(20, 50)]
    reader.close()


def test_beginning_removed_before_the_first_look_is_not_waited_for(tmp_path: Path) -> None:
    """Nothing will ever come at that position: say so, as a reader inside the process does."""
    folder = write_log(tmp_path / "log")
    reader = follow(folder)
    with Log.open(folder, FORGETFUL, env=Environment(metrics=Metrics())) as log:
        forget_below(log, 50)
    with pytest.raises(OffsetUnavailable) as caught:
        drain(reader)
    assert (caught.value.earliest, caught.value.end) == (50, 60)
    reader.close()


# --- damage ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "offset"), [(0, 0), (20, 33), (20, 49), (50, 59)])
def test_damaged_message_is_passed_over_and_named(tmp_path: Path, first: int, offset: int) -> None:
    """Every other message is read."""
    folder = write_log(tmp_path / "log")
    position = flip_message(folder, first, offset)
    reader = follow(folder)
    assert drain(reader) == expected(range(offset), range(offset + 1, 60))
    (lost,) = reader.lost
    assert (lost.first_offset, lost.end_offset) == (offset, offset + 1)
    assert (lost.file, lost.position) == (wal(folder, first).name, position)
    reader.close()


def test_damage_is_reported_only_after_a_second_look(tmp_path: Path) -> None:
    """What the writer was just at work on is no damage."""
    folder = write_log(tmp_path / "log", (10,))
    position = flip_message(folder, 0, 5)
    reader = follow(folder)
    assert reader.read_batch() is not None
    assert reader.read_batch() is None
    assert reader.lost == []
    flip(wal(folder, 0), position + 19)
    assert drain(reader) == expected(range(5, 10))
    assert reader.lost == []
    reader.close()


@pytest.mark.parametrize("after", range(10))
def test_messages_written_during_a_look_are_no_damage(log: Log, tmp_path: Path, after: int) -> None:
    """At whichever moment of the reading they come."""
    append(log, 10)
    files = InterruptedFiles("pread", lambda: (append(log, 1), append(log, 1)), after=after)
    reader = FolderReader(files, tmp_path / "log")
    found = drain(reader)
    append(log, 1)
    assert found | drain(reader) == expected(range(log.end_offset))
    assert reader.lost == []
    reader.close()


@pytest.mark.parametrize("moment", ["names", "pread"])
@pytest.mark.parametrize("after", range(6))
def test_rotation_during_a_look_is_no_damage(
    log: Log, tmp_path: Path, moment: str, after: int
) -> None:
    """At whichever moment the file is finished, the next one follows without a gap."""
    append(log, 10)
    files = InterruptedFiles(moment, lambda: append(log, 3000), after=after)
    reader = FolderReader(files, tmp_path / "log")
    found = drain(reader)
    append(log, 3000)
    assert found | drain(reader) == expected(range(log.end_offset))
    assert reader.lost == []
    reader.close()


def test_missing_file_is_passed_over_and_named(tmp_path: Path) -> None:
    """The next file says where reading goes on."""
    folder = write_log(tmp_path / "log")
    wal(folder, 20).unlink()
    reader = follow(folder)
    assert drain(reader) == expected(range(20), range(50, 60))
    (lost,) = reader.lost
    assert (lost.first_offset, lost.end_offset) == (20, 50)
    assert "missing" in lost.reason
    reader.close()


def test_truncated_file_is_passed_over_and_named(tmp_path: Path) -> None:
    """Where the cut came and up to the next file."""
    folder = write_log(tmp_path / "log")
    truncate_before(folder, 20, 45)
    reader = follow(folder)
    assert drain(reader) == expected(range(45), range(50, 60))
    assert [(lost.first_offset, lost.end_offset) for lost in reader.lost] == [(45, 50)]
    reader.close()


@pytest.mark.parametrize(("first", "end"), [(0, 20), (20, 50)])
def test_file_with_an_unreadable_header_is_passed_over_and_named(
    tmp_path: Path, first: int, end: int
) -> None:
    """One file that says nothing does not keep the others from being read."""
    folder = write_log(tmp_path / "log")
    for position in (20, 2068):
        flip(wal(folder, first), position)
    reader = follow(folder)
    assert drain(reader) == expected(range(first), range(end, 60))
    assert [(lost.first_offset, lost.end_offset) for lost in reader.lost] == [(first, end)]
    reader.close()


def test_losses_of_an_earlier_repair_are_named(tmp_path: Path) -> None:
    """A jump in the offsets has its reason in `lost`."""
    folder = write_log(tmp_path / "log")
    flip_message(folder, 20, 33)
    repair_log(FILES, folder, SystemClock())
    reader = follow(folder)
    assert drain(reader) == expected(range(33), range(34, 60))
    assert [(lost.first_offset, lost.end_offset) for lost in reader.lost] == [(33, 34)]
    reader.close()


def test_reading_changes_nothing(tmp_path: Path) -> None:
    """It takes no lock and leaves no file."""
    folder = write_log(tmp_path / "log")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    reader = follow(folder)
    drain(reader)
    reader.close()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
