"""Turns of queries: bounded by token, and given in order of who had one longest ago."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.server.querying.turns import EVERYBODY, Turns
from penstock.server.receiving.refusals import Cause, Refusal

FOREVER_S = 600.0


class Askers:
    """Queries that run until they are told to end, in the order in which they began."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.begun: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, *names: str) -> None:
        """One query for each name; its first letter is the token."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._run(name))
            await settled()

    async def end(self, name: str) -> None:
        """Its query is answered."""
        self._ends[name].set()
        await self.tasks[name]
        await settled()

    async def leave(self) -> None:
        """All go away."""
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)

    async def _run(self, name: str) -> None:
        async with self._turns.turn(name[0].strip("-"), FOREVER_S):
            self.begun.append(name)
            await self._ends[name].wait()


async def settled() -> None:
    """Everybody who can go on has gone on."""
    for _ in range(10):
        await asyncio.sleep(0)


def running(
    test: Callable[[Askers], Coroutine[Any, Any, None]], *bounds: int
) -> Callable[[], None]:
    """A test with askers; nothing is left afterwards."""

    async def all_of_it() -> None:
        turns = Turns(*bounds)
        askers = Askers(turns)
        await test(askers)
        await askers.leave()
        assert not turns._running
        assert not turns._waiting
        assert not turns._served

    return lambda: asyncio.run(all_of_it())


def test_token_runs_no_more_than_its_own() -> None:
    """The other turn is there for whoever else comes, at once."""

    async def test(askers: Askers) -> None:
        await askers.ask("a1", "a2", "a3", "b1")
        assert askers.begun == ["a1", "b1"]
        await askers.end("b1")
        assert askers.begun == ["a1", "b1"]
        await askers.end("a1")
        assert askers.begun == ["a1", "b1", "a2"]

    running(test, 2, 16, 1)()


def test_who_had_a_turn_longest_ago_is_next() -> None:
    """However many of another wait before."""

    async def test(askers: Askers) -> None:
        await askers.ask("a1", "a2", "a3", "b1", "c1")
        await askers.end("a1")
        await askers.end("b1")
        await askers.end("c1")
        assert askers.begun == ["a1", "b1", "c1", "a2"]

    running(test, 1, 16, 1)()


def test_whoever_has_most_places_gives_one_up() -> None:
    """The last that it asked, to be asked again; who has no fewer is put off."""

    async def test(askers: Askers) -> None:
        await askers.ask("a1", "a2", "a3", "a4", "a5", "b1")
        assert (await refusal(askers, "a5")).startswith("3 queries wait already, 3 of them")
        assert (await refusal(askers, "a4")).startswith("others wait")
        await askers.ask("c1", "d1")
        assert (await refusal(askers, "a3")).startswith("others wait")
        assert (await refusal(askers, "d1")).startswith("3 queries wait already, 0 of them")
        await askers.end("a1")
        assert askers.begun == ["a1", "b1"]

    running(test, 1, 3, 1)()


async def refusal(askers: Askers, name: str) -> str:
    """What the asker was told; it may come again."""
    with pytest.raises(Refusal) as raised:
        await askers.tasks[name]
    assert raised.value.cause is Cause.BUSY
    assert raised.value.retry_after_s
    return raised.value.message


def test_without_tokens_all_turns_are_everybodys() -> None:
    """And are bounded in all."""

    async def test(askers: Askers) -> None:
        await askers.ask("-1", "-2", "-3", "-4")
        assert askers.begun == ["-1", "-2"]
        assert "1 queries wait already" in await refusal(askers, "-4")

    assert EVERYBODY == ""
    running(test, 2, 1, 1)()


def test_turn_of_one_who_has_left_is_the_next_ones() -> None:
    """Whether it waited, or its turn came as it left."""

    async def test(askers: Askers) -> None:
        await askers.ask("a1", "b1", "c1", "d1")
        askers.tasks["b1"].cancel()
        await settled()
        askers._ends["a1"].set()
        await asyncio.sleep(0)
        askers.tasks["c1"].cancel()
        await settled()
        assert askers.begun[-1] == "d1"

    running(test, 1, 16, 1)()


def test_wait_is_over_after_a_time() -> None:
    """It may be asked again."""

    async def all_of_it() -> None:
        turns = Turns(1, 16, 1)
        async with turns.turn("a", FOREVER_S):
            with pytest.raises(Refusal, match="took all the time"):
                async with turns.turn("b", 0.01):
                    raise AssertionError("it is not its turn")

    asyncio.run(all_of_it())
