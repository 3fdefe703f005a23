"""A writer, a pipeline, a compaction and a query at once: every row once, at every step."""

from __future__ import annotations

import dataclasses
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.lake.files import live_files
from penstock.lake.layout import replacement_key
from penstock.lake.replace import replace
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
from penstock.lake.target import Target
from penstock.lake.writer import write_rows
from penstock.model.errors import FilesReplaced
from penstock.store.outside import acknowledge, read_delivered
from tests.pipeline.flush.helpers import Plain
from tests.pipeline.helpers import Data, spans
from tests.query.helpers import answer, hot, named, names
from tests.simulation.calls import Call

if TYPE_CHECKING:
    from penstock.store import Store


class Moving:
    """Everything that moves rows of a data directory, step by step."""

    def __init__(self, data: Data, store: Store) -> None:
        self._data = data
        self._store = store
        self._pipeline = Plain(data)
        self._over = threading.Event()
        self.steps = 0

    def until_over(self) -> None:
        """Seals, commits, deletes what the lake has, and merges its files."""
        while not self._over.is_set():
            self.step()

    def end(self) -> None:
        """After the present step."""
        self._over.set()

    def step(self) -> None:
        """One turn."""
        self._store.flush()
        self._pipeline.run()
        delivered = read_delivered(self._data.root)
        if delivered is not None and delivered.through:
            [through] = delivered.through.values()
            acknowledge(
                self._store, dataclasses.replace(delivered, through={self._store.name: through})
            )
        if self.steps % 3 == 2:
            merge_files(self._data)
        self.steps += 1


def merge_files(data: Data) -> None:
    """Replaces all files of the lake by one a day, and deletes them at once."""
    with Lake.open(LakeSettings.of(data.root)) as lake:
        table = lake.table("spans")
        old = list(live_files(table))
        if len(old) < 2:
            return
        rows = pa.concat_tables([pq.read_table(each.path, partitioning=None) for each in old])
        key = replacement_key(each.path for each in old)
        try:
            replace(table, old, write_rows(rows, Target.of(table), key, 0))
        except FilesReplaced:
            return
    for each in old:
        Path(each.path).unlink()


def run(data: Data, requests: int, seconds: float) -> int:
    """Writes and asks until both are over; how many times it asked."""
    until = time.monotonic() + seconds
    asked = written = 0
    with hot(data) as store:
        moving = Moving(data, store)
        call = Call(moving.until_over)
        while written < requests or time.monotonic() < until:
            store.append_durable(spans(written + 1, start_ns=1_767_254_400_000_000_000 - written))
            written += 1
            found = answer(data, "SELECT name FROM spans ORDER BY name")
            assert found.warnings == []
            assert sorted(found.rows["name"].to_pylist()) == named(range(1, written + 1))
            asked += 1
        moving.end()
        call.end()
        assert call.error is None
        assert moving.steps > 0
        assert names(data) == named(range(1, written + 1))
    return asked


def test_counts_are_exact_while_everything_moves(data: Data) -> None:
    """Files are deleted under a query that has listed them."""
    assert run(data, requests=25, seconds=0.0) == 25


@pytest.mark.soak
def test_counts_are_exact_for_a_minute(data: Data) -> None:
    """The same, longer."""
    assert run(data, requests=25, seconds=60.0) > 25


def test_queries_at_once_do_not_see_each_other(data: Data) -> None:
    """Each has its own tables, and sees its own namespaces."""
    with hot(data, *(spans(number) for number in range(1, 6))):
        wanted: list[Any] = [None, {"default"}, {"other"}, None] * 3
        calls = [Call(lambda seen=seen: names(data, namespaces=seen)) for seen in wanted]
        found = [call.end() for call in calls]
    expected = [[] if seen == {"other"} else named(range(1, 6)) for seen in wanted]
    assert found == expected
