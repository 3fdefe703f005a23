"""How much disk each of several stores may use."""

from __future__ import annotations

import errno
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import InvalidSetting, LogLocked
from penstock.storage.files import LocalFiles
from penstock.store import EvenShare, FairShare
from penstock.store import budget as module
from penstock.store.budget import LINE_BYTES, Claim, Ledger
from tests.patience import PATIENCE_S
from tests.simulation.faults import FaultyFiles
from tests.simulation.manual_pool import ManualClock
from tests.simulation.power_loss import PowerLossFiles
from tests.store.helpers import UNHURRIED

PATH = Path("/shared/budget")
UNIT = 10


class Cores:
    """Several stores that share 100 * `stores` bytes through one file, in memory."""

    def __init__(self, stores: int, total: int | None = None) -> None:
        self.files = PowerLossFiles()
        self.files.make_folder(PATH.parent)
        self.clock = ManualClock()
        self.total = 100 * stores if total is None else total
        self.stores = stores
        self.share = self.total // stores
        self.used = [0] * stores
        self.budgets = [self.budget(number) for number in range(stores)]

    def budget(self, number: int) -> FairShare:
        """One store's view of it."""
        return FairShare(
            PATH,
            self.total,
            self.stores,
            key=f"store {number}",
            unit_bytes=UNIT,
            files=self.files,
            clock=self.clock,
        )

    def limit(self, number: int, wanted: int) -> int:
        """What the store gets when it would like to use so much."""
        return self.budgets[number].limit(self.used[number], wanted)

    def grow(self, number: int, wanted: int) -> int:
        """The store uses as much of what it would like as it gets."""
        granted = self.limit(number, wanted)
        self.used[number] = max(self.used[number], min(wanted, granted))
        return granted

    def close(self, number: int) -> None:
        """As a store does it: what it uses is said before."""
        self.limit(number, self.used[number])
        self.budgets[number].close()

    def shrink(self, number: int, used: int) -> None:
        """The store frees space, and says so."""
        self.used[number] = min(self.used[number], used)
        self.limit(number, self.used[number])

    def claims(self) -> list[Claim]:
        """The lines of the file."""
        return Ledger(PATH, self.files).claims()

    def held(self) -> int:
        """What all hold together."""
        return sum(claim.held_bytes for claim in self.claims())


# --- an even share -------------------------------------------------------------------------------


def test_an_even_share_is_the_same_whatever_is_used() -> None:
    """Nothing to coordinate."""
    share = EvenShare(100, stores=3)
    assert [share.limit(used, used + 50) for used in (0, 33, 99)] == [33, 33, 33]
    share.close()


@pytest.mark.parametrize(("total", "stores"), [(100, 0), (2, 3), (0, 1)])
def test_a_budget_without_a_byte_for_each_is_refused(total: int, stores: int) -> None:
    """Nobody could ever append."""
    with pytest.raises(InvalidSetting):
        EvenShare(total, stores)


# --- a fair share --------------------------------------------------------------------------------


@pytest.mark.parametrize(("total", "stores"), [(100, 0), (39, 2)])
def test_a_fair_budget_needs_two_units_a_store(total: int, stores: int) -> None:
    """One is always left for a store that is idle."""
    with pytest.raises(InvalidSetting):
        FairShare(PATH, total, stores, key="a", unit_bytes=UNIT)


def test_a_hot_core_may_use_what_an_idle_one_leaves() -> None:
    """All but one unit for each of the others."""
    cores = Cores(4)
    assert cores.grow(0, 1000) == 400 - 3 * UNIT
    assert [cores.grow(number, UNIT) for number in (1, 2, 3)] == [UNIT] * 3
    assert cores.held() == cores.total


def test_a_core_that_wakes_up_gets_its_equal_share_back() -> None:
    """The hot one is held at its share as soon as another one asks, and has to shrink."""
    cores = Cores(2)
    assert cores.grow(0, 190) == 190
    assert cores.grow(1, 100) == UNIT
    assert cores.limit(0, 200) == cores.share
    assert cores.limit(1, 100) == UNIT  # what the hot one uses is not free yet
    cores.shrink(0, 100)
    assert cores.grow(1, 100) == cores.share
    assert cores.held() == cores.total


