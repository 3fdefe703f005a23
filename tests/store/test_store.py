"""The store as its users see it: appending, reading, reopening, closing, metrics."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import Store as StoreOfThePackage
from penstock.metrics import Metrics, names
from penstock.model.bundle import Bundle
from penstock.model.errors import (
    InvalidArgument,
    InvalidBundle,
    LogLocked,
    MessageTooLarge,
    PenstockError,
    StoreClosed,
)
from penstock.model.settings import KIB, Durability, LogSettings
from penstock.model.slots import LOGS, RAW_LOGS, SlotTable
from penstock.storage.files import LocalFiles
from penstock.store import Store
from tests.simulation.faults import FaultyFiles
from tests.simulation.manual_pool import ManualClock
from tests.store.helpers import (
    SMALL_LOG,
    TOPIC,
    WAIT_S,
    bundle,
    changed,
    crash,
    drain,
    fill,
    log_files,
    number_of,
    numbers,
    open_store,
    segment_files,
    seqs,
    take,
    take_all,
    wait_until,
)

# --- appending -----------------------------------------------------------------------------------


def test_the_package_offers_the_store() -> None:
    """As the interface promises."""
    assert StoreOfThePackage is Store


def test_what_is_appended_is_delivered_as_it_was(tmp_path: Path) -> None:
    """Bundles with their slots, raw bytes in rows, in the order of offsets."""
    sent = Bundle({LOGS: pa.RecordBatch.from_pydict({"a": [1, None]}), 63: _batch(5)})
    with open_store(tmp_path) as store:
        offsets = [store.append(item).offset for item in (sent, b"raw", bundle(3))]
        assert offsets == [0, 1, 2]
        store.flush()
        found = take_all(store.subscribe("s"))
        assert [(d.first_offset, d.messages, d.segment_seq, d.bundle_index) for d in found] == [
            (0, 1, 0, 0),
            (1, 1, 0, 1),
            (2, 1, 0, 2),
        ]
        assert found[0].bundle == sent
        assert found[1].bundle[RAW_LOGS]["data"].to_pylist() == [b"raw"]
        assert number_of(found[2]) == 3


def test_small_raw_messages_share_a_bundle(tmp_path: Path) -> None:
    """Where they were committed together; the manifest says first offset and count."""
    with open_store(tmp_path) as store:
        store.log.append_many([b"one", b"two", b"three"]).durable.wait(WAIT_S)
        store.flush()
        (delivery,) = take_all(store.subscribe("s"))
        assert (delivery.first_offset, delivery.messages) == (0, 3)
        assert delivery.bundle[RAW_LOGS]["data"].to_pylist() == [b"one", b"two", b"three"]


@pytest.mark.parametrize(
    "data", [b"", b"plain", b"\0", b"\0R", b"\0B", b"\0Bnot a bundle", bytearray(b"\0x"), b"\xff"]
)
def test_raw_bytes_come_back_whatever_they_begin_with(tmp_path: Path, data: bytes) -> None:
    """Also those that look like a bundle or like nothing at all."""
    with open_store(tmp_path) as store:
        assert store.append_durable(data) == 0
        assert store.append(memoryview(data)).offset == 1
        store.flush()
        assert raw_messages(store) == [bytes(data)] * 2


@pytest.mark.parametrize("item", ["text", None, 1, [b"x"], {LOGS: 1}])
def test_anything_else_is_refused_and_nothing_is_stored(tmp_path: Path, item: Any) -> None:
    """In each form of append."""
    with open_store(tmp_path) as store:
        for form in (store.append, store.append_durable, lambda x: _run(store.append_async(x))):
            with pytest.raises(InvalidArgument):
                form(item)
        assert store.log.next_offset == 0


def test_a_bundle_that_arrow_cannot_write_is_refused(tmp_path: Path) -> None:
    """InvalidBundle at the door, and not a store that stops later."""
    batch = pa.RecordBatch.from_arrays([_unwritable()], names=["a"])
    with open_store(tmp_path) as store, pytest.raises(InvalidBundle):
        store.append(Bundle({0: batch}))


def test_a_message_over_the_log_s_limit_is_refused(tmp_path: Path) -> None:
    """The store's other messages are not concerned."""
    settings = changed(log=LogSettings(max_message_bytes=1000, retention_bytes=0))
    with open_store(tmp_path, settings) as store:
        with pytest.raises(MessageTooLarge):
            store.append(b"x" * 1001)
        assert store.append(b"x" * 1000).offset == 0


