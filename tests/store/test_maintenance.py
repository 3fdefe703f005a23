"""The disk's use: what is removed, what is dropped, and when appends wait."""

from __future__ import annotations

import asyncio
import errno
import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.metrics import Metrics, names
from penstock.model.errors import DiskFull, MessageTooLarge, StoreClosed, StoreFull, StoreStopped
from penstock.model.settings import KIB, SizePolicy, StoreSettings
from penstock.segment import segment_name
from penstock.storage.files import LocalFiles
from penstock.store import FairShare, Store, Subscription, filling, maintenance
from penstock.store.budget import Ledger
from penstock.store.format import Outcome
from penstock.store.recovery import replay
from tests.simulation.calls import Call
from tests.simulation.faults import FaultyFiles
from tests.simulation.manual_pool import ManualClock
from tests.store.helpers import (
    SMALL_LOG,
    TOPIC,
    WAIT_S,
    bundle,
    changed,
    counts,
    crash,
    drain,
    fill,
    number_of,
    numbers,
    open_store,
    segment_files,
    seqs,
    status,
    take,
    take_all,
    wait_until,
)

BUDGET = 256 * KIB
TIGHT = changed(log=SMALL_LOG, budget_bytes=BUDGET)
"""Room for four segments, log included."""
DROPPING = changed(log=SMALL_LOG, budget_bytes=BUDGET, size_policy=SizePolicy.DROP_OLDEST)
LARGE = 20 * KIB
EMPTY_LOG_BYTES = 4096
"""A file with nothing but its header."""


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked at every second is looked at a hundred times."""
    monkeypatch.setattr(maintenance, "TICK_S", 0.01)
    monkeypatch.setattr(filling, "RETRY_S", 0.01)


@pytest.fixture
def faulty() -> FaultyFiles:
    """The machine's files, with faults to come."""
    return FaultyFiles(LocalFiles())


class Consumer(threading.Thread):
    """Acknowledges everything that comes, until the store is closed."""

    def __init__(self, subscription: Subscription) -> None:
        super().__init__()
        self._subscription = subscription
        self.found: list[int] = []
        self.start()

    def run(self) -> None:
        """On and on."""
        try:
            for delivery in self._subscription:
                self.found.append(number_of(delivery))
                delivery.ack()
        except StoreClosed:
            pass


def append_until_full(store: Store, size: int = LARGE) -> int:
    """Appends until there is no room although the log is empty; returns how many that took."""
    number = 0
    while True:
        try:
            store.append(bundle(number, size), block=False).durable.wait(WAIT_S)
            number += 1
        except StoreFull:
            if store.log.size == EMPTY_LOG_BYTES:
                return number
            time.sleep(0.001)


# --- steady state --------------------------------------------------------------------------------


def test_a_segment_is_deleted_as_soon_as_everybody_has_it(tmp_path: Path) -> None:
    """Not before the last bundle of the last subscriber."""
    with open_store(tmp_path) as store:
        first, second = store.subscribe("first"), store.subscribe("second")
        fill(store, [0, 1], [2])
        assert drain(first) == [0, 1, 2]
        take(second, 1)[0].ack().wait(WAIT_S)
        assert segment_files(tmp_path) == [segment_name(0), segment_name(1)]
        (last,) = take(second, 1)
        last.ack()
        wait_until(lambda: segment_files(tmp_path) == [segment_name(1)])
        assert seqs(store) == [1]


def test_headroom_keeps_the_newest_complete_segments(tmp_path: Path) -> None:
    """A small spool in healthy operation, to be read again by a new subscriber."""
    with open_store(tmp_path, changed(headroom_bytes=1)) as store:
        subscription = store.subscribe("s")
        fill(store, [0], [1], [2])
        assert drain(subscription) == [0, 1, 2]
        wait_until(lambda: segment_files(tmp_path) == [segment_name(2)])
        assert drain(store.subscribe("late")) == [2]


