"""Verifying finds every damage and nothing else; repairing leaves a log that verifies."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from penstock.log import Environment, Log
from penstock.log import checkpoint as ckpt
from penstock.log.format import HEADER_BYTES, TRAILER_BYTES
from penstock.log.verify import repair_log, verify_file, verify_log
from penstock.metrics import Metrics
from penstock.model import LogSettings, SystemClock
from penstock.model.damage import Damage, DamageReport, KnownLoss
from penstock.model.errors import LogLocked
from penstock.storage import LocalFiles
from tests.log.small_logs import (
    QUICK,
    InterruptedFiles,
    append,
    flip,
    flip_message,
    frame_position,
    message_for,
    messages_for,
    read_log,
    truncate_before,
    wal,
    write_killed_log,
    write_log,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILES = LocalFiles()
FIRSTS = (0, 20, 50)
END = 60


def verify(folder: Path) -> DamageReport:
    """The report on the folder."""
    return verify_log(FILES, folder)


def repair(folder: Path) -> DamageReport:
    """The report after a repair."""
    repair_log(FILES, folder, SystemClock())
    return verify(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed log of three files: offsets 0 to 19, 20 to 49, 50 to 59."""
    return write_log(tmp_path / "log")


# --- sound logs --------------------------------------------------------------------------------


def test_closed_log_is_sound(folder: Path) -> None:
    """Everything is read: three files and the checkpoint."""
    report = verify(folder)
    assert (report.sound, report.notes, report.known_losses) == (True, [], [])
    assert (report.files_checked, report.messages) == (4, END)
    assert report.bytes_checked == sum(wal(folder, first).stat().st_size for first in FIRSTS)


def test_killed_log_is_sound(tmp_path: Path) -> None:
    """A file that was never finished is how every log looks while it is written."""
    report = verify(write_killed_log(tmp_path / "log"))
    assert (report.sound, report.messages) == (True, END)


def test_torn_tail_is_a_note_and_no_damage(tmp_path: Path) -> None:
    """What an interrupted write leaves was never acknowledged."""
    folder = write_killed_log(tmp_path / "log")
    truncate_before(folder, 50, 59)
    with wal(folder, 50).open("ab") as file:
        file.write((59).to_bytes(8, "little") + b"\x20")
    report = verify(folder)
    assert (report.sound, report.messages) == (True, 59)
    assert "interrupted write" in report.notes[0]


def test_interrupted_finishing_is_no_damage(folder: Path) -> None:
    """A kill between the seal and the cut behind it leaves zeros there, and nothing is lost."""
    with wal(folder, 50).open("ab") as file:
        file.write(bytes(1000))
    report = verify(folder)
    assert (report.damage, report.messages) == ([], END)


def test_open_log_is_sound(folder: Path) -> None:
    """Verifying needs no lock and changes nothing."""
    with Log.open(folder, QUICK, env=Environment(metrics=Metrics())) as log:
        append(log, 5)
        report = verify(folder)
    assert (report.sound, report.messages) == (True, END + 5)


def test_lost_checkpoint_is_a_note(folder: Path) -> None:
    """It costs time at the next opening and nothing else."""
    (folder / ckpt.NAME).unlink()
    report = verify(folder)
    assert report.sound
    assert "no checkpoint" in report.notes[0]


def test_log_that_retention_emptied_is_sound(folder: Path) -> None:
    """Offsets go on where they were; what was removed on purpose is not missed."""
    settings = LogSettings(retention_bytes=0)
    with Log.open(folder, settings, env=Environment(metrics=Metrics())) as log:
        log.set_floor(END)
        log.enforce_retention()
    report = verify(folder)
    assert (report.sound, report.messages) == (True, 0)


def test_empty_folder_is_sound(tmp_path: Path) -> None:
    """There is nothing in it to be wrong."""
    report = verify(tmp_path)
    assert (report.sound, report.files_checked, report.messages) == (True, 0, 0)


# --- damage ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "offset"), [(0, 0), (0, 19), (20, 33), (50, 58), (50, 59)])
def test_damaged_message_is_found_where_it_is(folder: Path, first: int, offset: int) -> None:
    """One flipped bit costs one message, wherever it stands in whichever file."""
    position = flip_message(folder, first, offset)
    report = verify(folder)
    size = len(message_for(offset)) + 16
    assert report.damage == [
        Damage(str(wal(folder, first)), position, "frames", f"{size} damaged bytes", offset, 1)
    ]
    assert (report.messages, report.messages_lost) == (END - 1, 1)


