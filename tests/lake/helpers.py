"""Small tables of spans, and a writer that flushes them as the pipeline would."""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.lake.commit import claim, commit
from penstock.lake.files import files_of_day
from penstock.lake.layout import batch_key, replacement_key
from penstock.lake.positions import read_positions
from penstock.lake.replace import replace
from penstock.lake.schemas import SPANS
from penstock.lake.target import Target
from penstock.lake.writer import write_rows
from penstock.model.clock import SystemClock
from penstock.model.positions import Reached, SourcePartition, of_sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyiceberg.table import Table

    from penstock.lake.commit import Committed
    from penstock.lake.files import WrittenFile
    from penstock.model.positions import Positions

DAY = dt.date(2025, 11, 15)
NEXT_DAY = dt.date(2025, 11, 16)
SOURCE = "3d2c55a2-93e8-4a27-9cf7-9c7e3d6f0a11"
TRACES = SourcePartition(SOURCE, "/default/traces", 0)
_SECOND_NS = 1_000_000_000


class Later(SystemClock):
    """A clock that is ahead, so that what was just written is old."""

    def __init__(self, hours: float) -> None:
        self._ahead_ns = int(hours * 3600 * _SECOND_NS)

    def wall_ns(self) -> int:
        """So much later than it is."""
        return time.time_ns() + self._ahead_ns


def span(number: int, day: dt.date | None = DAY, **columns: Any) -> dict[str, Any]:
    """One row; its number is in every column that tells rows apart."""
    row: dict[str, Any] = {
        "namespace": "default",
        "service_name": f"service-{number % 3}",
        "trace_id": f"{number // 4:032x}",
        "span_id": f"{number:016x}",
        "name": "GET /cart",
        "kind": "SPAN_KIND_SERVER",
        "attributes": [("http.request.method", "GET"), ("number", str(number))],
        "resource": {"attributes": [("service.name", f"service-{number % 3}")]},
        "_source": TRACES.source,
        "_topic": TRACES.topic,
        "_topic_partition": TRACES.partition,
        "_offset": number,
    }
    if day is not None:
        start = dt.datetime.combine(day, dt.time(1, 2, 3), dt.UTC)
        start_ns = int(start.timestamp()) * _SECOND_NS + number * 1_000_007
        row |= {
            "time": start_ns // 1000,
            "date": day,
            "start_time_unix_nano": start_ns,
            "end_time_unix_nano": start_ns + 5_000_000 + number,
            "duration_ns": 5_000_000 + number,
        }
    return row | columns


def spans(numbers: Iterable[int], day: dt.date | None = DAY) -> pa.Table:
    """Rows of one day."""
    return pa.Table.from_pylist([span(number, day) for number in numbers], schema=SPANS)


@dataclass
class Batch:
    """What a commit is about."""

    files: list[WrittenFile]
    start: Positions
    end: Positions
    epoch: int

    def commit_to(self, table: Table) -> Committed:
        """Commits it."""
        return commit(table, self.files, start=self.start, end=self.end, epoch=self.epoch)


class Flush:
    """A writer that has claimed the table."""

    def __init__(self, table: Table, source: str = SOURCE) -> None:
        self.table = table
        self.source = source
        self.epoch = claim(table, [source])

    def batch(self, *rows: pa.Table, place: SourcePartition | None = None) -> Batch:
        """The rows as files, one part a table, behind where the table is; not committed."""
        place = place or TRACES._replace(source=self.source)
        start = of_sources(read_positions(self.table), {self.source})
        before = start.get(place, Reached(0, 0))
        end = {**start, place: Reached(before.segment_seq + 1, before.offset + 10)}
        key = batch_key(start, end, self.epoch)
        target = Target.of(self.table)
        files = [
            file for part, each in enumerate(rows) for file in write_rows(each, target, key, part)
        ]
        return Batch(files, start, end, self.epoch)

    def flush(self, *rows: pa.Table, place: SourcePartition | None = None) -> Committed:
        """Writes and commits the rows."""
        return self.batch(*rows, place=place).commit_to(self.table)


def numbers(table: Table) -> list[int]:
    """The numbers of all rows in the table, sorted."""
    rows = table.refresh().scan(selected_fields=("_offset",)).to_arrow()
    return sorted(rows["_offset"].to_pylist())


def compact(table: Table, day: dt.date | None = DAY) -> int:
    """Makes one file of those of a day."""
    old = files_of_day(table.refresh(), day)
    key = replacement_key(file.path for file in old)
    merged = write_rows(read_files([file.path for file in old]), Target.of(table), key, 0)
    return replace(table, old, merged)


def read_files(paths: Sequence[str]) -> pa.Table:
    """The rows of data files."""
    import pyarrow.parquet as pq

    tables = [pq.read_table(path, partitioning=None) for path in paths]
    return pa.concat_tables(tables).cast(SPANS)