def test_a_removal_is_durable_before_its_file_goes(tmp_path: Path, faulty: FaultyFiles) -> None:
    """A crash in between finds a removed segment, and not a lost one."""
    with open_store(tmp_path / "a", files=faulty) as store:
        subscription = store.subscribe("s")
        fill(store, [0], [1])
        gate = faulty.hold_up("remove", name="*.seg")
        take(subscription, 1)[0].ack()
        assert gate.reached.wait(WAIT_S)
        folder = crash(tmp_path / "a", tmp_path / "b")
        gate.open()
    assert segment_name(0) in segment_files(folder)
    with open_store(folder) as again:
        assert again.problems == ()
        assert segment_files(folder) == [segment_name(1)]
        assert drain(again.subscribe("s")) == [1]


def test_a_removal_that_cannot_be_recorded_waits(tmp_path: Path, faulty: FaultyFiles) -> None:
    """The disk has no room for its event: the file stays, and after a crash it comes again."""
    with open_store(tmp_path / "a", files=faulty) as store:
        subscription = store.subscribe("s")
        fill(store, [0])
        (delivery,) = take(subscription, 1)
        faults = [
            faulty.fail(operation, errno.ENOSPC, name="ack.log*", times=None)
            for operation in ("create", "pwrite")
        ]
        with pytest.raises(DiskFull):
            delivery.ack().wait(WAIT_S)
        wait_until(lambda: seqs(store) == [])
        hits = faults[1].hits
        wait_until(lambda: faults[1].hits > hits + 3)
        folder = crash(tmp_path / "a", tmp_path / "b")
        assert segment_files(folder) == [segment_name(0)]
        faulty.heal()
        wait_until(lambda: segment_files(tmp_path / "a") == [])
    with open_store(folder) as again:
        assert again.problems == ()
        assert drain(again.subscribe("s")) == [0]


def test_a_file_that_cannot_be_removed_is_removed_later(
    tmp_path: Path, faulty: FaultyFiles
) -> None:
    """Its bytes count until then; nothing is delivered from it."""
    with open_store(tmp_path, files=faulty) as store:
        subscription = store.subscribe("s")
        fill(store, [0], [1])
        sizes = [info.size for info in store.segments]
        fault = faulty.fail("remove", errno.EBUSY, name="*.seg", times=None)
        assert drain(subscription) == [0, 1]
        wait_until(lambda: fault.hits > 2)
        assert seqs(store) == []
        assert store.status().used_bytes == store.log.size + sum(sizes)
        faulty.heal()
        wait_until(lambda: segment_files(tmp_path) == [])
        wait_until(lambda: store.status().used_bytes == store.log.size)


# --- the log's own limit -----------------------------------------------------------------------


def _append_for_ever(store: Store) -> None:
    for number in itertools.count():
        store.append(bundle(number, LARGE), block=False).durable.wait(WAIT_S)


def test_appends_wait_while_too_much_of_the_log_is_not_sealed(
    tmp_path: Path, faulty: FaultyFiles
) -> None:
    """Segments may take what they like; the log is what a restart has to replay."""
    settings = changed(log=SMALL_LOG, max_log_bytes=256 * KIB)
    with open_store(tmp_path, settings, files=faulty) as store:
        faulty.fail("pwrite", errno.EIO, name="*.seg.tmp", times=None)
        with pytest.raises(StoreFull, match="of the log wait to be sealed"):
            _append_for_ever(store)
        assert store.log.disk_bytes <= 256 * KIB
        faulty.heal()
        waiting = Call(lambda: store.append_durable(bundle(100, LARGE)))
        waiting.end()
        assert waiting.error is None
        store.flush(timeout=WAIT_S)
        subscription = store.subscribe("s")
        assert 100 in drain(subscription)


