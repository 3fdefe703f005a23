"""Leaves out files and rows that cannot be in the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.dialects import DUCKDB
from penstock.lake.trace_filters import TRACE_FILTERS
from penstock.lake.views import view_queries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.lake.glance import ColdFile
    from penstock.query.conditions import Wanted

_COLUMNS: Final = {
    "spans": {"time": "time", "date": "date", "start_time_unix_nano": "nanos"},
    "logs": {"time": "time", "date": "date", "time_unix_nano": "nanos"},
    "metrics": {"time": "time", "date": "date", "time_unix_nano": "nanos"},
}
_IN_VIEWS: Final = {"timestamp": "time", "timeunix": "time"}
_TRACE_IDS: Final = {"trace_id": "trace_id", "traceid": "trace_id"}


def conditions_on(table: str) -> Mapping[str, Mapping[str, str]]:
    """The columns of the table and its views whose conditions say something about files."""
    traces = {} if table == "metrics" else _TRACE_IDS
    views = dict.fromkeys(view_queries(DUCKDB, [table]), _IN_VIEWS | traces)
    return {table: _COLUMNS[table] | traces, **views}


def pruned(files: Sequence[ColdFile], wanted: Wanted) -> list[ColdFile]:
    """The files that may have rows that are wanted."""
    left = [file for file in files if wanted.overlaps(file.times_us)]
    if wanted.trace_ids is None:
        return left
    return TRACE_FILTERS.chosen(left, wanted.trace_ids)


def chosen(rows: pa.Table | None, wanted: Wanted) -> pa.Table | None:
    """The rows of the traces that are wanted: there are few of them, and each is costly to pass."""
    if rows is None or wanted.trace_ids is None:
        return rows
    return rows.filter(pc.is_in(rows["trace_id"], pa.array(sorted(wanted.trace_ids), pa.string())))
