"""The shop's traces are whole, plausible, and the same for the same seed."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from penstock.load.calls import Kind
from penstock.load.services import SERVICES
from penstock.load.shop import Shop
from penstock.load.stamps import ID_MARK, WINDOW_NS
from tests.load.helpers import spans


@pytest.mark.parametrize("count", [1, 2, 10, 333])
def test_there_are_as_many_spans_as_asked_for(count: int) -> None:
    """The last trace has fewer calls where it would be too many."""
    assert len(spans(count)) == count


def test_every_trace_is_one_tree() -> None:
    """One root each; a parent stands before its children, in the same trace."""
    seen: set[int] = set()
    roots: Counter[bytes] = Counter()
    for span in spans(2000):
        seen.add(id(span))
        roots[span.trace_id] += span.parent is None
        if span.parent is not None:
            assert id(span.parent) in seen
            assert span.parent.trace_id == span.trace_id
    assert set(roots.values()) == {1}
    assert len(roots) > 100


def test_ids_are_unique_and_end_with_the_mark() -> None:
    """No two spans of a request share an id."""
    made = spans(15_000)
    assert len({span.span_id for span in made}) == 15_000
    for span in made:
        assert (len(span.trace_id), len(span.span_id)) == (16, 8)
        assert span.trace_id.endswith(ID_MARK)
        assert span.span_id.endswith(ID_MARK)


def test_children_lie_within_their_parents() -> None:
    """But for consumers, which nobody waits for. All lie in the window."""
    for span in spans(2000):
        assert 0 <= span.start_ns < span.end_ns <= WINDOW_NS
        if span.parent is not None and span.call.kind is not Kind.CONSUMER:
            assert span.parent.start_ns <= span.start_ns
            assert span.end_ns <= span.parent.end_ns


def test_nobody_waits_for_a_consumer() -> None:
    """It goes on when the trace's root has long ended."""
    consumers = [span for span in spans(4000) if span.call.kind is Kind.CONSUMER]
    assert any(span.parent is not None and span.end_ns > span.parent.end_ns for span in consumers)


def test_all_services_and_kinds_take_part() -> None:
    """Eight services; calls, answers, messages and work of their own."""
    made = spans(4000)
    assert {span.service for span in made} == set(SERVICES)
    assert {span.call.kind for span in made} == set(Kind)


def test_some_calls_fail_and_their_callers_with_them() -> None:
    """A failure begins somewhere, and ends where somebody can do without."""
    made = spans(6000)
    failed = [span for span in made if span.failed]
    assert 0.005 < len(failed) / len(made) < 0.1
    assert any(span.thrown for span in failed)
    assert any(not span.thrown for span in failed)
    tolerated = [span for span in failed if span.parent is not None and not span.parent.failed]
    assert tolerated
    assert all(
        span.parent is not None and (span.parent.call.tolerant or span.call.kind is Kind.CONSUMER)
        for span in tolerated
    )


def test_failures_show_in_the_attributes() -> None:
    """As the semantic conventions say."""
    for span in spans(4000):
        if span.failed and span.call.on_error:
            assert span.attributes["error.type"] == span.call.on_error["error.type"]


def test_latencies_have_a_tail() -> None:
    """The slowest are many times slower than the median."""
    took = sorted(
        span.end_ns - span.start_ns for span in spans(4000) if span.call.name == "GET /products/:id"
    )
    assert took[-1] > 5 * took[len(took) // 2]


def test_the_same_random_numbers_make_the_same_traces() -> None:
    """And others, others."""
    assert spans(100) == spans(100)
    assert spans(100) != spans(100, seed=2)


def test_ids_may_come_again_in_the_next_request() -> None:
    """Its nonce is another; within a request they never do."""
    shop = Shop(Random(3))
    for _ in range(3):
        assert len({span.span_id for span in shop.spans(500)}) == 500