def test_damage_over_several_frames_counts_them_all(folder: Path) -> None:
    """Zeros over frames 22 to 24 cost three messages."""
    start, end = frame_position(20, 22), frame_position(20, 25)
    with wal(folder, 20).open("r+b") as file:
        file.seek(start)
        file.write(bytes(end - start))
    (damage,) = verify(folder).damage
    assert (damage.position, damage.first_offset, damage.messages_lost) == (start, 22, 3)


def test_every_flipped_byte_of_a_file_is_found(tmp_path: Path) -> None:
    """Beside the header's padding there is no byte that anything relies on unseen."""
    folder = write_log(tmp_path / "log", (3,))
    path = wal(folder, 0)
    positions = [*range(64), *range(2048, 2048 + 64), *range(HEADER_BYTES, path.stat().st_size)]
    unseen = []
    for position in positions:
        flip(path, position)
        if verify(folder).sound:
            unseen.append(position)
        flip(path, position)
    assert unseen == []


@pytest.mark.parametrize("position", [0, 2048])
def test_one_damaged_header_copy_costs_no_message(folder: Path, position: int) -> None:
    """The header stands there twice."""
    flip(wal(folder, 20), position + 20)
    report = verify(folder)
    assert [damage.kind for damage in report.damage] == ["header"]
    assert (report.messages_lost, report.messages) == (0, END)


def test_two_damaged_header_copies_cost_the_file(folder: Path) -> None:
    """Without its identity nothing in a file can be trusted; the damage names that file."""
    for position in (20, 2068):
        flip(wal(folder, 20), position)
    report = verify(folder)
    assert {damage.file for damage in report.damage} == {str(wal(folder, 20))}
    assert (report.messages_lost, report.messages) == (30, 30)
    assert not any("missing" in damage.detail for damage in report.damage)


@pytest.mark.parametrize("from_end", [1, TRAILER_BYTES, TRAILER_BYTES + 4])
def test_damaged_seal_costs_no_message(folder: Path, from_end: int) -> None:
    """The index is a convenience; every message is still there."""
    path = wal(folder, 20)
    flip(path, path.stat().st_size - from_end)
    report = verify(folder)
    assert [(damage.file, damage.kind) for damage in report.damage] == [(str(path), "seal")]
    assert (report.messages_lost, report.messages) == (0, END)


def test_missing_middle_file_costs_what_was_in_it(folder: Path) -> None:
    """Its neighbours say where it began and ended."""
    wal(folder, 20).unlink()
    report = verify(folder)
    assert report.damage == [
        Damage(str(wal(folder, 20)), 0, "missing", "the file is missing", 20, 30)
    ]
    assert report.messages == 30


def test_missing_last_file_is_known_from_the_checkpoint(folder: Path) -> None:
    """No other file could tell."""
    wal(folder, 50).unlink()
    (damage,) = verify(folder).damage
    assert (damage.file, damage.first_offset, damage.messages_lost) == (
        str(wal(folder, 50)),
        50,
        10,
    )


def test_messages_removed_by_retention_are_not_counted_as_lost(folder: Path) -> None:
    """When the only file is missing, the checkpoint says where it began."""
    with Log.open(
        folder, LogSettings(retention_bytes=0), env=Environment(metrics=Metrics())
    ) as log:
        append(log, 5)
        log.set_floor(END)
        log.enforce_retention()
    wal(folder, END).unlink()
    report = verify(folder)
    assert report.messages_lost == 5


@pytest.mark.parametrize(("first", "offset", "count"), [(0, 12, 8), (20, 45, 5), (50, 51, 9)])
def test_truncated_file_costs_what_was_cut_off(
    folder: Path, first: int, offset: int, count: int
) -> None:
    """The damage names the file that was cut, and where."""
    truncate_before(folder, first, offset)
    report = verify(folder)
    assert report.messages_lost == count
    assert report.messages == END - count
    assert {damage.file for damage in report.damage} == {str(wal(folder, first))}
    (damage,) = [damage for damage in report.damage if damage.messages_lost]
    assert (damage.first_offset, damage.position) == (offset, frame_position(first, offset))


def test_file_truncated_within_a_frame_costs_that_frame_too(folder: Path) -> None:
    """A beginning without its end is no message."""
    with wal(folder, 20).open("r+b") as file:
        file.truncate(frame_position(20, 45) + 9)
    assert verify(folder).messages_lost == 5


