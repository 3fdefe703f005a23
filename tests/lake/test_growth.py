"""What a commit costs does not depend on how much is in the table, but for Iceberg's own list."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from penstock.lake.durable import DurableFileIO
from penstock.lake.transaction import SnapshotTransaction

from .helpers import DAY, Flush, spans

if TYPE_CHECKING:
    from pyiceberg.io import InputFile, OutputFile
    from pyiceberg.table import Table


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the files that are opened, by what they are."""
    counts: Counter[str] = Counter()
    new_input, new_output = DurableFileIO.new_input, DurableFileIO.new_output

    def count_input(self: DurableFileIO, location: str) -> InputFile:
        counts[location.rpartition(".")[2]] += 1
        return new_input(self, location)

    def count_output(self: DurableFileIO, location: str) -> OutputFile:
        counts[location.rpartition(".")[2]] += 1
        return new_output(self, location)

    monkeypatch.setattr(DurableFileIO, "new_input", count_input)
    monkeypatch.setattr(DurableFileIO, "new_output", count_output)
    return counts


def test_a_commit_opens_as_many_files_at_the_end_as_at_the_beginning(
    table: Table, opened: Counter[str]
) -> None:
    """Merges of manifests included: each cycle of commits costs what the one before did."""
    with table.transaction() as change:
        change.set_properties({"penstock.manifests-merged-at": "4"})
    flush = Flush(table)
    cycles = []
    for number in range(24):
        if number % 4 == 0:
            opened.clear()
        flush.flush(spans([number], DAY + dt.timedelta(days=number)))
        if number % 4 == 3:
            cycles.append(opened.total())
    assert max(cycles[2:]) <= max(cycles[:2])


def test_a_commit_copies_the_metadata_a_few_times(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each copy is as large as all snapshots together; pyiceberg would make about twenty."""
    flush = Flush(table)
    flush.flush(spans([0]))
    copies = Counter[str]()
    from penstock.lake import transaction

    real = transaction.update_table_metadata

    def count(*arguments: object) -> object:
        copies["made"] += 1
        return real(*arguments)  # type: ignore[arg-type] # passed on as they are

    monkeypatch.setattr(transaction, "update_table_metadata", count)
    flush.flush(spans([1]))
    assert 0 < copies["made"] <= 4


def test_staged_changes_are_seen_at_once(table: Table) -> None:
    """The copy is made anew when something is staged."""
    change = SnapshotTransaction(table)
    assert "x" not in change.table_metadata.properties
    change.set_properties({"x": "1"})
    assert change.table_metadata.properties["x"] == "1"
    assert change.table_metadata is change.table_metadata
