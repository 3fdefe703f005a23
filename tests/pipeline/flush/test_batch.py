"""A batch: what is planned, written, committed and acknowledged. Its tasks are plain calls."""

from __future__ import annotations

import logging
import pickle
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.lake.schemas import TABLES
from penstock.model import Topic
from penstock.model.errors import Fenced
from penstock.model.positions import Reached
from penstock.pipeline import feeds
from penstock.pipeline.flush import batch
from penstock.pipeline.flush.batch import GROUP_BYTES, _groups
from penstock.pipeline.flush.progress import read_progress
from penstock.store.outside import read_delivered
from penstock.tiers.segments import DirectorySegments
from tests.pipeline.flush.helpers import (
    Plain,
    Sent,
    assert_exactly_once,
    lake_files,
    lake_rows,
    logs,
    names_in,
    opened_lake,
    positions,
)
from tests.pipeline.helpers import LOGS, TRACES, Data, named, spans
from tests.pipeline.listing import segment
from tests.store.helpers import flip

if TYPE_CHECKING:
    from typing import Any

    from penstock.tiers.segments import Segment

pytestmark = pytest.mark.usefixtures("plain")
ACME = Topic("acme", "traces")


def snapshots(data: Data) -> list[int | None]:
    """The newest snapshot of each table."""
    with opened_lake(data) as lake:
        return [lake.table(name).metadata.current_snapshot_id for name in TABLES]


def listed(data: Data) -> list[Segment]:
    """All segments that are there."""
    return DirectorySegments(data.root).since({})


def through(data: Data) -> dict[str, int]:
    """What is acknowledged."""
    found = read_delivered(data.root)
    assert found is not None
    assert found.subscriber == "lake"
    return {key: taken.segment_seq for key, taken in found.through.items()}


def last_batch(data: Data) -> dict[str, Any]:
    """What progress says of it."""
    found = read_progress(data.root)
    assert found is not None
    last: dict[str, Any] = found["recent"][-1]
    return last


# --- exactly once --------------------------------------------------------------------------------


def test_second_run_does_nothing(sent: Sent) -> None:
    """No commit, no file, no line of progress."""
    sent.seal([spans(1), spans(2)], [spans(3)])
    sent.seal([logs("a", "b")], topic=LOGS)
    Plain(sent.data).run()
    assert_exactly_once(sent)
    again = Plain(sent.data)
    before = snapshots(sent.data), read_progress(sent.data.root)
    again.run()
    assert (snapshots(sent.data), read_progress(sent.data.root)) == before


def test_what_the_lake_has_is_passed_over(sent: Sent) -> None:
    """Whatever Spark believes: a batch may bring old segments again, alone or with new ones."""
    sent.seal([spans(1)], [spans(2)])
    pipeline = Plain(sent.data, repeat_window_s=0)
    pipeline.run()
    pipeline.take(listed(sent.data))
    sent.seal([spans(3)])
    pipeline.take(listed(sent.data))
    Plain(sent.data, repeat_window_s=0).take(listed(sent.data))
    assert_exactly_once(sent)
    assert last_batch(sent.data)["segments"] == 1


def test_descriptors_may_come_in_any_order(sent: Sent) -> None:
    """Positions are those of the last segment, not of the last row."""
    sent.seal([spans(1)], [spans(2)], [spans(3)])
    Plain(sent.data).take(listed(sent.data)[::-1])
    assert positions(sent.data) == {("/default/traces", 0): Reached(2, 3)}
    assert_exactly_once(sent)