def test_truncated_to_nothing_costs_the_file(folder: Path) -> None:
    """An empty file has no header."""
    wal(folder, 20).write_bytes(b"")
    assert verify(folder).messages_lost == 30


def test_file_under_another_name_is_not_taken_for_its_own(folder: Path) -> None:
    """A copy of offsets 0 to 19 in the place of 20 to 49 is no message of the log."""
    shutil.copy(wal(folder, 0), wal(folder, 20))
    report = verify(folder)
    assert "begins at 0" in report.damage[0].detail
    assert (report.messages_lost, report.messages) == (30, 30)


def test_file_of_another_log_is_not_taken_for_its_own(folder: Path, tmp_path: Path) -> None:
    """Its header says so, whatever its name."""
    other = write_log(tmp_path / "other")
    shutil.copy(wal(other, 20), wal(folder, 20))
    report = verify(folder)
    assert "another log" in report.damage[0].detail
    assert (report.messages_lost, report.messages) == (30, 30)


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b"\xff", b'{"version": 2}'])
def test_damaged_checkpoint_costs_no_message(folder: Path, text: bytes) -> None:
    """It is reported, and everything it said is in the files."""
    (folder / ckpt.NAME).write_bytes(text)
    report = verify(folder)
    (damage,) = report.damage
    assert (damage.file, damage.kind) == (str(folder / ckpt.NAME), "checkpoint")
    assert (report.messages_lost, report.messages) == (0, END)


def test_files_of_other_names_are_passed_over(folder: Path) -> None:
    """A file is part of the log by its exact name."""
    for name in ("1.wal", "notes.txt", "0000000000000000002\u0660.wal", f"{0:021d}.wal"):
        (folder / name).write_bytes(b"stray")
    report = verify(folder)
    assert (report.sound, report.messages, report.files_checked) == (True, END, 4)


def test_one_file_is_verified_by_itself(folder: Path) -> None:
    """Without its neighbours and without the checkpoint."""
    position = flip_message(folder, 20, 33)
    assert verify_file(FILES, wal(folder, 0)).sound
    report = verify_file(FILES, wal(folder, 20))
    assert [(damage.position, damage.messages_lost) for damage in report.damage] == [(position, 1)]
    assert (report.files_checked, report.messages) == (1, 29)


# --- beside a running writer -------------------------------------------------------------------


@pytest.mark.parametrize("after", range(8))
def test_file_that_is_sealed_meanwhile_is_sound(tmp_path: Path, after: int) -> None:
    """At whichever moment of the reading its writer finishes it."""
    log = Log.open(tmp_path, QUICK, env=Environment(metrics=Metrics()))
    append(log, 10)
    report = verify_log(InterruptedFiles("pread", log.close, after=after), tmp_path)
    log.close()
    assert report.damage == []


@pytest.mark.parametrize("after", range(8))
def test_message_that_is_written_meanwhile_is_no_damage(tmp_path: Path, after: int) -> None:
    """At whichever moment of the reading it comes."""
    with Log.open(tmp_path, QUICK, env=Environment(metrics=Metrics())) as log:
        append(log, 10)
        files = InterruptedFiles("pread", lambda: (append(log, 1), append(log, 1)), after=after)
        assert verify_log(files, tmp_path).damage == []


def test_files_that_come_meanwhile_are_not_missed(folder: Path) -> None:
    """The checkpoint may be newer than the list of files."""
    files = InterruptedFiles("names", lambda: write_log(folder, (5, 5, 5)))
    assert verify_log(files, folder).damage == []


@pytest.mark.parametrize("after", range(8))
def test_files_that_retention_removes_meanwhile_are_not_missed(folder: Path, after: int) -> None:
    """What is removed on purpose is no loss, at whichever moment of the reading it goes."""
    with Log.open(
        folder, LogSettings(retention_bytes=0), env=Environment(metrics=Metrics())
    ) as log:

        def forget() -> None:
            log.set_floor(50)
            log.enforce_retention()

        files = InterruptedFiles("pread", forget, after=after)
        assert verify_log(files, folder).damage == []


# --- repair ------------------------------------------------------------------------------------


def lose_header(folder: Path) -> None:
    """Damages both copies of the middle file's header."""
    for position in (20, 2068):
        flip(wal(folder, 20), position)


