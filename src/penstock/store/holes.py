"""Messages that a partition should have and has not: holes in its offsets that no record explains.

What a store lets go of, it writes down first: ack.log names a segment until just before its file is
removed, and the log forgets only what was sealed. So what a hole had is missing where ack.log still
names its segment, or where it was never sealed and log.ckpt says that the log had it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from penstock.log import checkpoint as ckpt
from penstock.log.inventory import file_name
from penstock.log.survey import find_end, log_files
from penstock.model.errors import FormatError
from penstock.segment import read_info, segment_name
from penstock.storage.files import read_whole
from penstock.store.verify import is_store, segment_files, survey_store

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from penstock.log.checkpoint import Checkpoint
    from penstock.storage.files import Files

Range: TypeAlias = tuple[int, int]
"""Offsets [first, end)."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A file that should be there, and those of its messages that are nowhere else."""

    path: Path
    first_offset: int
    end_offset: int
    was_sealed: bool
    """It is a segment; else it is of the log."""

    def __str__(self) -> str:
        return f"{self.path} is missing: messages {self.first_offset} to {self.end_offset - 1}"


@dataclass(frozen=True, slots=True)
class LogExtent:
    """From where to where the files of a log go, at some moment."""

    start: int | None
    """None: there is no file."""
    end: int
    """Or further: the last file is not read for it."""
    promised: Checkpoint | None


def log_extent(files: Files, folder: Path) -> LogExtent:
    """By names and the checkpoint, which is read first: files that come later are behind it."""
    promised = _checkpoint(files, folder)
    firsts = log_files(files, folder)
    if not firsts:
        return LogExtent(None, 0, promised)
    end = firsts[-1]
    if promised is not None and end < promised.next_offset:
        try:
            end = find_end(files, folder, end)
        except FileNotFoundError:  # removed meanwhile: it is looked at again
            return LogExtent(None, 0, promised)
    return LogExtent(firsts[0], end, promised)


def missing(
    files: Files, folder: Path, log: LogExtent, others: Sequence[Range], present: Collection[int]
) -> list[Missing]:
    """Of the partition at `folder`; `log` was looked at before the others.

    `others` is what other tiers have, whose end is where the log begins to be read; `present` are
    the segments that are there. Records are read only where there is a hole.
    """
    behind = max((end for _, end in others), default=0)
    covered = list(others)
    if log.start is not None:
        covered.append((max(log.start, behind), log.end))
    end = max(log.end, behind, log.promised.next_offset if log.promised is not None else 0)
    holes = list(_holes(covered, end))
    if (not holes and log.start is not None) or not is_store(files, folder):
        return []
    found = survey_store(files, folder)
    state = found.state
    holes = list(_holes(covered, max(end, state.sealed_offset)))
    lost = [
        Missing(folder / "segments" / segment_name(seq), *part, was_sealed=True)
        for seq, info in state.segments.items()
        if seq not in present
        for part in _within(holes, info.first_offset, info.end_offset)
    ]
    if found.certain and log.promised is not None:
        # Invariant: the log removes only what is sealed.
        never_sealed = max(state.sealed_offset, log.promised.start_offset)
        lost += [
            Missing(folder / "log" / file_name(part[0]), *part, was_sealed=False)
            for part in _within(holes, never_sealed, end)
        ]
    return lost


def sealed_through(files: Files, folder: Path) -> int | None:
    """Every message below it was sealed, by ack.log or a segment; None where nothing is certain."""
    if not is_store(files, folder):
        return None
    present = segment_files(files, folder)
    found = survey_store(files, folder)
    ends = [found.state.sealed_offset]
    for seq in present:
        with contextlib.suppress(FileNotFoundError, FormatError):  # its own report says so
            ends.append(read_info(files, folder / "segments" / segment_name(seq)).end_offset)
    return max(ends) if found.certain else None


def _checkpoint(files: Files, folder: Path) -> Checkpoint | None:
    try:
        return ckpt.decode_checkpoint(read_whole(files, folder / ckpt.NAME), folder)
    except (FileNotFoundError, FormatError):
        return None  # it is never needed, and `penstock fsck` says what is wrong with it


def _holes(covered: Iterable[Range], end: int) -> Iterator[Range]:
    """What no range has, below `end`."""
    at = 0
    for first, behind in sorted(covered):
        if at < first:
            yield at, min(first, end)
        at = max(at, behind)
        if at >= end:
            return
    if at < end:
        yield at, end


def _within(holes: Iterable[Range], first: int, end: int) -> Iterator[Range]:
    for begin, behind in holes:
        if max(begin, first) < min(behind, end):
            yield max(begin, first), min(behind, end)
