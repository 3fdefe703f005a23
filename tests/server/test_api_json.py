"""Values as the API writes them in JSON."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from penstock.server.querying.json_rows import columns_of, json_objects, json_rows

CASES: list[tuple[str, Any]] = [
    ("NULL", None),
    ("true", True),
    ("1", 1),
    ("9007199254740991", 9007199254740991),
    ("9007199254740992", "9007199254740992"),
    ("-9007199254740992", "-9007199254740992"),
    ("18446744073709551615::UBIGINT", "18446744073709551615"),
    ("sum(3)", 3),
    ("170141183460469231731687303715884105727", "170141183460469231731687303715884105727"),
    ("0.1", 0.1),
    ("12.50", 12.5),
    ("12345678901234567.891", "12345678901234567.891"),
    ("1.5::DOUBLE", 1.5),
    ("'NaN'::DOUBLE", "NaN"),
    ("'inf'::DOUBLE", "Infinity"),
    ("'-inf'::FLOAT", "-Infinity"),
    ("'é\n\"'", 'é\n"'),
    ("'\\x00\\xFF'::BLOB", "AP8="),
    ("TIMESTAMP '2026-01-02 03:04:05.000006'", "2026-01-02T03:04:05.000006"),
    ("TIMESTAMPTZ '2026-01-02 03:04:05Z'", "2026-01-02T03:04:05.000000Z"),
    ("TIMESTAMP_NS '2026-01-02 03:04:05.123456789'", "2026-01-02T03:04:05.123456789"),
    ("DATE '2026-01-02'", "2026-01-02"),
    ("TIME '03:04:05'", "03:04:05.000000"),
    ("[1, NULL, 3]", [1, None, 3]),
    ("[[9007199254740993], NULL, []]", [["9007199254740993"], None, []]),
    ("{'a': 1, 'b': ['NaN'::DOUBLE]}", {"a": 1, "b": ["NaN"]}),
    ("MAP {'k': [1], 'l': NULL}", {"k": [1], "l": None}),
    ("MAP {1: 'x'}", {"1": "x"}),
    ("[MAP {'k': 'v'}]", [{"k": "v"}]),
    ("'b'::ENUM('a', 'b')", "b"),
    ("uuid '00000000-0000-0000-0000-000000000001'", "00000000-0000-0000-0000-000000000001"),
]


@pytest.mark.parametrize(("sql", "wanted"), CASES, ids=[sql for sql, _ in CASES])
def test_value_is_exact_and_valid_json(sql: str, wanted: Any) -> None:
    """Beside a null of the same type, which stays one."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.sql(f"SELECT {sql} AS v, 0 AS n UNION ALL SELECT NULL, 1 ORDER BY n")
        rows = json_rows(found.to_arrow_table().select(["v"]))
    assert json.loads(json.dumps(rows, allow_nan=False)) == [[wanted], [None]]


def test_part_of_a_column_has_its_own_values() -> None:
    """Lists, structs and maps of a slice do not take those of the rows before it."""
    table = pa.table(
        {
            "l": [[1], [2, 3], None, [4]],
            "s": [{"a": 1}, {"a": 2}, None, {"a": 4}],
            "m": pa.array([[("x", 1)], [("y", 2)], None, []], pa.map_(pa.string(), pa.int8())),
        }
    )
    wanted = [[[2, 3], {"a": 2}, {"y": 2}], [None, None, None], [[4], {"a": 4}, {}]]
    assert json_rows(table.slice(1)) == wanted
    assert json_rows(pa.concat_tables([table.slice(0, 1), table.slice(1)])) == json_rows(table)


def test_rows_without_columns_are_counted() -> None:
    """And a table without rows has none."""
    assert json_rows(pa.table({"a": pa.array([], pa.int64())})) == []
    assert json_objects(pa.table({"a": [1], "b": ["x"]})) == [{"a": 1, "b": "x"}]


def test_columns_have_names_and_types() -> None:
    """Those of Arrow."""
    table = pa.table({"a": pa.array([1], pa.int64())})
    assert columns_of(table) == [{"name": "a", "type": "int64"}]
