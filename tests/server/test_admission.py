"""Whether there is room for one more request."""

from __future__ import annotations

import contextlib
import mmap
from pathlib import Path
from typing import Any

import pytest

from penstock.children.asking import resident_bytes
from penstock.server.configuration.config import Limits
from penstock.server.receiving import admission as module
from penstock.server.receiving.admission import Admission
from penstock.server.refusals import Cause, Refusal


def admission(folder: Path, **limits: Any) -> Admission:
    """With these limits and no others that matter."""
    return Admission(Limits(**{"disk_free": 0, "memory": None, **limits}), folder)


def nothing_goes(_: int) -> bool:
    """As with back-pressure."""
    return False


def refusal_of(bounds: Admission, size: int) -> Refusal:
    """What a request of that size is told."""
    with pytest.raises(Refusal) as refused, bounds.hold(size):
        pass
    return refused.value


def test_bytes_count_while_they_are_held(tmp_path: Path) -> None:
    """And not any more after that, whatever happened."""
    bounds = admission(tmp_path, in_flight=100)
    with contextlib.suppress(KeyError), bounds.hold(60), bounds.hold(40):
        assert bounds.in_flight_bytes == 100
        raise KeyError
    assert bounds.in_flight_bytes == 0


def test_one_byte_over_the_bound_is_put_off(tmp_path: Path) -> None:
    """With a time after which to try again, and nothing counted for it."""
    bounds = admission(tmp_path, in_flight=100)
    with bounds.hold(60):
        refused = refusal_of(bounds, 41)
        assert bounds.in_flight_bytes == 60
    assert refused.cause is Cause.BUSY
    assert refused.retry_after_s


def test_request_may_grow_as_far_as_there_is_room(tmp_path: Path) -> None:
    """Bytes count as they arrive; what was counted is given back together."""
    bounds = admission(tmp_path, in_flight=100)
    with bounds.hold(50), bounds.hold() as grow:
        grow(30)
        assert bounds.in_flight_bytes == 80
        with pytest.raises(Refusal):
            grow(21)
        assert bounds.in_flight_bytes == 80
    assert bounds.in_flight_bytes == 0


def test_full_disk_puts_everything_off(tmp_path: Path) -> None:
    """And says so."""
    bounds = admission(tmp_path, disk_free=2**62)
    bounds.sample(nothing_goes)
    assert bounds.disk_full
    assert "disk" in refusal_of(bounds, 1).message


def test_full_disk_that_makes_room_puts_nothing_off(tmp_path: Path) -> None:
    """It is told how much is lacking."""
    bounds, told = admission(tmp_path, disk_free=2**62), list[int]()

    def make_room(lacking: int) -> bool:
        told.append(lacking)
        return True

    bounds.sample(make_room)
    assert (bounds.disk_full, bounds.pressure) == (False, None)
    assert 2**61 < told[0] < 2**62


def test_memory_over_its_bound_puts_everything_off(tmp_path: Path) -> None:
    """The disk is not to blame."""
    bounds = admission(tmp_path, memory=1)
    bounds.sample(nothing_goes)
    assert not bounds.disk_full
    assert "memory" in refusal_of(bounds, 1).message


def test_pressure_that_is_over_lets_requests_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the next sample, not before."""
    bounds = admission(tmp_path, memory=1)
    bounds.sample(nothing_goes)
    monkeypatch.setattr(module, "resident_bytes", lambda: 1)
    refusal_of(bounds, 1)
    bounds.sample(nothing_goes)
    with bounds.hold(1):
        assert bounds.pressure is None


def test_requests_look_at_nothing_but_the_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hot path makes no system calls."""
    bounds = admission(tmp_path)
    bounds.sample(nothing_goes)
    monkeypatch.setattr(module, "resident_bytes", lambda: pytest.fail("looked at memory"))
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: pytest.fail("looked at the disk"))
    with bounds.hold(1):
        pass


def test_memory_is_that_of_the_process() -> None:
    """As the system says it, in bytes."""
    before = resident_bytes()
    with mmap.mmap(-1, 64 * 2**20) as taken:  # the allocator may have as much from before
        taken.write(b"x" * len(taken))
        assert resident_bytes() - before > len(taken) // 2


def test_one_client_leaves_room_for_others(tmp_path: Path) -> None:
    """It has three quarters; what it gives back it may have again."""
    bounds = admission(tmp_path, in_flight=100)
    with bounds.hold(60, who="a"), bounds.hold(who="a") as grow:
        grow(15)
        with pytest.raises(Refusal, match="of this client") as refused:
            grow(1)
        assert refused.value.cause is Cause.BUSY
        with bounds.hold(25, who="b"):
            assert bounds.in_flight_bytes == 100
    with bounds.hold(75, who="a") as grow:
        grow(25)  # alone it may have all
        assert bounds.in_flight_bytes == 100


def test_what_grows_after_its_client_has_gone_counts_for_nobody(tmp_path: Path) -> None:
    """Nobody would give it back."""
    bounds = admission(tmp_path, in_flight=100)
    with bounds.hold(60, who="a") as grow:
        pass
    grow(30)
    assert bounds.in_flight_bytes == 0


# --- memory that nobody gives back -------------------------------------------------------------


class Memory:
    """A process whose memory is what the test says, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, trimmed: int | None = None) -> None:
        self.now, self.resident, self._trimmed = 0.0, 0, trimmed
        monkeypatch.setattr(module, "resident_bytes", lambda: self.resident)
        monkeypatch.setattr(module, "give_back_memory", self._give_back)
        self.bounds = Admission(Limits(disk_free=0, memory=10**9), None, lambda: self.now)

    def _give_back(self) -> None:
        self.resident = self.resident if self._trimmed is None else self._trimmed

    def at(self, now: float, resident: int) -> None:
        """Looks at it then."""
        self.now, self.resident = now, resident
        self.bounds.sample(nothing_goes)


def test_memory_that_was_freed_is_given_back_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """It puts nobody off."""
    memory = Memory(monkeypatch, trimmed=10**8)
    memory.at(0.0, 2 * 10**9)
    assert memory.bounds.pressure is None


def test_process_that_stays_over_its_memory_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no request has any of it, and for a while."""
    memory = Memory(monkeypatch)
    memory.at(0.0, 10**8)
    memory.at(1.0, 2 * 10**9)
    memory.at(2.0 + module.STUCK_S, 2 * 10**9)
    assert memory.bounds.pressure is not None
    assert memory.bounds.is_stuck


def test_process_with_requests_is_not_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may have the memory, and will give it back."""
    memory = Memory(monkeypatch)
    memory.at(0.0, 10**8)
    with memory.bounds.hold(10):
        memory.at(1.0, 2 * 10**9)
        memory.at(2.0 + module.STUCK_S, 2 * 10**9)
    assert not memory.bounds.is_stuck


def test_limit_that_is_too_low_replaces_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next process would have as much."""
    memory = Memory(monkeypatch)
    memory.at(1.0, 2 * 10**9)
    memory.at(2.0 + module.STUCK_S, 2 * 10**9)
    assert not memory.bounds.is_stuck
