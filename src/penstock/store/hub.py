"""Handing bundles to subscribers: claims, answers, retries.

Each subscriber has a feed: where it goes on, what is handed out, what is to be tried again and
when. Feeds share nothing, so a slow subscriber holds up nobody. Feeds live in memory; what must
survive is in the state. A visitor has a feed and no place in the state: nothing is kept for it, and
nothing of it remains, until its first answer makes it a subscriber.
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import logging
import math
import weakref
from typing import TYPE_CHECKING, NamedTuple

from penstock.log.commit import Commit
from penstock.model.errors import Damaged, SubscriberUnknown
from penstock.store.format import Answered, Outcome, Registered
from penstock.store.state import SubscriberState

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.segment import StoredBundle
    from penstock.store.holdings import Holdings

_LOG = logging.getLogger(__name__)

Place = tuple[int, int]
"""A bundle: segment_seq and index."""
_NO_NUMBER = -1
"""Of a visitor, whom the state does not know."""


class Claim:
    """A bundle that somebody holds."""

    __slots__ = ("holder", "until")

    def __init__(self, holder: object, until: float) -> None:
        self.holder = holder
        self.until = until


class Taken(NamedTuple):
    """A bundle that was handed out."""

    place: Place
    claim: Claim
    stored: StoredBundle
    attempt: int
    """1 at first; one more with each nack."""


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
        self, held: Holdings, check: Callable[[], None], on_settled: Callable[[], None]
    ) -> None:
        """`check` raises when the store is over; `on_settled` hears of segments to clean up."""
        self._journal = held.journal
        self._segments = held.segments
        self._settings = held.settings
        self.clock = held.env.clock
        self._env = held.env
        self._check = check
        self._on_settled = on_settled
        self.damaged: set[int] = set()
        """Segments of which something could not be read."""
        self._feeds = {n: Feed(each) for n, each in held.journal.state.subscribers.items()}
        self._visits: weakref.WeakValueDictionary[str, Feed] = weakref.WeakValueDictionary()
        """By name; a feed goes with the last who holds it."""

    def feed(self, name: str) -> Feed:
        """The feed of a registered subscriber."""
        with self._journal.lock:
            state = self._journal.state.named(name)
            if state is None:
                raise SubscriberUnknown(f"no subscriber is called {name!r}")
            return self._feeds.setdefault(state.number, Feed(state))

    def visit(self, name: str, start_seq: int) -> Feed:
        """The feed of a name, registered or not; all who visit under one name share one."""
        with self._journal.lock:
            if self._journal.state.named(name) is not None:
                return self.feed(name)
            feed = self._visits.get(name)
            if feed is None:
                feed = self._visits[name] = Feed(SubscriberState(_NO_NUMBER, name, start_seq))
            return feed

    def adopt(self, number: int) -> None:
        """Who visits under the name of a new subscriber goes on as that."""
        with self._journal.lock:
            state = self._journal.state.subscribers[number]
            feed = self._visits.pop(state.name, None)
            if feed is not None:
                feed.state = state
                self._feeds[number] = feed

    def in_flight(self, number: int) -> int:
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
        with self._journal.lock:
            feed.take_back(lambda _: True, self.clock.monotonic())
            feed.wake()

    def wake_all(self) -> None:
        """There is something new, or the store is over."""
        with self._journal.lock:
            for feed in (*self._feeds.values(), *self._visits.values()):
                feed.wake()

    # --- taking --------------------------------------------------------------------------------

    def take(self, feed: Feed, holder: object) -> Taken | float:
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
                return Taken(place, claim, stored, attempt)

    def _check_feed(self, feed: Feed) -> None:
        self._check()
        name = feed.state.name
        if feed.gone:
            raise SubscriberUnknown(f"the subscriber {name!r} was unregistered")
        if not feed.state.active:
            raise SubscriberUnknown(f"the subscriber {name!r} is not active")

    def _claim(self, feed: Feed, holder: object) -> Place | float:
        now = self.clock.monotonic()
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
                if feed.state.number != _NO_NUMBER:  # what a visitor cannot have is not noted
                    self._record(feed, Outcome.LOST, seq, index)
        return None

    # --- answering -----------------------------------------------------------------------------

    def answer(
        self, feed: Feed, place: Place, claim: Claim, outcome: Outcome, retry_s: float | None
    ) -> Commit:
        with self._journal.lock:
            self._check()
            if feed.gone:
                raise SubscriberUnknown(f"the subscriber {feed.state.name!r} was unregistered")
            if feed.state.number == _NO_NUMBER:
                self._register(feed)
            mine = feed.claims.get(place) is claim
            if mine or outcome is not Outcome.NACKED:
                feed.claims.pop(place, None)
            # The commit tells the subscriber that its answer is durable. Only with it does the
            # state move, and only what every subscriber has settled there may be deleted.
            if place[0] in self._journal.state.segments:
                commit = self._record(feed, outcome, *place)
            else:  # dropped, or others have answered for it: it is counted already
                commit, mine = self._journal.latest, False
            if outcome is Outcome.NACKED and mine:
                pause = self._backoff(feed, place) if retry_s is None else retry_s
                heapq.heappush(feed.retries, (self.clock.monotonic() + pause, place))
            feed.wake()
        return commit

    def _register(self, feed: Feed) -> None:
        """In the log before the answer, and so durable with it or before it."""
        state = self._journal.state
        number, start_seq = state.next_subscriber, feed.state.floor
        self._journal.record(Registered(number, start_seq, feed.state.name))
        self.adopt(number)

    def release(self, feed: Feed, place: Place, claim: Claim) -> None:
        """Takes a bundle back that nobody answered."""
        with self._journal.lock:
            if feed.claims.get(place) is claim:
                feed.take_back(lambda other: other is claim, self.clock.monotonic())
                feed.wake()

    def release_later(self, feed: Feed, place: Place, claim: Claim) -> None:
        """`release` for a finalizer, which may run in the middle of anything."""
        self._env.upkeep.submit(functools.partial(self.release, feed, place, claim))

    def release_holder(self, feed: Feed, holder: object) -> None:
        with self._journal.lock:
            feed.take_back(lambda claim: claim.holder is holder, self.clock.monotonic())
            feed.wake()

    def _record(self, feed: Feed, outcome: Outcome, seq: int, index: int) -> Commit:
        now_ns = self.clock.wall_ns()
        event = Answered(outcome, feed.state.number, seq, index, 1, now_ns)
        commit = self._journal.record(event)
        info = self._journal.state.segments.get(seq)
        if info is not None and self._journal.state.is_complete(info):
            self._on_settled()
        return commit

    def _backoff(self, feed: Feed, place: Place) -> float:
        doubled = self._settings.retry_first_s * 2.0 ** min(feed.state.nacks.get(place, 1) - 1, 60)
        return min(doubled, self._settings.retry_most_s) * self._env.jitter.uniform(0.5, 1.0)
