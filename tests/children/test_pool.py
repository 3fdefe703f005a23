"""Children that an event loop keeps for the next question."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.children.asking import Child, ChildDied
from penstock.children.pool import ChildNotReady, Pool, PoolClosed
from tests.patience import PATIENCE_S
from tests.server.running import is_alive
from tests.servers.loops import in_loop

ECHO = "tests.children.echoing"


class Started:
    """The children of a pool, in the order in which they were started, and those that it ended."""

    def __init__(self, module: str = ECHO) -> None:
        self.module = module
        self.children: list[Child] = []
        self.ended: list[Child] = []

    def __call__(self) -> Child:
        self.children.append(Child(self.module))
        return self.children[-1]


@contextlib.asynccontextmanager
async def pool(started: Started, **more: Any) -> AsyncIterator[Pool]:
    """Of two at the most; nobody is left at the end."""
    bounds = {"most": 2, "kept_bytes": math.inf, **more}
    made = Pool(started, on_end=started.ended.append, **bounds)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield made
    finally:
        await made.close()
    assert set(started.ended) == set(started.children)
    assert not [child for child in started.children if is_alive(child.pid)]


async def echo(made: Pool) -> bytes:
    """A question that any of them can answer."""
    [answer] = await made.ask([b"echo", b"x"], PATIENCE_S)
    return bytes(answer)


@in_loop
async def test_child_is_kept_for_the_next_question() -> None:
    """Two at once are asked of two."""
    started = Started()
    async with pool(started) as made:
        assert [await echo(made) for _ in range(3)] == [b"x"] * 3
        assert len(started.children) == 1
        await asyncio.gather(echo(made), echo(made))
        assert len(started.children) == 2
        assert made.restarts == 0


@pytest.mark.parametrize("bound", [{"kept_bytes": 1}, {"most_answers": 1}, {"idle_s": 0.0}])
def test_child_is_not_kept_for_ever(bound: dict[str, float]) -> None:
    """Not with too much memory, after too many answers, or where nobody asks."""

    async def test() -> None:
        started = Started()
        async with pool(started, **bound) as made:
            await echo(made)
            while not started.ended:
                await asyncio.sleep(0.01)
            await echo(made)
            assert len(started.children) == 2
            assert made.restarts == 0

    asyncio.run(test())


@in_loop
async def test_child_that_dies_is_replaced_and_counted() -> None:
    """While it is asked, and while nobody asks it."""
    started = Started()
    async with pool(started) as made:
        with pytest.raises(ChildDied):
            await made.ask([b"die"], PATIENCE_S)
        await echo(made)
        started.children[-1]._process.kill()
        started.children[-1]._process.wait()
        await echo(made)
        assert (len(started.children), made.restarts) == (3, 2)


@in_loop
async def test_question_that_is_given_up_ends_its_child() -> None:
    """Nobody would take its answer."""
    started = Started()
    async with pool(started) as made:
        asking = asyncio.create_task(made.ask([b"hang"], 3600))
        while not made.silent_s():
            await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await echo(made)
        assert len(started.children) == 2


@in_loop
async def test_end_does_not_wait_for_an_answer() -> None:
    """Whoever asks, now or later, hears of it."""
    started = Started()
    async with pool(started) as made:
        asking = asyncio.create_task(made.ask([b"hang"], 3600))
        while not made.silent_s():
            await asyncio.sleep(0.01)
    with pytest.raises(PoolClosed):
        await asking
    with pytest.raises(PoolClosed):
        await echo(made)


@in_loop
async def test_child_that_does_not_take_its_orders_is_not_ready() -> None:
    """That is told apart from one that a question ended."""
    started = Started("tests.children.ending")
    async with pool(started, orders=[b"anything"]) as made:
        with pytest.raises(ChildNotReady):
            await echo(made)