def test_message_larger_than_the_log_may_be_is_refused(tmp_path: Path) -> None:
    """Waiting would not help."""
    store = open_store(tmp_path, changed(max_log_bytes=256 * KIB))
    with store, pytest.raises(MessageTooLarge, match="all that the store may ever use"):
        store.append(bundle(0, 300 * KIB))


# --- age -----------------------------------------------------------------------------------------


def test_what_is_too_old_goes_and_counts_as_dropped(tmp_path: Path) -> None:
    """For those who lacked it, bundle by bundle; the mark goes on."""
    clock, metrics = ManualClock(), Metrics()
    settings = changed(max_age_s=60.0)
    with open_store(tmp_path, settings, clock=clock, metrics=metrics) as store:
        slow, quick = store.subscribe("slow"), store.subscribe("quick")
        fill(store, [0, 1, 2])
        clock.advance(40.0)
        fill(store, [3])
        assert drain(quick) == [0, 1, 2, 3]
        take(slow, 2)[1].ack().wait(WAIT_S)
        clock.advance(30.0)
        wait_until(lambda: segment_files(tmp_path) == [segment_name(1)])
        assert counts(store, "slow") == {"acked": 1, "dropped": 2}
        assert counts(store, "quick") == {"acked": 4}
        assert status(store, "slow").segment_seq == 1
        counted = metrics.for_store(TOPIC)
        assert counted.value(names.STORE_EVICTIONS, ("age",)) == 1
        assert counted.value(names.STORE_DROPPED_SEGMENTS) == 1
        assert drain(slow) == [3]
    with open_store(tmp_path, settings, clock=clock) as store:
        assert counts(store, "slow") == {"acked": 2, "dropped": 2}


def test_age_removes_what_nobody_ever_subscribed_to(tmp_path: Path) -> None:
    """Otherwise an unused topic would grow for ever."""
    clock = ManualClock()
    with open_store(tmp_path, changed(max_age_s=60.0), clock=clock) as store:
        fill(store, [0])
        clock.advance(61.0)
        wait_until(lambda: segment_files(tmp_path) == [])


# --- drop_oldest ---------------------------------------------------------------------------------


def test_drop_oldest_never_refuses_an_append_and_counts_every_drop(tmp_path: Path) -> None:
    """Ten times the budget: what is dropped and what is delivered is everything, once."""
    metrics = Metrics()
    with open_store(tmp_path, DROPPING, metrics=metrics) as store:
        subscription = store.subscribe("s")
        for number in range(130):
            store.append_durable(bundle(number, LARGE))
        store.flush()
        store._maintenance.ask()
        wait_until(lambda: store.status().used_bytes <= BUDGET)
        found = drain(subscription)
        assert 0 < len(found) < 20
        assert found == list(range(130 - len(found), 130))
        assert counts(store, "s") == {"acked": len(found), "dropped": 130 - len(found)}
        counted = metrics.for_store(TOPIC)
        assert counted.value(names.STORE_EVICTIONS, ("size",)) > 20
        assert counted.value(names.STORE_DROPPED_SEGMENTS) == counted.value(
            names.STORE_EVICTIONS, ("size",)
        )


def test_drop_oldest_drops_no_more_than_it_must(tmp_path: Path) -> None:
    """The log gives way first, where it is in segments; a good part of the budget is kept."""
    with open_store(tmp_path, DROPPING) as store:
        store.register("s")
        for number in range(40):
            store.append_durable(bundle(number, LARGE))
        store.flush()
        store._maintenance.ask()
        wait_until(lambda: store.status().used_bytes <= BUDGET)
        assert sum(info.size for info in store.segments) > BUDGET // 4


def drop_first_segment(store: Store) -> None:
    """Appends until the segment 0 is gone."""
    number = 1000
    while 0 in seqs(store):
        store.append_durable(bundle(number, LARGE))
        number += 1


