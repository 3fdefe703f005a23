"""Who subscribes: the half of a store that registers, pauses and forgets subscribers, durably."""

from __future__ import annotations

import abc
import contextlib
from typing import TYPE_CHECKING, Literal

from penstock.model.errors import InvalidArgument, PenstockError, SubscriberUnknown
from penstock.model.printable import check_printable
from penstock.store.format import Activated, Answered, Outcome, Registered, Unregistered
from penstock.store.state import runs
from penstock.store.status import SubscriberStatus, subscriber_status
from penstock.store.subscribers import Subscription

if TYPE_CHECKING:
    from penstock.log import Commit
    from penstock.model.clock import Clock
    from penstock.store.format import Event
    from penstock.store.hub import Hub
    from penstock.store.journal import Journal

Start = Literal["earliest", "latest"] | int
NAME_BYTES = 255


class Registration(abc.ABC):
    """Knows the subscribers of one store."""

    _clock: Clock
    _hub: Hub
    _journal: Journal

    @abc.abstractmethod
    def _check(self) -> None:
        """Raises when the store is over."""

    @abc.abstractmethod
    def _ask_for_maintenance(self) -> None:
        """Something may have become removable."""

    def subscribe(self, name: str, start: Start = "earliest") -> Subscription:
        """Registers the subscriber if it is new, activates it, and returns a way to its bundles.

        `start` is where a new one begins: with the oldest segment, with what is sealed from now
        on, or with a segment_seq. One that is known goes on where it was.
        """
        self.register(name, start)
        self.activate(name)
        return Subscription(self._hub, self._hub.feed(name))

    def visit(self, name: str, start: Start = "earliest") -> Subscription:
        """As `subscribe`, but a new name becomes known with its first answer, durably with that.

        Until then nothing is kept for it, and when everybody who visits under it has gone nothing
        of it is left: a name that was mistyped costs nothing.
        """
        _check_name(name)
        with self._journal.lock:
            self._check()
            if self._journal.state.named(name) is None:
                check_printable(name, "a subscriber's name")
                return Subscription(self._hub, self._hub.visit(name, self._start_seq(start)))
        return self.subscribe(name, start)

    def register(self, name: str, start: Start = "earliest") -> bool:
        """Makes the name known, durably: from now on everything is kept for it. False: it was."""
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
        self._wait_or_undo(commit, Unregistered(number))
        self._ask_for_maintenance()  # what it does not want may now be nobody's
        return True

    def is_registered(self, name: str) -> bool:
        """Whether everything is kept for it until it has answered."""
        with self._journal.lock:
            return self._journal.state.named(name) is not None

    def unregister(self, name: str) -> None:
        """Forgets the subscriber for good; what was kept for it alone may go."""
        with self._journal.lock:
            self._check()
            number = self._known(name)
            commit = self._journal.record(Unregistered(number))
            self._journal.compact()
            self._hub.forget(number)
        commit.wait()
        self._journal.flush()
        self._ask_for_maintenance()

    def activate(self, name: str) -> None:
        """Lets a registered subscriber receive."""
        self._set_active(name, active=True)

    def deactivate(self, name: str) -> None:
        """Takes back what it holds and delivers nothing; everything is kept for it."""
        self._set_active(name, active=False)
        self._hub.pause(self._hub.feed(name))

    def reset(self, name: str, start: Start = "earliest") -> None:
        """Begins anew from `start`, with what is still there."""
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
        self._ask_for_maintenance()

    def acknowledge_through(
        self,
        name: str,
        segment_seq: int,
        end_offset: int | None = None,
        sealed_at_ns: int | None = None,
    ) -> int:
        """Acks every bundle up to and with that segment, durably; says how many had no outcome.

        With `end_offset` and `sealed_at_ns` those of segments alone that end there or before, and
        were sealed then or before.

        For a subscriber that reads the segments' files by itself, whose every word is final.
        """
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
        commit.wait()
        self._ask_for_maintenance()
        return sum(bits.bit_count() for bits in missing.values())

    def subscribers(self) -> list[SubscriberStatus]:
        """Every subscriber and its progress."""
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
