"""`penstock pipeline` on object storage: the queue, and replay from both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.model.errors import Fenced
from penstock.queue import Consumer
from tests.cli.running import run
from tests.cli.test_pipeline import data, warm
from tests.pipeline.flush.helpers import names_in
from tests.pipeline.flush.test_archive import archive, feed
from tests.pipeline.flush.test_queue import Queue, queue
from tests.pipeline.helpers import TRACES, Data, named, spans

if TYPE_CHECKING:
    from penstock.pipeline.feeds import ArchiveFeed

__all__ = ["data", "feed", "queue", "warm"]
pytestmark = pytest.mark.usefixtures("warm")


def test_the_queue_is_consumed(data: Data, queue: Queue) -> None:
    """Who consumed before is fenced, and what the lake has is gone from the queue."""
    queue.batch(spans(1))
    with Consumer.open(queue.url) as before:
        before.initialize()
        command = ("pipeline", "run", "--once", "--queue", queue.url, "--data-dir", data.root)
        assert run(*command).code == 0
        with pytest.raises(Fenced):
            before.next_batch()
        queue.batch(spans(2))
        assert run(*command).code == 0
    assert (names_in(data), queue.waiting(data)) == (named(1, 2), [])


def test_replay_of_a_queue_leaves_it_as_it_is(data: Data, queue: Queue) -> None:
    """A consumer takes it all the same, and the lake has each span once."""
    queue.batch(spans(1))
    queue.batch(spans(2))
    where = ("--queue", queue.url, "--data-dir", data.root)
    assert run("pipeline", "replay", *where).code == 0
    assert (names_in(data), queue.waiting(data)) == (named(1, 2), [0, 1])
    queue.batch(spans(3))
    assert run("pipeline", "run", "--once", *where).code == 0
    assert (names_in(data), queue.waiting(data)) == (named(1, 2, 3), [])


def test_replay_of_an_archive(data: Data, feed: ArchiveFeed) -> None:
    """A second one finds nothing new."""
    data.seal([spans(1)], [spans(2)])
    archive(data, feed, TRACES)
    command = ("pipeline", "replay", "--archive", feed.url, "--metadata", feed.metadata_url)
    for _ in range(2):
        assert run(*command, "--data-dir", data.root).code == 0
        assert names_in(data) == named(1, 2)


@pytest.mark.parametrize("options", [(), ("--archive", "a", "--queue", "b")])
def test_replay_needs_one_source(data: Data, options: tuple[str, ...]) -> None:
    """Not two, and not none."""
    answer = run("pipeline", "replay", *options, "--data-dir", data.root)
    assert answer.code == 2
