"""From the log into segments: when the open segment is sealed, and what happens when that fails."""

from __future__ import annotations

import errno
import functools
import logging
import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.log.environment import MemoryBound
from penstock.metrics import Metrics, names
from penstock.model.bundle import Bundle
from penstock.model.errors import StoreStopped
from penstock.model.settings import KIB, Durability, LogSettings
from penstock.model.slots import LOGS, RAW_LOGS
from penstock.segment import segment_name
from penstock.storage.files import LocalFiles
from penstock.store import Decoded, Store, filling
from penstock.store.decoding import PlainDecoder
from tests.simulation.faults import FaultyFiles
from tests.simulation.manual_pool import ManualClock
from tests.store.helpers import (
    SEGMENTS,
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
    wait_until,
)


@pytest.fixture(autouse=True)
def _retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is tried again soon."""
    monkeypatch.setattr(filling, "RETRY_S", 0.01)


@pytest.fixture
def faulty() -> FaultyFiles:
    """The machine's files, with faults to come."""
    return FaultyFiles(LocalFiles())


def contents(store: Store) -> list[list[int]]:
    """The numbers in each segment."""
    return [
        store.read_segment(info.segment_seq).read_all(LOGS)["number"].to_pylist()
        for info in store.segments
    ]


class Flush(threading.Thread):
    """A flush that may take its time, and what it raised."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.error: Exception | None = None
        self._store = store
        self.start()

    def run(self) -> None:
        """Flushes."""
        try:
            self._store.flush()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def end(self) -> Exception | None:
        """What it raised, when it is over."""
        self.join(WAIT_S)
        assert not self.is_alive()
        return self.error


# --- when it is sealed ---------------------------------------------------------------------------


def test_a_segment_is_sealed_when_it_has_reached_its_size(tmp_path: Path) -> None:
    """Without being asked; what is left over stays open."""
    with open_store(tmp_path) as store:
        for number in range(10):
            store.append(bundle(number, 16 * KIB))
        wait_until(lambda: len(store.segments) == 2)
        assert contents(store) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        wait_until(lambda: len(store.snapshot()[1]) == 2)


def test_a_segment_is_sealed_when_its_first_bundle_is_old(tmp_path: Path) -> None:
    """A waiting subscriber gets it without a flush."""
    settings = changed(segment=replace(SEGMENTS, max_open_s=0.02))
    with open_store(tmp_path, settings) as store:
        subscription = store.subscribe("s")
        for number in range(3):
            store.append(bundle(number))
            (delivery,) = take(subscription, 1)
            assert number_of(delivery) == number
            delivery.ack()


def test_a_young_segment_stays_open(tmp_path: Path) -> None:
    """By the store's own clock: a second before its time nothing is sealed, then it is."""
    clock = ManualClock()
    settings = changed(segment=replace(SEGMENTS, max_open_s=60.0))
    with open_store(tmp_path, settings, clock=clock) as store:
        store.append(bundle(0)).durable.wait(WAIT_S)
        wait_until(lambda: store.snapshot()[1])
        clock.advance(59.0)
        store.append(bundle(1)).durable.wait(WAIT_S)
        wait_until(lambda: len(store.snapshot()[1]) == 2)
        assert seqs(store) == []
        clock.advance(1.0)
        store.append(bundle(2)).durable.wait(WAIT_S)
        wait_until(lambda: contents(store) == [[0, 1, 2]])


def test_a_segment_is_sealed_before_it_has_too_many_streams(tmp_path: Path) -> None:
    """Each new schema is a stream; the limit is never passed."""
    settings = changed(segment=replace(SEGMENTS, max_streams=64, target_bytes=10**9))
    with open_store(tmp_path, settings) as store:
        for number in range(150):
            batch = pa.RecordBatch.from_pydict({f"column {number}": [number]})
            store.append(Bundle({LOGS: batch}))
        wait_until(lambda: len(store.segments) == 2)
        store.flush()
        assert [info.bundles for info in store.segments] == [64, 64, 22]


def test_a_segment_is_sealed_before_a_dictionary_outgrows_its_limit(tmp_path: Path) -> None:
    """Three values and two more are over a limit of four."""
    settings = changed(segment=replace(SEGMENTS, dictionary_values=4))
    with open_store(tmp_path, settings) as store:
        for values in (["a", "b", "c"], ["d", "e"], ["d"]):
            batch = pa.RecordBatch.from_arrays([pa.array(values).dictionary_encode()], ["v"])
            store.append(Bundle({LOGS: batch}))
        store.flush()
        assert [info.bundles for info in store.segments] == [1, 2]


