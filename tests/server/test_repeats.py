"""Remembers the requests that are durable."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.otel import Signal
from penstock.server.configuration.config import Dedupe
from penstock.server.receiving import repeats as module
from penstock.server.receiving.repeats import ENTRY_BYTES, Repeats, Table, Tables, remove_unused

T, L = Signal.TRACES, Signal.LOGS


class Time:
    """A clock that stands until it is told."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0

    def wall_ns(self) -> int:
        """The time."""
        return int(self.now_s * 1e9)

    def monotonic(self) -> float:
        """The same."""
        return self.now_s


@contextlib.contextmanager
def repeats(root: Path, clock: Time | None = None, **settings: Any) -> Iterator[Repeats]:
    """A worker's, with these settings."""
    made = Repeats(Dedupe(**settings), root, clock or Time())
    try:
        yield made
    finally:
        made.close()


async def store(repeats: Repeats, folder: Path, data: bytes, sent: Signal = T) -> bool:
    """Stores the request if it is to be stored, and says so."""
    storing = await repeats.begin(sent, folder / "0", data)
    if storing is None:
        return False
    try:
        await asyncio.sleep(0)
    finally:
        storing.end(stored=True)
    return True


def digest(number: int) -> bytes:
    """Of a request."""
    return hashlib.sha256(str(number).encode()).digest()[:24]


def test_second_copy_is_known(tmp_path: Path) -> None:
    """By all of its bytes and its topic."""

    async def run() -> None:
        with repeats(tmp_path) as made:
            assert await store(made, tmp_path / "a", b"one")
            assert not await store(made, tmp_path / "a", b"one")
            assert await store(made, tmp_path / "a", b"two")
            assert await store(made, tmp_path / "b", b"one")
            assert made.hits == 1

    asyncio.run(run())


def test_window_ends(tmp_path: Path) -> None:
    """After it, the same request is a new one; a repeat does not make it longer."""

    async def run() -> None:
        clock = Time()
        with repeats(tmp_path, clock, window=10.0) as made:
            assert await store(made, tmp_path, b"one")
            clock.now_s += 9.9
            assert not await store(made, tmp_path, b"one")
            clock.now_s += 0.2
            assert await store(made, tmp_path, b"one")
            assert not await store(made, tmp_path, b"one")

    asyncio.run(run())


def test_window_survives_the_worker(tmp_path: Path) -> None:
    """Whoever opens the table next knows what was stored, without any order to save it."""

    async def run() -> None:
        with repeats(tmp_path) as first:
            assert await store(first, tmp_path, b"one")
            with repeats(tmp_path) as second:
                assert not await store(second, tmp_path, b"one")

    asyncio.run(run())


