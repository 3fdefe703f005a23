"""Rows as people and programs want them."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.query.results import FORMATS, cells, plain

ROWS = pa.table(
    {
        "text": ["a", None, 'ü,\n"'],
        "number": [1, 2, 2**62],
        "time": pa.array([0, None, 1], pa.timestamp("us", "UTC")),
        "map": pa.array([[("k", "v")], None, []], pa.map_(pa.string(), pa.string())),
        "list": [[1], None, []],
    }
)


def written(name: str, rows: pa.Table = ROWS) -> bytes:
    """What a format makes of rows."""
    out = io.BytesIO()
    FORMATS[name](rows, out)
    return out.getvalue()


def test_json_is_one_document() -> None:
    """An object for each row; maps are objects, times are text."""
    found = json.loads(written("json"))
    assert found[0] == {
        "text": "a",
        "number": 1,
        "time": "1970-01-01T00:00:00+00:00",
        "map": {"k": "v"},
        "list": [1],
    }
    assert found[1] == {"text": None, "number": 2, "time": None, "map": None, "list": None}
    assert found[2]["number"] == 2**62


def test_json_of_nothing_is_an_empty_array() -> None:
    """A program need not ask whether there was something."""
    assert json.loads(written("json", ROWS.slice(0, 0))) == []


def test_csv_can_be_read_again() -> None:
    """Whatever is in the texts; what is nested stands as JSON."""
    found = list(csv.reader(io.StringIO(written("csv").decode(), newline="")))
    assert found[0] == ROWS.column_names
    assert found[1] == ["a", "1", "1970-01-01T00:00:00+00:00", '{"k": "v"}', "[1]"]
    assert found[3][0] == 'ü,\n"'


def test_arrow_and_parquet_keep_everything() -> None:
    """Types too."""
    assert pa.ipc.open_stream(written("arrow")).read_all().equals(ROWS)
    assert pq.read_table(io.BytesIO(written("parquet"))).equals(ROWS)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"\x00\xff", "AP8="),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (Decimal(7), 7),
        (Decimal("7.5"), 7.5),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (timedelta(seconds=1.5), 1.5),
        ({"a": [(1, b"x")]}, {"a": {"1": "eA=="}}),
        (True, True),
    ],
)
def test_every_value_has_a_form_in_json(value: Any, shown: Any) -> None:
    """That a program can read."""
    assert plain(value) == shown
    json.dumps(plain(value), allow_nan=False)


def test_long_values_are_cut_on_a_terminal() -> None:
    """A row stays a line."""
    [[cell]] = cells(pa.table({"text": ["x" * 1000]}))
    assert len(cell) == 60
    assert cell.endswith("…")
