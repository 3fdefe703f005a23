"""A pipeline ends after the batch under way."""

from __future__ import annotations

import pickle
import threading
from dataclasses import replace

import pytest

from penstock.pipeline.flush.ending import Ending
from tests.pipeline.flush.helpers import Plain, Sent, assert_exactly_once, names_in
from tests.pipeline.flush.running import PATIENCE_S
from tests.pipeline.helpers import spans


def test_batch_under_way_is_waited_for() -> None:
    """Whoever waits returns after it."""
    ending, begun, order = Ending(), threading.Event(), []

    def work() -> None:
        with ending.batch() as begins:
            begun.set()
            assert begins
            threading.Event().wait(0.1)
            order.append("batch")

    batch = threading.Thread(target=work)
    batch.start()
    assert begun.wait(PATIENCE_S)
    ending.ask()
    ending.wait()
    order.append("end")
    batch.join()
    assert order == ["batch", "end"]


def test_no_batch_is_begun_afterwards() -> None:
    """However often it is tried, or asked."""
    ending = Ending()
    ending.ask()
    ending.ask()
    with ending.batch() as begins:
        assert not begins


def test_elsewhere_nobody_has_asked() -> None:
    """Spark Connect takes the flush to another process."""
    ending = Ending()
    ending.ask()
    with pickle.loads(pickle.dumps(ending)).batch() as begins:  # noqa: S301 - our own
        assert begins


@pytest.mark.usefixtures("plain")
def test_batch_that_is_not_begun_is_left_to_the_next_run(sent: Sent) -> None:
    """Nothing of it is in the lake, and nothing is lost."""
    sent.seal([spans(1)])
    pipeline = Plain(sent.data)
    pipeline.flush = replace(pipeline.flush, ending=Ending())
    pipeline.flush.ending.ask()
    pipeline.run()
    assert names_in(sent.data) == []
    Plain(sent.data).run()
    assert_exactly_once(sent)
