"""What a task makes of its segments."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.lake.layout import key_of
from penstock.lake.rows import rows_of
from penstock.lake.schemas import TABLES, signal_of
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
from penstock.lake.target import Target
from penstock.model import slots
from penstock.model.bundle import Bundle
from penstock.model.positions import Position
from penstock.model.slots import RAW_TRACES
from penstock.otel import Signal
from penstock.pipeline.flush import task
from penstock.pipeline.flush.task import Piece, Work, Written, write_group
from penstock.tiers.segments import DirectorySegments, Segment
from tests.lake.rows.samples import span_bundle
from tests.otel.samples import bundle_of, full_request
from tests.pipeline.flush.helpers import logs, seal_bundles
from tests.pipeline.helpers import DAY_NS, LOGS, METRICS, MORNING_NS, Data, named, spans, trace_id
from tests.store.helpers import flip

if TYPE_CHECKING:
    from pathlib import Path

KEY = "b00000001-000000000000-000000000001"
DAY = dt.date(2026, 1, 1)


class Task:
    """Work on the segments of a data directory, all of them in one group unless told otherwise."""

    def __init__(self, data: Data, lake: Lake) -> None:
        self._source = DirectorySegments(data.root)
        self._lake = lake

    def segments(self, table: str = "spans") -> tuple[Segment, ...]:
        """Those of the table's signal."""
        signal = signal_of(table)
        return tuple(each for each in self._source.since({}) if each.signal is signal)

    def write(
        self, table: str = "spans", groups: Sequence[Sequence[Segment]] | None = None
    ) -> Written:
        """The first group."""
        chosen = [self.segments(table)] if groups is None else groups
        target = Target.of(self._lake.table(table))
        work = Work(table, target, KEY, self._source, tuple(map(tuple, chosen)))
        return write_group(work, 0)


@pytest.fixture
def worker(data: Data) -> Iterator[Task]:
    """On an empty data directory."""
    with Lake.open(LakeSettings.of(data.root)) as lake:
        yield Task(data, lake)


def content(pieces: Sequence[Piece], table: str = "spans") -> pa.Table:
    """What the files of the pieces hold."""
    found = [
        pq.read_table(file.path, partitioning=None) for piece in pieces for file in piece.files
    ]
    return pa.concat_tables([TABLES[table].empty_table(), *found], promote_options="permissive")


def names(written: Written) -> list[str]:
    """Of the spans that were written, sorted."""
    return sorted(content(written.pieces)["name"].to_pylist())


def request(number: int) -> Bundle:
    """A span as a bundle of its own: requests that come together share one."""
    sent = Signal.TRACES.request_class.FromString(spans(number))
    return bundle_of(Signal.TRACES, sent)


def test_all_segments_of_a_group_are_written(data: Data, worker: Task) -> None:
    """And nothing of other groups."""
    data.seal([spans(1), spans(2)], [spans(3)], [spans(4)])
    first, second, third = worker.segments()
    written = worker.write(groups=[[first, third], [second]])
    assert names(written) == named(1, 2, 4)
    assert (written.rows, written.repeated, written.faults) == (3, 0, [])
    assert len(written.pieces[0].keys) == 3


def test_rows_go_to_the_day_of_their_event(data: Data, worker: Task) -> None:
    """Late ones and future ones too; those without a time have a place of their own."""
    late_ns, future_ns = MORNING_NS - 400 * DAY_NS, MORNING_NS + 4000 * DAY_NS
    data.seal([spans(1, start_ns=late_ns), spans(2, start_ns=future_ns), spans(3)])
    data.seal([spans(4, start_ns=late_ns), without_time(5)])
    written = worker.write()
    found = {file.day: file.rows for piece in written.pieces for file in piece.files}
    late, future = DAY - dt.timedelta(400), DAY + dt.timedelta(4000)
    assert found == {None: 1, late: 2, DAY: 1, future: 1}


def without_time(number: int) -> bytes:
    """A span that says neither when it began nor when it ended."""
    request: Any = Signal.TRACES.request_class()
    ids = {"trace_id": trace_id(number), "span_id": number.to_bytes(8, "big")}
    request.resource_spans.add().scope_spans.add().spans.add(name=f"span {number}", **ids)
    encoded: bytes = request.SerializeToString()
    return encoded