def test_partitions_and_namespaces_go_on_by_themselves(sent: Sent) -> None:
    """Each has its position; their rows say where they are from."""
    sent.seal([spans(1)], [spans(2)])
    sent.seal([spans(3)], partition=1)
    sent.seal([spans(1)], topic=ACME)
    Plain(sent.data).run(batch_segments=1)
    sent.seal([spans(4)], partition=1)
    sent.seal([logs("a")], topic=Topic("acme", "logs"))
    Plain(sent.data).run()
    assert_exactly_once(sent)
    assert positions(sent.data) == {
        ("/acme/logs", 0): Reached(0, 1),
        ("/acme/traces", 0): Reached(0, 1),
        ("/default/traces", 0): Reached(1, 2),
        ("/default/traces", 1): Reached(1, 2),
    }


def test_topics_of_other_names_are_let_alone(sent: Sent) -> None:
    """They have no table, and nobody says that they were delivered."""
    sent.data.seal([spans(1)], topic=Topic("default", "orders"))
    sent.seal([spans(2)])
    Plain(sent.data).run()
    assert_exactly_once(sent)
    assert through(sent.data) == {"/default/traces/0": 0}


def test_end_between_two_tables_is_made_good(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table that has the batch passes it over, the other one takes it."""
    sent.seal([spans(1)])
    sent.seal([logs("a")], topic=LOGS)
    inner = batch.commit

    def only_spans(table: Any, *parts: Any, **named: Any) -> None:
        if table.name()[-1] == "logs":
            raise OSError("the machine is gone")
        inner(table, *parts, **named)

    with monkeypatch.context() as patch:
        patch.setattr(batch, "commit", only_spans)
        with pytest.raises(OSError, match="gone"):
            Plain(sent.data).run()
    assert names_in(sent.data) == named(1)
    assert read_delivered(sent.data.root) is None
    Plain(sent.data, repeat_window_s=0).run()
    assert_exactly_once(sent)
    assert through(sent.data) == {"/default/traces/0": 0, "/default/logs/0": 0}


def test_failed_task_commits_nothing(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run does it all."""
    sent.seal([spans(1)], [spans(2)], [spans(3)])
    inner = batch._write_group

    def fails(order: Any) -> Any:
        written = inner(order)
        if order[1] == 1:
            raise OSError("no space left")
        return written

    pipeline = Plain(sent.data)
    with monkeypatch.context() as patch:
        patch.setattr(batch, "_write_group", fails)
        with pytest.raises(OSError, match="no space"):
            pipeline.run()
    assert lake_files(sent.data, "spans") == []
    pipeline.run()
    assert_exactly_once(sent)


def test_older_pipeline_is_fenced(sent: Sent) -> None:
    """Nothing of its batch is in the lake, and it acknowledges nothing."""
    sent.seal([spans(1)])
    sent.seal([logs("a")], topic=LOGS)
    older, newer = Plain(sent.data), Plain(sent.data)
    with pytest.raises(Fenced, match="belongs to writer 2, this is 1"):
        older.run()
    assert [lake_files(sent.data, table) for table in TABLES] == [[], [], []]
    assert read_delivered(sent.data.root) is None
    newer.run()
    assert_exactly_once(sent)


def test_flush_works_where_it_was_sent_to(sent: Sent) -> None:
    """Spark Connect runs it elsewhere; what it has open stays behind."""
    sent.seal([spans(1)])
    pipeline = Plain(sent.data)
    pipeline.run()
    sent.seal([spans(2)])
    pipeline.flush = pickle.loads(pickle.dumps(pipeline.flush))  # noqa: S301 - our own
    pipeline.run()
    assert_exactly_once(sent)


# --- what is sent again --------------------------------------------------------------------------


def test_repeats_of_other_tasks_are_written_once(data: Data) -> None:
    """Each task sees its own segments; the driver compares what they have written."""
    data.seal([spans(1, 2)], [spans(2, 3)], [spans(3, 1, 4)])
    Plain(data).run()
    assert names_in(data) == named(1, 2, 3, 4)
    assert last_batch(data)["repeated"] == 3


def test_repeats_of_earlier_batches_are_written_once(data: Data) -> None:
    """As long as the window remembers."""
    data.seal([spans(1, 2)], [spans(2, 3)], [spans(3, 4)])
    Plain(data).run(batch_segments=1)
    assert names_in(data) == named(1, 2, 3, 4)
    assert last_batch(data)["rows"] == {"spans": 1}


def test_repeats_of_earlier_runs_are_written_once(data: Data) -> None:
    """The window is read back from the lake."""
    data.seal([spans(1, 2)])
    Plain(data).run()
    data.seal([spans(2, 3)])
    Plain(data).run()
    assert names_in(data) == named(1, 2, 3)


@pytest.mark.parametrize("setting", ["repeat_window_s", "repeat_rows"])
def test_without_a_window_batches_are_not_compared(data: Data, setting: str) -> None:
    """Those of one batch are."""
    data.seal([spans(1, 1)], [spans(1)])
    Plain(data, **{setting: 0}).run(batch_segments=1)
    Plain(data, **{setting: 0}).run()
    assert names_in(data) == named(1, 1)


def test_batch_of_repeats_alone_moves_on(data: Data) -> None:
    """No file is committed, and the segments are acknowledged."""
    data.seal([spans(1)], [spans(1)])
    Plain(data).run(batch_segments=1)
    assert len(lake_files(data, "spans")) == 1
    assert through(data) == {"/default/traces/0": 1}
    assert (last_batch(data)["repeated"], last_batch(data)["files"]) == (1, 0)


def test_equal_logs_of_different_requests_are_one_within_a_batch(data: Data) -> None:
    """Wherever they are; those of one request are as many as were sent."""
    data.seal([logs("a", "a")], [logs("a", "b")], [logs("b", "b")], topic=LOGS)
    Plain(data).run()
    assert sorted(lake_rows(data, "logs")["body"].to_pylist()) == ["a", "a", "b"]


@pytest.mark.parametrize("restarted", [False, True])
def test_log_that_is_sent_again_in_a_later_batch_is_written_once(
    data: Data, restarted: bool
) -> None:
    """Those of one request are kept, and one that says no time of its own may be another event."""
    pipeline = Plain(data)
    for request in (logs("a", "a"), logs("a", "b")):
        data.seal([request, logs("no time", start_ns=0)], topic=LOGS)
        pipeline = Plain(data) if restarted else pipeline
        pipeline.run()
    bodies = sorted(lake_rows(data, "logs")["body"].to_pylist())
    assert bodies == ["a", "a", "b", "no time", "no time"]


def test_same_span_of_two_namespaces_is_kept(sent: Sent) -> None:
    """Also by the window."""
    sent.seal([spans(1)])
    sent.seal([spans(1)], topic=ACME)
    Plain(sent.data).run(batch_segments=1)
    assert_exactly_once(sent)


# --- acknowledging -------------------------------------------------------------------------------


def test_delivered_is_what_the_lake_has(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written after the commits, never before."""
    order: list[str] = []
    inner, write = batch.commit, feeds.write_delivered

    def committed(table: Any, *parts: Any, **named: Any) -> None:
        inner(table, *parts, **named)
        order.append(table.name()[-1])

    def written(*parts: Any) -> None:
        order.append("delivered")
        write(*parts)

    monkeypatch.setattr(batch, "commit", committed)
    monkeypatch.setattr(feeds, "write_delivered", written)
    data.seal([spans(1)], [spans(2)])
    data.seal([logs("a")], topic=LOGS)
    Plain(data).run()
    assert order == ["spans", "logs", "delivered"]
    assert through(data) == {"/default/traces/0": 1, "/default/logs/0": 0}


# --- faults --------------------------------------------------------------------------------------


def test_damaged_segment_is_set_aside_and_the_rest_goes_on(
    sent: Sent, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named, counted and kept, also when the store deletes it; and it is passed over."""
    sent.seal([spans(1)], [spans(2)], [spans(3)])
    path = sent.data.segment(1)
    flip(path, -20)
    damaged = path.read_bytes()
    Plain(sent.data).run()
    assert names_in(sent.data) == named(1, 3)
    assert positions(sent.data) == {("/default/traces", 0): Reached(2, 3)}
    path.unlink()
    aside = sent.data.root / "pipeline/aside"
    assert [each.name for each in aside.iterdir()] == [f"default.traces.0.{path.name}"]
    assert next(aside.iterdir()).read_bytes() == damaged
    [fault] = last_batch(sent.data)["faults"]
    assert str(path) in fault
    warnings = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert [str(path) in each.message for each in warnings] == [True]


def test_last_segment_may_be_damaged(sent: Sent) -> None:
    """What follows it later begins where it should."""
    sent.seal([spans(1)], [spans(2)])
    flip(sent.data.segment(1), -20)
    Plain(sent.data).run()
    assert positions(sent.data) == {("/default/traces", 0): Reached(1, 2)}, "ack.log says so"
    assert through(sent.data) == {"/default/traces/0": 1}
    sent.data.segment(1).unlink()
    sent.data.seal([spans(3)])
    Plain(sent.data).run()
    assert names_in(sent.data) == named(1, 3)


def test_damaged_bundle_is_a_fault_of_its_segment(sent: Sent) -> None:
    """What can be read of the segment is in the lake."""
    sent.seal([spans(1)], [spans(2)])
    path = sent.data.segment(0)
    flip(path, path.read_bytes().index(b"span 1"))
    Plain(sent.data).run()
    assert names_in(sent.data) == named(2)
    assert len([*(sent.data.root / "pipeline/aside").iterdir()]) == 1
    assert read_progress(sent.data.root)["faults"] == 1  # type: ignore[index] # it is there


def test_segment_that_is_gone_is_counted(sent: Sent) -> None:
    """There is nothing to set aside; the lake does not wait for it."""
    sent.seal([spans(1)], [spans(2)])
    pipeline, found = Plain(sent.data), listed(sent.data)
    sent.data.segment(0).unlink()
    pipeline.take(found)
    assert names_in(sent.data) == named(2)
    [fault] = last_batch(sent.data)["faults"]
    assert fault == f"{sent.data.segment(0)} is gone: it was deleted unread"
    assert through(sent.data) == {"/default/traces/0": 1}


def test_batch_of_damage_alone_moves_on(sent: Sent) -> None:
    """Or the pipeline would never get over it."""
    sent.seal([spans(1)])
    flip(sent.data.segment(0), -20)
    Plain(sent.data).run()
    assert names_in(sent.data) == []
    assert through(sent.data) == {"/default/traces/0": 0}
    assert last_batch(sent.data)["rows"] == {"spans": 0}


# --- groups --------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 3 * GROUP_BYTES), max_size=40))
def test_groups_hold_every_segment_once(sizes: list[int]) -> None:
    """None is empty, and none much larger than it must be."""
    segments = [segment(number, size=size) for number, size in enumerate(sizes)]
    groups = _groups(segments)
    found = [each.segment_seq for group in groups for each in group]
    assert sorted(found) == [*range(len(sizes))]
    assert all(groups)
    most = max(sizes, default=0) + GROUP_BYTES
    assert all(sum(each.bytes for each in group) <= most for group in groups)


def test_small_batch_has_work_for_two_cores() -> None:
    """If it has as many segments."""
    assert [len(_groups([segment(n) for n in range(count)])) for count in range(4)] == [0, 1, 2, 2]


def test_trace_topics_alone_are_spans(sent: Sent) -> None:
    """A batch without new segments of a table does not touch that table."""
    sent.seal([spans(1)], topic=TRACES)
    pipeline = Plain(sent.data)
    before = snapshots(sent.data)
    pipeline.run()
    changed = [old != new for old, new in zip(before, snapshots(sent.data), strict=True)]
    assert changed == [True, False, False]
