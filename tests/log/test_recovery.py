"""Opening a log after anything may have happened to its folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.log import Log
from penstock.log import format as fmt
from penstock.log.inventory import file_name
from penstock.log.verify import verify_log
from penstock.model.errors import UnsupportedVersion
from penstock.storage import LocalFiles
from tests.log.helpers import SMALL, contents_of, messages, reopen, write_log, write_unsealed

CONTENTS = messages(10)


def wal_files(folder: Path) -> list[Path]:
    """The log's files, oldest first."""
    return sorted(folder.glob("*.wal"))


def flip(path: Path, at: int, mask: int = 1) -> None:
    """Damages one byte."""
    data = bytearray(path.read_bytes())
    data[at] ^= mask
    path.write_bytes(data)


def several_files(folder: Path) -> list[bytes]:
    """A closed log of at least four files."""
    contents = [bytes([n % 256]) * 2000 for n in range(150)]
    write_log(folder, contents, SMALL)
    assert len(wal_files(folder)) >= 4
    return contents


def test_torn_last_frame_is_dropped_at_every_byte(tmp_path: Path) -> None:
    """Recovery of a file cut anywhere keeps the frames before the cut and goes on behind them."""
    whole = write_unsealed(tmp_path / "whole", CONTENTS).read_bytes()
    start = len(whole) - sum(len(message) + 16 for message in CONTENTS[-2:])
    for cut in range(start, len(whole)):
        folder = tmp_path / str(cut)
        write_unsealed(folder, CONTENTS).write_bytes(whole[:cut])
        found, log = reopen(folder)
        kept = 8 if cut < len(whole) - len(CONTENTS[-1]) - 16 else 9
        assert found == dict(enumerate(CONTENTS[:kept]))
        assert (log.lost, log.end_offset) == ((), kept)


def test_every_flipped_bit_in_a_sealed_log_is_detected_or_harmless(tmp_path: Path) -> None:
    """A closed log with any one bit flipped opens, and reads as it was but for one message."""
    contents = messages(6, 9)
    original = tmp_path / "original"
    write_log(original, contents)
    path = wal_files(original)[0]
    data = path.read_bytes()
    interesting = [*range(64), *range(2048, 2112), *range(fmt.HEADER_BYTES, len(data))]
    for at in interesting:
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        path.write_bytes(flipped)
        report = verify_log(LocalFiles(), original)
        assert not report.sound, at
        with Log.open(original, SMALL) as log:
            reader = log.read("earliest")
            found = {message.offset: message.data for message in reader}
            lost = {*range(6)} - {*found}
            assert found.items() <= dict(enumerate(contents)).items()
            assert log.end_offset == 6
            assert len(lost) == sum(loss.messages for loss in reader.lost) <= 1
        restore(original, path, data)


def restore(folder: Path, path: Path, data: bytes) -> None:
    """Undoes what opening and closing a damaged log did to its folder."""
    for other in folder.iterdir():
        if other.name not in {path.name, ".lock"} and other.suffix != ".ckpt":
            other.unlink()
    path.write_bytes(data)


def test_damage_in_the_middle_is_confined_named_and_kept_aside(tmp_path: Path) -> None:
    """The rest is served, the loss is in `lost`, and the original stays for a closer look."""
    path = write_unsealed(tmp_path, CONTENTS)
    flip(path, fmt.HEADER_BYTES + 20)
    damaged = path.read_bytes()
    found, log = reopen(tmp_path)
    assert found == dict(list(enumerate(CONTENTS))[1:])
    assert [(loss.first_offset, loss.end_offset) for loss in log.lost] == [(0, 1)]
    assert path.with_name(path.name + ".damaged").read_bytes() == damaged


def test_a_loss_is_remembered_after_its_repair(tmp_path: Path) -> None:
    """The next opening finds nothing new, and still says what misses."""
    flip(write_unsealed(tmp_path, CONTENTS), fmt.HEADER_BYTES + 20)
    reopen(tmp_path)
    found, log = reopen(tmp_path)
    assert len(found) == 9
    assert [(loss.first_offset, loss.end_offset) for loss in log.lost] == [(0, 1)]
    assert verify_log(LocalFiles(), tmp_path).sound


