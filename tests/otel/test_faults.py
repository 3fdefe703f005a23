"""What a refused client is told."""

from __future__ import annotations

import pytest

from penstock.otel import Signal
from penstock.otel.faults import find_fault
from tests.otel.samples import encoded, full_request, piece, record_piece

LOGS = Signal.LOGS.request_class.DESCRIPTOR


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"\x0a", "resource_logs[0] ends in the middle of a field, at byte 1"),
        (b"\x0a\x05ab", "resource_logs[0] ends 3 bytes after the message that holds it"),
        (b"\xff" * 11, "the request: a number of more than ten bytes ends at byte 10"),
        (b"\x02\x00", "the request: byte 0 begins a field with the number 0"),
        (b"\x0f", "resource_logs[0]: byte 0 is of no wire type"),
        (
            piece(0x0A, b"") * 2 + record_piece(b"\x09\0\0"),
            "resource_logs[2].scope_logs[0].log_records[0].time_unix_nano ends 6 bytes after the"
            " message that holds it",
        ),
        (
            record_piece(piece(0x32, b"") + piece(0x32, piece(0x0A, b"a\xff"))),
            "resource_logs[0].scope_logs[0].log_records[0].attributes[1].key: byte 13 is not UTF-8",
        ),
        (record_piece(b"\x80"), "resource_logs[0].scope_logs[0].log_records[0] ends in the middle"),
        (b"\x13\x14", "field 2: byte 0 begins or ends a group, which OTLP does not have"),
        (
            record_piece(piece(0xA2, b"")[:1] + b"\x06\x05a"),
            "resource_logs[0].scope_logs[0].log_records[0].field 100 ends 4 bytes after",
        ),
    ],
)
def test_the_place_of_a_fault_is_named(data: bytes, fault: str) -> None:
    """By the path of the field and the number of the byte."""
    found = find_fault(LOGS, data)
    assert found is not None
    assert fault in found


@pytest.mark.parametrize("signal", Signal, ids=lambda signal: signal.value)
def test_nothing_is_wrong_with_a_good_request(signal: Signal) -> None:
    """Everything that OTLP has is understood."""
    assert find_fault(signal.request_class.DESCRIPTOR, encoded(full_request(signal, 9))) is None


def test_the_end_of_a_very_long_request_is_not_looked_at() -> None:
    """The walk is slow, and whoever sends nonsense may send much of it."""
    assert find_fault(LOGS, piece(0x0A, b"") * 30_000 + b"\x0a") is None