def test_columns_without_a_common_type_share_a_segment(tmp_path: Path) -> None:
    """Each is stored as it is, in a stream of its own."""
    values: list[list[object]] = [[1], [{"a": 1}], [2]]
    with open_store(tmp_path) as store:
        for value in values:
            store.append(Bundle({LOGS: pa.RecordBatch.from_pydict({"number": value})}))
        store.flush()
        [info] = store.segments
        reader = store.read_segment(info.segment_seq)
        found = [reader.bundle(number).bundle[LOGS]["number"].to_pylist() for number in range(3)]
        assert found == values


def test_a_segment_is_sealed_when_memory_is_short(tmp_path: Path) -> None:
    """One bound for all stores of a process: the largest gives way."""
    memory = MemoryBound(20 * KIB)
    with (
        open_store(tmp_path / "large", memory=memory) as large,
        open_store(tmp_path / "small", memory=memory, name="other") as small,
    ):
        large.append(bundle(1, 12 * KIB)).durable.wait(WAIT_S)
        wait_until(lambda: large.snapshot()[1])
        small.append(bundle(2, 10 * KIB)).durable.wait(WAIT_S)
        wait_until(lambda: large.segments)
        assert seqs(small) == []
        wait_until(lambda: small.snapshot()[1])


def test_memory_stays_bounded_while_much_of_the_log_is_read(tmp_path: Path) -> None:
    """A restart replays more than may be open at once: it seals on the way, not only at the end."""
    settings = changed(segment=replace(SEGMENTS, target_bytes=1024 * KIB))
    faulty, memory = FaultyFiles(LocalFiles()), MemoryBound(64 * KIB)
    store = open_store(tmp_path / "a", settings, files=faulty)
    gate = faulty.hold_up("rename", name="*.seg")
    store.append(bundle(0))
    flush = Flush(store)
    assert gate.reached.wait(WAIT_S)
    for number in range(1, 40):
        store.append(bundle(number, 10 * KIB)).durable.wait(WAIT_S)
    folder = crash(tmp_path / "a", tmp_path / "b")
    gate.open()
    assert flush.end() is None
    store.close()
    with open_store(folder, settings, memory=memory) as again:
        again.flush()
        assert functools.reduce(operator.iadd, contents(again), []) == list(range(40))
        assert max(info.size for info in again.segments) < 100 * KIB


def test_closing_seals(tmp_path: Path) -> None:
    """What was durable a moment before too."""
    store = open_store(tmp_path)
    store.append(bundle(1)).durable.wait(WAIT_S)
    store.append(bundle(2))
    store.close()
    with open_store(tmp_path) as store:
        assert contents(store) == [[1, 2]]


# --- while a seal takes its time -----------------------------------------------------------------


@pytest.mark.parametrize("operation", ["pwrite", "sync", "rename"])
def test_appends_and_deliveries_go_on_while_a_seal_is_held_up(
    tmp_path: Path, faulty: FaultyFiles, operation: str
) -> None:
    """They wait neither for the disk of the segment nor for each other."""
    with open_store(tmp_path, files=faulty) as store:
        subscription = store.subscribe("s")
        fill(store, [0])
        gate = faulty.hold_up(operation, name="*.seg*")
        store.append(bundle(1))
        flush = Flush(store)
        assert gate.reached.wait(WAIT_S)
        for number in range(2, 50):
            store.append_durable(bundle(number))
        assert drain(subscription) == [0]
        assert store.register("other")
        gate.open()
        assert flush.end() is None
        store.flush()
        assert drain(subscription) == list(range(1, 50))


@pytest.mark.parametrize(
    ("operation", "name"), [("rename", "*.seg"), ("sync", "*.seg*"), ("sync_folder", "segments")]
)
def test_the_log_keeps_what_is_not_in_a_durable_segment(
    tmp_path: Path, faulty: FaultyFiles, operation: str, name: str
) -> None:
    """Its files go only when the segment and its name are synced."""
    settings = changed(log=SMALL_LOG)
    with open_store(tmp_path, settings, files=faulty) as store:
        gate = faulty.hold_up(operation, name=name)
        for number in range(20):
            store.append_durable(bundle(number, 20 * KIB))
        assert gate.reached.wait(WAIT_S)
        store.log.enforce_retention()
        before = log_files(tmp_path)
        assert len(before) > 3
        assert before[0] == f"{0:020d}.wal"
        gate.open()
        store.flush()
        wait_until(lambda: len(log_files(tmp_path)) == 1)