def test_a_finished_file_cut_between_two_frames_is_a_new_loss(tmp_path: Path) -> None:
    """Its seal is gone with its end, and the next file's name says how far it went."""
    contents = several_files(tmp_path)
    path, following = wal_files(tmp_path)[1:3]
    frame = 16 + len(contents[0])
    path.write_bytes(path.read_bytes()[: fmt.HEADER_BYTES + 5 * frame])
    found, log = reopen(tmp_path)
    first, end = int(path.stem) + 5, int(following.stem)
    assert sorted(found) == [*range(first), *range(end, len(contents))]
    assert [(loss.first_offset, loss.end_offset) for loss in log.lost] == [(first, end)]
    assert "damaged" in log.lost[0].reason


def test_recovery_keeps_what_it_copies_in_a_new_file(tmp_path: Path) -> None:
    """After a failed fsync the old file's pages cannot be trusted: the inode must change."""
    path = write_unsealed(tmp_path, CONTENTS)
    before = path.stat().st_ino
    keep = path.open("rb")  # so that the number is not given out again
    reopen(tmp_path)
    keep.close()
    assert path.stat().st_ino != before


def test_a_missing_file_in_the_middle_is_a_named_loss(tmp_path: Path) -> None:
    """Readers pass over it and go on."""
    contents = several_files(tmp_path)
    victim, following = wal_files(tmp_path)[1:3]
    first, end = int(victim.stem), int(following.stem)
    victim.unlink()
    found, log = reopen(tmp_path)
    assert sorted(found) == [*range(first), *range(end, len(contents))]
    assert [(loss.first_offset, loss.end_offset) for loss in log.lost] == [(first, end)]


def test_offsets_are_not_reused_when_the_last_file_is_missing(tmp_path: Path) -> None:
    """The checkpoint knows how far the log went."""
    contents = several_files(tmp_path)
    for path in wal_files(tmp_path)[-2:]:
        path.unlink()
    with Log.open(tmp_path, SMALL) as log:
        assert log.append_durable(b"new") == len(contents)
        assert sum(loss.messages for loss in log.lost) > 0


def test_an_unreadable_last_file_costs_its_messages_but_no_offset_twice(tmp_path: Path) -> None:
    """Both headers gone: nobody knows how many messages there were, so the offset jumps."""
    several_files(tmp_path)
    path = wal_files(tmp_path)[-1]
    first = int(path.stem)
    (tmp_path / "log.ckpt").unlink()
    for at in (3, 2048 + 3):
        flip(path, at)
    with Log.open(tmp_path, SMALL) as log:
        assert log.append_durable(b"new") >= 150
        assert log.lost[0].first_offset == first
    assert list(tmp_path.glob("*.damaged"))


@pytest.mark.parametrize("how", ["missing", "empty", "noise", "flipped"])
def test_a_lost_or_damaged_checkpoint_costs_no_data(tmp_path: Path, how: str) -> None:
    """The files say everything that matters."""
    contents = several_files(tmp_path)
    path = tmp_path / "log.ckpt"
    data = path.read_bytes()
    path.unlink()
    if how != "missing":
        path.write_bytes(
            {"empty": b"", "noise": b"\xff\x00{", "flipped": data[:50] + b"9" + data[51:]}[how]
        )
    found, log = reopen(tmp_path)
    assert found == dict(enumerate(contents))
    assert log.lost == ()


def test_an_old_checkpoint_costs_no_data(tmp_path: Path) -> None:
    """What was written since is found by name."""
    write_log(tmp_path, CONTENTS)
    old = (tmp_path / "log.ckpt").read_bytes()
    write_log(tmp_path, CONTENTS)
    (tmp_path / "log.ckpt").write_bytes(old)
    found, log = reopen(tmp_path)
    assert found == dict(enumerate(CONTENTS * 2))
    assert log.lost == ()


def test_a_file_of_another_log_is_set_aside(tmp_path: Path) -> None:
    """Its frames are never served as ours."""
    several_files(tmp_path / "ours")
    several_files(tmp_path / "theirs")
    ours, theirs = (wal_files(tmp_path / name)[1] for name in ("ours", "theirs"))
    shutil.copy(theirs, ours)
    (tmp_path / "ours" / "log.ckpt").unlink()
    found, log = reopen(tmp_path / "ours")
    assert int(ours.stem) not in found
    assert "another log" in str(log.lost[0])


def test_swapped_files_are_not_read_at_the_wrong_offsets(tmp_path: Path) -> None:
    """A file under another's name is damage, with or without a checkpoint that vouches for it."""
    contents = several_files(tmp_path)
    one, two = wal_files(tmp_path)[1:3]
    swap = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(swap)
    found, _ = reopen(tmp_path)
    assert found.items() <= dict(enumerate(contents)).items()
    assert int(one.stem) not in found


