"""Rows of every table, and lakes that are filled with them, file by file."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.lake.files import files_of_day, live_files
from penstock.lake.schemas import TABLES
from penstock.pipeline.jobs.schemas import SHAPES
from tests.lake.helpers import DAY, Flush

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from penstock.lake.tables import Lake

SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 60 * MINUTE_NS
Row = dict[str, Any]


def nanos(day: dt.date, hour: int = 0, minute: int = 0, second: float = 0.0) -> int:
    """A time of that day."""
    midnight = dt.datetime.combine(day, dt.time(), dt.UTC)
    within = hour * HOUR_NS + minute * MINUTE_NS + int(second * SECOND_NS)
    return int(midnight.timestamp()) * SECOND_NS + within


def timed(at_ns: int) -> Row:
    """The columns that say when."""
    day = dt.datetime.fromtimestamp(at_ns // SECOND_NS, dt.UTC).date()
    return {"time": at_ns // 1000, "date": day}


def sent(offset: int, topic: str) -> Row:
    """The columns that say which request a row came in."""
    return {
        "namespace": "default",
        "_topic": f"/default/{topic}",
        "_topic_partition": 0,
        "_offset": offset,
    }


def span(trace: str, number: str, parent: str | None = None, *, at_ns: int, **columns: Any) -> Row:
    """A span of a second that `shop` has served."""
    row = {
        **sent(0, "traces"),
        **timed(at_ns),
        "service_name": "shop",
        "trace_id": trace,
        "span_id": number,
        "parent_span_id": parent,
        "name": "GET /cart",
        "kind": "SPAN_KIND_SERVER",
        "start_time_unix_nano": at_ns,
        "duration_ns": SECOND_NS,
        "status_code": "STATUS_CODE_UNSET",
        **columns,
    }
    return {"end_time_unix_nano": at_ns + row["duration_ns"], **row}


def log(text: str, offset: int, **columns: Any) -> Row:
    """A log record of the morning."""
    at_ns = nanos(DAY, 8)
    row = {**sent(offset, "logs"), **timed(at_ns), "time_unix_nano": at_ns, "body": text}
    return {**row, "service_name": "shop", "attributes": [("a", "1")], **columns}


def point(value: int, offset: int, **columns: Any) -> Row:
    """A data point of the morning."""
    at_ns = nanos(DAY, 8)
    row = {**sent(offset, "metrics"), **timed(at_ns), "time_unix_nano": at_ns, "name": "sold"}
    buckets = {"count": 3, "bucket_counts": [1, 2], "explicit_bounds": [0.5]}
    return {**row, "service_name": "shop", "value_int": value, "histogram": buckets, **columns}


def filled(lake: Lake, name: str, *files: Iterable[Row]) -> Table:
    """The table, with a commit for each group of rows."""
    table = lake.table(name)
    flush = Flush(table)
    for rows in files:
        flush.flush(as_table(name, rows))
    return table


def as_table(name: str, rows: Iterable[Row]) -> pa.Table:
    """Rows as the flush has them."""
    schema = SHAPES[name].schema if name in SHAPES else TABLES[name]
    return pa.Table.from_pylist(list(rows), schema=schema)


def content(table: Table) -> list[Row]:
    """All rows of the table, in an order of their own."""
    rows: list[Row] = table.refresh().scan().to_arrow().to_pylist()
    return sorted(rows, key=repr)


def paths(table: Table, day: dt.date | None = DAY) -> list[str]:
    """The files of a day."""
    return [file.path for file in files_of_day(table.refresh(), day)]


def rows_of_files(table: Table) -> list[int]:
    """How many rows the files have, sorted."""
    return sorted(file.rows for file in live_files(table.refresh()))


def stored(table: Table) -> set[Path]:
    """The data files on disk, whoever refers to them."""
    return set(Path(table.location(), "data").rglob("*.parquet"))