def test_the_log_is_synced_before_its_messages_are_sealed(
    tmp_path: Path, faulty: FaultyFiles
) -> None:
    """With `interval` too: the log must never end before its segments do."""
    log = LogSettings(durability=Durability.INTERVAL, sync_interval_s=3600, retention_bytes=0)
    with open_store(tmp_path, changed(log=log), files=faulty) as store:
        gate = faulty.hold_up("sync", name="*.wal")
        store.append(bundle(1))
        wait_until(lambda: store.snapshot()[1])
        store._filling.seal_soon()
        assert gate.reached.wait(WAIT_S)
        assert segment_files(tmp_path) == []
        gate.open()
        wait_until(lambda: store.segments)


# --- when a seal fails ---------------------------------------------------------------------------

SEAL_STEPS = [
    ("create", "*.seg.tmp"),
    ("pwrite", "*.seg.tmp"),
    ("sync", "*.seg.tmp"),
    ("protect", "*.seg.tmp"),
    ("rename", "*.seg"),
    ("sync_folder", "segments"),
]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize(("operation", "name"), SEAL_STEPS)
def test_a_failed_seal_is_tried_again(
    tmp_path: Path, faulty: FaultyFiles, operation: str, name: str, error: int
) -> None:
    """Whichever step failed; nothing is missing and nothing comes twice."""
    metrics = Metrics()
    with open_store(tmp_path, files=faulty, metrics=metrics) as store:
        faulty.fail(operation, error, name=name, times=2)
        fill(store, [1, 2])
        assert metrics.for_store(TOPIC).value(names.STORE_SEAL_FAILURES) == 2
        numbers = [0] if error == errno.EIO else [0, 1]  # in parts, where there is no room
        assert seqs(store) == numbers
        assert segment_files(tmp_path) == [segment_name(number) for number in numbers]
        assert drain(store.subscribe("s")) == [1, 2]


