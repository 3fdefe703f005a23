"""`kill -9` of a store with two subscribers, anywhere between append and deletion, in a loop."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from penstock.segment import SegmentReader, segment_seq_of
from penstock.storage import LocalFiles
from tests.patience import PATIENCE_S
from tests.simulation.crash_store import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PATIENCE = [300, 0, 1, 1000, 100, 0, 3000]
"""After how many lines a life may end, one after the other."""
Place = tuple[int, int]
"""A bundle: segment_seq and index."""


@dataclass
class Oracle:
    """Hears every line of every life, and objects to what must not be."""

    acks: dict[int, str] = field(default_factory=dict)
    """Offset and digest of everything the store acknowledged."""
    digests: dict[int, str] = field(default_factory=dict)
    """Every message that was acknowledged or delivered."""
    places: dict[int, Place] = field(default_factory=dict)
    """Which bundle holds an offset."""
    spans: dict[Place, tuple[int, int]] = field(default_factory=dict)
    """First offset and count of each bundle."""
    segments: dict[int, str] = field(default_factory=dict)
    """Digest of every segment file that was seen."""
    received: dict[str, set[Place]] = field(default_factory=lambda: defaultdict(set))
    settling: dict[str, set[Place]] = field(default_factory=lambda: defaultdict(set))
    settled: dict[str, set[Place]] = field(default_factory=lambda: defaultdict(set))
    status: dict[str, list[int]] = field(default_factory=dict)
    end_offset: int = 0
    may_fail: bool = False
    """Whether lives may end, and calls be tried again, by their own account."""

    def hear(self, line: str) -> None:
        """One line of `crash_store`."""
        word, *rest = line.split()
        match word:
            case "open":
                self.end_offset = int(rest[0])
            case "ack":
                offset, digest = int(rest[0]), rest[1]
                assert offset not in self.acks, "an offset was given out twice"
                self.acks[offset] = digest
                self.know(offset, digest)
            case "data":
                for offset, digest in enumerate(rest[1:], int(rest[0])):
                    self.know(offset, digest)
            case "got":
                place, span = (int(rest[1]), int(rest[2])), (int(rest[3]), int(rest[4]))
                assert place not in self.settled[rest[0]], f"{rest[0]} had {place} already"
                self.locate(place, span)
                self.received[rest[0]].add(place)
            case "settles":
                self.settling[rest[0]].add((int(rest[1]), int(rest[2])))
            case "settled":
                self.settled[rest[0]].add((int(rest[1]), int(rest[2])))
            case "status":
                self.status[rest[0]] = [int(count) for count in rest[1:]]
            case "stopped" | "again" | "unclosed":
                assert self.may_fail, line
            case unwanted:
                assert unwanted == "done", line

    def know(self, offset: int, digest: str) -> None:
        """An offset has one message, whole."""
        assert digest != "damaged"
        assert self.digests.setdefault(offset, digest) == digest, f"offset {offset} has two digests"

    def locate(self, place: Place, span: tuple[int, int]) -> None:
        """A bundle holds the same messages for ever, and no other bundle holds them."""
        assert self.spans.setdefault(place, span) == span
        for offset in range(span[0], span[0] + span[1]):
            assert self.places.setdefault(offset, place) == place, f"offset {offset} is there twice"

    def see(self, path: Path) -> None:
        """A segment's number never comes again with other contents."""
        reader = SegmentReader.open(LocalFiles(), path)
        seq, digest = reader.info.segment_seq, blake2b(path.read_bytes()).hexdigest()
        assert self.segments.setdefault(seq, digest) == digest
        for index in range(len(reader)):
            entry = reader.manifest(index)
            self.locate((seq, index), (entry.first_offset, entry.messages))

    def miss(self, segment_seq: int) -> None:
        """A segment that is gone was settled by both, in every bundle."""
        places = {place for place in self.spans if place[0] == segment_seq}
        for name in NAMES:
            assert places <= self.settling[name], f"segment {segment_seq} went too early"

    def received_offsets(self, name: str) -> set[int]:
        """Every offset that the subscriber received in any life."""
        return {at for at, place in self.places.items() if place in self.received[name]}


