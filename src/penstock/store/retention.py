"""Which segments go, and whether appends must wait. One function holds the precedence of the rules.

1. A segment that every subscriber has goes, but for the newest `headroom_bytes` of such.
2. A segment older than `max_age_s` goes, delivered or not: its missing bundles count as dropped.
3. Over the disk limit the headroom goes too, oldest first.
4. Still over it, `drop_oldest` takes the oldest segment, delivered or not; `backpressure` makes
   appends wait instead.

Rules 1 and 2 never wait for pressure, and no rule takes a younger segment while the same rule could
take an older one. Where two rules would take a segment, the first one is its reason: what everybody
has is never counted as dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.model.settings import SizePolicy
from penstock.store.format import Reason

if TYPE_CHECKING:
    from penstock.model.settings import StoreSettings
    from penstock.segment.inventory import SegmentInfo
    from penstock.store.state import StoreState


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now."""

    removals: list[tuple[SegmentInfo, Reason]]
    over_limit: bool
    """Still over the disk limit when that is done."""


def plan_removals(
    state: StoreState, settings: StoreSettings, now_ns: int, used_bytes: int, limit_bytes: float
) -> Plan:
    """Applies the rules; `used_bytes` counts log and segments together."""
    complete = [info for info in state.segments.values() if state.is_complete(info)]
    spare = sum(info.size for info in complete) - settings.headroom_bytes
    chosen: dict[int, tuple[SegmentInfo, Reason]] = {}
    used = used_bytes

    def choose(info: SegmentInfo, reason: Reason) -> None:
        nonlocal used
        chosen[info.segment_seq] = info, reason
        used -= info.size

    for info in complete:  # 1
        if info.size <= spare:
            choose(info, Reason.ACKED)
            spare -= info.size
        else:
            break
    if settings.max_age_s is not None:  # 2
        horizon = now_ns - int(settings.max_age_s * 1e9)
        for info in state.segments.values():
            if info.segment_seq not in chosen and info.last_ingested_at_ns < horizon:
                choose(info, Reason.AGE)
    over_limit = list(complete)  # 3
    if settings.size_policy is SizePolicy.DROP_OLDEST:  # 4
        over_limit += state.segments.values()
    for info in over_limit:
        if used > limit_bytes and info.segment_seq not in chosen:
            choose(info, Reason.SIZE)
    removals = [chosen[seq] for seq in sorted(chosen)]
    return Plan(removals, used > limit_bytes)