def test_too_many_failures_stop_the_store_and_nothing_is_lost(
    tmp_path: Path, faulty: FaultyFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """Loudly; opened again, it has everything that was appended."""
    store = open_store(tmp_path, changed(seal_retries=2), files=faulty)
    subscription = store.subscribe("s")
    fault = faulty.fail("sync", name="*.seg.tmp", times=None)
    store.append(bundle(1)).durable.wait(WAIT_S)
    with pytest.raises(StoreStopped):
        store.flush()
    assert fault.hits == 3
    assert isinstance(store.failure, StoreStopped)
    assert isinstance(store.failure.__cause__, OSError)
    assert [record.levelno for record in caplog.records].count(logging.CRITICAL) == 1
    for call in (lambda: store.append(b"x"), store.flush, lambda: subscription.next_bundle(0)):
        with pytest.raises(StoreStopped):
            call()
    store.close()
    with open_store(tmp_path) as again:
        assert drain(again.subscribe("s")) == []
        again.flush()
        assert drain(again.subscribe("s")) == [1]


def test_a_waiting_subscriber_hears_that_the_store_stopped(
    tmp_path: Path, faulty: FaultyFiles
) -> None:
    """It would wait for ever."""
    store = open_store(tmp_path, changed(seal_retries=0), files=faulty)
    subscription, raised = store.subscribe("s"), list[Exception]()

    def wait() -> None:
        try:
            subscription.next_bundle()
        except StoreStopped as error:
            raised.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    faulty.fail("create", name="*.seg.tmp", times=None)
    store.append(bundle(1))
    assert isinstance(Flush(store).end(), StoreStopped)
    waiter.join(WAIT_S)
    assert len(raised) == 1
    store.close()


def test_a_full_disk_never_stops_the_store(tmp_path: Path, faulty: FaultyFiles) -> None:
    """It is tried again until there is space, however often that is."""
    with open_store(tmp_path, changed(seal_retries=0), files=faulty) as store:
        fault = faulty.fail("pwrite", errno.ENOSPC, name="*.seg.tmp", times=None)
        store.append(bundle(1))
        flush = Flush(store)
        wait_until(lambda: fault.hits > 5)
        assert store.failure is None
        faulty.heal()
        assert flush.end() is None
        assert drain(store.subscribe("s")) == [1]


def test_a_log_that_is_full_does_not_stop_the_store(tmp_path: Path, faulty: FaultyFiles) -> None:
    """With `buffer` a seal syncs the log first, which a full disk refuses for a while."""
    log = LogSettings(durability=Durability.BUFFER, retention_bytes=0)
    with open_store(tmp_path, changed(log=log, seal_retries=0), files=faulty) as store:
        store.append(bundle(1))
        wait_until(lambda: store.snapshot()[1])
        fault = faulty.fail("pwrite", errno.ENOSPC, name="*.wal", times=None)
        store.append(bundle(2))
        wait_until(lambda: fault.hits)
        store._filling.seal_soon()
        wait_until(lambda: store._held.metrics.value(names.STORE_SEAL_FAILURES) > 1)
        assert store.failure is None
        faulty.heal()
        wait_until(lambda: store.log.end_offset == 2)
        store.flush()
        assert drain(store.subscribe("s")) == [1, 2]


def test_failures_are_counted_from_the_last_success(tmp_path: Path, faulty: FaultyFiles) -> None:
    """Now and then a failure is not too many failures."""
    with open_store(tmp_path, changed(seal_retries=1), files=faulty) as store:
        for number in range(4):
            faulty.fail("sync", name="*.seg.tmp")
            fill(store, [number])
        assert seqs(store) == [0, 1, 2, 3]


def test_messages_that_come_meanwhile_do_not_hurry_the_next_try(
    tmp_path: Path, faulty: FaultyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause between tries is what lets a disk recover; traffic must not use the tries up."""
    monkeypatch.setattr(filling, "RETRY_S", 3600.0)
    with open_store(tmp_path, changed(seal_retries=2), files=faulty) as store:
        fault = faulty.fail("sync", name="*.seg.tmp", times=None)
        store.append(bundle(0, 100 * KIB))
        wait_until(lambda: fault.hits == 1)
        for number in range(1, 6):
            store.append_durable(bundle(number))
            store._filling.seal_soon()
            assert store._filling._job._idle.wait(WAIT_S)
        assert fault.hits == 1
        assert store.failure is None
        faulty.heal()
        store._filling._try_again()


# --- what cannot be decoded ----------------------------------------------------------------------


def test_a_message_that_cannot_be_decoded_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Kept, counted, said so; its neighbours are delivered."""
    metrics = Metrics()
    with open_store(tmp_path, metrics=metrics) as store:
        store.append(bundle(0)).durable.wait(WAIT_S)
        store.log.append_many([b"\0Bbroken", b"\0?"]).durable.wait(WAIT_S)
        store.append(bundle(3))
        store.flush()
        assert drain(store.subscribe("s")) == [0, 3]
        aside = tmp_path / "aside"
        kept = {path.name: path.read_bytes() for path in aside.iterdir()}
        assert kept == {f"{1:020d}.msg": b"\0Bbroken", f"{2:020d}.msg": b"\0?"}
        assert metrics.for_store(TOPIC).value(names.STORE_SET_ASIDE) == 2
        assert [r.levelno for r in caplog.records].count(logging.ERROR) == 2


def test_a_log_of_nothing_but_undecodable_messages_is_sealed_through(tmp_path: Path) -> None:
    """A flush comes to its end, and a restart does not deliver anything."""
    with open_store(tmp_path) as store:
        for _ in range(3):
            store.log.append(b"\0?")
        store.flush(WAIT_S)
        assert seqs(store) == []
    with open_store(tmp_path) as store:
        store.flush(WAIT_S)
        assert drain(store.subscribe("s")) == []
        assert len(list((tmp_path / "aside").iterdir())) == 3


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_message_that_cannot_be_set_aside_is_not_skipped(
    tmp_path: Path, faulty: FaultyFiles, error: int
) -> None:
    """The disk was full or failed; after a new start at the latest it is kept."""
    store = open_store(tmp_path, files=faulty)
    faulty.fail("create", error, name="*.msg.tmp", times=3)
    store.log.append_many([b"\0first", b"\0second"]).durable.wait(WAIT_S)
    store.append(bundle(2))
    flush = Flush(store)
    flush.end()
    store.close()
    with open_store(tmp_path) as again:
        again.flush()
        assert drain(again.subscribe("s")) == [2]
        assert len(list((tmp_path / "aside").glob("*.msg"))) == 2


# --- decoders ------------------------------------------------------------------------------------


class Numbers:
    """A decoder of one's own: two messages a bundle; `bad` cannot be decoded."""

    def decode(self, first_offset: int, messages: Sequence[bytes]) -> Iterator[Decoded]:
        """Bundles of at most two."""
        for start in range(0, len(messages), 2):
            some = messages[start : start + 2]
            if b"bad" in some:
                yield Decoded(first_offset + start, len(some), None, "it is bad")
            else:
                batch = pa.RecordBatch.from_pydict({"number": [int(data) for data in some]})
                yield Decoded(first_offset + start, len(some), Bundle({5: batch}))


def test_a_decoder_of_one_s_own_decides_what_becomes_of_messages(tmp_path: Path) -> None:
    """Which bundles, in which slots, and what cannot be decoded."""
    with open_store(tmp_path, decoder=Numbers()) as store:
        store.log.append_many([b"1", b"2", b"bad", b"4", b"5"]).durable.wait(WAIT_S)
        store.flush()
        found = take(store.subscribe("s"), 2)
        assert [d.bundle[5]["number"].to_pylist() for d in found] == [[1, 2], [5]]
        assert [(d.first_offset, d.messages) for d in found] == [(0, 2), (4, 1)]
        kept = {path.name: path.read_bytes() for path in (tmp_path / "aside").iterdir()}
        assert kept == {f"{2:020d}.msg": b"bad", f"{3:020d}.msg": b"4"}


class Strict(PlainDecoder):
    """Raises, which a decoder must not."""

    def decode(self, first_offset: int, messages: Sequence[bytes]) -> Iterator[Decoded]:
        """Anything but poison."""
        if b"poison" in messages:
            raise RuntimeError("poison")
        yield from super().decode(first_offset, messages)


def raw(store: Store) -> list[bytes]:
    """The raw messages in the store's segments."""
    return [
        data
        for info in store.segments
        for data in store.read_segment(info.segment_seq).read_all(RAW_LOGS)["data"].to_pylist()
    ]


def run_again(store: Store) -> None:
    """The job runs once more, as a timer that is still out may make it."""
    store._filling.seal_through(store.log.end_offset)
    assert store._filling._job._idle.wait(WAIT_S)


def test_a_decoder_that_raises_stops_the_store_and_nothing_is_skipped(tmp_path: Path) -> None:
    """Not even what came behind: with a better decoder everything is there, in order."""
    store = open_store(tmp_path, decoder=Strict())
    for message in (b"before", b"poison"):
        store.log.append(message).durable.wait(WAIT_S)
    wait_until(lambda: store.failure is not None)
    for message in (b"after", b"and after"):  # appended before anybody knew
        store.log.append(message).durable.wait(WAIT_S)
    for _ in range(3):
        with pytest.raises(StoreStopped) as caught:
            store.flush()
    assert isinstance(caught.value.__cause__, RuntimeError) or "poison" in str(caught.value)
    run_again(store)
    store.close()
    with open_store(tmp_path) as again:
        again.flush()
        assert raw(again) == [b"before", b"poison", b"after", b"and after"]


def test_a_stopped_store_does_not_move_the_log_s_floor(tmp_path: Path) -> None:
    """What it could not decode must not be removed from the log."""
    store = open_store(tmp_path, changed(log=SMALL_LOG), decoder=Strict())
    store.log.append(b"poison").durable.wait(WAIT_S)
    wait_until(lambda: store.failure is not None)
    for _ in range(5):
        store.log.append(b"x" * 60 * KIB).durable.wait(WAIT_S)
    run_again(store)
    store.close()
    with open_store(tmp_path) as again:
        assert again.log.start_offset == 0
        again.flush()
        assert raw(again)[0] == b"poison"


# --- order ---------------------------------------------------------------------------------------


def test_bundles_keep_the_order_of_offsets_over_segments(tmp_path: Path) -> None:
    """Whatever ended each segment."""
    with open_store(tmp_path) as store:
        makers: list[Callable[[int], Bundle]] = [
            bundle,
            lambda n: bundle(n, 40 * KIB),
            lambda n: Bundle({LOGS: pa.RecordBatch.from_pydict({"number": [n], "n": [{}]})}),
            lambda n: Bundle({LOGS: pa.RecordBatch.from_pydict({"number": [n], "n": [b"x"]})}),
        ]
        for number in range(40):
            store.append(makers[number % 4](number))
        store.flush()
        assert len(store.segments) > 5
        ends = [info.end_offset for info in store.segments]
        assert [info.first_offset for info in store.segments] == [0, *ends[:-1]]
        assert numbers(take(store.subscribe("s"), 40)) == list(range(40))


def test_messages_of_several_commits_are_decoded_together(
    tmp_path: Path, faulty: FaultyFiles
) -> None:
    """Small requests that came while a seal took its time become one bundle."""
    with open_store(tmp_path, files=faulty) as store:
        gate = faulty.hold_up("rename", name="*.seg")
        store.append_durable(b"first")
        flushing = threading.Thread(target=store.flush)
        flushing.start()
        assert gate.reached.wait(WAIT_S)
        for number in range(5):
            store.append_durable(b"message %d" % number)
        gate.open()
        flushing.join()
        store.flush()
        assert [info.bundles for info in store.segments] == [1, 1]
        assert [info.end_offset for info in store.segments] == [1, 6]
