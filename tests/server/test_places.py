"""Places that clients share: who is next, who is put off, who is asked to leave."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.server.places import EVERYBODY, Bounds, Client, Places
from penstock.server.refusals import Cause, Refusal
from tests.servers.loops import in_loop

A, B, C = (Client(who, f"{who}:1") for who in "abc")


def places(count: int, **more: Any) -> Places:
    """With bounds that matter to nobody."""
    return Places(Bounds(count, **{"of_client": 99, "waiting": 99, **more}))


class Line:
    """Requests that wait, and the order in which they get a place."""

    def __init__(self, shared: Places) -> None:
        self.order: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self._places = shared

    async def join(self, *clients: Client) -> None:
        """In this order."""
        for client in clients:
            self.tasks.append(asyncio.create_task(self._take(client)))
            await asyncio.sleep(0)

    async def _take(self, client: Client) -> None:
        async with self._places.hold(client):
            self.order.append(client.connection)
            await asyncio.sleep(0)


@in_loop
async def test_clients_take_turns_however_many_requests_one_has() -> None:
    """Not in the order in which the requests came."""
    shared = places(1)
    line, first = Line(shared), await shared.take(A)
    await line.join(A, A, A, B, C, B)
    shared.leave(first)
    await asyncio.gather(*line.tasks)
    assert line.order == ["b:1", "c:1", "a:1", "b:1", "a:1", "a:1"]


@in_loop
async def test_connections_of_one_client_take_turns_too() -> None:
    """Whoever has several of them gets no more for that."""
    shared, other = places(1), Client("a", "a:2")
    line, first = Line(shared), await shared.take(C)
    await line.join(A, A, A, other, B)
    shared.leave(first)
    await asyncio.gather(*line.tasks)
    assert line.order == ["a:1", "b:1", "a:2", "a:1", "a:1"]


@in_loop
async def test_no_client_has_all_places() -> None:
    """What is free stays free for others, who are let in at once."""
    shared = places(3, of_client=2, of_connection=1)
    await shared.take(A)
    line = Line(shared)
    await line.join(A)
    await shared.take(Client("a", "a:2"))
    await line.join(Client("a", "a:3"))
    assert line.order == []
    await asyncio.wait_for(shared.take(B), 60)
    for task in line.tasks:
        task.cancel()


@in_loop
async def test_too_many_that_wait_are_put_off() -> None:
    """Those of one client; another one's may still wait."""
    shared = places(1, waiting_of_client=2)
    first, line = await shared.take(A), Line(shared)
    await line.join(A, A, B)
    with pytest.raises(Refusal) as refused:
        await shared.take(A)
    assert refused.value.cause is Cause.BUSY
    assert refused.value.retry_after_s
    shared.leave(first)
    await asyncio.gather(*line.tasks)
    assert sorted(line.order) == ["a:1", "a:1", "b:1"]


@in_loop
async def test_whoever_has_most_that_wait_gives_one_up() -> None:
    """The last of them, to come again; who would have no fewer is put off."""
    shared = places(1, waiting=3, what="queries", whose="with this token")
    first, line = await shared.take(A), Line(shared)
    await line.join(A, A, A)
    with pytest.raises(Refusal, match="3 queries wait already, 3 of them with this token"):
        await shared.take(A)
    await line.join(B, C)
    for given_up in (2, 1):
        with pytest.raises(Refusal, match="others wait who have asked less"):
            await line.tasks[given_up]
    with pytest.raises(Refusal, match="3 queries wait already, 0 of them"):
        await shared.take(Client("d", "d:1"))
    shared.leave(first)
    await asyncio.gather(*line.tasks, return_exceptions=True)
    assert line.order == ["b:1", "c:1", "a:1"]


@in_loop
async def test_nobody_starves_while_others_come_again_and_again() -> None:
    """Whoever had a place since one waits is behind it, also when it has left meanwhile."""
    shared = places(1)
    place, line = await shared.take(A), Line(shared)
    waiting = asyncio.create_task(shared.take(A))
    for client in (B, C, B, C):
        coming = asyncio.create_task(shared.take(client))
        await asyncio.sleep(0)
        shared.leave(place)
        done, _ = await asyncio.wait({waiting, coming}, return_when=asyncio.FIRST_COMPLETED)
        place = done.pop().result()
        line.order.append(place.client.who)
        if waiting.done():
            break
    assert line.order == ["b", "c", "a"]
    shared.leave(place)
    shared.leave(await coming)


@in_loop
async def test_everybody_is_bounded_by_the_whole_alone() -> None:
    """Where there are no tokens."""
    shared, all_of_them = places(2, of_client=1, waiting=0), Client(EVERYBODY, EVERYBODY)
    await shared.take(all_of_them)
    await shared.take(all_of_them)
    with pytest.raises(Refusal, match="0 requests wait already"):
        await shared.take(all_of_them)


@in_loop
async def test_wait_is_over_after_a_time() -> None:
    """It may come again; its place in the line is nobody's."""
    shared = places(1)
    first = await shared.take(A)
    with pytest.raises(Refusal, match="other requests took all the time") as refused:
        await shared.take(B, 0.01)
    assert refused.value.cause is Cause.BUSY
    assert refused.value.retry_after_s
    shared.leave(first)
    await asyncio.wait_for(shared.take(C), 60)


@in_loop
async def test_nothing_is_remembered_of_who_has_gone() -> None:
    """However it went."""
    shared = places(1, of_client=1, waiting=2)
    first, line = await shared.take(A), Line(shared)
    await line.join(A, B, C, A, A)
    shared.leave(first)
    line.tasks[0].cancel()
    await asyncio.gather(*line.tasks, return_exceptions=True)
    for left in ("_held", "_clients", "_connections", "_fresh", "_served", "_had_one", "_waiting"):
        assert not getattr(shared, left), left
    assert shared._free == 1


@in_loop
async def test_whoever_goes_away_leaves_its_turn_to_others() -> None:
    """While it waits, and in the moment in which it is let in."""
    shared = places(1)
    first, line = await shared.take(A), Line(shared)
    await line.join(A, B, C)
    line.tasks[0].cancel()
    await asyncio.sleep(0)
    shared.leave(first)
    line.tasks[1].cancel()
    await asyncio.gather(*line.tasks, return_exceptions=True)
    assert line.order == ["c:1"]
    await asyncio.wait_for(shared.take(A), 60)


@in_loop
async def test_whoever_has_most_is_asked_to_leave_when_others_wait() -> None:
    """After its turn, and not before somebody waits."""
    shared, left = places(2, turn_s=0.0), []

    async def stay(client: Client) -> None:
        async with shared.hold(client) as place:
            try:
                async with asyncio.timeout(600) as place.time:
                    await asyncio.Event().wait()
            except TimeoutError:
                left.append(client.who)

    staying = [asyncio.create_task(stay(A)) for _ in range(2)]
    await asyncio.sleep(0.3)
    assert left == []
    async with asyncio.timeout(60), shared.hold(B):
        assert left == ["a"]
    for task in staying:
        task.cancel()


@pytest.mark.parametrize(
    ("identity", "address", "who"),
    [
        ("", "10.0.0.1:5", "10.0.0.1"),
        ("", "ipv6:%5B::1%5D:5", "ipv6:%5B::1%5D"),
        ("00ff", "10.0.0.1:5", "00ff"),
        ("00ff", "10.0.0.1:6", "00ff"),
    ],
)
def test_client_is_its_token_or_its_address(identity: str, address: str, who: str) -> None:
    """Wherever it comes from; each connection is known."""
    assert Client.of(identity, address) == Client(who, address)
