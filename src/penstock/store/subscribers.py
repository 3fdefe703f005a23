"""Handing bundles to subscribers: claims, answers, retries.

Each subscriber has a feed: where it goes on, what is handed out, what is to be tried again and
when. Feeds share nothing, so a slow subscriber holds up nobody. Feeds live in memory; what must
survive is in the state.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import heapq
import logging
import math
from typing import TYPE_CHECKING

from penstock.log.commit import Commit
from penstock.model.errors import Damaged, InvalidArgument, SubscriberUnknown
from penstock.store.format import Answered, Outcome

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from random import Random
    from types import TracebackType

    from penstock.log.pool import Pool
    from penstock.model.bundle import Bundle
    from penstock.model.clock import Clock
    from penstock.model.settings import StoreSettings
    from penstock.segment import StoredBundle
    from penstock.store.journal import Journal
    from penstock.store.segments import SegmentFolder
    from penstock.store.state import SubscriberState

_LOG = logging.getLogger(__name__)

Place = tuple[int, int]
"""A bundle: segment_seq and index."""


class Claim:
    """A bundle that somebody holds."""

    __slots__ = ("holder", "until")

    def __init__(self, holder: object, until: float) -> None:
        self.holder = holder
        self.until = until


class Feed:
    """What one subscriber is getting. The journal's lock guards it."""

    def __init__(self, state: SubscriberState) -> None:
        self.state = state
        self.gone = False
        self.next: Place = state.high_water_mark()
        self.retries: list[tuple[float, Place]] = []
        self.claims: dict[Place, Claim] = {}
        self.changed = Commit()
        for place in state.nacks:
            heapq.heappush(self.retries, (0.0, place))

    def wake(self) -> None:
        """Lets everyone who waits look again."""
        changed, self.changed = self.changed, Commit()
        changed.resolve()

    def take_back(self, claim_of: Callable[[Claim], bool], due: float) -> None:
        """Makes claims deliverable again."""
        for place, claim in list(self.claims.items()):
            if claim_of(claim):
                del self.claims[place]
                heapq.heappush(self.retries, (due, place))


