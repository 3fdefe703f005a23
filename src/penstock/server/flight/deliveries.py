"""Bundles for remote subscribers: handed out on a stream, answered by other calls.

A stream holds what it has handed out until it is answered, or the stream ends: then it is delivered
again, as with any other subscriber. A name that nobody registered is one with its first answer.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from penstock.client.subscriber import DELIVERIES
from penstock.model.errors import InvalidArgument, ServerUnreachable, StoreFull
from penstock.store.messages import encode_bundle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.log.commit import Commit
    from penstock.store import Store
    from penstock.store.subscribers import Delivery

BEAT_S: Final = 0.5
"""An empty batch is sent when nothing else was for so long: it finds out who has gone."""
MOST_STREAMS: Final = 64
MOST_HELD: Final = 16
"""Unanswered bundles of a stream, where it does not say how many."""
ANSWERS: Final = ("ack", "nack", "reject")
_NOTHING: Final = pa.RecordBatch.from_arrays(
    [pa.nulls(0, t) for t in DELIVERIES.types], schema=DELIVERIES
)


class Place(NamedTuple):
    """Of a bundle that was handed out."""

    store: str
    subscriber: str
    segment_seq: int
    bundle_index: int


class Deliveries:
    """All streams of a worker. Safe from any thread."""

    def __init__(self) -> None:
        self._out: dict[Place, Delivery] = {}
        self._streams = 0
        self._lock = threading.Lock()
        self._answered = threading.Condition()
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Ends every stream; what was not answered is delivered again."""
        self._stopping.set()

    def check(self) -> None:
        """StoreFull where there are too many streams."""
        if self._streams >= MOST_STREAMS:
            raise StoreFull(f"there are {MOST_STREAMS} streams already", retry_after_s=5.0)

    def stream(
        self, store: Store, subscriber: str, wait_s: float | None, most: int
    ) -> Iterator[pa.RecordBatch]:
        """Bundles, one a batch, until there was none for `wait_s`; None: on and on.

        No more than `most` of them are unanswered at a time.
        """
        held: dict[Place, Delivery] = {}
        with self._lock:
            self._streams += 1
        try:
            with store.visit(subscriber) as subscription:
                last = time.monotonic()
                while not self._stopping.is_set():
                    if self._is_full(held, most):
                        last = time.monotonic()
                        yield _NOTHING
                        continue
                    delivery = subscription.next_bundle(BEAT_S)
                    if delivery is not None:
                        last = time.monotonic()
                        place = Place(store.name, subscriber, *_place(delivery))
                        self._out[place] = held[place] = delivery
                        yield _batch(delivery)
                    elif wait_s is not None and time.monotonic() - last >= wait_s:
                        return
                    else:
                        yield _NOTHING
            # An end would say that there was nothing for so long.
            raise ServerUnreachable("the server is stopping")
        finally:
            with self._lock:
                self._streams -= 1
                for place in self._unanswered(held):
                    del self._out[place]

    def _unanswered(self, held: dict[Place, Delivery]) -> list[Place]:
        """Not those that were answered, and may be with another stream by now."""
        return [place for place, delivery in held.items() if self._out.get(place) is delivery]

    def _is_full(self, held: dict[Place, Delivery], most: int) -> bool:
        """Whether so many are unanswered, after waiting for answers a while."""

        def has_room() -> bool:
            for place in held.keys() - self._unanswered(held):
                del held[place]
            return len(held) < most

        with self._answered:
            return not self._answered.wait_for(has_room, BEAT_S)

    def answer(self, store: Store, subscriber: str, how: str, asked: dict[str, Any]) -> int:
        """Acks, nacks or rejects bundles; returns how many, when that is durable.

        InvalidArgument: one of them is not out, and nothing was answered; where the question says
        `partial`, such are passed over, since they are delivered again.
        """
        delay_s = asked.get("retry_after_s")
        if delay_s is not None and not isinstance(delay_s, int | float):
            raise InvalidArgument(f"cannot try again after {delay_s!r} seconds")
        places = _places(store, subscriber, asked.get("bundles"))
        taken = self._take(places, partial=asked.get("partial") is True)
        for commit in [_answer(delivery, how, delay_s) for delivery in taken]:
            commit.wait()
        with self._answered:
            self._answered.notify_all()
        return len(taken)

    def _take(self, places: list[Place], *, partial: bool) -> list[Delivery]:
        """All of them or none; those that are out where `partial`."""
        with self._lock:
            if partial:
                places = [place for place in places if place in self._out]
            for place in places:
                if place not in self._out:
                    at = f"{place.segment_seq}:{place.bundle_index}"
                    text = f"the bundle {at} is not with {place.subscriber}: its stream has ended"
                    raise InvalidArgument(text)
            return [self._out.pop(place) for place in places]


def _answer(delivery: Delivery, how: str, delay_s: float | None) -> Commit:
    if how == "ack":
        return delivery.ack()
    return delivery.nack(delay_s) if how == "nack" else delivery.reject()


def _places(store: Store, subscriber: str, bundles: Any) -> list[Place]:
    try:
        found = [Place(store.name, subscriber, int(seq), int(index)) for seq, index in bundles]
    except (TypeError, ValueError):
        raise InvalidArgument("bundles is a list of [segment_seq, bundle_index]") from None
    return list(dict.fromkeys(found))


def _place(delivery: Delivery) -> tuple[int, int]:
    return delivery.segment_seq, delivery.bundle_index


def _batch(delivery: Delivery) -> pa.RecordBatch:
    values = (
        delivery.segment_seq,
        delivery.bundle_index,
        delivery.attempt,
        delivery.first_offset,
        delivery.messages,
        delivery.ingested_at_ns,
        encode_bundle(delivery.bundle),
    )
    pairs = zip(values, DELIVERIES.types, strict=True)
    return pa.record_batch([pa.array([v], type_) for v, type_ in pairs], schema=DELIVERIES)
