"""A child that runs by itself: it is there again, whatever becomes of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from penstock.children.guarding import Guarded
from tests.patience import PATIENCE_S
from tests.servers.loops import in_loop


@contextlib.asynccontextmanager
async def guarded(deadline_s: float = 3600.0) -> AsyncIterator[Guarded]:
    """One that was told `{"told": 1}`."""
    child = Guarded("tests.children.guarded", "it", {"told": 1}, deadline_s=deadline_s)
    running = asyncio.create_task(child.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            await child.ready.wait()
            yield child
    finally:
        child.stop()
        await running


async def pid(child: Guarded) -> int:
    """Its present process."""
    while True:
        await child.ready.wait()
        if (answer := await child.ask("pid", PATIENCE_S)) is not None:
            assert answer["told"] == 1
            return int(answer["pid"])


@in_loop
async def test_many_ask_at_once() -> None:
    """Each has its own answer."""
    async with guarded() as child:
        answers = await asyncio.gather(*(child.ask("pid", PATIENCE_S) for _ in range(20)))
        assert len({answer["id"] for answer in answers if answer}) == 20
        assert child.restarts == 0


@pytest.mark.parametrize("end", ["die", "nonsense"])
def test_child_that_ends_is_started_again(end: str) -> None:
    """With what the first was told; one that nobody understands is ended."""

    async def test() -> None:
        async with guarded() as child:
            first = await pid(child)
            assert await child.ask(end, PATIENCE_S) is None
            assert await pid(child) != first
            assert child.restarts == 1

    asyncio.run(test())


@in_loop
async def test_child_that_hangs_is_ended_and_started_again() -> None:
    """It is asked now and then whether it is well."""
    async with guarded(deadline_s=1.0) as child:
        first = await pid(child)
        assert await child.ask("hang", PATIENCE_S) is None
        assert await pid(child) != first
        assert child.restarts >= 1


@in_loop
async def test_question_that_is_given_up_is_given_up() -> None:
    """Its asker is cancelled, and nothing else is; a late answer is nobody's."""
    async with guarded() as child:
        asking = asyncio.create_task(child.ask("pid", PATIENCE_S))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert await pid(child)
        assert not child._waiting


@in_loop
async def test_one_watches_however_often_it_was_started_again() -> None:
    """Whoever watched the last process is gone with it."""
    async with guarded(deadline_s=0.5) as child:
        for _ in range(3):
            await pid(child)
            await child.ask("die", PATIENCE_S)
            await pid(child)
        watching = [each for each in asyncio.all_tasks() if "_watch" in repr(each.get_coro())]
        assert len(watching) == 1


@in_loop
async def test_child_that_is_to_stop_is_not_started_again() -> None:
    """Nobody is there to ask then."""
    async with guarded() as child:
        child.stop()
        while child.ready.is_set():
            await asyncio.sleep(0.01)
        assert await child.ask("pid") is None
        assert child.restarts == 0
