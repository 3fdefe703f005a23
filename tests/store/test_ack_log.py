"""ack.log: what is recorded is replayed, what is damaged is asked for again, nothing is skipped."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.log import Environment
from penstock.log.format import FRAME_BYTES, HEADER_BYTES
from penstock.log.scan import Run, read_header, scan_frames
from penstock.metrics import Metrics
from penstock.model.errors import DiskFull, LogPoisoned, StoreStopped
from penstock.model.settings import KIB, Durability
from penstock.storage.files import Files, LocalFiles
from penstock.store.ack_log import CHECKPOINT_NAME, LOG_NAME, RESERVE_BYTES, AckLog, Journal
from penstock.store.format import Answered, Outcome, Registered, Sealed, decode_event
from penstock.store.recovery import Recovered, recover, replay
from penstock.store.state import StoreState
from tests.simulation.faults import FaultyFiles
from tests.simulation.power_loss import PowerLossFiles
from tests.store.helpers import (
    WAIT_S,
    bundle,
    changed,
    counts,
    crash,
    drain,
    fill,
    flip,
    info,
    numbers,
    open_store,
    overwrite,
    seqs,
    take,
    wait_until,
)
from tests.store.test_maintenance import FullDisk

if TYPE_CHECKING:
    from penstock.store import Store

ROOT = Path("/store")


def open_journal(
    folder: Path, files: Files | None = None, compact_bytes: int = 64 * KIB, bundles: int = 1
) -> Journal:
    """A journal with one subscriber and a segment of so many bundles, begun with a snapshot."""
    acks = AckLog(
        folder,
        0,
        Durability.SYNC,
        Environment(files=files or LocalFiles(), metrics=Metrics()),
        name="acks",
    )
    state = StoreState()
    state.apply(Registered(0, 0, "s"))
    state.apply(Sealed(info(0, bundles)))
    journal = Journal(state, acks, compact_bytes)
    journal.compact().wait(WAIT_S)
    return journal


def acked(number: int) -> Answered:
    """The acknowledgement of a bundle."""
    return Answered(Outcome.ACKED, 0, 0, number, 1, 0)


# --- recording and compacting --------------------------------------------------------------------


def test_what_is_recorded_is_replayed(tmp_path: Path) -> None:
    """The state that the file proves is the state that was."""
    journal = open_journal(tmp_path, bundles=100)
    commits = [journal.record(acked(number)) for number in (3, 1, 4, 15, 92, 65)]
    for commit in commits:
        commit.wait(WAIT_S)
    found = replay(LocalFiles(), tmp_path)
    assert found.state.document() == journal.state.document()
    assert (found.problems, found.certain, found.torn_bytes) == ([], True, 0)
    assert journal.depth == found.next_event == 7
    journal.close()


@pytest.mark.parametrize("last", [19_999, 20_000, 20_001])
def test_compaction_bounds_the_file_and_replay_stays_exact(tmp_path: Path, last: int) -> None:
    """However many events came, and wherever the last compaction was."""
    journal = open_journal(tmp_path, bundles=30_000)
    largest, compactions, size = 0, 0, 0
    for number in range(0, last, 3):
        commit = journal.record(acked(number), acked(number + 1))
        if number % 600 == 0:
            commit.wait(WAIT_S)
        compactions += journal.size < size
        size = journal.size
        largest = max(largest, size)
    journal.flush()
    assert compactions > 3
    snapshot = 30_000 // 4 + KIB
    assert largest < HEADER_BYTES + snapshot + 64 * KIB + 400 * 2 * (FRAME_BYTES + 30)
    found = replay(LocalFiles(), tmp_path)
    assert found.state.document() == journal.state.document()
    assert found.problems == []
    journal.close()


def test_closing_leaves_a_snapshot_alone(tmp_path: Path) -> None:
    """The next opening replays one event."""
    journal = open_journal(tmp_path, bundles=9)
    for number in range(9):
        journal.record(acked(number))
    journal.flush()
    journal.close()
    found = replay(LocalFiles(), tmp_path)
    assert found.state.document() == journal.state.document()
    assert len(events_of(tmp_path / LOG_NAME)) == 1


def test_a_checkpoint_that_was_not_written_is_no_damage(tmp_path: Path) -> None:
    """The file begins with a newer snapshot; the old checkpoint is merely not needed."""
    files = FaultyFiles(LocalFiles())
    journal = open_journal(tmp_path, files, bundles=9)
    journal.record(acked(0)).wait(WAIT_S)
    files.fail("create", name="ack.ckpt.tmp", times=None)
    journal.record(acked(1))
    journal.compact().wait(WAIT_S)
    journal.record(acked(2)).wait(WAIT_S)
    found = replay(LocalFiles(), tmp_path)
    assert (found.problems, found.certain) == ([], True)
    assert found.state.document() == journal.state.document()
    journal.close()


def test_on_a_full_disk_events_go_into_the_reserve(tmp_path: Path) -> None:
    """A compaction has no room for a new file, and goes into the old one."""
    disk = FullDisk(LocalFiles())
    journal = open_journal(tmp_path, disk, bundles=3000)
    disk.full = True
    for number in range(0, 3000, 2):  # more than what makes it compact
        commit = journal.record(acked(number))
    commit.wait(WAIT_S)
    journal.compact().wait(WAIT_S)
    journal.record(acked(1)).wait(WAIT_S)
    assert journal.size > 64 * KIB
    found = replay(LocalFiles(), tmp_path)
    assert found.state.document() == journal.state.document()
    disk.full = False
    journal.compact().wait(WAIT_S)
    assert journal.size < 10 * KIB
    journal.close()


def test_when_the_reserve_is_used_up_it_says_so_and_goes_on_later(tmp_path: Path) -> None:
    """What was confirmed is there; what was refused is there after the next compaction."""
    disk = FullDisk(LocalFiles())
    journal = open_journal(tmp_path, disk, 1000 * KIB, bundles=20_000)
    disk.full = True
    confirmed = -1
    with pytest.raises(DiskFull):  # noqa: PT012 - which one is refused is not the point
        for number in range(0, 20_000, 50):
            commits = [journal.record(acked(number + n)) for n in range(50)]
            commits[-1].wait(WAIT_S)
            confirmed = number + 49
    assert confirmed * (FRAME_BYTES + 30) > RESERVE_BYTES // 2
    proven = replay(LocalFiles(), tmp_path)
    assert proven.problems == []
    assert all(proven.state.subscribers[0].has(0, number) for number in range(confirmed + 1))
    disk.full = False
    journal.compact().wait(WAIT_S)
    assert replay(LocalFiles(), tmp_path).state.document() == journal.state.document()
    journal.close()


def test_an_ack_log_that_fails_stops_the_store(tmp_path: Path) -> None:
    """Nobody knows what the file holds; opened again, what was not confirmed comes again."""
    files = FaultyFiles(LocalFiles())
    store = open_store(tmp_path, files=files)
    subscription = store.subscribe("s")
    fill(store, [0, 1])
    first, second = take(subscription, 2)
    first.ack().wait(WAIT_S)
    files.fail("sync", errno.EIO, name="ack.log")
    with pytest.raises(LogPoisoned):
        second.ack().wait(WAIT_S)
    with pytest.raises(StoreStopped):
        store.append(bundle(2))
    store.close()
    with open_store(tmp_path) as again:
        assert drain(again.subscribe("s")) in ([1], [])


# --- damage --------------------------------------------------------------------------------------


@dataclass
class World:
    """A store's folder as a killed process left it, in memory; and what is true of it."""

    contents: dict[str, bytes]
    truth: dict[str, Any]
    state: StoreState
    end: int
    """Where the frames of ack.log end."""

    def files(self, **other: bytes | None) -> PowerLossFiles:
        """The folder, with other contents for some files; None for none."""
        files = PowerLossFiles()
        files.make_folder(ROOT / "segments")
        for name, content in {**self.contents, **other}.items():
            if content is not None:
                file = files.create(ROOT / name)
                file.pwrite([content], 0)
        return files

    def recover(self, **other: bytes | None) -> tuple[Recovered, PowerLossFiles]:
        """What opening finds."""
        files = self.files(**{name.replace("_", "."): data for name, data in other.items()})
        return recover(files, ROOT, ROOT / "segments"), files

    @property
    def log(self) -> bytes:
        """The bytes of ack.log."""
        return self.contents[LOG_NAME]

    def check(self, found: Recovered) -> None:
        """Nothing is skipped: whatever somebody lacks is still there for him, and still lacking."""
        assert found.state.segments == self.state.segments
        assert found.state.next_seq >= self.state.next_seq
        for subscriber in found.state.subscribers.values():
            (real,) = [s for s in self.state.subscribers.values() if s.name == subscriber.name]
            for segment in self.state.segments.values():
                assert real.missing(segment) & ~subscriber.missing(segment) == 0


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Three segments of three bundles; answers of every kind from two subscribers; one removal."""
    folder = tmp_path_factory.mktemp("world")
    with open_store(folder / "live") as store:
        first, second = store.subscribe("first"), store.subscribe("second")
        fill(store, [0, 1], [2, 3, 4], [5, 6, 7], [8, 9, 10])
        store.register("third", 2)
        store.deactivate("third")
        assert len(drain_some(first, 2)) == len(drain_some(second, 2)) == 2
        wait_until(lambda: seqs(store) == [1, 2, 3])
        held = take(first, 6)
        held[0].ack()
        held[1].nack(1000.0)
        held[2].reject()
        held[4].ack()
        other = take(second, 9)
        other[0].nack(1000.0)
        other[8].ack()
        held[5].ack().wait(WAIT_S)
        store._maintenance._job._idle.wait(WAIT_S)
        image = crash(folder / "live", folder / "image")
        state = store._journal.state
        contents = {
            str(path.relative_to(image)): path.read_bytes()
            for path in image.rglob("*")
            if path.is_file() and "log/" not in str(path.relative_to(image))
        }
        end = store._journal.size
        found = replay(LocalFiles(), image).state
        found.advance()
        assert found.document() == state.document()
        yield World(contents, state.document(), found, end)


def drain_some(subscription: Any, count: int) -> list[int]:
    """Acknowledges so many bundles."""
    found = take(subscription, count)
    for delivery in found:
        delivery.ack().wait(WAIT_S)
    return numbers(found)


def events_of(path: Path, files: Files | None = None) -> list[tuple[int, int, bytes]]:
    """Every event of the file: where its frame begins and ends, and its message."""
    file = (files or LocalFiles()).open(path)
    header, _ = read_header(file)
    found, position = [], HEADER_BYTES
    for item in scan_frames(file, header.seed, HEADER_BYTES, header.first_offset, None):
        for message in item.messages if isinstance(item, Run) else ():
            end = position + FRAME_BYTES + len(message)
            found.append((position, end, message))
            position = end
    file.close()
    return found


def test_the_image_of_a_crash_is_read_back_whole(world: World) -> None:
    """The ground on which the tests below stand."""
    found, _ = world.recover()
    assert found.problems == []
    assert found.state.document() == world.truth
    assert len(events_of(ROOT / LOG_NAME, world.files())) > 10


def test_a_torn_tail_costs_the_torn_events_and_nothing_else(world: World) -> None:
    """At every byte of the last frames, with nothing or zeros behind the cut."""
    events = events_of(ROOT / LOG_NAME, world.files())
    for cut in range(events[-6][0], world.end):
        for data in (world.log[:cut], world.log[:cut].ljust(len(world.log), b"\0")):
            whole = [e for e in events if data[e[0] : e[1]] == world.log[e[0] : e[1]]]
            expected = StoreState()
            for _, _, message in whole:
                expected.apply(decode_event(message))
            expected.advance()
            found, files = world.recover(ack_log=data)
            assert found.state.document() == expected.document(), cut
            assert found.problems == [], cut
            assert f"{LOG_NAME}.damaged" not in files.names(ROOT)
            world.check(found)


def test_no_flipped_byte_of_the_ack_log_makes_anything_be_skipped(world: World) -> None:
    """Every byte: damage costs answers, which are asked for again, and is reported."""
    events = events_of(ROOT / LOG_NAME, world.files())
    last_frame, snapshot_end = events[-1][0], events[0][1]
    header = [*range(0, 64, 3), *range(2048, 2112, 3)]
    snapshot = [*range(HEADER_BYTES, HEADER_BYTES + 32), *range(HEADER_BYTES, snapshot_end, 5)]
    positions = [*header, *snapshot, *range(snapshot_end, world.end + 20)]
    for position in positions:
        data = bytearray(world.log)
        data[position] ^= 0xFF
        found, files = world.recover(ack_log=bytes(data))
        world.check(found)
        assert {s.name for s in found.state.subscribers.values()} == {"first", "second", "third"}
        reported = [problem for problem in found.problems if problem.file == LOG_NAME]
        exact = found.state.document() == world.truth
        assert reported or exact or position >= last_frame, position
        kept = files.names(ROOT).count(f"{LOG_NAME}.damaged")
        assert kept == bool(reported), position
        assert found.certain is not bool(reported)


def test_no_flipped_byte_of_the_checkpoint_matters(world: World) -> None:
    """ack.log has the same snapshot; the damage is reported and the file kept."""
    checkpoint = world.contents[CHECKPOINT_NAME]
    for position in range(0, len(checkpoint), 7):
        data = bytearray(checkpoint)
        data[position] ^= 0x80
        found, files = world.recover(ack_ckpt=bytes(data))
        assert found.state.document() == world.truth
        assert [problem.file for problem in found.problems] == [CHECKPOINT_NAME]
        assert f"{CHECKPOINT_NAME}.damaged" in files.names(ROOT)


def test_a_missing_checkpoint_is_no_loss(world: World) -> None:
    """It is a second copy."""
    found, _ = world.recover(ack_ckpt=None)
    assert found.state.document() == world.truth
    assert found.problems == []


def test_without_the_ack_log_the_checkpoint_says_where_everybody_was(world: World) -> None:
    """Answers since then are asked for again; the loss is reported."""
    found, _ = world.recover(ack_log=None)
    world.check(found)
    assert {s.name for s in found.state.subscribers.values()} == {"first", "second", "third"}
    assert LOG_NAME in [problem.file for problem in found.problems]


def test_without_either_file_every_segment_is_there_for_whoever_comes(world: World) -> None:
    """Subscribers have to be registered again, and get everything."""
    found, _ = world.recover(ack_log=None, ack_ckpt=None)
    assert found.state.segments == world.state.segments
    assert found.state.subscribers == {}
    assert LOG_NAME in [problem.file for problem in found.problems]
    assert found.certain is False


@pytest.mark.parametrize("content", [b"", b"x" * 100, bytes(300_000), b"\xff" * 10_000])
def test_an_ack_log_that_is_none_is_as_good_as_missing(world: World, content: bytes) -> None:
    """The checkpoint says the rest; what stood there is kept."""
    found, files = world.recover(ack_log=content)
    world.check(found)
    assert len(found.state.subscribers) == 3
    assert LOG_NAME in [problem.file for problem in found.problems]
    assert f"{LOG_NAME}.damaged" in files.names(ROOT)


def test_damage_in_both_files_is_survived(world: World) -> None:
    """The snapshot of one and all of the other: what is left is still true."""
    data = bytearray(world.log)
    data[HEADER_BYTES + FRAME_BYTES + 50] ^= 1
    found, files = world.recover(ack_log=bytes(data), ack_ckpt=b"{}")
    world.check(found)
    assert {problem.file for problem in found.problems} == {LOG_NAME, CHECKPOINT_NAME}
    kept = {f"{LOG_NAME}.damaged", f"{CHECKPOINT_NAME}.damaged"}
    assert kept <= set(files.names(ROOT))


# --- the same, through a whole store -------------------------------------------------------------


def damaged_store(folder: Path) -> tuple[Path, int]:
    """A killed store with six bundles, of which `s` has acked 0 and 4; and where its frames end."""
    with open_store(folder / "live") as store:
        subscription = store.subscribe("s")
        fill(store, [0, 1, 2], [3, 4, 5])
        held = take(subscription, 6)
        held[4].ack().wait(WAIT_S)
        held[0].ack().wait(WAIT_S)
        return crash(folder / "live", folder / "image"), store._journal.size


def check_store(store: Store) -> None:
    """Whatever was not acked is delivered, and the store goes on."""
    found = drain(store.subscribe("s"))
    assert {1, 2, 3, 5} <= set(found) <= {0, 1, 2, 3, 4, 5}
    fill(store, [6])
    assert drain(store.subscribe("s")) == [6]


@pytest.mark.parametrize("back", [5, 30, 60, 100, 200])
def test_a_store_with_a_damaged_ack_log_delivers_everything_that_is_due(
    tmp_path: Path, back: int
) -> None:
    """It says so in `problems`, and once: the next opening finds all in order."""
    folder, end = damaged_store(tmp_path)
    flip(folder / LOG_NAME, end - back)
    with open_store(folder) as store:
        if back > 50:
            assert LOG_NAME in [problem.file for problem in store.problems]
            assert (folder / f"{LOG_NAME}.damaged").exists()
        check_store(store)
    with open_store(folder) as store:
        assert store.problems == ()


@pytest.mark.parametrize("names", [[LOG_NAME], [CHECKPOINT_NAME], [LOG_NAME, CHECKPOINT_NAME]])
@pytest.mark.parametrize("how", ["missing", "empty", "damaged"])
def test_a_store_opens_whatever_became_of_its_ack_files(
    tmp_path: Path, names: list[str], how: str
) -> None:
    """Also twice in a row."""
    folder, _ = damaged_store(tmp_path)
    for name in names:
        if how == "missing":
            (folder / name).unlink()
        else:
            overwrite(folder / name, b"" if how == "empty" else b"\xff" * 5000)
    with open_store(folder) as store:
        assert bool(store.problems) is not (names == [CHECKPOINT_NAME] and how == "missing")
        check_store(store)
    with open_store(folder) as store:
        assert store.problems == ()
        assert drain(store.subscribe("s")) == []


def test_an_answer_survives_the_damage_of_another(tmp_path: Path) -> None:
    """What is readable behind the damage counts."""
    folder, end = damaged_store(tmp_path)
    event = FRAME_BYTES + 30
    flip(folder / LOG_NAME, end - event - 10)  # the acknowledgement of 4, not that of 0
    with open_store(folder, changed(max_in_flight=9)) as store:
        assert drain(store.subscribe("s")) == [1, 2, 3, 4, 5]
        assert counts(store, "s") == {"acked": 6}
