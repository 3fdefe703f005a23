"""`penstock inspect` explains each kind of file that Penstock writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from penstock.storage import DataDirectory
from tests.cli.running import inspect, run
from tests.log.small_logs import (
    flip,
    flip_message,
    message_for,
    truncate_before,
    wal,
    write_killed_log,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_sealed_log_file_is_explained(log: Path) -> None:
    """Whose it is, what is in it, and its first messages."""
    said = inspect(wal(log, 20))
    checkpoint = json.loads((log / "log.ckpt").read_text())
    assert (said["kind"], said["sealed"], said["format_version"]) == ("log file", True, 1)
    assert said["log_id"] == checkpoint["log_id"]
    assert said["bytes"] == wal(log, 20).stat().st_size
    assert (said["first_offset"], said["end_offset"], said["messages"]) == (20, 50, 30)
    assert (said["damage"], said["lost"], said["torn_bytes"]) == ([], [], 0)
    assert said["created_at"] <= said["sealed_at"]


@pytest.mark.parametrize("frames", [0, 1, 5, 100])
def test_frames_are_shown_up_to_the_number_asked_for(log: Path, frames: int) -> None:
    """With offset, size and a preview."""
    shown = inspect(wal(log, 20), "--frames", str(frames))["frames"]
    assert len(shown) == min(frames, 30)
    for offset, frame in enumerate(shown, 20):
        message = message_for(offset)
        wanted = {"offset": offset, "bytes": len(message), "preview": message.decode()}
        assert frame == wanted


def test_unsealed_log_file_is_explained(tmp_path: Path) -> None:
    """It is being written, or its writer was killed."""
    said = inspect(wal(write_killed_log(tmp_path / "log"), 50))
    assert (said["sealed"], said["messages"], said["end_offset"]) == (False, 10, 60)
    assert "sealed_at" not in said


def test_torn_log_file_is_explained(tmp_path: Path) -> None:
    """What an interrupted write left is counted in bytes."""
    folder = write_killed_log(tmp_path / "log")
    truncate_before(folder, 50, 59)
    with wal(folder, 50).open("ab") as file:
        file.write((59).to_bytes(8, "little") + b"\x20")
    said = inspect(wal(folder, 50))
    assert (said["messages"], said["torn_bytes"], said["damage"]) == (9, 9, [])


def test_damaged_log_file_is_explained(log: Path) -> None:
    """With the place of the damage and the offsets in it."""
    position = flip_message(log, 20, 33)
    said = inspect(wal(log, 20))
    assert said["damage"] == [{"position": position, "first_offset": 33, "end_offset": 34}]
    assert (said["messages"], said["end_offset"]) == (29, 50)


def test_file_without_a_readable_header_is_explained(log: Path) -> None:
    """It says why there is no more to say."""
    for position in (20, 2068):
        flip(wal(log, 20), position)
    assert "damaged" in inspect(wal(log, 20))["header"]


def test_one_damaged_header_copy_is_counted(log: Path) -> None:
    """The other one speaks for the file."""
    flip(wal(log, 20), 20)
    assert inspect(wal(log, 20))["damaged_header_copies"] == 1


@pytest.mark.parametrize("suffix", [".damaged", ".damaged-2"])
def test_file_that_a_repair_set_aside_is_explained(log: Path, suffix: str) -> None:
    """As the log file that it was."""
    path = wal(log, 20)
    aside = path.rename(path.with_name(path.name + suffix))
    assert inspect(aside)["messages"] == 30


def test_checkpoint_is_explained(log: Path) -> None:
    """It is JSON already; what inspect adds is that its checksum holds."""
    said = inspect(log / "log.ckpt")
    assert (said["kind"], said["checksum"]) == ("log checkpoint", "good")
    assert (said["start_offset"], said["next_offset"], len(said["files"])) == (0, 60, 3)


def test_damaged_checkpoint_is_an_error(log: Path) -> None:
    """Nothing that it says can be relied on."""
    text = (log / "log.ckpt").read_text()
    (log / "log.ckpt").write_text(text.replace('"next_offset": 60', '"next_offset": 61'))
    answer = run("inspect", log / "log.ckpt")
    assert answer.is_one_sentence()
    assert "checksum" in answer.err


def test_identity_is_explained(data: Path) -> None:
    """penstock.json says which data directory this is."""
    said = inspect(data / "penstock.json")
    assert said["kind"] == "data directory identity"
    assert said["id"] == DataDirectory(data).identity()


def test_damaged_identity_is_an_error(data: Path) -> None:
    """By its file and by its folder."""
    (data / "penstock.json").write_text("{")
    assert run("inspect", data / "penstock.json").is_one_sentence()
    assert run("inspect", data).is_one_sentence()


def test_data_directory_is_explained(data: Path) -> None:
    """Its identity and its partitions."""
    said = inspect(data)
    assert (said["kind"], said["id"]) == ("data directory", DataDirectory(data).identity())
    assert said["partitions"] == ["/default/traces partition 0", "/default/traces partition 1"]


def test_log_folder_is_explained(log: Path) -> None:
    """Offsets and sizes."""
    said = inspect(log)
    size = sum(path.stat().st_size for path in log.glob("*.wal"))
    wanted = {"kind": "log", "files": 3, "bytes": size, "earliest": 0, "end": 60}
    assert said == {"path": str(log), **wanted}


@pytest.mark.parametrize("name", ["notes.txt", "wal", ".wal.txt", "penstock.yaml"])
def test_file_of_something_else_is_refused(tmp_path: Path, name: str) -> None:
    """Nothing is guessed from its contents."""
    (tmp_path / name).write_text("{}")
    answer = run("inspect", tmp_path / name)
    assert answer.is_one_sentence()
    assert name in answer.err


@pytest.mark.parametrize("content", [b"", b"PNSTKLOG", b"text"])
def test_log_file_in_name_only_is_explained(tmp_path: Path, content: bytes) -> None:
    """It has no header that holds."""
    path = wal(tmp_path, 0)
    path.write_bytes(content)
    assert "damaged" in inspect(path)["header"]


def test_text_for_people_has_a_line_for_each_fact(log: Path) -> None:
    """And sizes that can be read."""
    lines = run("inspect", "--frames", "2", wal(log, 20)).out.splitlines()
    facts = {line.split()[0] for line in lines if not line.startswith(" ")}
    assert facts == set(inspect(wal(log, 20)))
    assert any("KiB" in line for line in lines)
    assert sum("preview message" in line for line in lines) == 2
