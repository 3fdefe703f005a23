"""The benchmark of OTLP: checking, decoding to OTAP tables, and encoding, per CPU-second.

Decoded requests are compared with the official classes and a walk over their objects, which makes
fewer tables and columns of them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from google.protobuf import json_format

import harness
import otel_requests
from harness import Row, Run
from otel_requests import walk
from penstock.model.errors import InvalidArgument
from penstock.otel import (
    Signal,
    check_request,
    decode_requests,
    encode_bundle,
    request_from_json,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WALK = "official classes and a walk"
PARSE = "parsing alone"
JSON_FORMAT = "google.protobuf.json_format"
OURS = "penstock"
TRACES = Signal.TRACES


def decode_traces(run: Run) -> Iterator[Row]:
    """Requests of many and of few spans, alone and together."""
    large = [otel_requests.traces(1000, seed) for seed in range(10)]
    small = [otel_requests.traces(10, seed) for seed in range(100)]
    for name, messages, target in (
        ("decode, 1000 spans", large[:1], 250_000),
        ("decode, ten of 1000 spans", large, 300_000),
        ("decode, a hundred of 10 spans", small, 200_000),
        ("decode, 10 spans", small[:1], None),
    ):
        spans = 1000 if messages[0] is large[0] else 10
        yield from _compared(run, name, messages, spans * len(messages), target)


def decode_others(run: Run) -> Iterator[Row]:
    """Log records and data points."""
    logs, metrics = otel_requests.logs(1000), otel_requests.metrics(1000)
    found = run.medians(
        {
            "logs": lambda: _rate(run, lambda: decode_requests(Signal.LOGS, [logs]), 1000),
            "metrics": lambda: _rate(run, lambda: decode_requests(Signal.METRICS, [metrics]), 1000),
        }
    )
    yield Row("decode, 1000 log records", found["logs"], "records/s")
    yield Row("decode, 1000 data points", found["metrics"], "points/s")


def size(run: Run) -> Iterator[Row]:
    """What a bundle takes in memory against its request."""
    message = otel_requests.traces(1000)
    [decoded] = decode_requests(TRACES, [message])
    if decoded.bundle is None:
        run.say(decoded.problem)
        return
    held = decoded.bundle.nbytes
    yield Row("size of 1000 spans", held, "bytes", "protobuf", len(message), better="lower")


def encode(run: Run) -> Iterator[Row]:
    """Bundles back to requests."""
    for signal, message, unit in (
        (TRACES, otel_requests.traces(1000), "spans/s"),
        (Signal.LOGS, otel_requests.logs(1000), "records/s"),
        (Signal.METRICS, otel_requests.metrics(1000), "points/s"),
    ):
        [decoded] = decode_requests(signal, [message])
        bundle = decoded.bundle
        if bundle is not None:
            measure = _measure(run, lambda s=signal, b=bundle: encode_bundle(s, b), 1000)
            found = run.medians({OURS: measure})
            yield Row(f"encode, 1000 {signal.records}", found[OURS], unit)


def check(run: Run) -> Iterator[Row]:
    """What every request passes before it is acknowledged."""
    for count in (10, 1000, 8000):
        message = otel_requests.traces(count)
        parse = TRACES.request_class.FromString
        found = run.medians(
            {
                OURS: _measure(run, lambda m=message: check_request(TRACES, m), count),
                PARSE: _measure(run, lambda m=message, p=parse: p(m), count),
            }
        )
        target = 1_000_000 if count == 1000 else None
        name = f"check, {count} spans"
        if target is not None:
            yield Row(name, found[OURS], "spans/s", target=target)
        yield Row(name, found[OURS], "spans/s", PARSE, found[PARSE])


def refuse(run: Run) -> Iterator[Row]:
    """Two million empty spans in 4 MB."""
    spans = b"\x12\0" * 2_000_000
    bomb = b"\x0a\x85\x92\xf4\x01\x12\x80\x92\xf4\x01" + spans
    found = run.medians({OURS: lambda: _refusal_ms(bomb)})
    yield Row("refuse 2,000,000 empty spans", found[OURS], "ms", target=200, better="lower")


def read_json(run: Run) -> Iterator[Row]:
    """OTLP's JSON to protobuf."""
    text = otel_requests.as_json(TRACES, otel_requests.traces(1000))
    official = TRACES.request_class
    found = run.medians(
        {
            OURS: _measure(run, lambda: request_from_json(TRACES, text), 1000),
            JSON_FORMAT: _measure(run, lambda: json_format.Parse(text, official()), 1000),
        }
    )
    figures = (found[OURS], "spans/s", JSON_FORMAT, found[JSON_FORMAT])
    yield Row("JSON to protobuf, 1000 spans", *figures, target=3.0)


def _compared(
    run: Run, name: str, messages: list[bytes], spans: int, target: float | None
) -> Iterator[Row]:
    found = run.medians(
        {
            OURS: _measure(run, lambda: decode_requests(TRACES, messages), spans),
            WALK: _measure(run, lambda: [walk(message) for message in messages], spans),
        }
    )
    if target is not None:
        yield Row(name, found[OURS], "spans/s", target=target)
    yield Row(name, found[OURS], "spans/s", WALK, found[WALK])


def _measure(run: Run, action: Callable[[], object], count: int) -> harness.Measure:
    return lambda: _rate(run, action, count)


def _rate(run: Run, action: Callable[[], object], count: int) -> float:
    """How many of the things that one call handles, per second of this process's CPU time."""
    action()
    calls = 0
    started = time.process_time()
    while (took := time.process_time() - started) < run.slice_s / 2:
        action()
        calls += 1
    return calls * count / took


def _refusal_ms(bomb: bytes) -> float:
    started = time.process_time()
    try:
        check_request(TRACES, bomb)
    except InvalidArgument as refused:
        took = time.process_time() - started
        if "too many spans" in str(refused):
            return took * 1000
    raise AssertionError("it was not refused for what it is")


CASES = [decode_traces, decode_others, size, encode, check, refuse, read_json]

if __name__ == "__main__":
    harness.main("otel", CASES)
