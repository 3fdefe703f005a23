"""Values as text: nothing of them is lost, and the text is what people would write."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from penstock.lake.rows.fields import Fields
from penstock.lake.rows.values import type_codes, type_names, value_texts
from penstock.otel import Signal
from tests.lake.rows.comparable import row_of
from tests.lake.rows.samples import only_span, span_request


def texts(**columns: pa.Array) -> list[str | None]:
    """The texts of values in such columns."""
    fields = Fields(columns, len(columns["type"]))
    found: list[str | None] = value_texts(fields, type_codes(fields)).to_pylist()
    return found


def codes(*values: int) -> pa.Array:
    return pa.array(values, pa.uint8())


def attribute(value: AnyValue) -> tuple[Any, Any]:
    """What a value becomes, and the name of its type."""
    request = span_request()
    only_span(request).attributes.add(key="a").value.CopyFrom(value)
    row = row_of(Signal.TRACES, request)
    return row["attributes"]["a"], (row["attribute_types"] or {}).get("a")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (AnyValue(string_value="x"), ("x", None)),
        (AnyValue(string_value=""), ("", None)),
        (AnyValue(int_value=-(2**63)), ("-9223372036854775808", "int")),
        (AnyValue(bool_value=False), ("false", "bool")),
        (AnyValue(bytes_value=b"\0\xff"), ("AP8=", "bytes")),
        (AnyValue(bytes_value=b""), ("", "bytes")),
        (AnyValue(), (None, "empty")),
        (AnyValue(array_value={}), ("[]", "array")),
        (AnyValue(kvlist_value={}), ("{}", "map")),
    ],
)
def test_a_value_has_a_text_and_a_type(value: AnyValue, expected: tuple[Any, Any]) -> None:
    """All kinds that OTLP has; a string needs no name."""
    assert attribute(value) == expected


@given(st.lists(st.floats(), min_size=1))
def test_the_text_of_a_double_is_short_and_exact(values: list[float]) -> None:
    """It has the digits that Python's shortest form has, and is read back to the same bits."""
    found = texts(type=codes(*[3] * len(values)), double=pa.array(values, pa.float64()))
    for text, value in zip(found, values, strict=True):
        assert text is not None
        assert repr(float(text)) == repr(value)
        assert len(digits(text)) <= len(digits(repr(value)))


def digits(text: str) -> str:
    return text.split("e")[0].replace(".", "").strip("-0")


def test_nested_values_are_json() -> None:
    """Bytes as base64, what JSON has no number for as a string, and of equal keys the last."""
    inner = AnyValue(kvlist_value={})
    for value in (AnyValue(int_value=1), AnyValue(bytes_value=b"\0\xff")):
        inner.kvlist_value.values.add(key="ключ").value.CopyFrom(value)
    values = [AnyValue(double_value=float("nan")), AnyValue(double_value=-0.0), AnyValue(), inner]
    outer = AnyValue(array_value={"values": values})
    request = span_request()
    only_span(request).attributes.add(key="a").value.CopyFrom(outer)
    assert attribute(outer) == (repr(["NaN", -0.0, None, {"ключ": "AP8="}]), "array")


def test_long_nested_values_are_json_too() -> None:
    """They are not among those that are remembered."""
    long = AnyValue(array_value={"values": [AnyValue(string_value="x" * 5000)] * 2})
    assert attribute(long) == (repr(["x" * 5000] * 2), "array")


def test_only_the_column_of_the_type_counts() -> None:
    """Other writers may leave something in the others."""
    found = texts(
        type=codes(1, 2, 0, 4),
        str=pa.array(["yes", "no", "no", "no"]),
        int=pa.array([1, 2, 3, 4]),
        bool=pa.array([True, None, False, True]),
    )
    assert found == ["yes", "2", None, "true"]


def test_a_value_that_is_not_there_is_null() -> None:
    """Whether its column is missing, or empty in its row."""
    found = texts(type=codes(1, 2, 3, 7, 5), int=pa.array([None] * 5, pa.int64()))
    assert found == [None] * 5


def test_types_of_the_future_keep_their_numbers() -> None:
    """Their values cannot be read."""
    assert texts(type=codes(1, 9), str=pa.array(["x", None])) == ["x", None]
    assert type_names(codes(1, 9, 255)).to_pylist() == [None, "9", "255"]


def test_a_body_has_the_name_of_its_type() -> None:
    """Nested ones are JSON; an empty one is not the same as none."""
    request: Any = Signal.LOGS.request_class()
    record = request.resource_logs.add().scope_logs.add().log_records.add()
    found = [row_of(Signal.LOGS, request)]
    for value in (AnyValue(), AnyValue(string_value="x"), AnyValue(int_value=5)):
        record.body.CopyFrom(value)
        found.append(row_of(Signal.LOGS, request))
    bodies = [(row["body"], row["body_type"]) for row in found]
    assert bodies == [(None, None), (None, "empty"), ("x", None), ("5", "int")]


def test_json_is_compact_and_readable() -> None:
    """Letters of all languages stand for themselves."""
    from penstock.lake.rows.nested import map_text
    from penstock.otel.cbor import map_to_cbor

    value = AnyValue(kvlist_value={"values": [{"key": "é", "value": {"double_value": 1.0}}]})
    text = map_text(map_to_cbor(value.kvlist_value.SerializeToString()))
    assert text == '{"é":1.0}'
    assert json.loads(text) == {"é": 1.0}
