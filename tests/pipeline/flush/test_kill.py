"""Killed at any point of a batch and started again: no row is lost, and none is there twice."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from penstock.lake.orphans import remove_orphans
from penstock.lake.schemas import TABLES
from penstock.store.outside import read_delivered
from tests.lake.helpers import Later
from tests.pipeline.flush.crash_flush import POINTS
from tests.pipeline.flush.helpers import (
    LakeDigests,
    Sent,
    assert_exactly_once,
    digests,
    lake_files,
    logs,
    opened_lake,
    positions,
)
from tests.pipeline.helpers import LOGS, spans

ROOT = Path(__file__).parents[3]
MOST = {"data": 40, "metadata": 60, "commit": 10, "delivered": 8, "progress": 8}
"""About how many operations a life has at each point."""
FIRST = {"data": 1, "metadata": 30, "commit": 5, "delivered": 1, "progress": 1}
"""Those before are of the claim on the tables; half of the kills may come there."""


class Lives:
    """Children that flush, each until it is killed."""

    def __init__(self, sent: Sent) -> None:
        self._sent = sent
        self.kills: Counter[str] = Counter()
        command = [sys.executable, "-m", "tests.pipeline.flush.crash_flush", str(sent.data.root)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(command, cwd=ROOT, **pipes)
        self._seen = {table: LakeDigests(sent.data, table) for table in TABLES}
        self._wanted = {table: digests(sent.rows(table)) for table in TABLES}

    def one(self, point: str, nth: int, until: int) -> str:
        """A life: how it ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{point} {nth} {until}\n")
        self._process.stdin.flush()
        ended = self._process.stdout.readline().strip()
        assert ended in {"done", "killed"}
        self.kills[point] += ended == "killed"
        self._check_no_row_too_many()
        self._check_delivered()
        return ended

    def _check_no_row_too_many(self) -> None:
        for table in TABLES:
            assert not self._seen[table].now() - self._wanted[table], f"{table} too many"

    def _check_delivered(self) -> None:
        """Nothing may be let go that is not in the lake."""
        delivered = read_delivered(self._sent.data.root)
        found = positions(self._sent.data).items()
        held = {f"{topic}/{partition}": position for (topic, partition), position in found}
        for key, taken in (delivered.through if delivered else {}).items():
            assert taken.segment_seq <= held[key].segment_seq
            assert taken.end_offset is not None
            assert taken.end_offset <= held[key].offset

    def end(self) -> None:
        """Of the process that makes them."""
        self._process.communicate()


@contextlib.contextmanager
def living(sent: Sent, most: int) -> Iterator[Lives]:
    """On a data directory with so many segments in each of three partitions."""
    sent.seal(*([spans(3 * n, 3 * n + 1), spans(3 * n + 2)] for n in range(most)))
    sent.seal(*([spans(100_000 + n)] for n in range(most)), partition=1)
    sent.seal(*([logs(f"log {n}", f"log {n}")] for n in range(most)), topic=LOGS)
    lives = Lives(sent)
    try:
        yield lives
    finally:
        lives.end()


def kill_again_and_again(sent: Sent, kills: int, seed: int) -> None:
    """Each life finds a segment more in every partition than the one before."""
    random, most = Random(seed), kills * 3 // 2
    with living(sent, most) as lives:
        for life in range(1, most):
            done = lives.kills.total()
            if done == kills:
                break
            point = POINTS[done % len(POINTS)]
            first = 1 if random.random() < 0.3 else FIRST[point]
            lives.one(point, random.randint(first, MOST[point]), life)
        assert min(lives.kills[point] for point in POINTS) == kills // len(POINTS)
        assert lives.one("none", 1, most) == "done"
    assert_exactly_once(sent)


def check_leftovers(sent: Sent) -> None:
    """They are files that nothing refers to, and can all be cleaned up."""
    with opened_lake(sent.data) as lake:
        tables = [lake.table(name) for name in TABLES]
        removed = [remove_orphans(table, clock=Later(hours=2)).files for table in tables]
        assert sum(removed) > 0
    for table in TABLES:
        folder = sent.data.root / "lake" / table / "data"
        found = sorted(str(path) for path in folder.rglob("*") if path.is_file())
        assert found == lake_files(sent.data, table)
    assert_exactly_once(sent)


def test_nothing_is_lost_or_repeated_by_kills(sent: Sent) -> None:
    """In the middle of files, before and after commits and acknowledgements, between tables."""
    kill_again_and_again(sent, 3 * len(POINTS), seed=0)
    check_leftovers(sent)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_or_repeated_by_many_kills(sent: Sent, seed: int) -> None:
    """The same with other points."""
    kill_again_and_again(sent, 100, seed)
    check_leftovers(sent)
