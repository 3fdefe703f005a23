"""The window is filled from the lake when a pipeline starts."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.lake.identity import identities
from penstock.lake.positions import read_positions
from penstock.lake.schemas import SPANS
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
from penstock.pipeline.flush import recent
from penstock.pipeline.flush.recent import remember_recent
from penstock.pipeline.flush.repeat_window import RepeatWindow
from tests.lake.helpers import NEXT_DAY, Flush, compact, span, spans

if TYPE_CHECKING:
    from pyiceberg.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    """The table of spans, empty."""
    with Lake.open(LakeSettings.of(tmp_path)) as lake:
        yield lake.table("spans")


def filled(table: Table, most: int) -> RepeatWindow:
    """The window of a pipeline that starts without one."""
    folder = Path(table.location()).parent / "repeats" / secrets.token_hex(4)
    window = RepeatWindow(folder, read_positions(table), seconds=600.0, most=most)
    remember_recent(table, window, most, 0.0)
    return window


def known(table: Table, most: int, *numbers: int) -> list[int]:
    """Which of these spans are known after a start."""
    window = filled(table, most)
    asked = window.knows(identities("spans", spans(numbers)))
    return [number for number, is_known in zip(numbers, asked, strict=True) if is_known]


def test_empty_table_fills_nothing(table: Table) -> None:
    """It has no snapshot; or, once claimed, one without files."""
    assert known(table, 1000, 1) == []
    Flush(table)
    assert known(table, 1000, 1) == []


def test_all_spans_are_known_where_there_is_room(table: Table) -> None:
    """Of several days and files, compacted ones too."""
    flush = Flush(table)
    for number in range(4, 8):
        flush.flush(spans([number]), spans([number + 10], NEXT_DAY))
    compact(table)
    everything = [4, 5, 6, 7, 14, 15, 16, 17]
    assert known(table, 1000, *everything, 20) == everything


@pytest.mark.parametrize("most", [3, 4, 7])
def test_newest_spans_are_those_that_are_known(table: Table, most: int) -> None:
    """The last file may be too much for the window; the newest one stays in any case."""
    flush = Flush(table)
    for number in range(5):
        flush.flush(spans(range(number * 3 + 4, number * 3 + 7)))
    found = known(table, most, *range(4, 19))
    assert {16, 17, 18} <= {*found}
    assert len(found) <= most


def test_no_more_is_read_than_can_be_kept(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor more than a pipeline that starts has time for."""
    flush = Flush(table)
    for number in range(4, 9):
        flush.flush(spans([number]))
    monkeypatch.setattr(recent, "READ_ROWS", 2)
    assert known(table, 1000, *range(4, 9)) == [7, 8]


def test_spans_without_ids_are_passed_over(table: Table) -> None:
    """All that is read of a span is its ids."""
    flush = Flush(table)
    rows = [span(4, trace_id=None), span(5)]
    flush.flush(pa.Table.from_pylist(rows, schema=SPANS))
    assert len(filled(table, 1000)) == 1