class Life:
    """One process on the store, and the file that it writes its lines to."""

    def __init__(self, folder: Path, oracle: Oracle, *options: str, prefix: list[str]) -> None:
        self.folder = folder
        self.oracle = oracle
        self.may_drop = "--drop-oldest" in options
        self.output = folder.with_name(folder.name + ".lines")
        self.heard = 0
        self.words: list[str] = []
        self.lines: list[str] = []
        command = [sys.executable, "-m", "tests.simulation.crash_store", str(folder), *options]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*prefix, *command],
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )

    def watch(self, seconds: float) -> None:
        """Looks at the folder for some time, or until the process ends."""
        until = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < until:
            self.look()
            time.sleep(0.002)

    def look(self) -> None:
        """Sees the segments that are there, and misses those that are not any more."""
        if self.oracle.may_fail:  # a seal that failed may leave one for a moment
            self.hear()
            return
        here: set[int] = set()
        for name in LocalFiles().names(self.folder / "segments"):
            if (seq := segment_seq_of(name)) is not None:
                here.add(seq)
                if seq not in self.oracle.segments:
                    with contextlib.suppress(FileNotFoundError):  # it is gone just now
                        self.oracle.see(self.folder / "segments" / name)
        self.hear()
        if not self.may_drop:
            for seq in self.oracle.segments.keys() - here:
                self.oracle.miss(seq)

    def hear(self) -> None:
        """Hands whole lines on."""
        with self.output.open("rb") as file:
            file.seek(self.heard)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self.heard += len(whole)
        for line in whole.decode().splitlines():
            self.words.append(line.partition(" ")[0])
            self.lines.append(line)
            self.oracle.hear(line)

    def kill(self) -> None:
        """The process, and whoever traces it."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Waits until it ends by itself."""
        self.watch(PATIENCE_S)
        assert self.process.poll() is not None, "it hangs"
        _, errors = self.process.communicate()
        assert self.process.returncode == 0, errors


@contextlib.contextmanager
def life(
    folder: Path, oracle: Oracle, *options: str, prefix: list[str] | None = None
) -> Iterator[Life]:
    """A process that ends with this context, at the latest; nothing that it did goes unseen."""
    one = Life(folder, oracle, *options, prefix=prefix or [])
    with one.process:
        try:
            yield one
        finally:
            one.kill()
    one.look()


def run_until_killed(
    folder: Path, oracle: Oracle, random: Random, patience: int, *options: str
) -> None:
    """One life, which ends soon after so many lines; 0: while it starts."""
    with life(folder, oracle, "--seed", str(random.randrange(2**32)), *options) as one:
        until = time.monotonic() + PATIENCE_S
        while len(one.words) < patience and time.monotonic() < until:
            one.watch(0.01)
        one.watch(random.random() * (0.05 if patience else 0.5))
        one.kill()
        _, errors = one.process.communicate()
        assert one.process.returncode == -signal.SIGKILL, errors


def drain(folder: Path, oracle: Oracle, *options: str) -> None:
    """A last life, in which both subscribers settle all that is there."""
    with life(folder, oracle, "--messages", "0", *options) as one:
        one.end()
    assert one.words[-1] == "done"
    segments = LocalFiles().names(folder / "segments")
    assert segments == [], "what everybody has is still there"


def check_complete(oracle: Oracle) -> None:
    """Each subscriber received everything, and every bundle was counted once."""
    for name in NAMES:
        assert oracle.acks.keys() <= oracle.received_offsets(name)
        acked, rejected, dropped, lost = oracle.status[name]
        assert (dropped, lost) == (0, 0)
        assert acked + rejected == len(oracle.spans)
        assert set(oracle.places) == set(range(oracle.end_offset))


def check_counted(oracle: Oracle) -> None:
    """What a subscriber did not receive was counted as dropped, and nothing else was."""
    for name in NAMES:
        acked, rejected, dropped, lost = oracle.status[name]
        assert lost == 0
        assert acked + rejected + dropped == oracle.end_offset
        assert len(oracle.acks.keys() - oracle.received_offsets(name)) <= dropped
        assert acked + rejected <= len(oracle.settling[name])


def kill_again_and_again(folder: Path, rounds: int, seed: int, *options: str) -> Oracle:
    """Kills one store's processes, each at another moment, and drains what they left."""
    random, oracle = Random(seed), Oracle()
    for number in range(rounds):
        run_until_killed(folder, oracle, random, PATIENCE[number % len(PATIENCE)], *options)
    drain(folder, oracle, *options)
    return oracle


VARIANTS = pytest.mark.parametrize(
    "options", [["--durability=sync"], ["--durability=interval"]], ids=["sync", "interval"]
)


@VARIANTS
def test_nothing_is_lost_and_nothing_deleted_early_by_kills(
    tmp_path: Path, options: list[str]
) -> None:
    """Both subscribers get everything acknowledged, and each segment lives until both have it."""
    oracle = kill_again_and_again(tmp_path / "store", 6, int.from_bytes(os.urandom(4)), *options)
    assert oracle.acks
    check_complete(oracle)


def test_kills_leave_no_drop_uncounted(tmp_path: Path) -> None:
    """With `drop_oldest` every message is settled by its subscriber or counted as dropped."""
    seed = int.from_bytes(os.urandom(4))
    oracle = kill_again_and_again(tmp_path / "store", 4, seed, "--drop-oldest")
    assert oracle.acks
    check_counted(oracle)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@VARIANTS
def test_nothing_is_lost_and_nothing_deleted_early_by_many_kills(
    tmp_path: Path, options: list[str]
) -> None:
    """The same, three hundred times, in stores of thirty kills each."""
    for number in range(10):
        check_complete(kill_again_and_again(tmp_path / str(number), 30, number, *options))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_many_kills_leave_no_drop_uncounted(tmp_path: Path) -> None:
    """The same, three hundred times, in stores of thirty kills each."""
    for number in range(10):
        check_counted(kill_again_and_again(tmp_path / str(number), 30, number, "--drop-oldest"))