@pytest.mark.parametrize("settings", [{"window": 0.0}, {"signals": ("logs",)}])
def test_nothing_is_remembered_where_it_is_not_asked_for(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    """Nor is a table made."""

    async def run() -> None:
        with repeats(tmp_path, **settings) as made:
            assert await store(made, tmp_path, b"one")
            assert await store(made, tmp_path, b"one")

    asyncio.run(run())
    assert list(tmp_path.iterdir()) == []


def test_only_traces_are_looked_at_by_default(tmp_path: Path) -> None:
    """Two equal log records may be two events."""

    async def run() -> None:
        with repeats(tmp_path) as made:
            assert await store(made, tmp_path, b"one", L)
            assert await store(made, tmp_path, b"one", L)

    asyncio.run(run())


def test_failed_request_is_not_remembered(tmp_path: Path) -> None:
    """Its client sends it again, and then it is stored."""

    async def run() -> None:
        with repeats(tmp_path) as made:
            storing = await made.begin(T, tmp_path / "0", b"one")
            assert storing is not None
            storing.end(stored=False)
            assert await store(made, tmp_path, b"one")

    asyncio.run(run())


def test_copy_waits_for_the_first(tmp_path: Path) -> None:
    """It is answered when the first is durable, and not stored."""

    async def run() -> list[bool]:
        with repeats(tmp_path) as made:
            return await asyncio.gather(*(store(made, tmp_path, b"one") for _ in range(20)))

    found = asyncio.run(run())
    assert found.count(True) == 1


def test_copy_of_a_failed_request_is_stored(tmp_path: Path) -> None:
    """By one of those that waited, once."""

    async def run() -> list[bool]:
        with repeats(tmp_path) as made:
            first = await made.begin(T, tmp_path / "0", b"one")
            assert first is not None
            others = [asyncio.create_task(store(made, tmp_path, b"one")) for _ in range(5)]
            await asyncio.sleep(0)
            first.end(stored=False)
            return await asyncio.gather(*others)

    assert asyncio.run(run()).count(True) == 1


def test_cancelled_copy_disturbs_nobody(tmp_path: Path) -> None:
    """A client that waits for the first and goes away leaves the others as they were."""

    async def run() -> list[bool]:
        with repeats(tmp_path) as made:
            tasks = [asyncio.create_task(store(made, tmp_path, b"one")) for _ in range(3)]
            await asyncio.sleep(0)
            tasks[1].cancel()
            return await asyncio.gather(tasks[0], tasks[2])

    assert asyncio.run(run()) == [True, False]


def test_table_forgets_the_oldest_first(tmp_path: Path) -> None:
    """It never grows; the last ones are always there."""
    table = Table(tmp_path / "t", 64)
    for number in range(1000):
        table.add(digest(number), number + 1)
        assert table.has(digest(number), 0)
    size = (tmp_path / "t").stat().st_size
    known = [number for number in range(1000) if table.has(digest(number), 0)]
    table.close()
    assert len(known) <= 64
    assert sum(known) / len(known) > 900
    assert size == 64 + 64 * 32


def test_table_of_many_remembers_nearly_all_that_fit(tmp_path: Path) -> None:
    """Half full, it has lost next to nothing."""
    table = Table(tmp_path / "t", 8192)
    for number in range(4096):
        table.add(digest(number), number + 1)
    known = sum(table.has(digest(number), 0) for number in range(4096))
    table.close()
    assert known > 4096 * 0.9


def test_request_that_is_stored_again_has_one_entry(tmp_path: Path) -> None:
    """With the later time."""
    table = Table(tmp_path / "t", 8)
    for time_ms in range(1, 100):
        table.add(digest(0), time_ms)
    for number in range(1, 8):
        table.add(digest(number), 200)
    assert all(table.has(digest(number), 99) for number in range(8))
    table.close()


@pytest.mark.parametrize("contents", [b"", b"PNSTKRPT", b"x" * 2112, b"x" * 5000])
def test_damaged_table_begins_anew(tmp_path: Path, contents: bytes) -> None:
    """It only costs a second copy."""
    path = tmp_path / "t"
    path.write_bytes(contents)
    table = Table(path, 64)
    assert not table.has(digest(0), 0)
    table.add(digest(0), 1)
    assert table.has(digest(0), 0)
    table.close()


def test_table_of_another_size_leaves_the_old_one_to_its_users(tmp_path: Path) -> None:
    """A worker that has it mapped goes on, and does not die of a file that was cut."""
    old = Table(tmp_path / "t", 4096)
    old.add(digest(1), 5)
    new = Table(tmp_path / "t", 64)
    assert old.has(digest(1), 0)
    old.add(digest(2), 5)
    new.close()
    old.close()


def test_tables_of_two_workers_are_one(tmp_path: Path) -> None:
    """A retry may come in elsewhere."""
    one, two = Table(tmp_path / "t", 64), Table(tmp_path / "t", 64)
    one.add(digest(1), 5)
    assert two.has(digest(1), 5)
    assert not two.has(digest(1), 6)
    one.close()
    two.close()


def tables(folder: Path, monkeypatch: pytest.MonkeyPatch, entries: int = 10**6) -> Tables:
    """Ten seconds in small tables: 64 entries, then 256, and so on."""
    monkeypatch.setattr(module, "FIRST_ENTRIES", 64)
    return Tables(folder / "t.tbl", entries, 10_000)


def test_nothing_is_forgotten_within_the_window_however_many_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all times, by whoever opens the tables next; and nothing is known after it."""
    made, now_ms = tables(tmp_path, monkeypatch), 1_000_000
    for number in range(20_000):
        made.add(digest(number), now_ms + number)
    again, end_ms = tables(tmp_path, monkeypatch), now_ms + 20_000
    for each in (made, again):
        assert all(each.has(digest(number), end_ms) for number in range(10_000, 20_000))
        assert not any(each.has(digest(number), end_ms) for number in range(10_000))
        assert not any(each.has(digest(-number), end_ms) for number in range(1, 1000))
        each.close()
    used = sum(path.stat().st_blocks * 512 for path in tmp_path.iterdir())
    assert used < 6 * 10_000 * ENTRY_BYTES, "more than the requests of a window"


def test_tables_grow_no_further_than_they_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the oldest are forgotten; the last ones are always there."""
    made = tables(tmp_path, monkeypatch, entries=400)
    for number in range(5000):
        made.add(digest(number), 1_000_000 + number)
        assert made.has(digest(number), 1_000_000 + number)
    made.close()
    entries = sum((path.stat().st_size - 64) // ENTRY_BYTES for path in tmp_path.iterdir())
    assert entries == 400


def test_few_requests_have_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its places are used again when their time is over, whatever the next ones would hold."""
    made = tables(tmp_path, monkeypatch)
    for number in range(2000):
        made.add(digest(number), 1_000_000 + number * 1000)
        assert made.has(digest(number), 1_000_000 + number * 1000)
    made.close()
    assert sum(path.stat().st_blocks * 512 for path in tmp_path.glob("t-*")) < 16_384


def test_tables_of_two_workers_grow_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one has put into a later table the other finds there."""
    one, two = tables(tmp_path, monkeypatch), tables(tmp_path, monkeypatch)
    for number in range(3000):
        (one if number % 2 else two).add(digest(number), 1_000_000)
    assert all(each.has(digest(n), 1_000_000) for each in (one, two) for n in range(3000))
    one.close()
    two.close()


def test_tables_of_other_sizes_and_of_topics_go(tmp_path: Path) -> None:
    """A bound that was lowered holds for the disk too; a table that fits is kept."""
    topic = tmp_path / "topics/default/traces"
    for folder in (tmp_path, topic):
        for name, entries in (("repeats.tbl", 4096), ("repeats-1.tbl", 8192)):
            Table(folder / name, entries).close()
    remove_unused(tmp_path, Dedupe(entries=4096))
    assert [path.name for path in tmp_path.rglob("*.tbl")] == ["repeats.tbl"]
    remove_unused(tmp_path, Dedupe(window=0.0))
    assert list(tmp_path.rglob("*.tbl")) == []
