"""What is stored, what is refused, and what the answer says."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from penstock.model.errors import InvalidArgument
from penstock.otel import (
    RequestLimits,
    Signal,
    check_request,
    decode_requests,
    encode_bundle,
    validate,
)
from tests.otel.samples import canonical, encoded, full_request, piece, record_piece

SIGNALS = pytest.mark.parametrize("signal", Signal, ids=lambda signal: signal.value)
TRACE_ID, SPAN_ID = bytes(range(16)), bytes(range(8))


def spans(*ids: tuple[bytes, bytes]) -> bytes:
    """A request with a span for each pair of ids."""
    request: Any = Signal.TRACES.request_class()
    scope = request.resource_spans.add().scope_spans.add()
    for trace_id, span_id in ids:
        scope.spans.add(trace_id=trace_id, span_id=span_id, name=f"{len(scope.spans)}")
    return encoded(request)


@SIGNALS
def test_a_good_request_is_stored_as_it_came(signal: Signal) -> None:
    """Not a byte of it is changed, even if there are other ways to encode it."""
    data = encoded(full_request(signal, 1)) + encoded(full_request(signal, 2))
    checked = check_request(signal, data)
    assert checked.data is data
    assert (checked.rejected, checked.problem) == (0, "")


@SIGNALS
def test_records_are_counted_as_users_count_them(signal: Signal) -> None:
    """Spans, log records, data points: the items of the bundle."""
    data = encoded(full_request(signal, 3))
    [decoded] = decode_requests(signal, [data])
    assert decoded.bundle is not None
    assert check_request(signal, data).records == decoded.bundle.items


@SIGNALS
def test_an_empty_request_is_valid(signal: Signal) -> None:
    """OTLP: the server answers it with success."""
    assert check_request(signal, b"").records == 0


@pytest.mark.parametrize(
    "bad",
    [
        (b"", SPAN_ID),
        (TRACE_ID, b""),
        (TRACE_ID[:15], SPAN_ID),
        (TRACE_ID + b"x", SPAN_ID),
        (TRACE_ID, SPAN_ID[:7]),
        (bytes(16), SPAN_ID),
        (TRACE_ID, bytes(8)),
    ],
)
def test_spans_without_valid_ids_are_rejected_alone(bad: tuple[bytes, bytes]) -> None:
    """The others of the request are stored."""
    good = (TRACE_ID, SPAN_ID)
    checked = check_request(Signal.TRACES, spans(bad, good, bad, bad, good))
    stored: Any = Signal.TRACES.request_class.FromString(checked.data)
    assert [span.name for span in stored.resource_spans[0].scope_spans[0].spans] == ["1", "4"]
    assert (checked.records, checked.rejected) == (2, 3)
    assert checked.problem.startswith("3 of 5 spans rejected: a trace id is not 16 bytes")


def test_a_request_of_bad_spans_alone_leaves_nothing_to_store() -> None:
    """It is answered, not refused."""
    checked = check_request(Signal.TRACES, spans((b"", b"")))
    assert (checked.records, checked.rejected) == (0, 1)


def test_log_records_with_odd_ids_are_stored() -> None:
    """OTLP: they are taken to belong to no trace."""
    request: Any = Signal.LOGS.request_class()
    request.resource_logs.add().scope_logs.add().log_records.add(trace_id=b"odd", span_id=bytes(8))
    assert check_request(Signal.LOGS, encoded(request)).records == 1


@SIGNALS
def test_too_many_records_are_refused(signal: Signal) -> None:
    """Whether the request is small or large."""
    request: Any = full_request(signal, 4)
    records = check_request(signal, encoded(request)).records
    check_request(signal, encoded(request), RequestLimits(max_records=records))
    with pytest.raises(InvalidArgument, match=f"too many .*; the most is {records - 1}"):
        check_request(signal, encoded(request), RequestLimits(max_records=records - 1))


def test_more_records_than_a_bundle_can_number_are_refused() -> None:
    """They could be stored and never be decoded."""
    data = piece(0x0A, piece(0x12, piece(0x12, b"") * 65_536))
    with pytest.raises(InvalidArgument, match="too many log records; the most is 65535"):
        check_request(Signal.LOGS, data)


@pytest.mark.parametrize(
    ("data", "what"),
    [(piece(0x0A, b"") * 65_536, "resources"), (piece(0x0A, piece(0x12, b"") * 65_536), "scopes")],
)
def test_too_many_resources_or_scopes_are_refused(data: bytes, what: str) -> None:
    """They are numbered too."""
    with pytest.raises(InvalidArgument, match=f"too many {what}; the most is 65535"):
        check_request(Signal.LOGS, data)


@SIGNALS
def test_what_is_accepted_can_be_decoded(signal: Signal) -> None:
    """Whatever happened to a request on its way: it is refused, or it becomes a bundle."""
    source = Random(9)
    sample = encoded(full_request(signal, 5))
    accepted = 0
    for _ in range(400):
        data = bytearray(sample)
        for _ in range(source.randrange(1, 3)):
            data[source.randrange(len(data))] = source.randrange(256)
        try:
            checked = check_request(signal, bytes(data))
        except InvalidArgument:
            continue
        accepted += 1
        [decoded] = decode_requests(signal, [checked.data])
        assert decoded.bundle is not None, decoded.problem
        assert decoded.bundle.items == checked.records
    assert 0 < accepted < 400


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_truncated_requests_are_refused(cut: int) -> None:
    """None of their records is stored."""
    data = encoded(full_request(Signal.LOGS, 6))[:-cut]
    with pytest.raises(InvalidArgument, match=r"^not an ExportLogsServiceRequest: resource_logs"):
        check_request(Signal.LOGS, data)


def nested_value(depth: int) -> bytes:
    """A log record with an attribute of arrays in arrays."""
    value = b""
    for _ in range(depth):
        value = piece(0x2A, piece(0x0A, value))
    return record_piece(piece(0x32, piece(0x12, value)))


def test_values_may_be_nested() -> None:
    """Deeper than anybody does, and as deep as the official parser goes."""
    data = nested_value(47)
    [decoded] = decode_requests(Signal.LOGS, [check_request(Signal.LOGS, data).data])
    assert decoded.bundle is not None
    assert encode_bundle(Signal.LOGS, decoded.bundle) == data


@pytest.mark.parametrize("depth", [48, 1000, 40_000])
def test_values_nested_too_deep_are_refused(depth: int) -> None:
    """However deep, and at once."""
    with pytest.raises(InvalidArgument, match="nested more than 100 deep"):
        check_request(Signal.LOGS, nested_value(depth))


@pytest.mark.parametrize("small_bytes", [0, 10**6])
@SIGNALS
def test_large_requests_are_checked_like_small_ones(
    signal: Signal, small_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are looked at twice."""
    monkeypatch.setattr(validate, "_SMALL_BYTES", small_bytes)
    data = encoded(full_request(signal, 7))
    assert check_request(signal, data).data is data
    limits = RequestLimits(max_parts=10) if not small_bytes else RequestLimits(max_records=1)
    with pytest.raises(InvalidArgument, match="too many"):
        check_request(signal, data, limits)
    with pytest.raises(InvalidArgument, match="not an Export"):
        check_request(signal, data[:-1])
    assert canonical(signal, check_request(signal, data * 2).data) == canonical(signal, data, data)