def test_repeated_spans_of_a_group_are_written_once(data: Data, worker: Task) -> None:
    """Within a segment, and in another one."""
    data.seal([spans(1, 2), spans(2)], [spans(1), spans(3)])
    written = worker.write()
    assert names(written) == named(1, 2, 3)
    assert (written.rows, written.repeated) == (3, 2)


def test_everything_that_was_written_before_makes_no_file(
    data: Data, worker: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece without rows is a piece without files."""
    monkeypatch.setattr(task, "PIECE_BYTES", 1)
    data.seal([spans(1)], [spans(1)])
    written = worker.write()
    assert [len(piece.files) for piece in written.pieces] == [1, 0]
    assert (written.rows, written.repeated) == (1, 1)


def test_much_becomes_several_pieces(
    data: Data, worker: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With names of their own; what they have in common is written once."""
    monkeypatch.setattr(task, "PIECE_BYTES", 1)
    data.seal([spans(1, 2)], [spans(2, 3)], [spans(3, 4)])
    written = worker.write()
    assert names(written) == named(1, 2, 3, 4)
    assert [piece.part for piece in written.pieces] == [0, 1, 2]
    paths = [file.path for piece in written.pieces for file in piece.files]
    assert len({*paths}) == len(paths) == 3
    assert written.repeated == 2


def test_equal_records_of_a_message_stay_when_it_is_cut_in_two(
    data: Data, worker: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a second message that says the same do not."""
    monkeypatch.setattr(task, "PIECE_BYTES", 1)
    monkeypatch.setattr("penstock.lake.rows.batches.BATCH_BYTES", 1)
    data.seal([logs("full", "full", "full")], [logs("full", "full")], topic=LOGS)
    written = worker.write("logs")
    assert len(written.pieces) > 1
    assert content(written.pieces, "logs")["_offset"].to_pylist() == [0, 0, 0]
    assert (written.rows, written.repeated) == (3, 2)


def test_writing_again_writes_the_same_rows_to_other_files(data: Data, worker: Task) -> None:
    """A task that Spark runs twice, perhaps at once, meets nothing of its other run."""
    data.seal([spans(1, 2)], [spans(3)])
    first, second = worker.write(), worker.write()
    assert names(first) == names(second) == named(1, 2, 3)
    paths = [file.path for each in (first, second) for piece in each.pieces for file in piece.files]
    assert len({*paths}) == len(paths) == 2
    assert len({key_of(path) for path in paths}) == 1


# --- faults --------------------------------------------------------------------------------------


def test_damaged_bundle_costs_itself_alone(data: Data, worker: Task) -> None:
    """It is named with its segment; its neighbours and the other segments are written."""
    other = Bundle({RAW_TRACES: pa.record_batch({"data": pa.array([spans(2)])})})
    seal_bundles(data, request(1), other, request(3))
    data.seal([spans(4)])
    path = data.segment(0)
    flip(path, path.read_bytes().index(b"span 2"))
    written = worker.write()
    assert names(written) == named(1, 3, 4)
    [fault] = written.faults
    assert fault.segment.segment_seq == 0
    assert fault.problem.startswith(f"{path}: bundle 1: chunk 0 of stream")


def test_damaged_bundles_of_a_segment_are_one_fault(data: Data, worker: Task) -> None:
    """However many they are: what is said of a batch must not grow with the damage."""
    seal_bundles(data, *map(request, range(5)))
    path = data.segment(0)
    for number in (1, 2, 4):
        flip(path, path.read_bytes().index(b"span %d" % number))
    written = worker.write()
    assert names(written) == named(0, 3)
    [fault] = written.faults
    assert fault.problem.startswith(f"{path}: bundle 1: ")
    assert fault.problem.endswith(", and 2 more")


def test_damaged_segment_costs_itself_alone(data: Data, worker: Task) -> None:
    """It cannot even be opened."""
    data.seal([spans(1)], [spans(2)], [spans(3)])
    flip(data.segment(1), -20)
    written = worker.write()
    assert names(written) == named(1, 3)
    [fault] = written.faults
    assert str(data.segment(1)) in fault.problem


def test_segment_damaged_after_it_was_listed_is_a_fault(data: Data, worker: Task) -> None:
    """The listing may be old."""
    data.seal([spans(1)], [spans(2)])
    listed = worker.segments()
    flip(data.segment(1), -20)
    written = worker.write(groups=[listed])
    assert names(written) == named(1)
    assert [str(data.segment(1)) in fault.problem for fault in written.faults] == [True]


def test_segment_that_is_gone_is_a_fault(data: Data, worker: Task) -> None:
    """It was deleted unread; the others are written."""
    data.seal([spans(1)], [spans(2)])
    listed = worker.segments()
    data.segment(0).unlink()
    written = worker.write(groups=[listed])
    assert names(written) == named(2)
    [fault] = written.faults
    assert fault.problem == f"{data.segment(0)} is gone: it was deleted unread"


def not_otap(number: int) -> Bundle:
    """Something that somebody has put into the store's slots by mistake."""
    good = span_bundle([number], [(number, "a", "x")])
    return Bundle({**good.slots, slots.SPAN_ATTRS: good[slots.SPAN_ATTRS].drop_columns("key")})


@pytest.mark.parametrize("batch_records", [1, 16_384])
def test_bundle_that_is_not_otap_costs_itself_alone(
    data: Data, worker: Task, monkeypatch: pytest.MonkeyPatch, batch_records: int
) -> None:
    """Rows before and behind it are written once, however bundles are joined."""
    monkeypatch.setattr("penstock.lake.rows.groups.GROUP_RECORDS", batch_records)
    bundles = [request(1), request(2), not_otap(0), request(3), not_otap(1), request(4)]
    seal_bundles(data, *bundles)
    data.seal([spans(5)])
    written = worker.write()
    assert names(written) == named(1, 2, 3, 4, 5)
    assert written.repeated == 0
    [fault] = written.faults
    assert fault.problem.startswith(f"{data.segment(0)}: the bundle at offset 2 has no rows")
    assert fault.problem.endswith(", and 1 more")


def test_metrics_before_a_bad_bundle_are_written_once(data: Data, worker: Task) -> None:
    """Joined bundles have their rows in another order than each alone."""
    good = [bundle_of(Signal.METRICS, full_request(Signal.METRICS, seed)) for seed in range(6)]
    bad = {**good[0].slots, slots.RESOURCE_ATTRS: pa.record_batch({"key": pa.array(["a"])})}
    seal_bundles(data, *good[:3], Bundle(bad), *good[3:], topic=METRICS)
    written = worker.write("metrics")
    assert len(written.faults) == 1
    found = content(written.pieces, "metrics")["_offset"].to_pylist()
    assert sorted(found) == sorted(point_offsets(good))


def point_offsets(good: Sequence[Bundle]) -> list[int]:
    """The offset of each data point; the bad bundle is at 3."""
    found = []
    for offset, bundle in zip((0, 1, 2, 4, 5, 6), good, strict=True):
        origin = Position("here", "/default/metrics", 0, offset)
        found += rows_of(bundle, Signal.METRICS, origin)["_offset"].to_pylist()
    return found


def test_huge_request_is_never_whole_in_memory(
    data: Data, worker: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What many rows share is written out batch by batch, and each leaves before the next."""
    monkeypatch.setattr("penstock.lake.rows.batches.BATCH_BYTES", 1)
    monkeypatch.setattr(task, "PIECE_BYTES", 1)
    data.seal([spans(*range(5), service="s" * 1000)])
    order: list[str] = []
    made, written = task.segment_rows, task.write_rows

    def segment_rows(*parts: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        for batch in made(*parts, **named):
            order.append("made")
            yield batch

    def write_rows(*parts: Any) -> Any:
        order.append("written")
        return written(*parts)

    monkeypatch.setattr(task, "segment_rows", segment_rows)
    monkeypatch.setattr(task, "write_rows", write_rows)
    assert worker.write().rows == 5
    assert order == ["made", "written"] * 5


def test_files_are_in_the_folder_of_their_day(data: Data, worker: Task) -> None:
    """Where readers of folders look for them."""
    data.seal([spans(0, 24)])
    written = worker.write()
    paths = sorted(file.path for piece in written.pieces for file in piece.files)
    folder: Path = data.root / "lake/spans/data/year=2026/month=01"
    starts = [str(folder / f"day={day}/{KEY}-00000-") for day in ("01", "02")]
    assert [path.rpartition("-")[0] + "-" for path in paths] == starts