def test_leftovers_of_an_interrupted_recovery_are_removed(tmp_path: Path) -> None:
    """A scratch file is never read."""
    write_log(tmp_path, CONTENTS)
    (tmp_path / (file_name(0) + ".tmp")).write_bytes(b"half")
    found, _ = reopen(tmp_path)
    assert found == dict(enumerate(CONTENTS))
    assert not list(tmp_path.glob("*.tmp"))


def test_a_file_from_a_newer_penstock_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused as a whole, unchanged."""
    with monkeypatch.context() as patch:
        patch.setattr(fmt, "VERSION", 2)
        path = write_unsealed(tmp_path, CONTENTS)
    data = path.read_bytes()
    with pytest.raises(UnsupportedVersion):
        Log.open(tmp_path)
    assert path.read_bytes() == data


def test_opening_without_appending_changes_no_messages_and_adds_no_files(tmp_path: Path) -> None:
    """Restarting again and again costs nothing."""
    write_log(tmp_path, CONTENTS)
    for _ in range(5):
        reopen(tmp_path)
    assert len(wal_files(tmp_path)) == 2
    assert reopen(tmp_path)[0] == dict(enumerate(CONTENTS))


def test_the_first_released_format_stays_readable() -> None:
    """A committed log of version 1: one sealed file, one that was being written."""
    fixture = Path(__file__).parent.parent / "fixtures" / "log-v1"
    report = verify_log(LocalFiles(), fixture)
    assert (report.messages, report.damage) == (25, [])


def test_the_first_released_format_opens(tmp_path: Path) -> None:
    """And is continued."""
    shutil.copytree(Path(__file__).parent.parent / "fixtures" / "log-v1", tmp_path / "log")
    with Log.open(tmp_path / "log") as log:
        assert contents_of(log) == {n: f"message {n}".encode() for n in range(25)}
        assert log.append_durable(b"next") == 25


def test_a_stray_name_cuts_nothing_off_an_unfinished_file(tmp_path: Path) -> None:
    """Acknowledged messages behind the offset in its name are as good as those before."""
    write_unsealed(tmp_path, CONTENTS)
    (tmp_path / file_name(5)).touch()
    found, log = reopen(tmp_path)
    assert found == dict(enumerate(CONTENTS))
    assert (log.lost, log.end_offset) == ((), 10)
    assert not (tmp_path / file_name(5)).exists()


def test_stray_names_replace_no_good_file(tmp_path: Path) -> None:
    """They are set aside; what the files before them hold stays."""
    contents = several_files(tmp_path)
    middle = int(wal_files(tmp_path)[1].stem)
    for stray in (middle - 3, middle - 2, middle + 1):
        (tmp_path / file_name(stray)).write_bytes(b"stray")
    assert not verify_log(LocalFiles(), tmp_path).sound
    found, log = reopen(tmp_path)
    assert (found, log.lost) == (dict(enumerate(contents)), ())
    assert len(list(tmp_path.glob("*.damaged"))) == 3
    assert verify_log(LocalFiles(), tmp_path).sound


def test_a_checkpoint_of_another_log_is_ignored(tmp_path: Path) -> None:
    """It vouches for nothing here."""
    contents = several_files(tmp_path / "ours")
    several_files(tmp_path / "theirs")
    shutil.copy(tmp_path / "theirs" / "log.ckpt", tmp_path / "ours" / "log.ckpt")
    (damage,) = verify_log(LocalFiles(), tmp_path / "ours").damage
    assert (damage.kind, damage.messages_lost) == ("checkpoint", 0)
    assert reopen(tmp_path / "ours")[0] == dict(enumerate(contents))


def test_a_file_of_another_log_is_not_vouched_for_by_its_size(tmp_path: Path) -> None:
    """Swapped between two topics that look the same from outside."""
    for name in ("ours", "theirs"):
        several_files(tmp_path / name)
    ours, theirs = (wal_files(tmp_path / name)[1] for name in ("ours", "theirs"))
    assert ours.stat().st_size == theirs.stat().st_size
    shutil.copy(theirs, ours)
    found, log = reopen(tmp_path / "ours")
    assert int(ours.stem) not in found
    assert "another log" in log.lost[0].reason
