"""Rows are taken out of files that are not committed yet."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.lake.identity import identities
from penstock.lake.schemas import LOGS, TABLES
from penstock.lake.tables import Lake
from penstock.lake.target import Target
from penstock.lake.window import Window
from penstock.lake.writer import write_rows
from penstock.pipeline.flush.rewrite import Rewrite, rewritten, unwanted_rows
from penstock.pipeline.flush.task import PIECES_OF_A_GROUP, Piece
from tests.lake.helpers import DAY, NEXT_DAY, spans
from tests.pipeline.flush.helpers import LakeSettings

if TYPE_CHECKING:
    from pathlib import Path

KEY = "b00000001-000000000000-000000000001"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """An empty one."""
    with Lake.open(LakeSettings.of(tmp_path)) as lake:
        yield lake


def piece(rows: pa.Table, target: Target, part: int = 0, table: str = "spans") -> Piece:
    """Rows that a task has written."""
    files = write_rows(rows, target, KEY, part)
    return Piece.of(table, part, files, rows, identities(table, rows))


def offsets(found: Piece) -> list[int]:
    """The rows of its files."""
    rows = [pq.read_table(file.path, partitioning=None)["_offset"] for file in found.files]
    return sorted(number for each in rows for number in each.to_pylist())


def without(order_of: Piece, target: Target, *numbers: int) -> Piece:
    """The piece of spans without those."""
    unwanted = identities("spans", spans(numbers))
    return rewritten(Rewrite("spans", target, KEY, order_of, unwanted))


def test_rewritten_piece_has_all_rows_but_the_unwanted(lake: Lake) -> None:
    """Of every day; in files with names of their own."""
    target = Target.of(lake.table("spans"))
    both = pa.concat_tables([spans(range(5)), spans(range(5, 9), NEXT_DAY), spans([9], None)])
    before = piece(both, target)
    after = without(before, target, 1, 6, 77)
    assert offsets(after) == [0, 2, 3, 4, 5, 7, 8, 9]
    assert {file.day for file in after.files} == {DAY, NEXT_DAY, None}
    assert not {file.path for file in after.files} & {file.path for file in before.files}
    assert offsets(before) == [*range(10)]


def test_rewritten_piece_knows_the_rows_that_it_has(lake: Lake) -> None:
    """The next batch is compared with them."""
    target = Target.of(lake.table("spans"))
    after = without(piece(spans(range(5)), target), target, 1)
    wanted = identities("spans", spans([0, 2, 3, 4]))
    assert {*map(tuple, after.keys.tolist())} == {*map(tuple, wanted.tolist())}


def test_piece_of_unwanted_rows_alone_has_no_files(lake: Lake) -> None:
    """Nothing is written, and nothing is committed."""
    target = Target.of(lake.table("spans"))
    after = without(piece(spans(range(3)), target), target, 0, 1, 2)
    assert after.files == ()
    assert len(after.keys) == 0


def test_rewriting_again_gives_the_same_rows_in_other_files(lake: Lake) -> None:
    """As when Spark runs the task twice."""
    target = Target.of(lake.table("spans"))
    before = piece(spans(range(4)), target)
    first, second = without(before, target, 1), without(before, target, 1)
    assert offsets(first) == offsets(second) == [0, 2, 3]
    assert first.files != second.files


def test_rows_of_a_table_with_more_columns_are_known(lake: Lake) -> None:
    """Somebody has added one to the table; what is equal is still equal."""
    table = lake.table("logs")
    with table.update_schema() as update:
        update.union_by_name(pa.schema([("promoted", pa.string())]))
        update.move_first("body")
    target = Target.of(table)
    time = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    rows = [{"body": body, "time": time, "attributes": [("b", "1"), ("a", "")]} for body in "xyz"]
    before = piece(pa.Table.from_pylist(rows, schema=LOGS), target, table="logs")
    unwanted = identities("logs", pa.Table.from_pylist(rows[1:2], schema=LOGS))
    [file] = rewritten(Rewrite("logs", target, KEY, before, unwanted)).files
    assert pq.read_table(file.path, partitioning=None)["body"].to_pylist() == ["x", "z"]


# --- which rows -----------------------------------------------------------------------------------


def numbered(part: int, *numbers: int) -> Piece:
    """A piece without files."""
    keys = np.array([(n, n) for n in numbers], np.uint64).reshape(-1, 2)
    return Piece(part, (), keys, keys)


def found(pieces: list[Piece], *known: int) -> dict[int, list[int]]:
    """The unwanted rows of each piece that has any."""
    window = Window()
    window.add(numbered(0, *known).keys)
    return {each.part: keys[:, 0].tolist() for each, keys in unwanted_rows(pieces, window)}


def test_rows_of_the_window_are_unwanted() -> None:
    """An earlier batch has them."""
    assert found([numbered(0, 1, 2), numbered(PIECES_OF_A_GROUP, 3)], 2, 9) == {0: [2]}


def test_rows_of_an_earlier_group_are_unwanted() -> None:
    """The first group keeps them; the second and the third do not."""
    second, third = PIECES_OF_A_GROUP, 2 * PIECES_OF_A_GROUP
    pieces = [numbered(0, 1), numbered(1, 2), numbered(second, 2, 3, 4), numbered(third, 1, 4, 5)]
    assert found(pieces) == {second: [2], third: [1, 4]}


def test_rows_of_one_group_are_let_alone() -> None:
    """Its task has compared them; equal ones are those of one message."""
    assert found([numbered(0, 1, 1), numbered(1, 1, 2)]) == {}


@pytest.mark.parametrize("table", TABLES)
def test_nothing_is_unwanted_without_rows(table: str) -> None:
    """Groups whose segments were all damaged have no pieces, or empty ones."""
    rows = TABLES[table].empty_table()
    empty = Piece.of(table, 0, (), rows, identities(table, rows))
    assert found([empty, numbered(PIECES_OF_A_GROUP, 1)], 5) == {}
    assert found([]) == {}
