"""What a subscriber holds: its way to bundles, and each bundle until it is answered."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING

from penstock.model.errors import InvalidArgument
from penstock.store.format import Outcome
from penstock.store.hub import Taken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from types import TracebackType

    from penstock.log.commit import Commit
    from penstock.model.bundle import Bundle
    from penstock.store.hub import Feed, Hub


class Subscription:
    """One holder's way to a subscriber's bundles. Any number of holders share the work.

    Order: bundles come in the order of segments, retries in between. At least once: a bundle comes
    again when it was not answered, or its answer was not durable before a crash. Safe from any
    thread; waiting may be abandoned.
    """

    def __init__(self, hub: Hub, feed: Feed) -> None:
        """Use `Store.subscribe`."""
        self._hub = hub
        self._feed = feed

    @property
    def name(self) -> str:
        """The subscriber's name."""
        return self._feed.state.name

    def next_bundle(self, timeout: float | None = None) -> Delivery | None:
        """The next bundle, waiting for it; None after the timeout. 0 does not wait.

        StoreClosed, StoreStopped, SubscriberUnknown: there will be none.
        """
        clock = self._hub.clock
        until = math.inf if timeout is None else clock.monotonic() + timeout
        while True:
            changed = self._feed.changed
            got = self._hub.take(self._feed, self)
            if isinstance(got, Taken):
                return Delivery(self._hub, self._feed, got)
            left = until - clock.monotonic()
            if left <= 0:
                return None
            wait = min(left, got)
            changed.settle(None if wait == math.inf else wait)

    async def next_bundle_async(self, timeout: float | None = None) -> Delivery | None:
        """`next_bundle` for coroutines. Cancelled, it has taken nothing."""
        loop = asyncio.get_running_loop()
        until = math.inf if timeout is None else loop.time() + timeout
        while True:
            changed = self._feed.changed
            got = self._hub.take(self._feed, self)
            if isinstance(got, Taken):
                return Delivery(self._hub, self._feed, got)
            left = until - loop.time()
            if left <= 0:
                return None
            wait = min(left, got)
            with contextlib.suppress(TimeoutError):  # wait_for may swallow a cancellation
                async with asyncio.timeout(None if wait == math.inf else wait):
                    await changed.settle_async()

    def __iter__(self) -> Iterator[Delivery]:
        """Bundle by bundle, for ever."""
        while (delivery := self.next_bundle()) is not None:
            yield delivery

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        """Bundle by bundle, for ever."""
        while (delivery := await self.next_bundle_async()) is not None:
            yield delivery

    def close(self) -> None:
        """Gives back what was taken here and not answered; it is delivered again at once."""
        self._hub.release_holder(self._feed, self)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Delivery:
    """A bundle that waits for its answer: `ack`, `nack` or `reject`, once.

    Dropped without an answer, it is delivered again at once. Each answer returns a commit to wait
    for, or not to: what is not durable when the process dies is delivered again.
    """

    __slots__ = ("_answer", "_claim", "_feed", "_hub", "_place", "attempt", "stored")

    def __init__(self, hub: Hub, feed: Feed, taken: Taken) -> None:
        """Use `Subscription.next_bundle`."""
        self._hub = hub
        self._feed = feed
        self._place, self._claim, self.stored, self.attempt = taken
        self._answer: tuple[Outcome, Commit] | None = None

    @property
    def bundle(self) -> Bundle:
        """The data; it stays readable when the segment is deleted."""
        return self.stored.bundle

    @property
    def segment_seq(self) -> int:
        """The segment it is in."""
        return self._place[0]

    @property
    def bundle_index(self) -> int:
        """Its place in the segment."""
        return self._place[1]

    @property
    def first_offset(self) -> int:
        """The offset of its first message in the log."""
        return self.stored.first_offset

    @property
    def messages(self) -> int:
        """How many messages it holds."""
        return self.stored.messages

    @property
    def ingested_at_ns(self) -> int:
        """When it arrived."""
        return self.stored.ingested_at_ns

    def ack(self) -> Commit:
        """The subscriber has it."""
        return self._settle(Outcome.ACKED)

    def nack(self, retry_after_s: float | None = None) -> Commit:
        """Not now. Comes again after `retry_after_s`, by default after a pause that grows."""
        if retry_after_s is not None and not 0 <= retry_after_s < math.inf:
            raise InvalidArgument(f"cannot try again after {retry_after_s} seconds")
        return self._settle(Outcome.NACKED, retry_after_s)

    def reject(self) -> Commit:
        """Never. Counted apart from what was acked."""
        return self._settle(Outcome.REJECTED)

    def _settle(self, outcome: Outcome, retry_s: float | None = None) -> Commit:
        if self._answer is None:
            commit = self._hub.answer(self._feed, self._place, self._claim, outcome, retry_s)
            self._answer = (outcome, commit)
        if self._answer[0] is not outcome:
            answered = self._answer[0].name.lower()
            raise InvalidArgument(f"the bundle was {answered} already")
        return self._answer[1]

    def __del__(self) -> None:
        """A holder that dies with its claim lets it go."""
        if getattr(self, "_answer", True) is None:
            self._hub.release_later(self._feed, self._place, self._claim)