def test_a_dropped_bundle_that_somebody_holds_can_still_be_read_and_answered(
    tmp_path: Path,
) -> None:
    """Harmlessly: it was counted as dropped, and stays so."""
    with open_store(tmp_path, DROPPING) as store:
        subscription, other = store.subscribe("s"), store.subscribe("other")
        fill(store, [0, 1, 2, 3], size=LARGE)
        assert seqs(store) == [0]
        held = take(subscription, 3)
        held[0].ack()
        take(other, 2)[0].reject()
        drop_first_segment(store)
        assert numbers(held) == [0, 1, 2]
        held[1].ack().wait(WAIT_S)
        held[2].nack(0.0).wait(WAIT_S)
        found = status(store, "s")
        assert (found.acked, found.nacked) == (1, 0)
        assert counts(store, "other")["rejected"] == 1
        store.flush()
        # All that is gone counts as dropped, but for what it acked.
        wait_until(
            lambda: any(
                status(store, "s").dropped == first.first_offset - 1
                and status(store, "s").segment_seq >= first.segment_seq
                for first in store.segments[:1]
            )
        )
        assert numbers(take(subscription, 1))[0] >= 1000


def test_outcomes_are_recorded_before_a_dropped_file_goes(
    tmp_path: Path, faulty: FaultyFiles
) -> None:
    """A crash at that moment finds them, and no gap that nothing can fill."""
    with open_store(tmp_path / "a", DROPPING, files=faulty) as store:
        subscription = store.subscribe("s")
        fill(store, [0, 1, 2, 3], size=LARGE)
        take(subscription, 2)[1].ack().wait(WAIT_S)
        gate = faulty.hold_up("remove", name=segment_name(0))
        appender = Call(lambda: drop_first_segment(store))
        assert gate.reached.wait(WAIT_S)
        assert segment_name(0) in segment_files(tmp_path / "a")
        folder = crash(tmp_path / "a", tmp_path / "b")
        gate.open()
        appender.end()
    found = replay(LocalFiles(), folder).state
    assert 0 not in found.segments
    assert found.subscribers[0].counts[Outcome.ACKED] == 1
    assert found.subscribers[0].counts[Outcome.DROPPED] >= 3
    with open_store(folder, DROPPING) as again:
        assert again.problems == ()
        assert status(again, "s").segment_seq > 0
        assert segment_name(0) not in segment_files(folder)


def test_drop_oldest_takes_what_everybody_has_first(tmp_path: Path) -> None:
    """Headroom is no reason to drop anything."""
    settings = changed(
        log=SMALL_LOG,
        budget_bytes=BUDGET,
        size_policy=SizePolicy.DROP_OLDEST,
        headroom_bytes=BUDGET,
    )
    with open_store(tmp_path, settings) as store:
        subscription, stuck = store.subscribe("s"), store.subscribe("stuck", "latest")
        fill(store, [0], size=LARGE)
        (held,) = take(stuck, 1)
        for number in range(1, 40):
            fill(store, [number], size=LARGE)
            assert drain(subscription)[-1:] == [number]
            take(stuck, 1)[0].ack()
        assert seqs(store)[0] == 0
        assert counts(store, "stuck") == {"acked": 39}
        held.ack()


# --- backpressure --------------------------------------------------------------------------------


def test_a_full_store_refuses_with_a_retryable_error(tmp_path: Path) -> None:
    """With how long to wait, and nothing stored or dropped."""
    metrics = Metrics()
    with open_store(tmp_path, TIGHT, metrics=metrics) as store:
        subscription = store.subscribe("s")
        count = append_until_full(store)
        assert count >= 4
        with pytest.raises(StoreFull) as caught:
            store.append(bundle(99, LARGE), block=False)
        assert caught.value.retry_after_s > 0
        assert store.log.next_offset == count
        assert metrics.for_store(TOPIC).value(names.STORE_THROTTLED) > 0
        wait_until(lambda: metrics.for_store(TOPIC).value(names.STORE_SIZE_EMERGENCIES))
        assert drain(subscription) == list(range(count))
        assert counts(store, "s") == {"acked": count}