def test_within_its_share_a_core_is_never_held_back() -> None:
    """Others may ask as they like."""
    cores = Cores(2)
    cores.grow(0, 190)
    cores.limit(1, 200)
    cores.shrink(0, 50)
    assert cores.limit(0, 100) == 100


def test_a_core_is_granted_whole_units_up_to_what_it_wants() -> None:
    """What it does not want stays free for others, and not each byte is asked for."""
    cores = Cores(2)
    assert [cores.limit(0, wanted) for wanted in (0, 1, 10, 11, 35)] == [0, 10, 10, 20, 40]


def test_what_is_given_back_is_free_at_once() -> None:
    """A store that has cleaned up says so with its next look."""
    cores = Cores(2)
    cores.grow(0, 190)
    cores.shrink(0, 0)
    assert cores.grow(1, 190) == 190


def test_a_closed_store_keeps_what_it_uses_and_asks_for_nothing() -> None:
    """Its files are still there."""
    cores = Cores(2)
    cores.grow(0, 170)
    cores.grow(1, 150)
    cores.used[1] = 20
    cores.limit(1, 200)
    cores.close(1)
    (claim,) = [claim for claim in cores.claims() if claim.used_bytes == 20]
    assert (claim.granted_bytes, claim.asks_bytes) == (20, 0)
    assert cores.limit(0, 200) == 180


def test_a_dead_store_s_use_counts_and_it_finds_its_line_again() -> None:
    """It never closed; opened again it has the same key."""
    cores = Cores(2)
    cores.grow(1, 60)
    assert cores.grow(0, 1000) == 140
    cores.budgets[1] = cores.budget(1)
    assert cores.limit(1, 60) == 60
    assert len(cores.claims()) == 2


def test_a_stale_wish_holds_nobody_back() -> None:
    """A store that asked and died must not keep the others at their share for ever."""
    cores = Cores(2)
    cores.grow(0, 190)
    cores.limit(1, 100)
    assert cores.limit(0, 190) == cores.share
    cores.clock.advance(29)
    assert cores.limit(0, 190) == cores.share
    cores.clock.advance(2)
    assert cores.limit(0, 190) == 190


def test_a_damaged_line_is_as_good_as_none_and_the_others_hold() -> None:
    """Its store writes it anew with its next look."""
    cores = Cores(3)
    for number, wanted in enumerate((50, 60, 70)):
        cores.grow(number, wanted)
        cores.limit(number, wanted)
    cores.files.damage(PATH, LINE_BYTES * 2 + 20, b"\xff")
    assert sorted(claim.used_bytes for claim in cores.claims()) == [50, 70]
    cores.limit(1, 60)
    assert sorted(claim.used_bytes for claim in cores.claims()) == [50, 60, 70]


@pytest.mark.parametrize("content", [b"", b"x", bytes(1000), b"\xff" * 500])
def test_a_file_that_is_none_is_written_anew(tmp_path: Path, content: bytes) -> None:
    """Nothing in it is needed: every store knows what it uses."""
    path = tmp_path / "budget"
    path.write_bytes(content)
    budget = FairShare(path, 200, 2, key="a", unit_bytes=UNIT)
    assert budget.limit(0, 1000) == 190
    assert path.stat().st_size == 2 * LINE_BYTES


