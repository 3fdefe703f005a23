"""Whether a request can be stored, decided before it is acknowledged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from penstock.model.errors import InvalidArgument
from penstock.model.slots import MAX_ROOT_RECORDS
from penstock.otel.faults import find_fault
from penstock.otel.large import check_count, check_large
from penstock.otel.signals import Signal

_SMALL_BYTES: Final = 1024 * 1024
"""Parsing so much takes little memory, whatever it is."""
_NO_TRACE, _NO_SPAN = bytes(16), bytes(8)
_BAD_IDS: Final = "a trace id is not 16 bytes, a span id not 8, or one of them all zeros"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """What one request may hold. The bytes of it are the receiver's to limit."""

    max_records: int = 200_000
    """Spans, log records, or data points. Of spans, log records and metrics, as well as of scopes
    and resources, never more than a bundle can number: 65535."""

    max_parts: int = 1_000_000
    """Everything that a parser takes memory for: records, attributes, items of arrays, …."""

    @property
    def max_roots(self) -> int:
        """Spans, log records, or metrics."""
        return min(self.max_records, MAX_ROOT_RECORDS)


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A request that can be stored."""

    data: bytes
    """The request as it came; without the records that were rejected, if any were."""
    records: int
    """Spans, log records or data points in `data`."""
    rejected: int = 0
    """Those that are not in `data`."""
    problem: str = ""
    """Why they were rejected, for the answer's partial success."""


def check_request(
    signal: Signal, data: bytes, limits: RequestLimits | None = None
) -> CheckedRequest:
    """Raises InvalidArgument, which says what is wrong, for a request that cannot be stored at all.

    Memory is bounded: some 70 MB for a request of up to 1 MiB; for a larger one about 25 times its
    size, or 150 bytes for each of `max_parts`.
    """
    limits = limits or RequestLimits()
    request = _parse(signal, data, limits)
    scopes = _scopes(signal, request)
    check_count("scopes", len(scopes), MAX_ROOT_RECORDS)
    lists = [getattr(scope, signal.field_names[2]) for scope in scopes]
    records = _count_records(signal, lists, limits)
    if signal is Signal.TRACES and (rejected := sum(map(_remove_bad_spans, lists))):
        problem = f"{rejected} of {records} spans rejected: {_BAD_IDS}"
        return CheckedRequest(request.SerializeToString(), records - rejected, rejected, problem)
    return CheckedRequest(data, records)


def _parse(signal: Signal, data: bytes, limits: RequestLimits) -> Message:
    try:
        if len(data) > _SMALL_BYTES:
            check_large(signal, data, limits.max_roots, limits.max_parts)
        return signal.request_class.FromString(data)
    except DecodeError as error:
        raise _malformed(signal, data, str(error)) from None


def _malformed(signal: Signal, data: bytes, otherwise: str) -> InvalidArgument:
    descriptor = signal.request_class.DESCRIPTOR
    return InvalidArgument(f"not an {descriptor.name}: {find_fault(descriptor, data) or otherwise}")


def _scopes(signal: Signal, request: Any) -> list[Any]:
    outer, inner, _ = signal.field_names
    resources = getattr(request, outer)
    check_count("resources", len(resources), MAX_ROOT_RECORDS)
    return [scope for resource in resources for scope in getattr(resource, inner)]


def _count_records(signal: Signal, lists: list[Any], limits: RequestLimits) -> int:
    records = sum(map(len, lists))
    check_count(signal.field_names[2].replace("_", " "), records, limits.max_roots)
    if signal is Signal.METRICS:
        records = sum(map(_count_points, lists))
        check_count(signal.records, records, limits.max_records)
    return records


def _count_points(metrics: Any) -> int:
    held = [(metric, metric.WhichOneof("data")) for metric in metrics]
    return sum(len(getattr(metric, data).data_points) for metric, data in held if data)


def _remove_bad_spans(spans: Any) -> int:
    """Spans without valid ids are of no use to anybody, and OTLP says to reject them."""
    bad = [number for number, span in enumerate(spans) if _is_bad(span.trace_id, span.span_id)]
    for number in reversed(bad):
        del spans[number]
    return len(bad)


def _is_bad(trace_id: bytes, span_id: bytes) -> bool:
    return len(trace_id) != 16 or len(span_id) != 8 or trace_id == _NO_TRACE or span_id == _NO_SPAN
