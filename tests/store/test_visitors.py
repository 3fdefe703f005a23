"""Who reads without being registered: nothing is kept for it, and nothing is left of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.log.environment import Environment, MemoryBound
from penstock.metrics import Metrics
from penstock.model.errors import InvalidArgument
from penstock.store import Store
from tests.patience import until
from tests.pipeline.helpers import RequestDecoder, Signal, spans


def opened(folder: Path) -> Store:
    """A store at that place."""
    env = Environment(metrics=Metrics(), memory=MemoryBound())
    return Store.open(folder, decoder=RequestDecoder(Signal.TRACES), env=env)


def seal(store: Store, number: int) -> None:
    """A segment of one bundle."""
    store.append_durable(spans(number))
    store.flush()


def test_visitor_is_given_what_is_there_and_is_not_known(tmp_path: Path) -> None:
    """Its bundles come again to the next visitor of the name."""
    with opened(tmp_path) as store:
        seal(store, 0)
        for _ in range(2):
            with store.visit("me") as visit:
                delivery = visit.next_bundle(0)
                assert delivery is not None
                assert (store.subscribers(), store.is_registered("me")) == ([], False)
            del delivery, visit
    with opened(tmp_path) as store:
        assert store.subscribers() == []


def test_visitor_is_registered_durably_with_its_first_answer(tmp_path: Path) -> None:
    """And its answer with it: after a restart it goes on behind that."""
    with opened(tmp_path) as store:
        seal(store, 0)
        seal(store, 1)
        with store.visit("me") as visit:
            first, second = visit.next_bundle(0), visit.next_bundle(0)
            assert first is not None
            assert second is not None
            first.ack().wait()
            [status] = store.subscribers()
            assert (status.name, status.acked, status.lag_bundles) == ("me", 1, 1)
            assert status.in_flight == 1  # the second is with it still
            second.nack(0.0)
            again = visit.next_bundle(0)
            assert again is not None
            assert again.segment_seq == second.segment_seq
    with opened(tmp_path) as store, store.visit("me") as visit:
        left = visit.next_bundle(0)
        assert left is not None
        assert left.segment_seq == second.segment_seq


def test_visitors_of_one_name_share_the_work(tmp_path: Path) -> None:
    """Also when the name is registered under them."""
    with opened(tmp_path) as store:
        seal(store, 0)
        seal(store, 1)
        with store.visit("me") as one, store.visit("me") as other:
            first = one.next_bundle(0)
            assert store.register("me")
            second = other.next_bundle(0)
            assert first is not None
            assert second is not None
            assert first.segment_seq != second.segment_seq
            assert one.next_bundle(0) is None
            first.ack().wait()
            second.ack().wait()
        [status] = store.subscribers()
        assert (status.acked, status.lag_bundles) == (2, 0)


def test_nothing_is_kept_for_a_visitor(tmp_path: Path) -> None:
    """What the others have goes; the visitor is given what comes after it, at once."""
    with opened(tmp_path) as store:
        store.register("them")
        seal(store, 0)
        with store.visit("me") as visit, store.subscribe("them") as theirs:
            taken = theirs.next_bundle(0)
            assert taken is not None
            taken.ack().wait()
            until(lambda: not store.segments)
            assert visit.next_bundle(0) is None
            seal(store, 1)
            found = visit.next_bundle(30.0)
            assert found is not None
            assert found.segment_seq == 1


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb"])
def test_visitor_has_a_name(tmp_path: Path, name: str) -> None:
    """As a subscriber has."""
    with opened(tmp_path) as store, pytest.raises(InvalidArgument, match="name"):
        store.visit(name)
