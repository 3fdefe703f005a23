"""From where to where a partition's messages are in a data directory, by its files."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.log.survey import survey_log
from penstock.model.errors import Damaged
from penstock.segment import read_info, segment_seq_of
from penstock.storage.files import LocalFiles
from penstock.store.verify import is_store, survey_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.segment import SegmentInfo
    from penstock.storage import Partition


class Extent(NamedTuple):
    """Offsets that the log or a segment has, or had: [first, end)."""

    first: int
    end: int


def extent_of(partition: Partition) -> Extent | None:
    """None: it has never had a log. Safe beside a server, for which the end moves on."""
    log = survey_log(LocalFiles(), partition.log_folder)
    segments = list(_segments(partition))
    if not log.files and not segments:
        return None
    firsts = [each.first_offset for each in segments]
    ends = [each.end_offset for each in segments]
    if log.files:
        firsts, ends = [*firsts, log.start_offset], [*ends, log.end_offset]
    return Extent(min(firsts), max(ends))


def end_of(partition: Partition, wanted: int) -> int:
    """Where its messages end, as exactly as it takes to say whether that is before `wanted`.

    The acknowledgement log knows how far segments went that are gone. Reading on to the log's end
    takes longer.
    """
    files = LocalFiles()
    if is_store(files, partition.folder):
        sealed = survey_store(files, partition.folder).state.sealed_offset
        if sealed >= wanted:
            return sealed
    extent = extent_of(partition)
    return 0 if extent is None else extent.end


def _segments(partition: Partition) -> Iterator[SegmentInfo]:
    """Those that say what they hold."""
    files, folder = LocalFiles(), partition.segments_folder
    for name in files.names(folder):
        if segment_seq_of(name) is not None:
            try:
                yield read_info(files, folder / name)
            except (FileNotFoundError, Damaged):
                continue  # let go of, or the log and its neighbours know
