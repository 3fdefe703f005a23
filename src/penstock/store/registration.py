"""Who subscribes to a store: registers, pauses and forgets subscribers, durably."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Literal

from penstock.model.errors import InvalidArgument, PenstockError, SubscriberUnknown
from penstock.model.printable import check_printable
from penstock.store.format import Activated, Answered, Outcome, Registered, Unregistered
from penstock.store.state import runs
from penstock.store.status import SubscriberStatus, subscriber_status
from penstock.store.subscribers import Subscription

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.log import Commit
    from penstock.store.format import Event
    from penstock.store.holdings import Holdings
    from penstock.store.hub import Hub

Start = Literal["earliest", "latest"] | int
NAME_BYTES = 255


class Registration:
    """Knows the subscribers of one store; what its methods promise, `Store`'s say."""

    def __init__(
        self, held: Holdings, hub: Hub, check: Callable[[], None], on_settled: Callable[[], None]
    ) -> None:
        """`check` raises when the store is over; `on_settled` hears that something may go."""
        self._clock = held.env.clock
        self._journal = held.journal
        self._hub = hub
        self._check = check
        self._on_settled = on_settled

    def subscribe(self, name: str, start: Start = "earliest") -> Subscription:
        self.register(name, start)
        self.activate(name)
        return Subscription(self._hub, self._hub.feed(name))

    def visit(self, name: str, start: Start = "earliest") -> Subscription:
        _check_name(name)
        with self._journal.lock:
            self._check()
            if self._journal.state.named(name) is None:
                check_printable(name, "a subscriber's name")
                return Subscription(self._hub, self._hub.visit(name, self._start_seq(start)))
        return self.subscribe(name, start)

    def register(self, name: str, start: Start = "earliest") -> bool:
        _check_name(name)
        with self._journal.lock:
            self._check()
            state = self._journal.state
            if state.named(name) is not None:
                return False
            check_printable(name, "a subscriber's name")
            number = state.next_subscriber
            commit = self._journal.record(Registered(number, self._start_seq(start), name))
            self._hub.adopt(number)
            self._journal.compact()  # so that two files know of it
        # Whoever is told of it relies on every bundle from now on: the name is synced first.
        self._wait_or_undo(commit, Unregistered(number))
        self._on_settled()  # what it does not want may now be nobody's
        return True

    def is_registered(self, name: str) -> bool:
        with self._journal.lock:
            return self._journal.state.named(name) is not None

    def unregister(self, name: str) -> None:
        with self._journal.lock:
            self._check()
            number = self._known(name)
            commit = self._journal.record(Unregistered(number))
            self._journal.compact()
            self._hub.forget(number)
        commit.wait()
        self._journal.flush()
        self._on_settled()

    def activate(self, name: str) -> None:
        self._set_active(name, active=True)

    def deactivate(self, name: str) -> None:
        self._set_active(name, active=False)
        self._hub.pause(self._hub.feed(name))

    def reset(self, name: str, start: Start = "earliest") -> None:
        with self._journal.lock:
            self._check()
            number, again = self._known(name), self._journal.state.next_subscriber
            # Together, so that no moment is without it: what only it lacks must stay.
            events = (Unregistered(number), Registered(again, self._start_seq(start), name))
            self._journal.record(*events)
            self._hub.forget(number)
            commit = self._journal.compact()
        commit.wait()
        self._journal.flush()
        self._on_settled()

    def acknowledge_through(
        self,
        name: str,
        segment_seq: int,
        end_offset: int | None = None,
        sealed_at_ns: int | None = None,
    ) -> int:
        with self._journal.lock:
            self._check()
            state, number = self._journal.state, self._known(name)
            subscriber, now_ns = state.subscribers[number], self._clock.wall_ns()
            missing = {
                info.segment_seq: bits
                for info in state.segments.values()
                if info.segment_seq <= segment_seq
                and (end_offset is None or info.end_offset <= end_offset)
                and (sealed_at_ns is None or info.sealed_at_ns <= sealed_at_ns)
                and (bits := subscriber.missing(info))
            }
            if not missing:
                return 0
            commit = self._journal.record(
                *(
                    Answered(Outcome.ACKED, number, seq, first, count, now_ns)
                    for seq, bits in missing.items()
                    for first, count in runs(bits)
                )
            )
        commit.wait()  # durable before anything goes for it
        self._on_settled()
        return sum(bits.bit_count() for bits in missing.values())

    def subscribers(self) -> list[SubscriberStatus]:
        now_ns = self._clock.wall_ns()
        with self._journal.lock:
            state = self._journal.state
            return [
                subscriber_status(state, each, self._hub.in_flight(number), now_ns)
                for number, each in state.subscribers.items()
            ]

    def _start_seq(self, start: Start) -> int:
        state = self._journal.state
        if start == "earliest":
            return next(iter(state.segments), state.next_seq)
        if start == "latest":
            return state.next_seq
        if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
            return min(start, state.next_seq)
        raise InvalidArgument(f"cannot start at {start!r}: earliest, latest or a segment_seq")

    def _known(self, name: str) -> int:
        found = self._journal.state.named(name)
        if found is None:
            raise SubscriberUnknown(f"no subscriber is called {name!r}")
        return found.number

    def _set_active(self, name: str, *, active: bool) -> None:
        with self._journal.lock:
            self._check()
            number = self._known(name)
            if self._journal.state.subscribers[number].active is active:
                return
            commit = self._journal.record(Activated(number, active))
        commit.wait()

    def _wait_or_undo(self, commit: Commit, undo: Event) -> None:
        try:
            commit.wait()
            self._journal.flush()  # with `interval` too, where a full disk kept it from a new file
        except PenstockError:
            with self._journal.lock, contextlib.suppress(PenstockError):
                self._journal.record(undo)
            raise


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not 0 < len(name.encode()) <= NAME_BYTES:
        raise InvalidArgument(f"a subscriber's name has 1 to {NAME_BYTES} bytes, not {name!r}")
