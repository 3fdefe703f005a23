"""What a store knows: its segments, its subscribers, and who has had what. Changed by events alone.

Live and after a restart the same events make the same state. Nothing here touches a file or a
clock; the store's lock guards it.
"""

from __future__ import annotations

import uuid
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.segment.format import SegmentInfo
from penstock.store.format import (
    Activated,
    Answered,
    Outcome,
    Reason,
    Registered,
    Removed,
    Sealed,
    Snapshot,
    Unregistered,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.store.format import Event

_OUTCOMES = {
    Reason.ACKED: Outcome.ACKED,
    Reason.AGE: Outcome.DROPPED,
    Reason.SIZE: Outcome.DROPPED,
    Reason.LOST: Outcome.LOST,
}
"""What a bundle's outcome must have been, when its segment was removed for that reason."""


@dataclass(slots=True)
class SubscriberState:
    """One subscriber's progress.

    Invariant: below segment `floor` everything is settled for it; of later segments `settled` says
    which bundles are (bit i: bundle i). So its high-water mark never passes a missing answer.
    """

    number: int
    name: str
    floor: int
    active: bool = True
    settled: dict[int, int] = field(default_factory=dict)
    nacks: dict[tuple[int, int], int] = field(default_factory=dict)
    """How often an unsettled bundle was refused."""
    counts: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    """Bundles by what became of them, since the subscriber was registered."""

    def has(self, segment_seq: int, bundle: int) -> bool:
        return segment_seq < self.floor or bool(self.settled.get(segment_seq, 0) >> bundle & 1)

    def has_all(self, info: SegmentInfo) -> bool:
        seq = info.segment_seq
        return seq < self.floor or self.settled.get(seq, 0) == all_of(info)

    def missing(self, info: SegmentInfo) -> int:
        """The bundles of the segment that are not settled, as bits."""
        if info.segment_seq < self.floor:
            return 0
        return all_of(info) & ~self.settled.get(info.segment_seq, 0)

    def settle(self, segment_seq: int, bits: int, outcome: Outcome) -> int:
        """Notes the outcome of bundles that have none yet; returns how many those were."""
        if segment_seq < self.floor:
            return 0
        before = self.settled.get(segment_seq, 0)
        new = (bits & ~before).bit_count()
        self.settled[segment_seq] = before | bits
        self.counts[outcome] += new
        for bundle in [b for b in self.nacks if b[0] == segment_seq and bits >> b[1] & 1]:
            del self.nacks[bundle]
        return new

    def advance(self, segments: Mapping[int, SegmentInfo], next_seq: int) -> None:
        """Raises the floor over every segment that is complete or gone."""
        while self.floor < next_seq:
            info = segments.get(self.floor)
            if info is not None and not self.has_all(info):
                return
            self.settled.pop(self.floor, None)
            self.floor += 1

    def high_water_mark(self) -> tuple[int, int]:
        """The first bundle that is not settled: its segment and its index."""
        bits = self.settled.get(self.floor, 0)
        return self.floor, (~bits & (bits + 1)).bit_length() - 1

    def gap_set_size(self) -> int:
        """How many bundles beyond the high-water mark are settled already."""
        _, contiguous = self.high_water_mark()
        return sum(bits.bit_count() for bits in self.settled.values()) - contiguous


def all_of(info: SegmentInfo) -> int:
    """Every bundle of a segment, as bits."""
    return (1 << info.bundles) - 1


def runs(bits: int) -> Iterator[tuple[int, int]]:
    """The runs of ones in a number: first bit and length."""
    at = 0
    while bits:
        zeros = (bits & -bits).bit_length() - 1
        bits >>= zeros
        ones = (~bits & (bits + 1)).bit_length() - 1
        yield at + zeros, ones
        bits >>= ones
        at += zeros + ones


class StoreState:
    """Segments and subscribers."""

    def __init__(self) -> None:
        self.store_id = uuid.uuid4()
        self.segments: dict[int, SegmentInfo] = {}
        """By segment_seq, ascending."""
        self.segment_bytes = 0
        self.next_seq = 0
        self.sealed_offset = 0
        """Every message below it is, or was, in a segment."""
        self.subscribers: dict[int, SubscriberState] = {}
        self.next_subscriber = 0

    # --- asking --------------------------------------------------------------------------------

    def named(self, name: str) -> SubscriberState | None:
        return next((each for each in self.subscribers.values() if each.name == name), None)

    def is_complete(self, info: SegmentInfo) -> bool:
        """Whether every subscriber has all of it. Without subscribers nobody has anything."""
        subscribers = self.subscribers.values()
        return bool(subscribers) and all(each.has_all(info) for each in subscribers)

    def outstanding(self, info: SegmentInfo) -> Iterator[tuple[SubscriberState, int]]:
        """Who lacks which bundles of a segment, as bits."""
        for subscriber in self.subscribers.values():
            if missing := subscriber.missing(info):
                yield subscriber, missing

    # --- changing ------------------------------------------------------------------------------

    def apply(self, event: Event) -> int:
        """Takes an event in; returns how many bundles it settled."""
        match event:
            case Answered():
                return self._answer(event)
            case Sealed(info):
                self._add(info)
            case Removed(reason, seq, end_offset):
                self._settle_rest(seq, reason)
                self._remove(seq, end_offset)
            case Registered(number, start_seq, name):
                older = self.named(name)
                if older is not None:  # its end did not reach the log
                    del self.subscribers[older.number]
                self.subscribers[number] = SubscriberState(number, name, start_seq)
                self.next_subscriber = max(self.next_subscriber, number + 1)
            case Unregistered(number):
                self.subscribers.pop(number, None)
            case Activated(number, active):
                if number in self.subscribers:
                    self.subscribers[number].active = active
            case Snapshot(document):
                self.load(document)
        return 0

    def _answer(self, event: Answered) -> int:
        subscriber = self.subscribers.get(event.subscriber)
        if subscriber is None:
            return 0
        seq, first = event.segment_seq, event.first_bundle
        if event.outcome is Outcome.NACKED:
            if not subscriber.has(seq, first):
                subscriber.nacks[seq, first] = subscriber.nacks.get((seq, first), 0) + 1
                subscriber.counts[Outcome.NACKED] += 1
            return 0
        info = self.segments.get(seq)
        bits = ((1 << event.bundles) - 1) << first
        return subscriber.settle(seq, bits & all_of(info) if info else bits, event.outcome)

    def _add(self, info: SegmentInfo) -> None:
        self._remove(info.segment_seq, 0)
        self.segments[info.segment_seq] = info
        if info.segment_seq < self.next_seq:  # found again out of its order
            self.segments = dict(sorted(self.segments.items()))
        self.segment_bytes += info.size
        self.next_seq = max(self.next_seq, info.segment_seq + 1)
        self.sealed_offset = max(self.sealed_offset, info.end_offset)

    def _settle_rest(self, segment_seq: int, reason: Reason) -> None:
        """Counts what has no outcome: a power loss may tear a removal from what came before it."""
        info = self.segments.get(segment_seq)
        if info is not None:
            for subscriber, missing in self.outstanding(info):
                subscriber.settle(segment_seq, missing, _OUTCOMES[reason])

    def _remove(self, segment_seq: int, end_offset: int) -> None:
        info = self.segments.pop(segment_seq, None)
        if info is not None:
            self.segment_bytes -= info.size
            end_offset = max(end_offset, info.end_offset)
        if end_offset:
            self.next_seq = max(self.next_seq, segment_seq + 1)
            self.sealed_offset = max(self.sealed_offset, end_offset)
        for subscriber in self.subscribers.values():
            subscriber.settled.pop(segment_seq, None)
            for bundle in [b for b in subscriber.nacks if b[0] == segment_seq]:
                del subscriber.nacks[bundle]

    def advance(self) -> None:
        """Raises the subscribers' floors.

        Not part of `apply`: while events are replayed, a segment that is not listed may only have
        lost its event, and would be passed over.
        """
        for subscriber in self.subscribers.values():
            subscriber.advance(self.segments, self.next_seq)

    # --- as a document -------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """Everything, for a snapshot or a checkpoint."""
        return {
            "store_id": str(self.store_id),
            "next_seq": self.next_seq,
            "sealed_offset": self.sealed_offset,
            "next_subscriber": self.next_subscriber,
            "segments": [list(astuple(info)) for info in self.segments.values()],
            "subscribers": [
                {
                    "number": each.number,
                    "name": each.name,
                    "active": each.active,
                    "floor": each.floor,
                    "settled": {str(seq): f"{bits:x}" for seq, bits in each.settled.items()},
                    "nacks": [[seq, bundle, n] for (seq, bundle), n in each.nacks.items()],
                    "counts": {kind.name.lower(): n for kind, n in each.counts.items()},
                }
                for each in self.subscribers.values()
            ],
        }

    def load(self, document: dict[str, Any]) -> None:
        """Becomes what the document says; ValueError and KeyError where it says nothing."""
        self.store_id = uuid.UUID(document["store_id"])
        infos = [SegmentInfo(*fields) for fields in document["segments"]]
        self.segments = {info.segment_seq: info for info in infos}
        self.segment_bytes = sum(info.size for info in infos)
        self.next_seq = int(document["next_seq"])
        self.sealed_offset = int(document["sealed_offset"])
        self.next_subscriber = int(document["next_subscriber"])
        self.subscribers = {each["number"]: _subscriber(each) for each in document["subscribers"]}


def _subscriber(fields: dict[str, Any]) -> SubscriberState:
    return SubscriberState(
        int(fields["number"]),
        str(fields["name"]),
        int(fields["floor"]),
        bool(fields["active"]),
        {int(seq): int(bits, 16) for seq, bits in fields["settled"].items()},
        {(seq, bundle): times for seq, bundle, times in fields["nacks"]},
        {kind: int(fields["counts"][kind.name.lower()]) for kind in Outcome},
    )