def test_every_bit_of_a_line_is_covered_by_its_checksum(tmp_path: Path) -> None:
    """No damage makes another claim of it."""
    path = tmp_path / "budget"
    FairShare(path, 200, 2, key="a", unit_bytes=UNIT).limit(50, 70)
    data = path.read_bytes()
    for position in range(LINE_BYTES, len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        assert Ledger(path, LocalFiles()).claims() == []


def test_a_full_disk_has_the_room_that_the_file_had(tmp_path: Path) -> None:
    """The new one cannot be written beside it, and is written in its place."""
    path, files = tmp_path / "budget", FaultyFiles(LocalFiles())
    budget = FairShare(path, 200, 2, key="a", unit_bytes=UNIT, files=files)
    assert budget.limit(0, 50) == 50
    files.fail("pwrite", errno.ENOSPC)
    assert budget.limit(50, 70) == 70
    assert [claim.granted_bytes for claim in Ledger(path, files).claims()] == [70]
    assert not path.with_name("budget.tmp").exists()


def test_a_budget_held_for_too_long_is_an_error_and_no_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody was stopped in the middle of a claim."""
    monkeypatch.setattr(module, "_PATIENCE_S", 0.05)
    path = tmp_path / "budget"
    lock = LocalFiles().lock(tmp_path / "budget.lock")
    budget = FairShare(path, 200, 2, key="a", unit_bytes=UNIT)
    with pytest.raises(LogLocked):
        budget.limit(0, 50)
    lock.release()
    assert budget.limit(0, 50) == 50


steps = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(["grow", "shrink", "close", "reopen", "wait"]),
        st.integers(0, 500),
    ),
    max_size=40,
)


@UNHURRIED
@given(st.integers(1, 4), st.integers(20, 130), steps)
def test_together_the_stores_never_hold_more_than_the_total(
    stores: int, each: int, steps: list[tuple[int, str, int]]
) -> None:
    """Whoever grows, frees, dies or comes back, in whatever order."""
    cores = Cores(stores, stores * each)
    for number, step, amount in steps:
        number %= stores
        if step == "grow":
            cores.grow(number, amount)
        elif step == "shrink":
            cores.shrink(number, amount)
        elif step == "close":
            cores.close(number)
        elif step == "reopen":
            cores.budgets[number] = cores.budget(number)
        else:
            cores.clock.advance(amount)
        assert cores.held() <= cores.total


@UNHURRIED
@given(st.integers(1, 4), st.integers(20, 130), steps, st.integers(0, 3))
def test_every_store_gets_its_equal_share_once_the_others_are_down_to_theirs(
    stores: int, each: int, steps: list[tuple[int, str, int]], poor: int
) -> None:
    """Whatever happened before, and although the others want everything."""
    cores = Cores(stores, stores * each)
    poor %= stores
    for number, _, amount in steps:
        cores.grow(number % stores, amount)
    for _ in range(2):
        cores.grow(poor, cores.share)
        for number in range(stores):
            if number != poor:  # it wants more, and cleans up down to what it may use
                cores.used[number] = min(cores.used[number], cores.limit(number, 1000))
                cores.used[number] = min(cores.used[number], cores.limit(number, 1000))
    assert cores.grow(poor, cores.share) >= cores.share
    assert cores.held() <= cores.total


def test_two_stores_of_one_process_take_turns_at_the_file(tmp_path: Path) -> None:
    """Claims from many threads at once: no line is lost, none is counted twice."""
    path = tmp_path / "budget"

    def claim(number: int) -> None:
        budget = FairShare(path, 4000, 4, key=str(number), unit_bytes=UNIT)
        for used in range(0, 100, 10):
            assert budget.limit(used, used) >= used

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    claims = Ledger(path, LocalFiles()).claims()
    assert [claim.used_bytes for claim in claims] == [90] * 4


_OTHER_PROCESS = """
import sys
from pathlib import Path
from penstock.store import FairShare

budget = FairShare(Path(sys.argv[1]), 200, 2, key="other", unit_bytes=10)
for line in sys.stdin:
    used, wanted = map(int, line.split())
    print(budget.limit(used, wanted), flush=True)
"""


def test_two_processes_share_one_budget(tmp_path: Path) -> None:
    """An idle and a hot core: the hot one borrows, and gives back when the idle one wakes up."""
    path = tmp_path / "budget"
    mine = FairShare(path, 200, 2, key="mine", unit_bytes=UNIT)
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_OTHER_PROCESS), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def other(used: int, wanted: int) -> int:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{used} {wanted}\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        assert other(0, 10) == 10
        assert mine.limit(0, 1000) == 190
        assert other(0, 100) == 10
        assert mine.limit(190, 1000) == 100
        assert mine.limit(100, 1000) == 100
        assert other(10, 1000) == 100
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0
