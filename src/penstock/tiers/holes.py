"""What no tier has and no record explains: somebody removed a segment, or a file of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from penstock.model.positions import SourcePartition
from penstock.storage.files import LocalFiles
from penstock.store.holes import LogExtent, Missing, log_extent, missing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.model.positions import Positions
    from penstock.storage import Partition
    from penstock.tiers.segments import Segment

Logs: TypeAlias = dict[SourcePartition, tuple["Partition", LogExtent]]


def look_at_logs(source: str, partitions: Iterable[Partition]) -> Logs:
    """Before segments are listed: what the log has not by then was sealed, or is missing."""
    files = LocalFiles()
    return {
        SourcePartition(source, str(each.topic), each.number): (
            each,
            log_extent(files, each.log_folder),
        )
        for each in partitions
    }


def missing_files(
    logs: Logs, segments: Sequence[Segment], positions: Positions
) -> Iterator[Missing]:
    """Files that had what neither the lake nor the segments that are there nor the logs have."""
    files = LocalFiles()
    for place, (partition, log) in logs.items():
        own = [each for each in segments if each.place == place]
        others = [
            (each.first_offset, each.end_offset)
            for each in own
            if each.first_offset is not None and each.end_offset is not None
        ]
        position = positions.get(place)
        if position is not None:
            others.append((0, position.offset))
        present = {each.segment_seq for each in own}
        yield from missing(files, partition.folder, log, others, present)