DAMAGES: dict[str, tuple[Callable[[Path], object], set[int]]] = {
    "flipped message": (lambda f: flip_message(f, 20, 33), {33}),
    "flipped first message": (lambda f: flip_message(f, 0, 0), {0}),
    "flipped last message": (lambda f: flip_message(f, 50, 59), {59}),
    "one header copy": (lambda f: flip(wal(f, 20), 20), set()),
    "both header copies": (lose_header, set(range(20, 50))),
    "seal": (lambda f: flip(wal(f, 20), wal(f, 20).stat().st_size - 1), set()),
    "truncated middle file": (lambda f: truncate_before(f, 20, 45), set(range(45, 50))),
    "truncated last file": (lambda f: truncate_before(f, 50, 51), set(range(51, 60))),
    "missing middle file": (lambda f: wal(f, 20).unlink(), set(range(20, 50))),
    "missing last file": (lambda f: wal(f, 50).unlink(), set(range(50, 60))),
    "file of another name": (lambda f: shutil.copy(wal(f, 0), wal(f, 20)), set(range(20, 50))),
    "checkpoint": (lambda f: (f / ckpt.NAME).write_bytes(b"{"), set()),
}
every_damage = pytest.mark.parametrize(("harm", "gone"), DAMAGES.values(), ids=DAMAGES.keys())


@every_damage
def test_repaired_log_is_sound(
    folder: Path, harm: Callable[[Path], object], gone: set[int]
) -> None:
    """What was lost is known from then on, and damage no more."""
    harm(folder)
    assert not verify(folder).sound
    report = repair(folder)
    assert report.damage == []
    assert {
        loss.first_offset + at for loss in report.known_losses for at in range(loss.messages_lost)
    } == gone


@every_damage
def test_repair_keeps_every_other_message(
    folder: Path, harm: Callable[[Path], object], gone: set[int]
) -> None:
    """Through `Log.open`, and with their offsets."""
    harm(folder)
    repair(folder)
    kept = sorted(set(range(END)) - gone)
    assert read_log(folder) == dict(zip(kept, messages_for(kept), strict=True))


@every_damage
@pytest.mark.usefixtures("gone")
def test_offsets_go_on_after_a_repair(folder: Path, harm: Callable[[Path], object]) -> None:
    """No offset of a lost message is given out again."""
    harm(folder)
    repair(folder)
    with Log.open(folder, QUICK, env=Environment(metrics=Metrics())) as log:
        assert log.append_durable(b"next") == END


def test_repair_keeps_the_damaged_file(folder: Path) -> None:
    """Somebody may know better how to read it."""
    flip_message(folder, 20, 33)
    damaged = wal(folder, 20).read_bytes()
    report = repair(folder)
    aside = wal(folder, 20).with_name(wal(folder, 20).name + ".damaged")
    assert aside.read_bytes() == damaged
    assert report.notes == [f"{folder}: {aside.name} was set aside by an earlier repair"]


def test_second_damage_is_set_aside_beside_the_first(folder: Path) -> None:
    """No repair replaces what an earlier one kept."""
    for offset in (33, 30):
        position = flip_message(folder, 20, offset)
        assert repair(folder).sound
        assert position
    names = [path.name for path in sorted(folder.glob("*.damaged*"))]
    assert names == [f"{wal(folder, 20).name}.damaged", f"{wal(folder, 20).name}.damaged-2"]
    assert len(read_log(folder)) == END - 2


def test_repair_of_a_sound_log_changes_no_message(folder: Path) -> None:
    """Nor does it set anything aside."""
    before = {first: wal(folder, first).read_bytes() for first in FIRSTS}
    assert repair(folder).sound
    assert {first: wal(folder, first).read_bytes() for first in FIRSTS} == before
    assert list(folder.glob("*.damaged")) == []


def test_known_loss_is_remembered_without_its_checkpoint(folder: Path) -> None:
    """The repaired file itself says what is missing from it."""
    flip_message(folder, 20, 33)
    repair(folder)
    (folder / ckpt.NAME).unlink()
    report = verify(folder)
    assert (report.damage, report.known_losses) == ([], [KnownLoss(str(folder), 33, 1)])


def test_repair_waits_for_nobody(folder: Path) -> None:
    """A log that is being written is left alone."""
    with Log.open(folder, QUICK, env=Environment(metrics=Metrics())), pytest.raises(LogLocked):
        repair_log(FILES, folder, SystemClock())
