"""Places that clients share fairly: whoever had its turn longest ago is next.

For what takes long or holds much. One client's requests wait behind each other, and not in front of
the requests of others; one connection's behind each other within the client's share.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.server.receiving.refusals import Cause, Refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

_RETRY_S: Final = 1.0
_LOOK_S: Final = 0.25
_CLIENTS: Final = 4
"""So many clients may have as many waiting as one may."""


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


class Places:
    """So many of them. Belongs to one event loop."""

    def __init__(
        self,
        count: int,
        *,
        of_client: int,
        of_connection: int,
        waiting: int,
        turn_s: float | None = None,
    ) -> None:
        """Of these a client has at most `of_client` at a time, a connection `of_connection`.

        `waiting`: so many requests of a client wait, and four times as many of all; more are put
        off. `turn_s`: after this a
        holder is asked to leave while others wait; None: never.
        """
        self._free = count
        self._of_client = of_client
        self._of_connection = of_connection
        self._most_waiting = waiting
        self._turn_s = turn_s
        self._held: set[Place] = set()
        self._clients: Counter[str] = Counter()
        self._connections: Counter[str] = Counter()
        self._waiting: dict[str, dict[str, deque[asyncio.Future[Place]]]] = {}
        """By client, then by connection; those that had a turn go to the end."""
        self._waiting_of: Counter[str] = Counter()
        self._waiting_count = 0
        self._looking: asyncio.TimerHandle | None = None

    @contextlib.asynccontextmanager
    async def hold(self, client: Client) -> AsyncIterator[Place]:
        """A place, when it is this client's turn; Refusal where too many of its requests wait."""
        place = await self.take(client)
        try:
            yield place
        finally:
            self.leave(place)

    async def take(self, client: Client) -> Place:
        """The same, to be left with `leave`."""
        # Whoever waits cannot be let in at present: it is passed by, not overtaken.
        if self._free and self._may(client):
            return self._grant(client)
        self._check_waiting(client)
        turn: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        connections = self._waiting.setdefault(client.who, {})
        connections.setdefault(client.connection, deque()).append(turn)
        self._waiting_of[client.who] += 1
        self._waiting_count += 1
        self._look_soon()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(turn.result())
            raise
        finally:
            self._forget(client, turn)

    def leave(self, place: Place) -> None:
        """Gives it to whoever is next."""
        self._held.discard(place)
        _less(self._clients, place.client.who)
        _less(self._connections, place.client.connection)
        self._free += 1
        while self._free and self._let_in():
            pass

    def _check_waiting(self, client: Client) -> None:
        own = self._waiting_of[client.who]
        if own >= self._most_waiting or self._waiting_count >= _CLIENTS * self._most_waiting:
            text = f"{self._waiting_count} requests wait for their turn, {own} of this client"
            raise Refusal(Cause.BUSY, text, retry_after_s=_RETRY_S)

    def _may(self, client: Client) -> bool:
        return (
            self._clients[client.who] < self._of_client
            and self._connections[client.connection] < self._of_connection
        )

    def _grant(self, client: Client) -> Place:
        self._free -= 1
        self._clients[client.who] += 1
        self._connections[client.connection] += 1
        place = Place(client, asyncio.get_running_loop().time())
        self._held.add(place)
        return place

    def _let_in(self) -> bool:
        for who, connections in self._waiting.items():
            for connection, turns in connections.items():
                client = Client(who, connection)
                turn = next((each for each in turns if not each.done()), None)
                if turn is not None and self._may(client):
                    turn.set_result(self._grant(client))
                    connections[connection] = connections.pop(connection)
                    self._waiting[who] = self._waiting.pop(who)
                    return True
        return False

    def _forget(self, client: Client, turn: asyncio.Future[Place]) -> None:
        connections = self._waiting[client.who]
        turns = connections[client.connection]
        turns.remove(turn)
        self._waiting_count -= 1
        _less(self._waiting_of, client.who)
        if not turns:
            del connections[client.connection]
        if not connections:
            del self._waiting[client.who]

    # --- who has had its time ------------------------------------------------------------------

    def _look_soon(self) -> None:
        if self._turn_s is not None and self._looking is None:
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
            for connections in self._waiting.values()
            for connection in connections
            if not self._connections[connection]
        ]
        for place, _ in zip(self._overdue(), without, strict=False):
            assert place.time is not None
            place.time.reschedule(asyncio.get_running_loop().time())
            place.time = None
        self._look_soon()

    def _overdue(self) -> Iterator[Place]:
        assert self._turn_s is not None
        before = asyncio.get_running_loop().time() - self._turn_s
        late = [each for each in self._held if each.time is not None and each.since < before]

        def greed(place: Place) -> tuple[int, int, float]:
            client = place.client
            return -self._clients[client.who], -self._connections[client.connection], place.since

        return iter(sorted(late, key=greed))


def _less(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
