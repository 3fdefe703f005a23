"""What the log's tests share."""

from __future__ import annotations

import uuid
from pathlib import Path

from penstock.log import Log
from penstock.log import format as fmt
from penstock.log.inventory import file_name
from penstock.log.scan import End, Gap, Run, scan_frames
from penstock.model import LogSettings
from penstock.storage import LocalFiles

LOG_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
SMALL = LogSettings(rotate_bytes=64 * 1024, cache_bytes=0)
"""Files rotate early and every read comes from files."""


def messages(count: int, size: int = 40) -> list[bytes]:
    """Messages of different lengths that say their number."""
    return [
        f"{number:08d}".encode() + bytes([number % 251]) * (number % size)
        for number in range(count)
    ]


def write_log(folder: Path, contents: list[bytes], settings: LogSettings | None = None) -> None:
    """A log that was closed properly."""
    with Log.open(folder, settings) as log:
        for message in contents:
            log.append_durable(message)


def write_unsealed(folder: Path, contents: list[bytes], first_offset: int = 0) -> Path:
    """A file as a killed process leaves it: no seal, no zeros behind the frames."""
    folder.mkdir(parents=True, exist_ok=True)
    header = fmt.new_header(LOG_ID, first_offset, 1, b"saltsalt")
    frames = fmt.encode_frames(contents, first_offset, header.seed)
    path = folder / file_name(first_offset)
    path.write_bytes(fmt.encode_header(header) + b"".join(frames))
    return path


def contents_of(log: Log) -> dict[int, bytes]:
    """Every message that a reader gets, by offset."""
    return {message.offset: message.data for message in log.read("earliest")}


def reopen(folder: Path, settings: LogSettings | None = None) -> tuple[dict[int, bytes], Log]:
    """The contents after recovery, and the (closed) log."""
    with Log.open(folder, settings or SMALL) as log:
        return contents_of(log), log


def scan(path: Path, end: int | None = None) -> tuple[dict[int, bytes], list[Gap], End]:
    """All that `scan_frames` says of a file."""
    file = LocalFiles().open(path)
    try:
        header, _ = fmt.decode_header(file.pread(fmt.HEADER_BYTES, 0))
        items = list(scan_frames(file, header.seed, fmt.HEADER_BYTES, header.first_offset, end))
    finally:
        file.close()
    found = {
        offset: message
        for run in items
        if isinstance(run, Run)
        for offset, message in enumerate(run.messages, run.first_offset)
    }
    last = items[-1]
    assert isinstance(last, End)
    return found, [item for item in items if isinstance(item, Gap)], last
