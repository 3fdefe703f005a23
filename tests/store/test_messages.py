"""Bundles and raw bytes as messages of the log."""

from __future__ import annotations

import contextlib
import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.bundle import Bundle
from penstock.model.errors import Damaged, FormatError, PenstockError, UnsupportedVersion
from penstock.model.slots import LOG_ATTRS, LOGS
from penstock.store.messages import decode_bundle, decode_raw, encode_bundle, encode_raw
from tests.store.helpers import UNHURRIED

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("d", pa.dictionary("int8", "string"))])


def batch(rows: int) -> pa.RecordBatch:
    """Rows with a dictionary and nulls."""
    return pa.RecordBatch.from_pylist(
        [{"a": n, "b": "x" * n if n % 3 else None, "d": f"v{n % 2}"} for n in range(rows)], SCHEMA
    )


@UNHURRIED
@given(st.binary(max_size=20))
def test_raw_bytes_come_back_as_they_were(data: bytes) -> None:
    """Whatever they begin with, and in whatever kind of buffer they come."""
    for form in (bytes, bytearray, memoryview):
        assert decode_raw(encode_raw(form(data))) == data


def test_what_an_otlp_client_sends_is_kept_byte_for_byte() -> None:
    """A protobuf message never begins with 0, so that no byte is added."""
    assert encode_raw(b"\x0aprotobuf") == b"\x0aprotobuf"
    assert encode_raw(b"\0other") == b"\0R\0other"


def test_a_bundle_is_no_raw_message() -> None:
    """The two are told apart by their first bytes."""
    assert decode_raw(encode_bundle(Bundle({}))) is None


@pytest.mark.parametrize("items", [None, 0, 7, 2**63 - 1])
def test_a_bundle_comes_back_as_it_was(items: int | None) -> None:
    """Slots, rows, dictionaries, an empty slot, and the count of items."""
    bundle = Bundle({LOGS: batch(100), LOG_ATTRS: batch(0), 63: batch(1)}, items=items)
    found = decode_bundle(encode_bundle(bundle))
    assert found == bundle
    assert list(found) == [LOGS, LOG_ATTRS, 63]
    assert found.items == items


def test_a_bundle_may_be_empty_or_have_all_slots() -> None:
    """Both ends of what a bundle may be."""
    for bundle in (Bundle({}), Bundle({slot: batch(slot) for slot in range(64)})):
        assert decode_bundle(encode_bundle(bundle)) == bundle


def test_streams_are_aligned_so_that_decoding_copies_nothing() -> None:
    """The column's memory is the message's."""
    message = encode_bundle(Bundle({0: batch(9), 1: batch(500)}))
    start = pa.py_buffer(message).address
    for found in decode_bundle(message).slots.values():
        values = found.column(0).buffers()[1]
        assert start <= values.address < start + len(message)
        assert (values.address - start) % 8 == 0


def test_a_sliced_batch_is_written_without_the_rows_around_it() -> None:
    """What the log keeps is what the bundle shows."""
    large = pa.RecordBatch.from_pydict({"a": list(range(100_000))})
    message = encode_bundle(Bundle({0: large.slice(500, 2)}))
    assert decode_bundle(message)[0].to_pydict() == {"a": [500, 501]}
    assert len(message) < 1000


def test_a_cut_bundle_is_damage() -> None:
    """At every byte: no length makes anything but Damaged of it."""
    message = encode_bundle(Bundle({0: batch(3), 1: batch(1)}))
    for length in range(len(message)):
        with pytest.raises(FormatError):
            decode_bundle(message[:length])


def test_a_bundle_of_another_version_says_so() -> None:
    """It is not damaged: a newer Penstock can read it."""
    message = bytearray(encode_bundle(Bundle({})))
    message[2] = 9
    with pytest.raises(UnsupportedVersion):
        decode_bundle(bytes(message))


@settings(UNHURRIED, max_examples=500)
@given(st.data())
def test_no_changed_byte_raises_anything_unexpected(data: st.DataObject) -> None:
    """The log's CRC keeps damage out; what gets past it must at least not stop the store."""
    plain = pa.RecordBatch.from_pydict({"a": [1, 2, 3]})
    message = bytearray(encode_bundle(Bundle({0: data.draw(st.sampled_from([batch(3), plain]))})))
    for position in data.draw(st.lists(st.integers(0, len(message) - 1), min_size=1, max_size=4)):
        message[position] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(PenstockError):
        decode_bundle(bytes(message))


def test_a_slot_out_of_range_is_refused() -> None:
    """Only slots 0 to 63 exist, also in a message that was written by somebody else."""
    message = bytearray(encode_bundle(Bundle({0: batch(1)})))
    struct.pack_into("<B", message, 16, 64)
    with pytest.raises(PenstockError):
        decode_bundle(bytes(message))


@pytest.mark.parametrize("message", [b"", b"\0", b"\0B", b"\0X" + bytes(14), b"raw"])
def test_other_messages_are_no_bundles(message: bytes) -> None:
    """Damaged says so."""
    with pytest.raises(Damaged):
        decode_bundle(message)
