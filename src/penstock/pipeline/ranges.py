"""Between which values the columns of a segment's rows lie, as far as it says so by itself."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

from penstock.model.slots import EXP_HISTOGRAM_DATA_POINTS, NUMBER_DATA_POINTS, SPANS

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from penstock.lake.glance import ColdFile
    from penstock.pipeline.filters import Range
    from penstock.segment import SegmentReader
    from penstock.tiers.segments import Segment

TIME_COLUMNS: Final = frozenset({"time", "date"})
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_TIMED_SLOTS: Final = {
    "spans": frozenset({SPANS}),
    "metrics": frozenset(range(NUMBER_DATA_POINTS, EXP_HISTOGRAM_DATA_POINTS + 1)),
}
"""Not those of logs: a record without a time has the one at which it was observed."""


def origin_ranges(segment: Segment) -> dict[str, Range]:
    """Of the columns that say where rows came from."""
    place = segment.place
    found: dict[str, Range] = {
        "_source": (place.source, place.source),
        "_topic": (place.topic, place.topic),
        "_topic_partition": (place.partition, place.partition),
        "namespace": (place.namespace, place.namespace),
    }
    if segment.first_offset is not None and segment.end_offset is not None:
        found["_offset"] = (segment.first_offset, segment.end_offset - 1)
    return found


def file_ranges(file: ColdFile) -> dict[str, Range]:
    """Of a file of the lake."""
    found: dict[str, Range] = {}
    if file.times_us is not None:
        least, greatest = (_EPOCH + dt.timedelta(microseconds=each) for each in file.times_us)
        found |= {"time": (least, greatest), "date": (least.date(), greatest.date())}
    if file.namespace is not None:
        found["namespace"] = (file.namespace, file.namespace)
    return found


def row_group_ranges(group: pq.RowGroupMetaData) -> dict[str, Range]:
    """Of the columns of a row group that have statistics, and no nulls."""
    found: dict[str, Range] = {}
    for number in range(group.num_columns):
        column = group.column(number)
        statistics = column.statistics if "." not in column.path_in_schema else None
        if statistics is not None and statistics.has_min_max and statistics.null_count == 0:
            found[column.path_in_schema] = (statistics.min, statistics.max)
    return found


def time_ranges(reader: SegmentReader, table: str) -> dict[str, Range]:
    """Of the table's time and day; empty where the segment does not say."""
    slots = _TIMED_SLOTS.get(table, frozenset())
    times = [entry.event_times_ns for entry in reader.streams if entry.slot in slots]
    known = [time for time in times if time is not None]
    least_ns = min((least for least, _ in known), default=-1)
    if least_ns < 0:  # a time after 2262 counts as negative there
        return {}
    least, greatest = (_time(ns) for ns in (least_ns, max(most for _, most in known)))
    return {"time": (least, greatest), "date": (least.date(), greatest.date())}


def _time(time_ns: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=time_ns // 1000)
