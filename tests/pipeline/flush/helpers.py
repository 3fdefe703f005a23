"""A cold flush whose tasks are plain calls, and the rows that a lake must have after it."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from penstock.lake.positions import read_positions
from penstock.lake.schemas import TABLES, signal_of
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
from penstock.log import Environment
from penstock.log.environment import MemoryBound
from penstock.metrics import Metrics
from penstock.model.positions import Position, Reached
from penstock.pipeline.descriptors import descriptor_rows
from penstock.pipeline.feeds import DirectoryFeed
from penstock.pipeline.flush import batch
from penstock.pipeline.flush.settings import FlushSettings
from penstock.pipeline.flush.stream import claimed
from penstock.storage import DataDirectory
from penstock.store import Store
from tests.lake.rows.comparable import comparable
from tests.lake.rows.oracle import expected_rows
from tests.pipeline.helpers import MORNING_NS, TRACES, WAIT_S, Data

if TYPE_CHECKING:
    import pytest

    from penstock.model import Topic
    from penstock.model.bundle import Bundle
    from penstock.model.positions import SourcePartition
    from penstock.pipeline.feeds import Feed
    from penstock.tiers.segments import Segment

Row = dict[str, Any]


# --- what was sent -----------------------------------------------------------------------------


def logs(*bodies: str, start_ns: int = MORNING_NS) -> bytes:
    """A request with a log record for each body, all at one time."""
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    for body in bodies:
        records.add(time_unix_nano=start_ns).body.string_value = body
    return request.SerializeToString()


def seal_bundles(data: Data, *bundles: Bundle, topic: Topic = TRACES) -> None:
    """One segment, with each of them as a bundle of its own: requests that come together share."""
    folder = DataDirectory(data.root).partition(topic, 0).folder
    with Store.open(folder, env=Environment(metrics=Metrics(), memory=MemoryBound())) as store:
        for bundle in bundles:
            store.append(bundle)
        store.flush(WAIT_S)


@dataclass
class Sent:
    """A data directory, and what was appended to it."""

    data: Data
    requests: dict[tuple[Topic, int], list[bytes]] = field(default_factory=dict)

    def seal(self, *segments: Iterable[bytes], topic: Topic = TRACES, partition: int = 0) -> None:
        """Each group of requests becomes a segment."""
        groups = [list(requests) for requests in segments]
        self.data.seal(*groups, topic=topic, partition=partition)
        self.note([each for group in groups for each in group], topic, partition)

    def note(self, requests: Iterable[bytes], topic: Topic = TRACES, partition: int = 0) -> None:
        """Somebody else has appended these."""
        self.requests.setdefault((topic, partition), []).extend(requests)

    def rows(self, table: str) -> list[Row]:
        """What they must become, by a walk that has nothing to do with the flush."""
        signal = signal_of(table)
        found = []
        for (topic, partition), requests in self.requests.items():
            if topic.name == signal.value:
                sent = [signal.request_class.FromString(request) for request in requests]
                source = DataDirectory(self.data.root).identity()
                origin = Position(source, str(topic), partition, 0)
                found += expected_rows(signal, sent, origin)
        return found


# --- what is in the lake -----------------------------------------------------------------------


def opened_lake(data: Data) -> Lake:
    """To be closed."""
    return Lake.open(LakeSettings.of(data.root))


def lake_files(data: Data, table: str) -> list[str]:
    """The data files that the table has now."""
    with opened_lake(data) as lake:
        found = lake.existing(table)
        tasks = [] if found is None else found.scan().plan_files()
        return sorted(task.file.file_path for task in tasks)


def positions(data: Data) -> dict[tuple[str, int], Reached]:
    """How far the lake has come, in all tables, by topic and partition."""
    found: dict[SourcePartition, Reached] = {}
    with opened_lake(data) as lake:
        for name in lake.names():
            table = lake.existing(name)
            found |= {} if table is None else read_positions(table)
    return {(place.topic, place.partition): Reached(*at[:2]) for place, at in found.items()}


def lake_rows(data: Data, table: str) -> pa.Table:
    """What is in them."""
    schema = TABLES[table]
    found = [pq.read_table(path, partitioning=None) for path in lake_files(data, table)]
    return pa.concat_tables([schema.empty_table(), *(each.cast(schema) for each in found)])


def digests(rows: Iterable[Row]) -> Counter[str]:
    """How often each content is there; everything of a row counts."""
    return Counter(
        hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest() for row in rows
    )


def lake_digests(data: Data, table: str) -> Counter[str]:
    """Of the rows that the lake has."""
    return digests(comparable(lake_rows(data, table)))


class LakeDigests:
    """Of the rows of a table, from time to time; a file is read once."""

    def __init__(self, data: Data, table: str) -> None:
        self._data = data
        self._schema = TABLES[table]
        self._table = table
        self._known: dict[str, Counter[str]] = {}

    def now(self) -> Counter[str]:
        """Of the files that the table has now."""
        found: Counter[str] = Counter()
        for path in lake_files(self._data, self._table):
            if path not in self._known:
                rows = pq.read_table(path, partitioning=None).cast(self._schema)
                self._known[path] = digests(comparable(rows))
            found += self._known[path]
        return found


def assert_exactly_once(sent: Sent) -> None:
    """The lake has every row that was sent, as it was sent, once; and no other."""
    for table in TABLES:
        found, wanted = lake_digests(sent.data, table), digests(sent.rows(table))
        missing, surplus = wanted - found, found - wanted
        assert not missing, f"{missing.total()} of {wanted.total()} {table} are missing"
        assert not surplus, f"{surplus.total()} {table} too many"


def names_in(data: Data) -> list[str]:
    """The names of all spans in the lake, sorted."""
    return sorted(lake_rows(data, "spans")["name"].to_pylist())


# --- a flush without Spark ---------------------------------------------------------------------


@dataclass
class Described:
    """A batch of descriptors, as far as the flush looks at it."""

    segments: list[Segment]
    sparkSession: None = None  # noqa: N815 - Spark's name

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        """A row for each."""
        return pa.Table.from_batches([descriptor_rows(self.segments)])


def call_in_place(_: None, function: Callable[[Any], Any], orders: Sequence[Any]) -> list[Any]:
    """`run_in_tasks` in this process; everything goes through pickle as with Spark."""
    return [_copied(function(_copied(order))) for order in orders]


def _copied(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own


class Plain:
    """A pipeline on a data directory, from its claim on the lake on."""

    def __init__(self, data: Data, feed: Feed | None = None, **settings: Any) -> None:
        lake = LakeSettings.of(data.root)
        given, feed = feed, feed or DirectoryFeed(data.root)
        self.flush, positions = claimed(data.root, lake, FlushSettings(**settings), feed)
        if given is not None:
            given.claim(positions)
        self._positions = {place.unsourced: at for place, at in positions.items()}
        self._source = feed.segments()
        self._batches = 0

    def run(self, *, batch_segments: int = 1000, until: int = 1_000_000) -> None:
        """Takes the segments before `until` that were not there when it began, in batches."""
        found = self._source.since(self._positions)
        new = [each for each in found if each.segment_seq < until]
        for begin in range(0, len(new), batch_segments):
            self.take(new[begin : begin + batch_segments])

    def take(self, segments: list[Segment]) -> None:
        """One batch."""
        self.flush(Described(segments), self._batches)  # type: ignore[arg-type] # no DataFrame
        self._batches += 1


def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every flush of this process calls its tasks."""
    monkeypatch.setattr(batch, "run_in_tasks", call_in_place)