def test_a_caller_s_buffer_may_change_after_append(tmp_path: Path) -> None:
    """What was appended is what was there at the call."""
    buffer = bytearray(b"before")
    with open_store(tmp_path) as store:
        store.append(buffer)
        buffer[:] = b"after!"
        store.flush()
        assert raw_messages(store) == [b"before"]


def test_an_append_is_durable_in_the_log_before_it_is_in_a_segment(tmp_path: Path) -> None:
    """`durable` waits for the log alone."""
    with open_store(tmp_path) as store:
        store.append(bundle(7)).durable.wait(WAIT_S)
        assert seqs(store) == []
        assert store.log.end_offset == 1


def test_coroutines_append_flush_and_close(tmp_path: Path) -> None:
    """Each blocking form has its async one."""

    async def main() -> list[int]:
        store = open_store(tmp_path)
        appends = [await store.append_async(bundle(number)) for number in range(3)]
        for append in appends:
            await append.durable
        await store.flush_async()
        found = numbers(take_all(store.subscribe("s")))
        await store.close_async()
        return found

    assert asyncio.run(main()) == [0, 1, 2]
    with pytest.raises(LogLocked), open_store(tmp_path), open_store(tmp_path):
        pass


def test_threads_may_append_at_once(tmp_path: Path) -> None:
    """Every bundle is there once; each thread's own come in its order."""
    with open_store(tmp_path) as store:

        def append(thread: int) -> None:
            for number in range(50):
                store.append(bundle(thread * 100 + number))

        threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.flush()
        found = numbers(take_many(store))
        assert sorted(found) == [t * 100 + n for t in range(4) for n in range(50)]
        assert all(
            [n for n in found if n // 100 == thread] == [thread * 100 + n for n in range(50)]
            for thread in range(4)
        )


def take_many(store: Store) -> list[Any]:
    """Everything, where more is there than may be in flight."""
    subscription, found = store.subscribe("all"), []
    while (delivery := subscription.next_bundle(0)) is not None:
        delivery.ack()
        found.append(delivery)
    return found


def test_items_are_counted_by_the_slot_table(tmp_path: Path) -> None:
    """Another project brings its own table; the bundle's own count comes first."""
    table = SlotTable(roots=frozenset({5}))
    with open_store(tmp_path, slots=table) as store:
        store.append(Bundle({5: _batch(3), 6: _batch(100)}))
        store.append(Bundle({5: _batch(3)}, items=50))
        store.flush()
        assert [info.items for info in store.segments] == [53]
        assert [d.bundle.items for d in take_all(store.subscribe("s"))] == [3, 50]


# --- flushing and reading ------------------------------------------------------------------------


def test_flush_seals_everything_that_was_appended_before(tmp_path: Path) -> None:
    """One segment of it, with what it says of itself."""
    clock = ManualClock()
    with open_store(tmp_path, clock=clock) as store:
        fill(store, range(3))
        (info,) = store.segments
        assert (info.segment_seq, info.first_offset, info.end_offset) == (0, 0, 3)
        assert (info.bundles, info.items) == (3, 3)
        assert info.first_ingested_at_ns == clock.wall_ns()
        path = tmp_path / "segments" / "00000000000000000000.seg"
        assert path.stat().st_size == info.size
        assert path.stat().st_mode & 0o222 == 0


def test_flushing_nothing_makes_no_segment(tmp_path: Path) -> None:
    """A new store, and one where everything is sealed."""
    with open_store(tmp_path) as store:
        store.flush()
        fill(store, [1])
        store.flush()
        assert seqs(store) == [0]


def test_a_flush_that_takes_too_long_says_so(tmp_path: Path) -> None:
    """And may be tried again."""
    files = FaultyFiles(LocalFiles())
    with open_store(tmp_path, files=files) as store:
        gate = files.hold_up("rename", name="*.seg")
        store.append(bundle(1))
        with pytest.raises(TimeoutError):
            store.flush(timeout=0.01)
        gate.open()
        store.flush(WAIT_S)


def test_a_segment_can_be_read_whoever_has_acknowledged_it(tmp_path: Path) -> None:
    """A query needs no subscriber."""
    with open_store(tmp_path) as store:
        fill(store, [1, 2], [3])
        assert store.read_segment(0).read_all(LOGS)["number"].to_pylist() == [1, 2]
        with pytest.raises(FileNotFoundError):
            store.read_segment(9)


def test_a_snapshot_shows_each_bundle_once(tmp_path: Path) -> None:
    """Sealed or open, also while one becomes the other."""
    with open_store(tmp_path) as store:
        stop, wrong = threading.Event(), list[str]()

        def look() -> None:
            while not stop.is_set():
                segments, opened = store.snapshot()
                ends = [info.end_offset for info in segments]
                starts = [info.first_offset for info in segments]
                starts += [opened[0].first_offset] if opened else []
                if starts[1:] != ends[: len(starts) - 1] or starts[:1] not in ([], [0]):
                    wrong.append(f"{starts} {ends}")
                stop.wait(0.0001)

        watcher = threading.Thread(target=look)
        watcher.start()
        fill(store, *([number] for number in range(20)))
        stop.set()
        watcher.join()
        assert wrong == []
        store.append(bundle(20))
        wait_until(lambda: [number_of(b.bundle) for b in store.snapshot()[1]] == [20])


# --- closing and reopening -----------------------------------------------------------------------


def test_closing_seals_what_is_open_and_is_idempotent(tmp_path: Path) -> None:
    """The next opening has nothing to replay."""
    store = open_store(tmp_path)
    store.append(bundle(1))
    store.close()
    store.close()
    assert segment_files(tmp_path) == ["00000000000000000000.seg"]
    with open_store(tmp_path) as again:
        assert seqs(again) == [0]
        assert again.problems == ()


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    """Every call, and for good."""
    store = open_store(tmp_path)
    fill(store, [1])
    subscription = store.subscribe("s")
    (delivery,) = take(subscription, 1)
    store.close()
    calls = [
        lambda: store.append(b"x"),
        lambda: store.append_durable(b"x"),
        lambda: _run(store.append_async(b"x")),
        store.flush,
        lambda: store.register("t"),
        lambda: store.subscribe("s"),
        lambda: store.unregister("s"),
        lambda: store.deactivate("s"),
        lambda: subscription.next_bundle(0),
        lambda: _run(subscription.next_bundle_async(0)),
        delivery.ack,
    ]
    for call in calls:
        with pytest.raises(StoreClosed):
            call()
    assert isinstance(store.failure, StoreClosed)
    assert number_of(delivery) == 1


def test_only_one_may_have_a_store_open(tmp_path: Path) -> None:
    """The second one is told who has it; closing lets it in."""
    with open_store(tmp_path):
        with pytest.raises(LogLocked) as caught:
            open_store(tmp_path)
        assert caught.value.pid == os.getpid()
    open_store(tmp_path).close()


def test_an_opening_that_fails_leaves_the_store_free(tmp_path: Path) -> None:
    """The lock of the store, and that of its log."""
    files = FaultyFiles(LocalFiles())
    files.fail("create", name="ack.log.tmp")
    with pytest.raises((OSError, PenstockError)):
        open_store(tmp_path, files=files)
    open_store(tmp_path).close()


def test_a_store_goes_on_where_it_was(tmp_path: Path) -> None:
    """Offsets, segments, subscribers and what each of them has."""
    with open_store(tmp_path) as store:
        fill(store, [0, 1], [2])
        subscription = store.subscribe("s")
        take(subscription, 1)[0].ack()
        store.register("idle", "latest")
    with open_store(tmp_path) as store:
        assert seqs(store) == [0, 1]
        assert [each.name for each in store.subscribers()] == ["s", "idle"]
        assert store.append_durable(bundle(3)) == 3
        store.flush()
        assert drain(store.subscribe("s")) == [1, 2, 3]
        assert drain(store.subscribe("idle")) == [3]


def test_reopening_replays_what_was_not_sealed(tmp_path: Path) -> None:
    """As after a kill: nobody sealed anything."""
    store = open_store(tmp_path / "a")
    fill(store, [0])
    for number in (1, 2):
        store.append(bundle(number)).durable.wait(WAIT_S)
    crash(tmp_path / "a", tmp_path / "b")
    store.close()
    with open_store(tmp_path / "b") as again:
        assert again.problems == ()
        again.flush()
        assert drain(again.subscribe("s")) == [0, 1, 2]


@pytest.mark.parametrize("durability", list(Durability))
def test_every_durability_delivers_and_reopens(tmp_path: Path, durability: Durability) -> None:
    """They differ in what a power loss costs, and in nothing else."""
    settings = changed(log=LogSettings(durability=durability, retention_bytes=0))
    with open_store(tmp_path, settings) as store:
        fill(store, [0], [1])
        take(store.subscribe("s"), 1)[0].ack().wait(WAIT_S)
        store.append(bundle(2))
    with open_store(tmp_path, settings) as store:
        assert drain(store.subscribe("s")) == [1, 2]


def test_damage_in_the_log_is_among_the_problems(tmp_path: Path) -> None:
    """Where it lies, and that the rest was taken in."""
    store = open_store(tmp_path / "a")
    for number in range(3):
        store.append(b"message %d" % number).durable.wait(WAIT_S)
    crash(tmp_path / "a", tmp_path / "b")
    store.close()
    (name,) = log_files(tmp_path / "b")
    path = tmp_path / "b" / "log" / name
    path.write_bytes(path.read_bytes().replace(b"message 1", b"massage 1"))
    with open_store(tmp_path / "b") as again:
        (problem,) = again.problems
        assert problem.file == f"log/{name}"
        again.flush()
        assert raw_messages(again) == [b"message 0", b"message 2"]


def test_offsets_never_repeat_when_the_log_was_deleted(tmp_path: Path) -> None:
    """What is sealed says where the log must go on."""
    with open_store(tmp_path) as store:
        fill(store, range(5))
    shutil.rmtree(tmp_path / "log")
    with open_store(tmp_path) as store:
        assert store.append_durable(bundle(5)) == 5
        store.flush()
        assert drain(store.subscribe("s")) == [0, 1, 2, 3, 4, 5]


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


def in_a_child(act: Callable[[], None]) -> None:
    """Does it in a forked child, which must come to its end without an error or a hang."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(int(WAIT_S))
            act()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@needs_fork
def test_a_forked_child_can_not_use_its_parent_s_store_but_its_own(tmp_path: Path) -> None:
    """It is told so, and the parent goes on."""
    store = open_store(tmp_path / "parent")
    fill(store, [0])
    subscription = store.subscribe("s")

    def act() -> None:
        for call in (
            lambda: store.append_durable(b"child"),
            lambda: store.append(b"child"),
            store.flush,
            lambda: store.register("child"),
            lambda: drain(subscription),
        ):
            with pytest.raises(PenstockError):
                call()
        with open_store(tmp_path / "child") as own:
            fill(own, [1])
            assert drain(own.subscribe("s")) == [1]

    in_a_child(act)
    fill(store, [1])
    assert drain(subscription) == [0, 1]
    store.close()


@needs_fork
def test_a_forked_child_leaves_the_lock_to_its_parent(tmp_path: Path) -> None:
    """Nobody else may open a store whose owner is alive, whatever its children close."""
    with open_store(tmp_path) as store:
        fill(store, [0])
        in_a_child(store.close)
        with pytest.raises(LogLocked):
            LocalFiles().lock(tmp_path / ".lock")


@needs_fork
def test_a_forked_child_does_not_wait_for_threads_that_it_lacks(tmp_path: Path) -> None:
    """A seal was under way at the fork, and somebody held the store's lock."""
    files = FaultyFiles(LocalFiles())
    with open_store(tmp_path, files=files) as store:
        subscription = store.subscribe("s")
        gate = files.hold_up("rename", name="*.seg")
        store.append(bundle(1))
        flusher = threading.Thread(target=store.flush)
        flusher.start()
        assert gate.reached.wait(WAIT_S)
        held, release = threading.Event(), threading.Event()

        def hold() -> None:
            with store._journal.lock:
                held.set()
                release.wait(WAIT_S)

        holder = threading.Thread(target=hold)
        holder.start()
        assert held.wait(WAIT_S)

        def act() -> None:
            with pytest.raises(PenstockError):
                subscription.next_bundle(0)
            store.close()

        try:
            in_a_child(act)
        finally:
            release.set()
            gate.open()
            holder.join()
            flusher.join()


# --- restarting with many segments ---------------------------------------------------------------


class CountingFiles(FaultyFiles):
    """Notes which files are opened or mapped."""

    def __init__(self) -> None:
        super().__init__(LocalFiles())
        self.looked_at: list[str] = []

    def attempt(self, operation: str, path: Path) -> None:
        """Noted, and done."""
        if operation in ("open", "map"):
            self.looked_at.append(path.name)
        super().attempt(operation, path)


def test_restarting_reads_no_segment(tmp_path: Path) -> None:
    """The acknowledgement log says what there is, however many segments there are."""
    with open_store(tmp_path) as store:
        fill(store, *([number] for number in range(300)))
    files = CountingFiles()
    with open_store(tmp_path, files=files) as store:
        assert len(store.segments) == 300
        assert store.problems == ()
        assert [name for name in files.looked_at if ".seg" in name] == []
        assert number_of(take(store.subscribe("s"), 1)[0]) == 0


# --- metrics and status --------------------------------------------------------------------------


def test_the_metrics_say_what_happened(tmp_path: Path) -> None:
    """Each name after actions that are known."""
    metrics, clock = Metrics(), ManualClock()
    with open_store(tmp_path, metrics=metrics, clock=clock) as store:
        counted = metrics.for_store(TOPIC)
        slow, quick = store.subscribe("slow"), store.subscribe("quick")
        fill(store, range(3), range(3, 6), [6])
        store.log.append_durable(b"\0?")
        store.append(bundle(7))
        wait_until(lambda: counted.value(names.STORE_OPEN_BYTES) > 0)
        sizes = [info.size for info in store.segments]
        answers = take(quick, 7)
        for delivery in (*answers[:2], *answers[3:5]):
            delivery.ack()
        answers[2].reject()
        answers[5].nack()
        answers[6].ack().wait(WAIT_S)
        held = take(slow, 2)
        clock.advance(9.0)
        expected = {
            (names.STORE_SEALED_SEGMENTS, ()): 3,
            (names.STORE_SEALED_BYTES, ()): sum(sizes),
            (names.STORE_SET_ASIDE, ()): 1,
            (names.STORE_SEGMENTS, ()): 3,
            (names.STORE_BYTES, ()): store.log.size + sum(sizes),
            (names.STORE_BUDGET_RATIO, ()): 0,
            (names.SUBSCRIBER_BUNDLES, ("quick", "acked")): 5,
            (names.SUBSCRIBER_BUNDLES, ("quick", "rejected")): 1,
            (names.SUBSCRIBER_BUNDLES, ("quick", "nacked")): 1,
            (names.SUBSCRIBER_BUNDLES, ("quick", "dropped")): 0,
            (names.SUBSCRIBER_BUNDLES, ("slow", "acked")): 0,
            (names.SUBSCRIBER_IN_FLIGHT, ("slow",)): 2,
            (names.SUBSCRIBER_IN_FLIGHT, ("quick",)): 0,
            (names.SUBSCRIBER_LAG_SEGMENTS, ("slow",)): 3,
            (names.SUBSCRIBER_LAG_SEGMENTS, ("quick",)): 2,
            (names.SUBSCRIBER_GAP_SET_SIZE, ("slow",)): 0,
            (names.SUBSCRIBER_GAP_SET_SIZE, ("quick",)): 1,
            (names.SUBSCRIBER_OLDEST_UNACKED_SECONDS, ("slow",)): 9.0,
            (names.STORE_SEAL_FAILURES, ()): 0,
            (names.STORE_THROTTLED, ()): 0,
        }
        found = {key: counted.value(*key) for key in expected}
        assert found == expected
        assert sum(counted.seals.buckets) == 3
        assert counted.value(names.ACK_LOG_EVENTS) == store.status().ack_log_events > 0
        assert counted.value(names.ACK_LOG_BYTES) == store.status().ack_log_bytes > 0
        for delivery in held:
            delivery.ack()
        assert drain(slow) == [2, 3, 4, 5, 6]
        clock.advance(100.0)
        again = take(quick, 1)
        assert numbers(again) == [5]
        again[0].ack()
        wait_until(lambda: counted.value(names.STORE_EVICTIONS, ("acked",)) == 3)
        assert counted.value(names.STORE_DROPPED_SEGMENTS) == 0


def test_the_exposition_names_every_metric_of_a_store(tmp_path: Path) -> None:
    """With its topic, and the subscriber where there is one."""
    metrics = Metrics()
    with open_store(tmp_path, metrics=metrics) as store:
        subscription = store.subscribe("s")
        fill(store, [1])
        assert drain(subscription) == [1]
        text = metrics.exposition().decode()
        for name in (*names.STORE_COUNTERS, *names.STORE_GAUGES, *names.STORE_HISTOGRAMS):
            assert f"# HELP {name.removesuffix('_total')}" in text or f"# HELP {name}" in text
        for line in (
            f'{names.STORE_SEALED_SEGMENTS}{{topic="{TOPIC}"}} 1.0',
            f'{names.SUBSCRIBER_BUNDLES}{{outcome="acked",subscriber="s",topic="{TOPIC}"}} 1.0',
            f'{names.SUBSCRIBER_IN_FLIGHT}{{subscriber="s",topic="{TOPIC}"}} 0.0',
            f"{names.STORE_SEAL_SECONDS}_count 1.0",
        ):
            assert line in text, line
    assert names.STORE_BYTES + "{" not in metrics.exposition().decode()


def test_a_store_opened_again_counts_on(tmp_path: Path) -> None:
    """One process, one line for each topic; a subscriber's counts outlive the process."""
    metrics = Metrics()
    for number in range(2):
        with open_store(tmp_path, metrics=metrics) as store:
            subscription = store.subscribe("s")
            fill(store, [number])
            assert drain(subscription) == [number]
            counted = metrics.for_store(TOPIC)
            assert counted.value(names.STORE_SEALED_SEGMENTS) == number + 1
            assert counted.value(names.SUBSCRIBER_BUNDLES, ("s", "acked")) == number + 1


def test_the_status_is_that_of_the_disk(tmp_path: Path) -> None:
    """Bytes of log and segments, of the open segment, and what may be used."""
    settings = changed(log=SMALL_LOG, budget_bytes=256 * KIB)
    with open_store(tmp_path, settings) as store:
        store.register("s")
        fill(store, [1], [2], size=1000)
        store.append(bundle(3, 5000)).durable.wait(WAIT_S)
        wait_until(lambda: store.status().open_bytes > 5000)
        found = store.status()
        assert found.segments == 2
        assert found.used_bytes == store.log.size + sum(info.size for info in store.segments)
        assert found.limit_bytes == 256 * KIB
        assert [each.name for each in found.subscribers] == ["s"]
        assert (tmp_path / "ack.log").stat().st_size >= found.ack_log_bytes


# --- small parts ---------------------------------------------------------------------------------


def _batch(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(range(rows))})


def _unwritable() -> pa.Array:
    """An array nested deeper than Arrow's IPC goes."""
    type_: pa.DataType = pa.int8()
    for _ in range(80):
        type_ = pa.list_(type_)
    return pa.array([None], type_)


def raw_messages(store: Store) -> list[bytes]:
    """The raw messages that a new subscriber gets."""
    found = take_all(store.subscribe("s"))
    return [data for d in found for data in d.bundle[RAW_LOGS]["data"].to_pylist()]


def _run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)