@pytest.mark.parametrize("form", ["append", "append_durable", "append_async"])
def test_an_append_waits_for_room_and_goes_on_after_acks(tmp_path: Path, form: str) -> None:
    """Blocking or not: nobody has to call anything else."""
    with open_store(tmp_path, TIGHT) as store:
        subscription = store.subscribe("s")
        count = append_until_full(store)
        calls: dict[str, Callable[[], Any]] = {
            "append": lambda: store.append(bundle(count, LARGE)).offset,
            "append_durable": lambda: store.append_durable(bundle(count, LARGE)),
            "append_async": lambda: asyncio.run(store.append_async(bundle(count, LARGE))).offset,
        }
        waiting = Call(calls[form])
        assert drain(subscription) == list(range(count))
        assert waiting.end() == count
        store.flush()
        assert drain(subscription) == [count]


@pytest.mark.parametrize("form", ["append", "append_async"])
def test_who_waits_for_room_sleeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """It looks again when something was freed, and does not keep a core busy until then."""
    metrics = Metrics()
    with open_store(tmp_path, TIGHT, metrics=metrics) as store:
        subscription = store.subscribe("s")
        count = append_until_full(store)
        monkeypatch.setattr(maintenance, "TICK_S", 3600.0)
        throttled = metrics.for_store(TOPIC).value(names.STORE_THROTTLED)
        if form == "append":
            waiting = Call(lambda: store.append(bundle(count, LARGE)))
        else:
            waiting = Call(lambda: asyncio.run(store.append_async(bundle(count, LARGE))))
        wait_until(lambda: metrics.for_store(TOPIC).value(names.STORE_THROTTLED) > throttled)
        waiting.join(0.3)
        assert metrics.for_store(TOPIC).value(names.STORE_THROTTLED) < throttled + 10
        assert drain(subscription) == list(range(count))
        waiting.end()
        assert waiting.error is None


@pytest.mark.parametrize("form", ["append", "append_async"])
def test_who_waits_for_room_hears_that_the_store_was_closed(tmp_path: Path, form: str) -> None:
    """Not that it is full: it will never have room."""
    with open_store(tmp_path, TIGHT) as store:
        store.subscribe("s")
        append_until_full(store)
        if form == "append":
            waiting = Call(lambda: store.append(bundle(0, LARGE)))
        else:
            waiting = Call(lambda: asyncio.run(store.append_async(bundle(0, LARGE))))
        store.close()
        waiting.end()
        assert isinstance(waiting.error, StoreClosed)


def test_who_waits_for_room_hears_that_the_store_stopped(tmp_path: Path) -> None:
    """Nobody would ever make room."""
    store = open_store(tmp_path, TIGHT)
    store.subscribe("s")
    append_until_full(store)
    waiting = Call(lambda: store.append(bundle(0, LARGE)))
    store._filling._on_failed(StoreStopped("a disk has failed"))
    waiting.end()
    assert isinstance(waiting.error, StoreStopped)
    store.close()


def test_a_cancelled_append_has_stored_nothing(tmp_path: Path) -> None:
    """Its task no longer waits for room."""
    with open_store(tmp_path, TIGHT) as store:
        store.subscribe("s")
        count = append_until_full(store)

        async def main() -> None:
            task = asyncio.create_task(store.append_async(bundle(count, LARGE)))
            await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        assert store.log.next_offset == count


@pytest.mark.parametrize("size", [BUDGET + 1, BUDGET, BUDGET - 100])
def test_a_message_that_can_never_fit_is_refused(tmp_path: Path, size: int) -> None:
    """Waiting would not help it: the log's own header needs room too."""
    with open_store(tmp_path, TIGHT) as store:
        waiting = Call(lambda: store.append(b"x" * size))
        waiting.end()
        assert isinstance(waiting.error, MessageTooLarge)
        with pytest.raises(MessageTooLarge):
            asyncio.run(store.append_async(b"x" * size))
        store.append_durable(b"x" * (BUDGET - 8 * KIB))


