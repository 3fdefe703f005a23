"""What people and Prometheus may know of a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.metrics import names
from penstock.store.format import Outcome

if TYPE_CHECKING:
    from penstock.store.state import StoreState, SubscriberState


@dataclass(frozen=True, slots=True)
class SubscriberStatus:
    """A subscriber and its progress."""

    name: str
    active: bool
    segment_seq: int
    """Its high-water mark: everything before this bundle is settled."""
    bundle_index: int
    lag_segments: int
    lag_bundles: int
    gap_set_size: int
    in_flight: int
    oldest_unacked_s: float
    acked: int
    nacked: int
    rejected: int
    dropped: int
    lost: int


def subscriber_status(
    state: StoreState, each: SubscriberState, in_flight: int, now_ns: int
) -> SubscriberStatus:
    """One subscriber; the caller holds the journal's lock, or has the state alone."""
    mark = each.high_water_mark()
    behind = [info for info in state.segments.values() if info.segment_seq >= each.floor]
    lag = sum(each.missing(info).bit_count() for info in behind)
    oldest = next((info for info in behind if each.missing(info)), None)
    age_ns = max(0, now_ns - oldest.first_ingested_at_ns) if oldest is not None else 0
    counts = {kind: each.counts[kind] for kind in Outcome}
    return SubscriberStatus(
        each.name,
        each.active,
        *mark,
        len(behind),
        lag,
        each.gap_set_size(),
        in_flight,
        age_ns / 1e9,
        counts[Outcome.ACKED],
        counts[Outcome.NACKED],
        counts[Outcome.REJECTED],
        counts[Outcome.DROPPED],
        counts[Outcome.LOST],
    )


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """A store as it is now."""

    used_bytes: int
    limit_bytes: float
    open_bytes: int
    segments: int
    ack_log_events: int
    ack_log_bytes: int
    subscribers: list[SubscriberStatus]

    def gauges(self) -> list[tuple[str, tuple[str, ...], float]]:
        found: list[tuple[str, tuple[str, ...], float]] = [
            (names.STORE_BYTES, (), self.used_bytes),
            (names.STORE_BUDGET_RATIO, (), self.used_bytes / max(self.limit_bytes, 1)),
            (names.STORE_OPEN_BYTES, (), self.open_bytes),
            (names.STORE_SEGMENTS, (), self.segments),
            (names.ACK_LOG_EVENTS, (), self.ack_log_events),
            (names.ACK_LOG_BYTES, (), self.ack_log_bytes),
        ]
        for each in self.subscribers:
            label = (each.name,)
            found += [
                (names.SUBSCRIBER_IN_FLIGHT, label, each.in_flight),
                (names.SUBSCRIBER_LAG_SEGMENTS, label, each.lag_segments),
                (names.SUBSCRIBER_GAP_SET_SIZE, label, each.gap_set_size),
                (names.SUBSCRIBER_OLDEST_UNACKED_SECONDS, label, each.oldest_unacked_s),
            ]
            found += [
                (names.SUBSCRIBER_BUNDLES, (each.name, outcome), getattr(each, outcome))
                for outcome in ("acked", "nacked", "rejected", "dropped", "lost")
            ]
        return found
