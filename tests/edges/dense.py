"""Requests that are small to send and costly to look at."""

from __future__ import annotations

import gzip
import zlib
from functools import cache

import zstandard

from penstock.otel import Signal
from tests.otel.samples import piece

PACKERS = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstandard.compress}


@cache
def dense(parts: int) -> bytes:
    """One span with so many empty attributes: two bytes of protobuf each."""
    return piece(0x0A, piece(0x12, piece(0x12, b"\x4a\0" * parts)))


@cache
def dense_json(parts: int) -> bytes:
    """The same for a log record in JSON: three bytes each."""
    text = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"attributes":[%s]}]}]}]}'
    return text % b",".join([b"{}"] * parts)


@cache
def packed(encoding: str, data: bytes) -> bytes:
    """A thousandth of it, and less."""
    return PACKERS[encoding](data)


@cache
def large(sent: Signal, records: int) -> bytes:
    """An honest request, as a Collector sends it after some batching."""
    request = sent.request_class()
    outer, inner, name = sent.field_names
    resource = getattr(request, outer).add()
    resource.resource.attributes.add(key="service.name").value.string_value = "checkout"
    scope = getattr(resource, inner).add()
    for number in range(records):
        record = getattr(scope, name).add()
        if sent is Signal.TRACES:
            record.trace_id, record.span_id = bytes([7] * 16), (number + 1).to_bytes(8, "big")
            record.name = f"GET /api/cart/{number}"
        elif sent is Signal.LOGS:
            record.body.string_value = f"user {number} put 3 items into the cart"
        else:
            record.name = f"cart.items.{number}"
            record.gauge.data_points.add(as_int=number)
        if sent is not Signal.METRICS:
            for key in ("http.route", "server.address", "url.scheme"):
                record.attributes.add(key=key).value.string_value = f"{key} of this one"
    data: bytes = request.SerializeToString()
    return data
