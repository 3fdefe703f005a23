"""The cases that are about much data: reading it, recovering it, and not keeping it in memory."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from typing import TYPE_CHECKING

from harness import Row, Run, child, in_child, resident_bytes
from log_baselines import MESSAGES
from penstock.log import Log
from penstock.model.settings import Durability, LogSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MB = 1_000_000
MIB = 2**20
GIB = 2**30
MESSAGE_BYTES = len(MESSAGES[0])
BATCH = MESSAGES[:500]
READ_BYTES = MIB
ONE_FILE = 4 * GIB
DEFAULT_FILES = LogSettings().rotate_bytes

WRITING_LIMIT_S = 150.0
"""A slow disk ends the writing of much data here, and the row says how much it was."""
DIED = 9


def sequential_read(run: Run) -> Iterator[Row]:
    """From the first message to the last, out of the page cache."""
    size = (200 if run.quick else 1000) * MB
    with run.folder() as folder:
        with Log.open(folder, LogSettings(durability=Durability.BUFFER)) as log:
            _write(log, size)
        with Log.open(folder) as log:
            found = run.medians(
                {"log": lambda: _read_rate(log), "files": lambda: _plain_read_rate(folder)}
            )
    yield Row("sequential read", found["log"] / MB, "MB/s", target=1000)
    yield Row("the same files, read alone", found["files"] / MB, "MB/s")


def recovery(run: Run) -> Iterator[Row]:
    """Opening what a killed process left: one long unsealed file, and as it usually is."""
    size = 128 * MIB if run.quick else GIB
    with run.folder() as folder:
        found = run.medians(
            {
                "one file": lambda: _recovery_s(folder / "log", size, ONE_FILE),
                "as usual": lambda: _recovery_s(folder / "log", size, DEFAULT_FILES),
                "copy": lambda: _copy_s(folder / "copy", size),
            }
        )
    per_gib = {name: seconds * GIB / size for name, seconds in found.items()}
    yield Row("recovery, nothing sealed", per_gib["one file"], "s/GiB", target=2, better="lower")
    yield Row("writing as much with fsync", per_gib["copy"], "s/GiB", better="lower")
    name = f"recovery of {size // MIB} MiB in {DEFAULT_FILES // MIB} MiB files"
    yield Row(name, found["as usual"], "s", better="lower")


def memory_over_time(run: Run) -> Iterator[Row]:
    """Written, kept elsewhere, forgotten: the highest memory against that of the first tenth."""
    with run.folder() as folder:
        written, growth = in_child(_write_and_forget, folder, (1 if run.quick else 10) * 1000 * MB)
    name = f"memory growth over {written / 1000 / MB:.1f} GB"
    yield Row(name, growth / MB, "MB", target=50, better="lower")


def _write(log: Log, size: int) -> None:
    for _ in range(size // (MESSAGE_BYTES * len(BATCH))):
        log.append_many(BATCH)
    log.flush()


def _read_rate(log: Log) -> float:
    reader, count = log.read("earliest"), 0
    started = time.perf_counter()
    while (batch := reader.read_batch()) is not None:
        count += len(batch.messages)
    took = time.perf_counter() - started
    reader.close()
    assert count == log.end_offset, f"{count} of {log.end_offset} messages were read"
    return count * MESSAGE_BYTES / took


def _plain_read_rate(folder: Path) -> float:
    size, started = 0, time.perf_counter()
    for path in folder.glob("*.wal"):
        with path.open("rb", buffering=0) as file:
            while data := file.read(READ_BYTES):
                size += len(data)
    return size / (time.perf_counter() - started)


def _recovery_s(folder: Path, size: int, rotate_bytes: int) -> float:
    """How long `Log.open` takes; writing what it finds is not timed."""
    with child(_write_and_die, folder, size, rotate_bytes) as writer:
        writer.join(WRITING_LIMIT_S)
    assert writer.exitcode == DIED, f"the writer ended with {writer.exitcode}"
    started = time.perf_counter()
    with Log.open(folder) as log:
        took = time.perf_counter() - started
        assert log.end_offset == _messages_in(size), "recovery lost messages"
    shutil.rmtree(folder)
    return took


def _write_and_die(folder: Path, size: int, rotate_bytes: int) -> None:
    settings = LogSettings(durability=Durability.BUFFER, rotate_bytes=rotate_bytes)
    log = Log.open(folder, settings)
    for message in itertools.islice(itertools.cycle(MESSAGES), _messages_in(size)):
        log.append(message)
    log.flush()
    os._exit(DIED)


def _messages_in(size: int) -> int:
    return size // MESSAGE_BYTES


def _copy_s(path: Path, size: int) -> float:
    data = b"".join(MESSAGES)
    started = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for _ in range(size // len(data)):
            file.write(data)
        os.fsync(file)
    took = time.perf_counter() - started
    path.unlink()
    return took


def _write_and_forget(folder: Path, size: int) -> tuple[int, int]:
    """Bytes written, and bytes by which the memory's peak rose after the first tenth."""
    settings = LogSettings(retention_bytes=256 * MIB)
    deadline = time.monotonic() + WRITING_LIMIT_S
    written, peaks = 0, [0, 0]
    with Log.open(folder, settings) as log:
        while written < size and time.monotonic() < deadline:
            _append_different_messages(log, written)
            written += MB
            log.set_floor(log.end_offset)
            late = written > size // 10
            peaks[late] = max(peaks[late], resident_bytes())
    return written, max(0, peaks[1] - peaks[0])


def _append_different_messages(log: Log, number: int) -> None:
    """1 MB of new objects, so that a message which is kept costs memory."""
    for message in MESSAGES:
        log.append(number.to_bytes(8, "little") + message[8 : MB // len(MESSAGES)])
        number += 1
