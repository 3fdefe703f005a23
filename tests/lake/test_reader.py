"""Rows of data files, a piece at a time; what cannot be read is named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.lake.reader import opened, state_bytes
from penstock.lake.target import Target
from penstock.model.errors import Damaged
from tests.lake.helpers import spans

if TYPE_CHECKING:
    from penstock.lake.tables import Lake


@pytest.fixture
def target(lake: Lake) -> Target:
    """The table of spans."""
    return Target.of(lake.table("spans"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with row groups of 400 rows."""
    path = tmp_path / "some.parquet"
    pq.write_table(spans(range(1000)), path, row_group_size=400)
    return path


def test_pieces_are_small_parts_of_row_groups(target: Target, path: Path) -> None:
    """Wide rows are few in a row group, so the pieces of it have few as well."""
    with opened(target, str(path)) as file:
        sizes = [batch.num_rows for batch in file.batches(target.columns, 5000)]
        few = [batch.num_rows for batch in file.batches(target.columns, 50, [2])]
    assert sizes == [64] * 6 + [16] + [64] * 6 + [16] + [64] * 3 + [8]
    assert few == [50] * 4


def test_columns_come_as_they_are_asked_for(target: Target, path: Path) -> None:
    """In that order; one that the file does not have is null."""
    columns = pa.schema([("zone", pa.string()), target.columns.field("name"), ("time", pa.int64())])
    with opened(target, str(path)) as file:
        batch = next(file.batches(columns, 10))
    assert batch.schema == columns
    assert batch.column("zone").null_count == 10
    assert batch.column("name")[0].as_py() == "GET /cart"


def test_damaged_footer_is_named(target: Target, path: Path) -> None:
    """The file is."""
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(Damaged, match=r"some\.parquet cannot be read"), opened(target, str(path)):
        pass


def test_damaged_page_is_named(target: Target, path: Path) -> None:
    """When it is read."""
    data = bytearray(path.read_bytes())
    data[4:2000] = b"\xff" * 1996
    path.write_bytes(data)
    with (
        opened(target, str(path)) as file,
        pytest.raises(Damaged, match=r"some\.parquet cannot be read"),
    ):
        list(file.batches(target.columns, 100))


def test_state_is_that_of_the_largest_row_group(target: Target, path: Path) -> None:
    """Readers go through one after another."""
    groups = pq.read_metadata(path)
    largest = max(groups.row_group(number).total_byte_size for number in range(3))
    assert state_bytes(target, str(path)) == 2 * largest + 1_000_000
