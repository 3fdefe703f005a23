"""A quick look at a log's folder from outside: offsets and sizes, without reading the messages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.log import format as fmt
from penstock.log.inventory import file_name, first_offsets
from penstock.log.scan import End, read_header, read_seal, scan_frames
from penstock.model.errors import Damaged

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable
    from pathlib import Path

    from penstock.storage.files import Files


@dataclass(frozen=True, slots=True)
class Survey:
    """What is there."""

    start_offset: int
    end_offset: int
    files: int
    bytes: int


def survey_log(files: Files, folder: Path) -> Survey:
    """Looks at names, sizes and the last file; safe beside a running writer."""
    while True:
        firsts = log_files(files, folder)
        if not firsts:
            return Survey(0, 0, 0, 0)
        try:
            size = sum(_size(files, folder / file_name(first)) for first in firsts)
            return Survey(firsts[0], find_end(files, folder, firsts[-1]), len(firsts), size)
        except FileNotFoundError:  # retention was faster; the folder looks different now
            if log_files(files, folder) == firsts:
                raise  # it is listed and cannot be opened: a dangling link
            continue


def log_files(files: Files, folder: Path) -> list[int]:
    """The first offsets of the log files there are."""
    return first_offsets(files.names(folder))


def log_owners(files: Files, folder: Path, firsts: Iterable[int]) -> Counter[uuid.UUID]:
    """How many files say that they belong to which log: one log, unless files were mixed up."""
    owners: Counter[uuid.UUID] = Counter()
    for first in firsts:
        file = files.open(folder / file_name(first))
        try:
            owners[read_header(file)[0].log_id] += 1
        except Damaged:
            continue
        finally:
            file.close()
    return owners


def find_end(files: Files, folder: Path, last_first: int) -> int:
    """One past the last message in the file that begins with offset `last_first`."""
    file = files.open(folder / file_name(last_first))
    try:
        header, _ = read_header(file)
        seal = read_seal(file, header)
        if seal is not None:
            return seal.end_offset
        *_, last = scan_frames(file, header.seed, fmt.HEADER_BYTES, last_first, None)
        assert isinstance(last, End)
        return last.offset
    except Damaged:
        return last_first
    finally:
        file.close()


def _size(files: Files, path: Path) -> int:
    file = files.open(path)
    try:
        return file.size()
    finally:
        file.close()
