"""Rows of Arrow as the oracle has them, so that `==` says whether they are the same."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.lake.rows import rows_of
from penstock.lake.schemas import TABLES, table_of
from penstock.model.positions import Position
from penstock.model.settings import SegmentSettings
from penstock.model.slots import OTAP
from penstock.otel import Signal
from tests.lake.rows.oracle import Row, double, expected_rows
from tests.otel.samples import bundle_of
from tests.segment.helpers import sealed

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.model.bundle import Bundle
    from penstock.segment.inventory import StoredBundle

ORIGIN = Position("here", "/acme/traces", 3, 100)
EPOCH = date(1970, 1, 1)


def check(signal: Signal, bundle: Bundle, requests: list[Any], origin: Position = ORIGIN) -> None:
    """The bundle becomes exactly the rows of the requests."""
    table = rows_of(bundle, signal, origin)
    table.validate(full=True)
    assert table.schema.equals(TABLES[table_of(signal)], check_metadata=True)
    found, expected = comparable(table), expected_rows(signal, requests, origin)
    if signal is Signal.METRICS:  # those of one kind follow each other
        found, expected = sorted(found, key=_sort_key), sorted(expected, key=_sort_key)
    assert len(found) == len(expected)
    for row, wanted in zip(found, expected, strict=True):
        assert row.keys() == wanted.keys()
        for name, value in row.items():
            assert value == wanted[name], f"{name} is {value!r}, not {wanted[name]!r}"


def row_of(signal: Signal, request: Any) -> Row:
    """The only row of a request."""
    [row] = comparable(rows_of(bundle_of(signal, request), signal, ORIGIN))
    return row


def through_segment(bundles: Iterable[Bundle]) -> list[StoredBundle]:
    """The bundles, each of two messages, from offset 100 on, as a sealed segment has them."""
    settings = SegmentSettings(max_streams=1000)
    with tempfile.TemporaryDirectory() as folder:
        reader = sealed(Path(folder), bundles, settings, OTAP)
        return [reader.bundle(number) for number in range(len(reader))]


def comparable(table: pa.Table) -> list[Row]:
    """The rows as Python values."""
    return [_struct(row) for row in table.to_pylist()]


def _struct(row: Row) -> Row:
    values = {name: _value(value) for name, value in row.items()}
    if "attributes" in row:
        maps = _map(row["attributes"]), _map(row["attribute_types"])
        values["attributes"] = _typed(*maps)
        values["attribute_types"] = maps[1]
    if "service_name" in row:
        types = dict((row["resource"] or {}).get("attribute_types") or ())
        name = types.get("service.name")
        values["service_name"] = _typed({"": row["service_name"]}, {"": name})[""]
    if "body" in row:
        values["body"] = _typed({"": row["body"]}, {"": row["body_type"]})[""]
    return values


def _value(value: Any) -> Any:
    match value:
        case datetime():
            return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        case date():
            return (value - EPOCH).days
        case float():
            return double(value)
        case dict():
            return _struct(value)
        case list():
            return [_value(item) for item in value]
        case _:
            return value


def _map(pairs: list[tuple[str, str]] | None) -> dict[str, str] | None:
    """A map that is there has something in it, and no key twice."""
    if pairs is None:
        return None
    assert pairs
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def _typed(texts: dict[str, Any] | None, types: dict[str, Any] | None) -> dict[str, Any]:
    """Doubles by their bits, JSON by what it says."""
    found = dict(texts or {})
    for key, name in (types or {}).items():
        if name == "double":
            found[key] = double(float(found[key]))
        elif name in {"array", "map"}:
            found[key] = repr(json.loads(found[key], parse_constant=_refuse))
    return found or None  # type: ignore[return-value]  # as the rows have it


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def _sort_key(row: Row) -> str:
    return json.dumps(row, sort_keys=True)
