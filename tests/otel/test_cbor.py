"""Nested values as CBOR, compared with another implementation of it."""

from __future__ import annotations

import struct
from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValueList

from penstock.model.errors import InvalidBundle
from penstock.otel.cbor import array_to_cbor, cbor_to_array, cbor_to_map, map_to_cbor

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=30)
    | st.binary(max_size=300),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)


def to_value(python: Any) -> AnyValue:
    """The OTLP value of a Python object."""
    value = AnyValue()
    if isinstance(python, bool):
        value.bool_value = python
    elif isinstance(python, int):
        value.int_value = python
    elif isinstance(python, float):
        value.double_value = python
    elif isinstance(python, str):
        value.string_value = python
    elif isinstance(python, bytes):
        value.bytes_value = python
    elif isinstance(python, list):
        value.array_value.values.extend(map(to_value, python))
        value.array_value.SetInParent()
    elif isinstance(python, dict):
        value.kvlist_value.SetInParent()
        for key, item in python.items():
            value.kvlist_value.values.add(key=key).value.CopyFrom(to_value(item))
    return value


def array(*items: Any) -> bytes:
    """An encoded array of Python objects."""
    return to_value(list(items)).array_value.SerializeToString()


@given(st.lists(VALUES, max_size=5))
@settings(deadline=None)
def test_another_reader_understands_arrays(items: list[Any]) -> None:
    """What is written is CBOR."""
    assert cbor2.loads(array_to_cbor(array(*items))) == items


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=5))
@settings(deadline=None)
def test_another_reader_understands_maps(items: dict[str, Any]) -> None:
    """What is written is CBOR, in the order of the map."""
    encoded = to_value(items).kvlist_value.SerializeToString()
    read = cbor2.loads(map_to_cbor(encoded))
    assert read == items
    assert list(read) == list(items)


@given(st.lists(VALUES, max_size=5), st.booleans())
@settings(deadline=None)
def test_what_another_writer_wrote_is_understood(items: list[Any], short: bool) -> None:
    """Also with the shortest floats that hold a number."""
    read = ArrayValue.FromString(cbor_to_array(cbor2.dumps(items, canonical=short)))
    if not short:
        assert read == ArrayValue.FromString(array(*items))
    assert cbor2.loads(array_to_cbor(read.SerializeToString())) == items


@pytest.mark.parametrize(
    ("encoded", "expected"),
    [
        ("80", []),
        ("83010203", [1, 2, 3]),
        ("8118ff", [255]),
        ("811bffffffffffffffff", "too large"),
        ("813b7fffffffffffffff", [-(2**63)]),
        ("81f93c00", [1.0]),
        ("81fa47c35000", [100000.0]),
        ("81fb3ff199999999999a", [1.1]),
        ("81f97c00", [float("inf")]),
        ("84f4f5f6f7", [False, True, None, None]),
        ("81c074323031332d30332d32315432303a30343a30305a", ["2013-03-21T20:04:00Z"]),
        ("815f42010243030405ff", [b"\1\2\3\4\5"]),
        ("817f657374726561646d696e67ff", ["streaming"]),
        ("9f018202039f0405ffff", [1, [2, 3], [4, 5]]),
        ("81bf61610161629f0203ffff", [{"a": 1, "b": [2, 3]}]),
    ],
)
def test_examples_of_the_standard_are_understood(encoded: str, expected: Any) -> None:
    """From appendix A of RFC 8949: all lengths, tags and simple values."""
    data = bytes.fromhex(encoded)
    if expected == "too large":
        with pytest.raises(InvalidBundle):
            cbor_to_array(data)
    else:
        assert cbor_to_array(data) == array(*expected)


@pytest.mark.parametrize(
    "encoded",
    [
        "",
        "01",
        "a0",
        "82",
        "8201",
        "9f01",
        "8161",
        "81ff",
        "8000",
        "811c",
        "81f8ff",
        "81e0",
        "81a10102",
        "8161ff",
        "817f01ff",
        "817f7f6161ffff",
        "9bffffffffffffffff",
        "bbffffffffffffffff",
        "81" * 500,
        "81" * 48 + "01",
        "81" * 100_000 + "01",
    ],
)
def test_what_is_not_a_nested_value_is_refused(encoded: str) -> None:
    """A bundle may come from elsewhere."""
    with pytest.raises(InvalidBundle):
        cbor_to_array(bytes.fromhex(encoded))


def test_an_array_is_no_map() -> None:
    """The type of the row says what is to be expected."""
    with pytest.raises(InvalidBundle, match="not a CBOR map"):
        cbor_to_map(b"\x80")
    with pytest.raises(InvalidBundle, match="not a CBOR array"):
        cbor_to_array(b"\xa0")


def test_keys_that_appear_twice_are_kept() -> None:
    """OTLP forbids them, and clients send them."""
    twice = KeyValueList()
    twice.values.add(key="a").value.int_value = 1
    twice.values.add(key="a").value.int_value = 2
    assert KeyValueList.FromString(cbor_to_map(map_to_cbor(twice.SerializeToString()))) == twice


def test_an_absent_value_is_not_an_empty_one() -> None:
    """CBOR has two words for nothing."""
    both = KeyValueList()
    both.values.add(key="absent")
    both.values.add(key="empty").value.SetInParent()
    encoded = map_to_cbor(both.SerializeToString())
    assert encoded == b"\xa2\x66absent\xf7\x65empty\xf6"
    assert KeyValueList.FromString(cbor_to_map(encoded)) == both


def test_every_bit_of_a_double_is_kept() -> None:
    """Also of a NaN that says something."""
    bits = bytes.fromhex("fff8060504030201")
    value = ArrayValue()
    value.values.add().double_value = struct.unpack(">d", bits)[0]
    encoded = array_to_cbor(value.SerializeToString())
    assert encoded == b"\x81\xfb" + bits
    assert cbor_to_array(encoded) == value.SerializeToString()


def test_long_values_are_not_remembered() -> None:
    """Nor are they wrong."""
    long = array("x" * 5000)
    assert cbor_to_array(array_to_cbor(long)) == long