class Hub:
    """Delivers to all subscribers of one store."""

    def __init__(
        self,
        journal: Journal,
        segments: SegmentFolder,
        settings: StoreSettings,
        *,
        clock: Clock,
        random: Random,
        pool: Pool,
        check: Callable[[], None],
        on_settled: Callable[[], None],
    ) -> None:
        """`check` raises when the store is over; `on_settled` hears of segments to clean up."""
        self._journal = journal
        self._segments = segments
        self._settings = settings
        self._clock = clock
        self._random = random
        self._pool = pool
        self._check = check
        self._on_settled = on_settled
        self.damaged: set[int] = set()
        """Segments of which something could not be read."""
        self._feeds = {n: Feed(each) for n, each in journal.state.subscribers.items()}

    def feed(self, name: str) -> Feed:
        """The feed of a registered subscriber."""
        with self._journal.lock:
            state = self._journal.state.named(name)
            if state is None:
                raise SubscriberUnknown(f"no subscriber is called {name!r}")
            return self._feeds.setdefault(state.number, Feed(state))

    def in_flight(self, number: int) -> int:
        """How many bundles a subscriber holds."""
        feed = self._feeds.get(number)
        return len(feed.claims) if feed is not None else 0

    def forget(self, number: int) -> None:
        """Ends the feed of a subscriber that was unregistered."""
        with self._journal.lock:
            feed = self._feeds.pop(number, None)
            if feed is not None:
                feed.gone = True
                feed.wake()

    def pause(self, feed: Feed) -> None:
        """Takes back what is handed out."""
        with self._journal.lock:
            feed.take_back(lambda _: True, self._clock.monotonic())
            feed.wake()

    def wake_all(self) -> None:
        """There is something new, or the store is over."""
        with self._journal.lock:
            for feed in self._feeds.values():
                feed.wake()

    # --- taking --------------------------------------------------------------------------------

    def take(self, feed: Feed, holder: object) -> Delivery | float:
        """The next bundle, or how long nothing will be due unless the feed changes."""
        while True:
            with self._journal.lock:
                self._check_feed(feed)
                place = self._claim(feed, holder)
                if isinstance(place, float):
                    return place
                claim = feed.claims[place]
            try:
                stored = self._read(feed, place)
            except BaseException:
                self.release(feed, place, claim)
                raise
            if stored is not None:
                attempt = feed.state.nacks.get(place, 0) + 1
                return Delivery(self, feed, place, claim, stored, attempt)

    def _check_feed(self, feed: Feed) -> None:
        self._check()
        name = feed.state.name
        if feed.gone:
            raise SubscriberUnknown(f"the subscriber {name!r} was unregistered")
        if not feed.state.active:
            raise SubscriberUnknown(f"the subscriber {name!r} is not active")

    def _claim(self, feed: Feed, holder: object) -> Place | float:
        now = self._clock.monotonic()
        expires = self._expire(feed, now)
        if len(feed.claims) >= self._settings.max_in_flight:
            return expires
        place = self._due_retry(feed, now) or self._next_fresh(feed)
        if place is None:
            due = feed.retries[0][0] - now if feed.retries else math.inf
            return min(expires, max(0.0, due))
        claim_s = self._settings.claim_s
        feed.claims[place] = Claim(holder, math.inf if claim_s is None else now + claim_s)
        return place

    def _expire(self, feed: Feed, now: float) -> float:
        """Takes back what was held too long; returns when the next one is."""
        for claim in feed.claims.values():  # oldest first: all are held equally long
            if claim.until > now:
                return claim.until - now
            break
        else:
            return math.inf
        feed.take_back(lambda claim: claim.until <= now, now)
        return self._expire(feed, now)

    def _due_retry(self, feed: Feed, now: float) -> Place | None:
        while feed.retries and feed.retries[0][0] <= now:
            _, place = heapq.heappop(feed.retries)
            if self._is_wanted(feed, place):
                return place
        return None

    def _next_fresh(self, feed: Feed) -> Place | None:
        """The next bundle that was never handed out."""
        state = self._journal.state
        seq, index = max(feed.next, feed.state.high_water_mark())
        while seq < state.next_seq:
            info = state.segments.get(seq)
            while info is not None and index < info.bundles:
                feed.next = (seq, index + 1)
                if self._is_wanted(feed, (seq, index)) and (seq, index) not in feed.state.nacks:
                    return seq, index
                index += 1
            seq, index = seq + 1, 0
        feed.next = (seq, 0)
        return None

    def _is_wanted(self, feed: Feed, place: Place) -> bool:
        there = place[0] in self._journal.state.segments
        return there and place not in feed.claims and not feed.state.has(*place)

    def _read(self, feed: Feed, place: Place) -> StoredBundle | None:
        """The bundle; None where it is gone, or is noted as lost."""
        seq, index = place
        info = self._journal.state.segments.get(seq)
        if info is None:  # it was dropped meanwhile
            with self._journal.lock:
                feed.claims.pop(place, None)
            return None
        try:
            return self._segments.bundle(info, index)
        except (Damaged, FileNotFoundError) as error:
            with self._journal.lock:
                feed.claims.pop(place, None)
                if seq not in self._journal.state.segments or feed.gone:
                    return None
                self.damaged.add(seq)
                with contextlib.suppress(OSError):  # now, since a restart forgets who is damaged
                    self._segments.keep_aside(seq)
                text = "%s: bundle %d of segment %d is lost: %s"
                _LOG.error(text, feed.state.name, index, seq, error)
                self._record(feed, Outcome.LOST, seq, index)
        return None

    # --- answering -----------------------------------------------------------------------------

    def answer(
        self, feed: Feed, place: Place, claim: Claim, outcome: Outcome, retry_s: float | None
    ) -> Commit:
        """Notes what became of a bundle."""
        with self._journal.lock:
            self._check()
            if feed.gone:
                raise SubscriberUnknown(f"the subscriber {feed.state.name!r} was unregistered")
            mine = feed.claims.get(place) is claim
            if mine or outcome is not Outcome.NACKED:
                feed.claims.pop(place, None)
            if place[0] in self._journal.state.segments:
                commit = self._record(feed, outcome, *place)
            else:  # dropped, or others have answered for it: it is counted already
                commit, mine = self._journal.latest, False
            if outcome is Outcome.NACKED and mine:
                pause = self._backoff(feed, place) if retry_s is None else retry_s
                heapq.heappush(feed.retries, (self._clock.monotonic() + pause, place))
            feed.wake()
        return commit

    def release(self, feed: Feed, place: Place, claim: Claim) -> None:
        """Takes a bundle back that nobody answered."""
        with self._journal.lock:
            if feed.claims.get(place) is claim:
                feed.take_back(lambda other: other is claim, self._clock.monotonic())
                feed.wake()

    def release_later(self, feed: Feed, place: Place, claim: Claim) -> None:
        """`release` for a finalizer, which may run in the middle of anything."""
        self._pool.submit(functools.partial(self.release, feed, place, claim))

    def release_holder(self, feed: Feed, holder: object) -> None:
        """Takes back all that one holder has."""
        with self._journal.lock:
            feed.take_back(lambda claim: claim.holder is holder, self._clock.monotonic())
            feed.wake()

    def _record(self, feed: Feed, outcome: Outcome, seq: int, index: int) -> Commit:
        now_ns = self._clock.wall_ns()
        event = Answered(outcome, feed.state.number, seq, index, 1, now_ns)
        commit = self._journal.record(event)
        info = self._journal.state.segments.get(seq)
        if info is not None and self._journal.state.is_complete(info):
            self._on_settled()
        return commit

    def _backoff(self, feed: Feed, place: Place) -> float:
        doubled = self._settings.retry_first_s * 2.0 ** min(feed.state.nacks.get(place, 1) - 1, 60)
        return min(doubled, self._settings.retry_most_s) * self._random.uniform(0.5, 1.0)


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
        clock = self._hub._clock  # noqa: SLF001 - one idea in two classes
        until = math.inf if timeout is None else clock.monotonic() + timeout
        while True:
            changed = self._feed.changed
            got = self._hub.take(self._feed, self)
            if isinstance(got, Delivery):
                return got
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
            if isinstance(got, Delivery):
                return got
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

    def __init__(
        self,
        hub: Hub,
        feed: Feed,
        place: Place,
        claim: Claim,
        stored: StoredBundle,
        attempt: int,
    ) -> None:
        """Use `Subscription.next_bundle`."""
        self._hub = hub
        self._feed = feed
        self._place = place
        self._claim = claim
        self._answer: tuple[Outcome, Commit] | None = None
        self.stored = stored
        self.attempt = attempt
        """1 at first; one more with each nack."""

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
