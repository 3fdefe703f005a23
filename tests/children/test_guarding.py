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
async def test_child_that_is_to_stop_is_not_started_again() -> None:
    """Nobody is there to ask then."""
    async with guarded() as child:
        child.stop()
        while child.ready.is_set():
            await asyncio.sleep(0.01)
        assert await child.ask("pid") is None
        assert child.restarts == 0
