"""OTLP requests in the queue: the entry is the request, the metadata are topic and signal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import Damaged, FormatError, UnsupportedVersion
from penstock.model.topics import Topic
from penstock.otel.signals import Signal
from penstock.queue import ConsumedBatch, Metadata
from penstock.queue.otlp import Origin, decode_origin, encode_origin, requests_of

TRACES = Origin(Topic("default", "traces"), Signal.TRACES)


def test_metadata_have_these_bytes() -> None:
    """Version, signal, encoding, nothing, topic."""
    assert encode_origin(TRACES) == b"\x01\x01\x01\x00/default/traces"


@pytest.mark.parametrize("signal", list(Signal))
def test_origin_comes_back(signal: Signal) -> None:
    """With names that are not plain."""
    origin = Origin(Topic("Größe", "a b"), signal)
    assert decode_origin(encode_origin(origin)) == origin


@pytest.mark.parametrize(
    "metadata", [b"", b"\x01\x01\x01", b"\x01\x07\x01\x00/a/b", b"\x01\x01\x01\x00x/y/z"]
)
def test_other_metadata_are_refused(metadata: bytes) -> None:
    """Too short, of no signal, without a topic."""
    with pytest.raises(Damaged):
        decode_origin(metadata)


@pytest.mark.parametrize("metadata", [b"\x02\x01\x01\x00/a/b", b"\x01\x01\x02\x00/a/b"])
def test_newer_metadata_are_refused_as_such(metadata: bytes) -> None:
    """Another Penstock can read them."""
    with pytest.raises(UnsupportedVersion):
        decode_origin(metadata)


@given(st.binary(max_size=30))
def test_any_bytes_are_refused_or_read(metadata: bytes) -> None:
    """Without any other error."""
    try:
        origin = decode_origin(metadata)
    except FormatError:
        return
    assert encode_origin(origin)[1:3] == metadata[1:3]


def test_requests_come_with_their_origin() -> None:
    """Each range of a batch has its own."""
    logs = Origin(Topic("tenant", "logs"), Signal.LOGS)
    metadata = (Metadata(0, 5, encode_origin(TRACES)), Metadata(2, 6, encode_origin(logs)))
    batch = ConsumedBatch([b"1", b"2", b"3"], 0, "", metadata)
    found = [(each.origin, each.ingestion_time_ms, each.request) for each in requests_of(batch)]
    assert found == [(TRACES, 5, b"1"), (TRACES, 5, b"2"), (logs, 6, b"3")]
