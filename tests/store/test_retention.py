"""Which segments go: the precedence of the rules."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.settings import SizePolicy, StoreSettings
from penstock.store.format import Answered, Outcome, Reason, Registered, Sealed
from penstock.store.maintenance import Plan, plan_removals
from penstock.store.state import StoreState
from tests.store.helpers import UNHURRIED, info

NOW_NS = 1000 * 10**9
DROP = SizePolicy.DROP_OLDEST


def state_of(*segments: tuple[int, bool, float], subscribers: int = 1) -> StoreState:
    """Segments numbered from 0: size, whether everybody has it, age in seconds."""
    state = StoreState()
    for number in range(subscribers):
        state.apply(Registered(number, 0, str(number)))
    for seq, (size, complete, age_s) in enumerate(segments):
        state.apply(Sealed(info(seq, 2, size=size, time_ns=NOW_NS - int(age_s * 1e9))))
        for number in range(subscribers if complete else 0):
            state.apply(Answered(Outcome.ACKED, number, seq, 0, 2, 0))
    return state


def plan(
    state: StoreState,
    *,
    limit: float = math.inf,
    log_bytes: int = 0,
    policy: SizePolicy = SizePolicy.BACKPRESSURE,
    max_age_s: float | None = None,
    headroom: int = 0,
) -> Plan:
    """The plan for a state, with so many bytes of log beside its segments."""
    settings = StoreSettings(size_policy=policy, max_age_s=max_age_s, headroom_bytes=headroom)
    return plan_removals(state, settings, NOW_NS, state.segment_bytes + log_bytes, limit)


@dataclass(frozen=True)
class Case:
    """Segments (size, complete, age), the rules in force, and what goes for which reason."""

    name: str
    segments: tuple[tuple[int, bool, float], ...]
    goes: dict[int, Reason]
    over_limit: bool = False
    limit: float = math.inf
    log_bytes: int = 0
    policy: SizePolicy = SizePolicy.BACKPRESSURE
    max_age_s: float | None = None
    headroom: int = 0


HAD, LACKED = True, False
CASES = [
    Case("nothing there", (), {}),
    Case("everybody has it", ((10, HAD, 0),), {0: Reason.ACKED}),
    Case("somebody lacks it", ((10, LACKED, 0),), {}),
    Case(
        "a stuck segment keeps no other one",
        ((10, HAD, 0), (10, LACKED, 0), (10, HAD, 0)),
        {0: Reason.ACKED, 2: Reason.ACKED},
    ),
    Case(
        "headroom keeps the newest",
        ((10, HAD, 0), (10, HAD, 0), (10, HAD, 0)),
        {0: Reason.ACKED},
        headroom=20,
    ),
    Case(
        "headroom is never cut into",
        ((10, HAD, 0), (10, HAD, 0), (10, HAD, 0)),
        {0: Reason.ACKED},
        headroom=11,
    ),
    Case(
        "headroom counts complete segments alone",
        ((10, HAD, 0), (50, LACKED, 0), (10, HAD, 0)),
        {0: Reason.ACKED},
        headroom=10,
    ),
    Case(
        "age takes what somebody lacks",
        ((10, LACKED, 61), (10, LACKED, 59)),
        {0: Reason.AGE},
        max_age_s=60,
    ),
    Case("what all have is acked, however old", ((10, HAD, 61),), {0: Reason.ACKED}, max_age_s=60),
    Case(
        "age takes the headroom too",
        ((10, HAD, 61), (10, HAD, 1)),
        {0: Reason.AGE},
        max_age_s=60,
        headroom=1000,
    ),
    Case(
        "the limit takes headroom, oldest first, and no more than it must",
        ((10, HAD, 0), (10, HAD, 0), (10, HAD, 0)),
        {0: Reason.SIZE, 1: Reason.SIZE},
        headroom=1000,
        limit=15,
    ),
    Case(
        "the limit takes nothing that somebody lacks",
        ((10, LACKED, 0), (10, LACKED, 0)),
        {},
        over_limit=True,
        limit=15,
    ),
    Case(
        "at the limit is not over it",
        ((10, LACKED, 0),),
        {},
        limit=10,
    ),
    Case(
        "the log counts",
        ((10, LACKED, 0),),
        {},
        over_limit=True,
        limit=10,
        log_bytes=1,
    ),
    Case(
        "drop_oldest takes the oldest, and no more than it must",
        ((10, LACKED, 0), (10, LACKED, 0), (10, LACKED, 0)),
        {0: Reason.SIZE, 1: Reason.SIZE},
        policy=DROP,
        limit=19,
    ),
    Case(
        "drop_oldest spares what is lacked while there is headroom",
        ((10, LACKED, 0), (10, HAD, 0)),
        {1: Reason.SIZE},
        policy=DROP,
        limit=15,
        headroom=1000,
    ),
    Case(
        "drop_oldest waits for pressure",
        ((10, LACKED, 0), (10, LACKED, 0)),
        {},
        policy=DROP,
        limit=20,
    ),
    Case(
        "drop_oldest cannot drop the log",
        ((10, LACKED, 0),),
        {0: Reason.SIZE},
        over_limit=True,
        policy=DROP,
        limit=20,
        log_bytes=21,
    ),
    Case(
        "what age frees need not be dropped",
        ((10, LACKED, 0), (10, LACKED, 61), (10, LACKED, 0)),
        {1: Reason.AGE},
        policy=DROP,
        limit=20,
        max_age_s=60,
    ),
    Case(
        "all rules at once",
        ((10, LACKED, 61), (10, HAD, 1), (10, HAD, 1), (10, LACKED, 1), (10, LACKED, 1)),
        {0: Reason.AGE, 1: Reason.ACKED, 2: Reason.SIZE, 3: Reason.SIZE},
        policy=DROP,
        limit=10,
        max_age_s=60,
        headroom=10,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_rules_have_one_precedence(case: Case) -> None:
    """Each line of the table is one rule, or one rule against another."""
    found = plan(
        state_of(*case.segments),
        limit=case.limit,
        log_bytes=case.log_bytes,
        policy=case.policy,
        max_age_s=case.max_age_s,
        headroom=case.headroom,
    )
    assert {each.segment_seq: reason for each, reason in found.removals} == case.goes
    assert found.over_limit is case.over_limit


def test_without_subscribers_only_age_and_the_limit_remove() -> None:
    """Somebody may still come for it."""
    state = state_of((10, LACKED, 61), (10, LACKED, 0), subscribers=0)
    assert plan(state).removals == []
    assert [reason for _, reason in plan(state, max_age_s=60).removals] == [Reason.AGE]


def test_age_is_that_of_the_newest_bundle() -> None:
    """A segment that was filled slowly goes when its last bundle is old."""
    state = StoreState()
    old = info(0, 1, time_ns=0)
    state.apply(Sealed(replace(old, last_ingested_at_ns=NOW_NS - 59 * 10**9)))
    assert plan(state, max_age_s=60).removals == []


segments = st.lists(st.tuples(st.integers(1, 50), st.booleans(), st.integers(0, 100)), max_size=8)


@UNHURRIED
@given(
    segments,
    st.integers(0, 3),
    st.integers(0, 200),
    st.integers(0, 50),
    st.sampled_from(SizePolicy),
    st.none() | st.integers(1, 100),
    st.integers(0, 100),
)
def test_the_plan_keeps_its_promises(
    segments: list[tuple[int, bool, float]],
    subscribers: int,
    limit: int,
    log_bytes: int,
    policy: SizePolicy,
    max_age_s: int | None,
    headroom: int,
) -> None:
    """Whatever the state and the settings are."""
    state = state_of(*segments, subscribers=subscribers)
    found = plan(
        state,
        limit=limit,
        log_bytes=log_bytes,
        policy=policy,
        max_age_s=max_age_s,
        headroom=headroom,
    )
    gone = {each.segment_seq: reason for each, reason in found.removals}
    left = [each for each in state.segments.values() if each.segment_seq not in gone]
    used = sum(each.size for each in left) + log_bytes
    complete = {seq for seq, each in state.segments.items() if state.is_complete(each)}
    by_size = [seq for seq, reason in gone.items() if reason is Reason.SIZE]

    assert list(gone) == sorted(gone)
    assert found.over_limit is (used > limit)
    assert {seq for seq, reason in gone.items() if reason is Reason.ACKED} <= complete
    if policy is SizePolicy.BACKPRESSURE and max_age_s is None:
        assert set(gone) <= complete
    if policy is DROP and found.over_limit:
        assert left == []
    if by_size:  # no more than it had to: the last one was needed
        chosen_last = max([seq for seq in by_size if seq not in complete] or by_size)
        assert used + state.segments[chosen_last].size > limit
    for kind in (complete, state.segments.keys() - complete):  # oldest first
        of_kind = [seq for seq in by_size if seq in kind]
        assert all(seq in gone for seq in kind if of_kind and seq < max(of_kind))
    kept = sum(each.size for each in left if each.segment_seq in complete)
    if not by_size and max_age_s is None:
        total = sum(state.segments[seq].size for seq in complete)
        assert kept >= min(headroom, total)
        oldest = min((e.segment_seq for e in left if e.segment_seq in complete), default=None)
        assert oldest is None or kept - state.segments[oldest].size < headroom