def test_what_is_acknowledged_never_stops_the_flow(tmp_path: Path) -> None:
    """Many times the budget passes through a store whose subscriber keeps up."""
    with open_store(tmp_path, TIGHT) as store:
        consumer = Consumer(store.subscribe("s"))
        for number in range(150):
            store.append(bundle(number, LARGE))
        store.flush()
        wait_until(lambda: len(consumer.found) == 150)
        assert consumer.found == list(range(150))
        assert counts(store, "s") == {"acked": 150}
    consumer.join()


def test_small_bundles_never_stop_the_flow(tmp_path: Path) -> None:
    """The log fills the budget before a segment has come to its size: it is sealed, and rolled."""
    with open_store(tmp_path, changed(budget_bytes=BUDGET)) as store:
        consumer = Consumer(store.subscribe("s"))
        size = len(b"x") + 700
        writer = Call(lambda: [store.append(bundle(n)) for n in range(4 * BUDGET // size)])
        writer.end()
        assert writer.error is None
        store.flush()
        wait_until(lambda: len(consumer.found) == 4 * BUDGET // size)
    consumer.join()


def test_a_subscriber_that_comes_late_frees_a_full_store(tmp_path: Path) -> None:
    """Also when the store was opened full."""
    with open_store(tmp_path, TIGHT) as store:
        store.register("s")
        count = append_until_full(store)
    with open_store(tmp_path, TIGHT) as store:
        waiting = Call(lambda: store.append_durable(bundle(count, LARGE)))
        assert drain(store.subscribe("s")) == list(range(count))
        assert waiting.end() == count


def test_use_is_over_the_limit_by_one_segment_at_most(tmp_path: Path) -> None:
    """However fast appends come: the segment that is being sealed, and its file of the log."""
    with open_store(tmp_path, TIGHT) as store:
        consumer, peak, largest = Consumer(store.subscribe("s")), 0, 0
        for number in range(100):
            store.append_durable(bundle(number, LARGE))
            peak = max(peak, store.status().used_bytes)
            largest = max([largest, *(info.size for info in store.segments)])
        assert peak <= BUDGET + largest + SMALL_LOG.rotate_bytes + KIB
    consumer.join()


def test_many_seals_in_a_row_do_not_add_up(tmp_path: Path, faulty: FaultyFiles) -> None:
    """A log as large as the budget becomes segments one by one, and goes as they come."""
    with open_store(tmp_path, TIGHT, files=faulty) as store:
        store.subscribe("s")
        gate = faulty.hold_up("rename", name="*.seg")
        number = 0
        while store._maintenance.has_room(LARGE + KIB):
            store.append(bundle(number, LARGE)).durable.wait(WAIT_S)
            number += 1
        largest, peaks = 4 * LARGE + 4 * KIB, list[int]()
        store._filling._on_sealed = lambda sealed=store._filling._on_sealed: (
            peaks.append(store.status().used_bytes),
            sealed(),
        )
        gate.open()
        store.flush()
        assert len(peaks) > 2
        assert max(peaks) <= BUDGET + largest + SMALL_LOG.rotate_bytes


def test_bytes_on_their_way_to_the_disk_are_counted_once(
    tmp_path: Path, faulty: FaultyFiles
) -> None:
    """Also while a sync is under way."""
    with open_store(tmp_path, TIGHT, files=faulty) as store:
        gate = faulty.hold_up("sync", name="*.wal")
        appended = store.append(b"x" * 50 * KIB)
        assert gate.reached.wait(WAIT_S)
        used = store.status().used_bytes
        gate.open()
        appended.durable.wait(WAIT_S)
        assert used == store.log.size


# --- a shared budget -----------------------------------------------------------------------------


def fair(path: Path, key: str, total: int = 4 * BUDGET) -> FairShare:
    """A share of four budgets, for two stores."""
    return FairShare(path, total, 2, key=key, unit_bytes=64 * KIB)


def test_a_hot_store_borrows_and_an_idle_one_gets_its_share_back(tmp_path: Path) -> None:
    """Two stores in one process, with one file between them."""
    settings = changed(log=SMALL_LOG)
    path = tmp_path / "budget"
    with (
        open_store(tmp_path / "hot", settings, budget=fair(path, "hot"), name="hot") as hot,
        open_store(tmp_path / "idle", settings, budget=fair(path, "idle"), name="idle") as idle,
    ):
        hot_one, idle_one = hot.subscribe("s"), idle.subscribe("s")
        append_until_full(hot)
        share = 2 * BUDGET
        assert hot.status().used_bytes > share * 1.2
        waiting = Call(lambda: [idle.append_durable(bundle(n, LARGE)) for n in range(14)])
        wait_until(lambda: idle.status().used_bytes > 64 * KIB)
        found = take_all(hot_one)
        for delivery in found:
            delivery.ack()
        waiting.end()
        assert waiting.error is None
        wait_until(lambda: hot.status().limit_bytes + idle.status().limit_bytes <= 4 * BUDGET)
        idle.flush()
        assert drain(idle_one) == list(range(14))


def test_two_stores_are_over_their_total_by_one_segment_each_at_most(tmp_path: Path) -> None:
    """Both are hot. Beside the segment a file of the log counts, of which only a part is sealed."""
    settings, path = changed(log=SMALL_LOG), tmp_path / "budget"
    total = 2 * BUDGET
    with (
        open_store(tmp_path / "a", settings, budget=fair(path, "a", total), name="a") as first,
        open_store(tmp_path / "b", settings, budget=fair(path, "b", total), name="b") as second,
    ):
        consumers = [Consumer(store.subscribe("s")) for store in (first, second)]
        writers = [
            Call(lambda store=store: [store.append_durable(bundle(n, LARGE)) for n in range(60)])
            for store in (first, second)
        ]
        peak = largest = 0
        while any(writer.is_alive() for writer in writers):
            claims = Ledger(path, LocalFiles()).claims()  # both stores at one moment
            peak = max(peak, sum(claim.held_bytes for claim in claims))
            sizes = [info.size for store in (first, second) for info in store.segments]
            largest = max([largest, *sizes])
        assert peak <= total + 2 * (largest + SMALL_LOG.rotate_bytes + KIB)
        for writer, store, consumer in zip(writers, (first, second), consumers, strict=True):
            writer.end()
            assert writer.error is None
            store.flush()
            wait_until(lambda consumer=consumer: len(consumer.found) == 60)
    for consumer in consumers:
        consumer.join()


def test_a_closed_store_s_use_still_counts_for_the_others(tmp_path: Path) -> None:
    """Its files are still there."""
    settings, path = changed(log=SMALL_LOG), tmp_path / "budget"
    with open_store(tmp_path / "a", settings, budget=fair(path, "a")) as first:
        first.register("s")
        append_until_full(first)
        used = first.status().used_bytes
    with open_store(tmp_path / "b", settings, budget=fair(path, "b")) as second:
        second.register("s")
        append_until_full(second)
        assert second.status().used_bytes + used <= 4 * BUDGET + 100 * KIB


class BrokenBudget:
    """A shared file that can no longer be reached."""

    broken = False
    whole_folder = False
    most_bytes = BUDGET

    def limit(self, used_bytes: int, wanted_bytes: int) -> int:  # noqa: ARG002
        """Works for a while."""
        if self.broken:
            raise OSError(errno.EIO, "the shared file is gone")
        return BUDGET

    def close(self) -> None:
        """Neither does this."""
        if self.broken:
            raise OSError(errno.EIO, "the shared file is gone")


def test_a_broken_budget_keeps_nobody_from_closing(tmp_path: Path) -> None:
    """The next owner gets in; what was granted before holds until then."""
    budget = BrokenBudget()
    store = open_store(tmp_path, changed(log=SMALL_LOG), budget=budget)
    store.append_durable(bundle(0))
    budget.broken = True
    store.append_durable(bundle(1))
    store.close()
    open_store(tmp_path).close()


def test_nothing_is_dropped_for_a_limit_that_nobody_could_tell(tmp_path: Path) -> None:
    """And nothing is taken, until the budget answers."""
    settings = changed(log=SMALL_LOG, size_policy=SizePolicy.DROP_OLDEST)
    with open_store(tmp_path, settings) as store:
        fill(store, [0, 1], [2])
    budget = BrokenBudget()
    budget.broken = True
    with open_store(tmp_path, settings, budget=budget) as store:
        kept = segment_files(tmp_path)
        with pytest.raises(StoreFull):
            store.append(bundle(3), block=False)
        store._maintenance._tidy()
        assert segment_files(tmp_path) == kept == [segment_name(0), segment_name(1)]
        budget.broken = False
        store.append_durable(bundle(3))


# --- a full disk ---------------------------------------------------------------------------------


class FullDisk(FaultyFiles):
    """Has no room for new files nor for longer ones, once it is full."""

    full = False

    def create(self, path: Path) -> Any:
        """A new file needs a block."""
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return _FullFile(self, super().create(path))


class _FullFile:
    def __init__(self, disk: FullDisk, inner: Any) -> None:
        self._disk = disk
        self._inner = inner

    def pwrite(self, pieces: Any, position: int) -> None:
        if self._disk.full and position + sum(map(len, pieces)) > self._inner.size():
            raise OSError(errno.ENOSPC, "No space left on device")
        self._inner.pwrite(pieces, position)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_on_a_full_disk_answers_are_recorded_and_segments_deleted(tmp_path: Path) -> None:
    """The reserve in ack.log is what gets a full disk free again."""
    disk = FullDisk(LocalFiles())
    with open_store(tmp_path / "a", files=disk) as store:
        subscription, stuck = store.subscribe("s"), store.subscribe("t")
        fill(store, *(range(start, start + 20) for start in range(0, 100, 20)))
        disk.full = True
        for each in (subscription, stuck):
            found = []
            while (delivery := each.next_bundle(0)) is not None:
                delivery.ack().wait(WAIT_S)
                found.append(number_of(delivery))
            assert found == list(range(100))
        wait_until(lambda: segment_files(tmp_path / "a") == [])
        folder = crash(tmp_path / "a", tmp_path / "b")
        disk.full = False
        assert store.append_durable(bundle(100)) == 100
    with open_store(folder) as again:
        assert again.problems == ()
        assert counts(again, "s") == counts(again, "t") == {"acked": 100}


def test_a_store_opens_on_a_full_disk_where_something_may_go(tmp_path: Path) -> None:
    """Otherwise a full disk would stay full: acknowledged segments make room."""
    disk = FullDisk(LocalFiles())
    with open_store(tmp_path, changed(headroom_bytes=10**9), files=disk) as store:
        subscription = store.subscribe("s")
        fill(store, [0], [1])
        assert drain(subscription) == [0, 1]

    def room_made(operation: str, path: Path) -> None:
        if operation == "remove" and path.suffix == ".seg":
            disk.full = False

    disk.full = True
    disk.attempt = room_made  # type: ignore[method-assign]
    with open_store(tmp_path, files=disk) as store:
        wait_until(lambda: segment_files(tmp_path) == [])
        assert counts(store, "s") == {"acked": 2}


def test_settings_and_budget_agree(tmp_path: Path) -> None:
    """Without a budget there is no limit."""
    with open_store(tmp_path / "a", StoreSettings()) as store:
        assert store.status().limit_bytes == float("inf")
    with open_store(tmp_path / "b", TIGHT) as store:
        assert store.status().limit_bytes == BUDGET
