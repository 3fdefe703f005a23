"""Bundles handed out to remote subscribers, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.log.environment import Environment, MemoryBound
from penstock.metrics import Metrics
from penstock.model.errors import InvalidArgument, ServerUnreachable, StoreFull
from penstock.server.flight import deliveries
from penstock.server.flight.deliveries import Deliveries
from penstock.store import Store
from tests.pipeline.helpers import RequestDecoder, Signal, spans

if TYPE_CHECKING:
    import pyarrow as pa


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """One with two sealed segments of a bundle each; streams are not patient."""
    monkeypatch.setattr(deliveries, "BEAT_S", 0.01)
    env = Environment(metrics=Metrics(), memory=MemoryBound())
    with Store.open(tmp_path, decoder=RequestDecoder(Signal.TRACES), env=env) as opened:
        for number in range(2):
            opened.append_durable(spans(number))
            opened.flush()
        yield opened


def places(stream: Iterator[pa.RecordBatch], count: int) -> list[list[int]]:
    """The next bundles of a stream."""
    found: list[list[int]] = []
    while len(found) < count:
        batch = next(stream)
        if batch.num_rows:
            found.append([batch["segment_seq"][0].as_py(), batch["bundle_index"][0].as_py()])
    return found


def answer(out: Deliveries, store: Store, how: str, *bundles: Any, **more: Any) -> int:
    """As `Deliveries.answer`."""
    return out.answer(store, "me", how, {"bundles": list(bundles), **more})


def test_no_more_than_so_many_are_unanswered(store: Store) -> None:
    """The next comes with an answer."""
    out = Deliveries()
    stream = out.stream(store, "me", None, 1)
    assert places(stream, 1) == [[0, 0]]
    assert not any(next(stream).num_rows for _ in range(5))
    assert answer(out, store, "ack", [0, 0]) == 1
    assert places(stream, 1) == [[1, 0]]


def test_end_of_a_stream_takes_nothing_from_another(store: Store) -> None:
    """What it had and nacked may be with the other by now."""
    out = Deliveries()
    first, second = out.stream(store, "me", None, 2), out.stream(store, "me", None, 2)
    assert places(first, 2) == [[0, 0], [1, 0]]
    answer(out, store, "nack", [0, 0], retry_after_s=0)
    assert places(second, 1) == [[0, 0]]
    first.close()  # type: ignore[attr-defined]  # an Iterator that is a generator
    assert answer(out, store, "ack", [0, 0]) == 1
    assert places(second, 1) == [[1, 0]]


def test_answers_are_taken_all_or_none(store: Store) -> None:
    """One that is not out refuses the others; one that stands twice counts once."""
    out = Deliveries()
    stream = out.stream(store, "me", None, 2)
    places(stream, 2)
    with pytest.raises(InvalidArgument, match="7:0 is not with me"):
        answer(out, store, "ack", [0, 0], [7, 0])
    assert answer(out, store, "ack", [0, 0], [1, 0], [0, 0]) == 2
    [status] = store.subscribers()
    assert (status.acked, status.lag_bundles) == (2, 0)


@pytest.mark.parametrize("bundles", [None, 1, [1], [[1]], [["x", 0]], [[0, 0, 0]]], ids=str)
def test_answer_that_names_no_bundles_is_refused(store: Store, bundles: Any) -> None:
    """In one sentence."""
    with pytest.raises(InvalidArgument, match="bundles is a list"):
        Deliveries().answer(store, "me", "ack", {"bundles": bundles})


def test_delay_is_a_number(store: Store) -> None:
    """And the bundle stays out where it is none."""
    out = Deliveries()
    places(out.stream(store, "me", None, 1), 1)
    with pytest.raises(InvalidArgument, match="cannot try again"):
        answer(out, store, "nack", retry_after_s="soon")


def test_streams_are_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a thread; one that ended makes room."""
    monkeypatch.setattr(deliveries, "MOST_STREAMS", 1)
    out = Deliveries()
    stream = out.stream(store, "me", None, 1)
    out.check()
    places(stream, 1)
    with pytest.raises(StoreFull):
        out.check()
    stream.close()  # type: ignore[attr-defined]
    out.check()


def test_stopping_ends_streams(store: Store) -> None:
    """Without waiting for bundles, and in an error: an end in order says that nothing came."""
    out = Deliveries()
    stream = out.stream(store, "me", 3600.0, 1)
    places(stream, 1)
    out.stop()
    with pytest.raises(ServerUnreachable, match="stopping"):
        list(stream)
