"""Small logs of known content, and ways to harm them.

Messages have known sizes, so that the byte position of each frame can be told from its offset.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from penstock.log import Environment, Log
from penstock.log.format import FRAME_BYTES, HEADER_BYTES
from penstock.log.inventory import file_name
from penstock.metrics import Metrics
from penstock.model import Durability, LogSettings
from penstock.model.settings import KIB
from penstock.storage import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from penstock.storage import File

QUICK = LogSettings(durability=Durability.BUFFER, rotate_bytes=64 * KIB)
"""Small files, and a sync only where one ends."""


def message_for(offset: int) -> bytes:
    """Says its offset; sizes vary."""
    return f"message {offset} {'.' * (offset % 37)}".encode()


def messages_for(offsets: Iterable[int]) -> list[bytes]:
    """One a message."""
    return [message_for(offset) for offset in offsets]


def append(log: Log, count: int) -> None:
    """The next messages, written but for what `QUICK` leaves to the page cache."""
    start = log.next_offset
    log.append_many(messages_for(range(start, start + count))).durable.wait()
    log.flush()


def write_log(folder: Path, counts: Sequence[int] = (20, 30, 10)) -> Path:
    """A closed log with one sealed file for each count; returns the folder."""
    for count in counts:
        with Log.open(folder, QUICK, env=Environment(metrics=Metrics())) as log:
            append(log, count)
    return folder


def write_killed_log(folder: Path, counts: Sequence[int] = (20, 30, 10)) -> Path:
    """The same, but the last file was never finished: what a killed process leaves."""
    living = write_log(folder.with_name(folder.name + "-living"), counts[:-1])
    with Log.open(living, QUICK, env=Environment(metrics=Metrics())) as log:
        append(log, counts[-1])
        shutil.copytree(living, folder, ignore=shutil.ignore_patterns("*.tmp"))
    shutil.rmtree(living)
    return folder


def read_log(folder: Path) -> dict[int, bytes]:
    """All that opening the log still finds."""
    with Log.open(folder, QUICK, env=Environment(metrics=Metrics())) as log:
        return {message.offset: message.data for message in log.read("earliest")}


def wal(folder: Path, first_offset: int) -> Path:
    """The file that begins with the offset."""
    return folder / file_name(first_offset)


def frame_position(first_offset: int, offset: int) -> int:
    """Where the frame of `offset` begins in the file that begins with `first_offset`."""
    before = messages_for(range(first_offset, offset))
    return HEADER_BYTES + sum(map(len, before)) + FRAME_BYTES * len(before)


def flip(path: Path, position: int) -> None:
    """Turns one bit over; a second call turns it back."""
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


def flip_message(folder: Path, first_offset: int, offset: int) -> int:
    """Damages one message; returns where its frame begins."""
    position = frame_position(first_offset, offset)
    flip(wal(folder, first_offset), position + FRAME_BYTES + 3)
    return position


def truncate_before(folder: Path, first_offset: int, offset: int) -> None:
    """Cuts a file off right before the frame of `offset`."""
    with wal(folder, first_offset).open("r+b") as file:
        file.truncate(frame_position(first_offset, offset))


class InterruptedFiles(LocalFiles):
    """Does something of the test's at one moment of the reading: what a writer might do just then.

    `moment` is "names" or "pread"; `after` says how many of those pass before it.
    """

    def __init__(self, moment: str, act: Callable[[], object], *, after: int = 0) -> None:
        self._moment = moment
        self._act: Callable[[], object] | None = act
        self._left = after

    def names(self, folder: Path) -> list[str]:
        """What is in the folder, as it was just before."""
        found = super().names(folder)
        self.passed("names")
        return found

    def open(self, path: Path) -> File:
        """An existing file, for reading."""
        return _InterruptedFile(self, super().open(path))

    def passed(self, moment: str) -> None:
        """Acts once, when the moment has come."""
        if moment == self._moment and self._act is not None:
            self._left -= 1
            if self._left < 0:
                act, self._act = self._act, None
                act()


class _InterruptedFile:
    def __init__(self, files: InterruptedFiles, inner: File) -> None:
        self._files = files
        self._inner = inner
        self.size = inner.size
        self.close = inner.close

    def pread(self, length: int, position: int) -> bytes:
        data = self._inner.pread(length, position)
        self._files.passed("pread")
        return data
