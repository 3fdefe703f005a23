"""Whether a request can be stored, found out without keeping others waiting.

What takes the event loop a few milliseconds at the most is looked at where it is. All else waits
for one of a few places, which clients share fairly, is unpacked in a thread (that code lets go of
the interpreter's lock) and checked in another process (that code does not).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.children.asking import SEEN, Child, ChildDied, ChildSilent
from penstock.children.pool import ChildNotReady, Pool, PoolClosed
from penstock.model.settings import KIB, MIB
from penstock.otel.large import may_be_dense
from penstock.otel.validate import RequestLimits
from penstock.server.places import Bounds, Places
from penstock.server.receiving.checker import Checked, Outcome, check, checked, question
from penstock.server.refusals import Cause, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.otel.signals import Signal
    from penstock.server.configuration.config import Limits
    from penstock.server.places import Client, Place

SMALL_BYTES: Final = 16 * KIB
"""Whatever it is, it is checked within some four milliseconds."""
LIGHT_BYTES: Final = 2 * MIB
"""So is this within some ten, unless it is dense; the batches of most SDKs and collectors are
smaller."""
LIGHT_JSON_BYTES: Final = 256 * KIB
LIGHT_VALUES: Final = 2000
"""Of JSON, which takes microseconds for each."""
FREE_BYTES: Final = 8 * MIB
"""A compressed request may become so much, however small it was: a batch of metrics that are all
zero does, of several thousand times its size."""
PLACES: Final = 2
"""Processes that check. One client has one of them at a time, so that there is one for others."""
CHECKER: Final = "penstock.server.receiving.checker"
PATIENCE_S: Final = 30.0
"""The longest that a request waits for its turn."""
STOPPING_S: Final = 3.0
"""The longest that a check may take while the worker stops."""
_BOUNDS: Final = Bounds(
    PLACES, of_client=1, waiting=1024, waiting_of_client=256, what="large requests"
)
_LEAST_RATE: Final = 2 * MIB
"""Bytes a second that a check is given time for, beside its deadline."""
_KEPT_BYTES: Final = 256 * MIB
"""A process that has more memory after an answer is not kept."""


class Arrived(NamedTuple):
    """A request as it came."""

    signal: Signal
    data: bytes
    unpack: Callable[[bytes, int], bytes] | None = None
    """Undoes its compression, up to so many bytes."""
    is_json: bool = False


class Checks:
    """One worker's. Processes are started when the first large request comes."""

    def __init__(self, limits: Limits, deadline_s: float = PATIENCE_S) -> None:
        """`deadline_s`: the longest that a check may take, beside the time for its bytes."""
        self._limits = limits
        self._deadline_s = deadline_s
        self._request_limits = RequestLimits(max_records=limits.records, max_parts=limits.parts)
        self._places = Places(_BOUNDS)
        self._pool = Pool(lambda: Child(CHECKER), most=PLACES, kept_bytes=_KEPT_BYTES)
        self._running: set[asyncio.Task[Checked]] = set()

    async def check(self, arrived: Arrived, client: Client, grow: Callable[[int], None]) -> Checked:
        """What is to be stored of it; Refusal says why nothing is.

        `grow` counts the bytes that it has more than were sent.
        """
        light = self._light(arrived)
        if light is not None:
            grow(max(0, len(light) - len(arrived.data)))
            limits, is_json = self._request_limits, arrived.is_json
            return _sound(check(arrived.signal, light, limits, is_json=is_json))
        place = await self._places.take(client, PATIENCE_S)
        # It goes on when the client has gone, and has its place until then: the process could not
        # be asked anything else.
        task = asyncio.create_task(self._check_elsewhere(arrived, place, grow))
        self._running.add(task)
        task.add_done_callback(self._done)
        return _sound(await asyncio.shield(task))

    def hurry(self) -> None:
        """The worker is stopping, and does not wait long for a process that hangs."""
        self._pool.hurry(STOPPING_S)

    async def close(self) -> None:
        """Ends the processes; whoever waits for one is told to come again."""
        await self._pool.close()
        if self._running:
            await asyncio.wait(self._running)

    @property
    def restarts(self) -> int:
        """How many processes had to be replaced."""
        return self._pool.restarts

    def failures(self) -> list[str]:
        """What is wrong with the processes at present."""
        waited = self._pool.silent_s()
        silent = waited > self._deadline_s / SEEN
        return [f"a check has not ended for {waited:.0f} s"] if silent else []

    def _light(self, arrived: Arrived) -> bytes | None:
        """The request unpacked, where looking at it takes no time to speak of."""
        data = arrived.data
        if len(data) > LIGHT_BYTES:
            return None
        if arrived.unpack is not None:
            try:
                data = arrived.unpack(data, min(LIGHT_BYTES, self._limits.decompressed))
            except Refusal as refusal:
                if refusal.cause is Cause.TOO_LARGE:
                    return None
                raise
        return data if is_light(data, is_json=arrived.is_json) else None

    async def _check_elsewhere(
        self, arrived: Arrived, place: Place, grow: Callable[[int], None]
    ) -> Checked:
        try:
            data = arrived.data
            if arrived.unpack is not None:
                most = unpacked_bytes(len(data), self._limits)
                data = await self._pool.run(arrived.unpack, data, most)
                grow(max(0, len(data) - len(arrived.data)))
            return await self._ask(arrived.signal, data, is_json=arrived.is_json)
        except PoolClosed:
            text = "the server is stopping"
            raise Refusal(Cause.UNAVAILABLE, text, retry_after_s=5.0) from None
        except ChildNotReady as error:
            text = f"it cannot be checked at present: {error}"
            raise Refusal(Cause.UNAVAILABLE, text, retry_after_s=5.0) from None
        except ChildSilent:  # it may be the machine
            text = "checking it took too long"
            raise Refusal(Cause.UNAVAILABLE, text, retry_after_s=5.0) from None
        except ChildDied:
            text = "the process that checks it did not survive it"
            return Checked(Outcome.INVALID, text=text)
        finally:
            self._places.leave(place)

    async def _ask(self, signal: Signal, data: bytes, *, is_json: bool) -> Checked:
        """ChildDied where it does so again: others must not suffer from a request for ever."""
        asked = question(signal, data, self._request_limits, is_json=is_json)
        within_s = self._deadline_s + len(data) / _LEAST_RATE
        try:
            return checked(await self._pool.ask(asked, within_s), data)
        except (PoolClosed, ChildNotReady, ChildSilent):
            raise
        except ChildDied:
            return checked(await self._pool.ask(asked, within_s), data)

    def _done(self, task: asyncio.Task[Checked]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked may have gone


def unpacked_bytes(size: int, limits: Limits) -> int:
    """The most that so many bytes may become."""
    return min(limits.decompressed, max(FREE_BYTES, size * limits.ratio))


def is_light(data: bytes, *, is_json: bool) -> bool:
    """Whether it is checked within a few milliseconds."""
    if len(data) > (LIGHT_JSON_BYTES if is_json else LIGHT_BYTES):
        return False
    if is_json:
        return sum(map(data.count, (b",", b"{", b"["))) <= LIGHT_VALUES
    return len(data) <= SMALL_BYTES or not may_be_dense(data)


def _sound(found: Checked) -> Checked:
    if found.outcome is Outcome.SOUND:
        return found
    cause = Cause.INVALID if found.outcome is Outcome.INVALID else Cause.TOO_LARGE
    raise Refusal(cause, found.text)
