"""Places that clients share fairly: whoever had none of late is next.

For what takes long or holds much: requests that are read, checks of large ones, queries. One
client's wait behind each other, and not in front of those of others; one connection's behind each
other within the client's share. Where all places to wait are taken, one of whoever has most of them
is given up for one who has fewer: it is put off, to come again.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.server.refusals import Cause, Refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

EVERYBODY: Final = ""
"""The identity of all where there are no tokens, and of the server: bounded by the whole alone."""
_RETRY_S: Final = 1.0
_LOOK_S: Final = 0.25
_REMEMBERED: Final = 10_000


class Client(NamedTuple):
    """Who shares: a token where tokens are used, an address where not; and its connection."""

    who: str
    connection: str

    @classmethod
    def of(cls, identity: str, address: str) -> Client:
        """`identity`: of its token; empty where it has none.

        `address` ends with the port, which tells a client's connections apart.
        """
        return cls(identity or address.rpartition(":")[0], address)


class Place:
    """One that somebody has."""

    def __init__(self, client: Client, since: float) -> None:
        self.client = client
        self.since = since
        self.time: asyncio.Timeout | None = None
        """Set by a holder that can be asked to leave: others wait, and it has had its time."""


class Bounds(NamedTuple):
    """How many may have a place, and how many may wait for one."""

    places: int
    of_client: int
    """Of these a client has at most so many at a time."""
    waiting: int
    of_connection: int | None = None
    """And one of its connections so many; None: as many as the client."""
    waiting_of_client: int | None = None
    turn_s: float | None = None
    """After this a holder is asked to leave while others wait; None: never."""
    what: str = "requests"
    whose: str = "of this client"
    """How those are told of it who are put off."""


_Line = dict[str, deque["asyncio.Future[Place]"]]
"""Of a client, by connection; those that had a turn go to the end."""


class Places:
    """Belongs to one event loop.

    Invariant: nobody waits who could have a place: whoever comes first to one passes others by, and
    does not overtake them.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._free = bounds.places
        self._held: set[Place] = set()
        self._clients: Counter[str] = Counter()
        self._connections: Counter[str] = Counter()
        self._fresh: dict[str, _Line] = {}
        """Of clients that had no place of late."""
        self._served: dict[str, _Line] = {}
        """Of the others; who had one goes to the end."""
        self._had_one: set[str] = set()
        """Since somebody waits."""
        self._waiting: Counter[str] = Counter()
        self._looking: asyncio.TimerHandle | None = None

    @contextlib.asynccontextmanager
    async def hold(self, client: Client, within_s: float | None = None) -> AsyncIterator[Place]:
        """A place, when it is this client's turn. Refusal, to come again, where none comes."""
        place = await self.take(client, within_s)
        try:
            yield place
        finally:
            self.leave(place)

    async def take(self, client: Client, within_s: float | None = None) -> Place:
        """The same, to be left with `leave`."""
        if self._free and self._may(client):
            return self._grant(client)
        self._make_room(client)
        turn: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        self._line_up(client, turn)
        try:
            await asyncio.wait([turn], timeout=within_s)
            if not turn.done():
                raise _busy(f"other {self._bounds.what} took all the time")
            return turn.result()
        except asyncio.CancelledError:
            if turn.done() and turn.exception() is None:
                self.leave(turn.result())  # nobody is there to take it
            raise
        finally:
            self._step_out(client, turn)

    def leave(self, place: Place) -> None:
        """Gives it to whoever is next."""
        self._held.discard(place)
        _less(self._clients, place.client.who)
        _less(self._connections, place.client.connection)
        self._free += 1
        while self._free and self._let_in():
            pass

    def _may(self, client: Client) -> bool:
        bounds = self._bounds
        of_client = bounds.places if client.who == EVERYBODY else bounds.of_client
        of_connection = of_client if bounds.of_connection is None else bounds.of_connection
        return (
            self._clients[client.who] < of_client
            and self._connections[client.connection] < of_connection
        )

    def _grant(self, client: Client) -> Place:
        self._free -= 1
        self._clients[client.who] += 1
        self._connections[client.connection] += 1
        place = Place(client, asyncio.get_running_loop().time())
        self._held.add(place)
        if self._waiting and len(self._had_one) < _REMEMBERED:
            self._had_one.add(client.who)
        return place

    # --- who waits -----------------------------------------------------------------------------

    def _make_room(self, client: Client) -> None:
        own, bounds = self._waiting[client.who], self._bounds
        text = f"{self._waiting.total()} {bounds.what} wait already, {own} of them {bounds.whose}"
        if bounds.waiting_of_client is not None and own >= bounds.waiting_of_client:
            raise _busy(text)
        if self._waiting.total() < bounds.waiting:
            return
        [(greediest, most)] = self._waiting.most_common(1) or [("", 0)]
        if most <= own + 1:
            raise _busy(text)
        line = self._fresh.get(greediest) or self._served[greediest]
        connection, turns = max(line.items(), key=lambda each: len(each[1]))
        given_up = turns[-1]
        given_up.set_exception(_busy("others wait who have asked less"))
        self._step_out(Client(greediest, connection), given_up)

    def _line_up(self, client: Client, turn: asyncio.Future[Place]) -> None:
        who = client.who
        known = who in self._served or who in self._had_one or bool(self._clients[who])
        lines = self._fresh if who in self._fresh or not known else self._served
        lines.setdefault(who, {}).setdefault(client.connection, deque()).append(turn)
        self._waiting[who] += 1
        self._look_soon()

    def _step_out(self, client: Client, turn: asyncio.Future[Place]) -> None:
        """Idempotent. Invariant: all that are in a line wait."""
        lines = self._fresh if client.who in self._fresh else self._served
        line = lines.get(client.who, {})
        turns = line.get(client.connection)
        if turns is None or turn not in turns:
            return
        turns.remove(turn)
        _less(self._waiting, client.who)
        if not turns:
            del line[client.connection]
        if not line:
            del lines[client.who]
        if not self._waiting:
            self._had_one.clear()

    def _let_in(self) -> bool:
        for who, line in itertools.chain(self._fresh.items(), self._served.items()):
            for connection, turns in line.items():
                client = Client(who, connection)
                if self._may(client):
                    turns[0].set_result(self._grant(client))
                    self._step_out(client, turns[0])
                    self._to_the_end(client)
                    return True
        return False

    def _to_the_end(self, client: Client) -> None:
        """Those of it that still wait."""
        line = self._fresh.pop(client.who, None) or self._served.pop(client.who, None)
        if line is not None:
            self._served[client.who] = line
            if client.connection in line:
                line[client.connection] = line.pop(client.connection)

    # --- who has had its time ------------------------------------------------------------------

    def _look_soon(self) -> None:
        if self._bounds.turn_s is not None and self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        """Asks one holder to leave for each connection that waits and has no place.

        Those with the most first; nobody is asked to leave for others of its own connection.
        """
        self._looking = None
        if not self._waiting:
            return
        without = [
            connection
            for line in itertools.chain(self._fresh.values(), self._served.values())
            for connection in line
            if not self._connections[connection]
        ]
        for place, _ in zip(self._overdue(), without, strict=False):
            assert place.time is not None
            place.time.reschedule(asyncio.get_running_loop().time())
            place.time = None
        self._look_soon()

    def _overdue(self) -> Iterator[Place]:
        assert self._bounds.turn_s is not None
        before = asyncio.get_running_loop().time() - self._bounds.turn_s
        late = [each for each in self._held if each.time is not None and each.since < before]

        def greed(place: Place) -> tuple[int, int, float]:
            client = place.client
            return -self._clients[client.who], -self._connections[client.connection], place.since

        return iter(sorted(late, key=greed))


def _busy(text: str) -> Refusal:
    return Refusal(Cause.BUSY, text, retry_after_s=_RETRY_S)


def _less(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
