"""OTLP's JSON is the same request as its protobuf."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import InvalidArgument
from penstock.otel import Signal, check_request, decode_requests, request_from_json
from tests.otel.samples import canonical, full_request
from tests.otel.strategies import requests

SIGNALS = pytest.mark.parametrize("signal", Signal, ids=lambda signal: signal.value)
IDS = {"traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id"}


def with_hex_ids(value: Any) -> Any:
    """Protobuf's JSON as OTLP has it."""
    if isinstance(value, list):
        return [with_hex_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: b64decode(item).hex() if key in IDS else with_hex_ids(item)
        for key, item in value.items()
    }


def check_equal(signal: Signal, request: Any, **form: bool) -> None:
    """What is read from the JSON is what the official reader makes of it."""
    official = json_format.MessageToDict(request, **form)
    expected = json_format.ParseDict(official, signal.request_class())
    found = request_from_json(signal, json.dumps(with_hex_ids(official)).encode()).data
    assert canonical(signal, found) == canonical(signal, expected.SerializeToString())


@SIGNALS
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_json_is_the_same_request(signal: Signal, data: st.DataObject) -> None:
    """With everything that the official classes can hold."""
    check_equal(signal, data.draw(requests(signal)), use_integers_for_enums=True)


@SIGNALS
@pytest.mark.parametrize("names", [True, False])
def test_names_may_be_as_in_the_proto_files(signal: Signal, names: bool) -> None:
    """Of fields, and of enum values."""
    for seed in range(8):
        request = full_request(signal, seed)
        check_equal(
            signal,
            request,
            preserving_proto_field_name=names,
            use_integers_for_enums=not names,
            always_print_fields_with_no_presence=names,
        )


@SIGNALS
def test_json_gives_the_same_bundle(signal: Signal) -> None:
    """Nobody can tell how a request came."""
    request = full_request(signal, 3)
    official = json_format.MessageToDict(request, use_integers_for_enums=True)
    expected = json_format.ParseDict(official, signal.request_class()).SerializeToString()
    found = request_from_json(signal, json.dumps(with_hex_ids(official)).encode()).data
    bundles = [decode_requests(signal, [data])[0].bundle for data in (found, expected)]
    assert repr(bundles[0]) == repr(bundles[1])
    assert [b.nbytes for b in bundles if b] == [b.nbytes for b in bundles if b][::-1]


def log_record(**fields: Any) -> bytes:
    """A request with one log record."""
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [fields]}]}]}).encode()


def read(data: bytes) -> Any:
    """The one log record of a request."""
    request: Any = Signal.LOGS.request_class.FromString(request_from_json(Signal.LOGS, data).data)
    return request.resource_logs[0].scope_logs[0].log_records[0]


def test_the_forms_of_values_are_understood() -> None:
    """Hexadecimal ids in either case, numbers as text, base64 of either alphabet."""
    record = read(
        log_record(
            timeUnixNano="1544712660300000000",
            observedTimeUnixNano=1544712660300000001,
            severityNumber=10,
            traceId="5B8EFFF798038103D269B633813FC60C",
            spanId="eee19b7ec3c1b174",
            flags="1",
            unknownField={"is": ["ignored"]},
            eventName=None,
            attributes=[
                {"key": "double", "value": {"doubleValue": "Infinity"}},
                {"key": "whole", "value": {"doubleValue": 3}},
                {"key": "int", "value": {"intValue": 4.0}},
                {"key": "power", "value": {"intValue": "1e3"}},
                {"key": "bytes", "value": {"bytesValue": "-_8"}},
                {"key": "padded", "value": {"bytesValue": "+/8="}},
                {"key": "none", "value": None},
                {"key": "empty", "value": {}},
            ],
        )
    )
    assert record.time_unix_nano == 1544712660300000000
    assert record.observed_time_unix_nano == 1544712660300000001
    assert record.trace_id.hex() == "5b8efff798038103d269b633813fc60c"
    assert (record.severity_number, record.flags, record.event_name) == (10, 1, "")
    values = [pair.value for pair in record.attributes]
    assert [value.double_value for value in values[:2]] == [float("inf"), 3.0]
    assert [value.int_value for value in values[2:4]] == [4, 1000]
    assert [value.bytes_value for value in values[4:6]] == [b"\xfb\xff", b"\xfb\xff"]
    assert [pair.HasField("value") for pair in record.attributes[6:]] == [False, True]


def test_enum_values_may_be_names() -> None:
    """OTLP writes numbers; others write what protobuf writes."""
    assert read(log_record(severityNumber="SEVERITY_NUMBER_WARN")).severity_number == 13


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "cannot be read: Expecting value"),
        (b"{", "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"[]", r"^the request: \[\] is not an object"),
        (b'{"resourceLogs": {}}', r"^resourceLogs: \{\} is not an array"),
        (log_record(body="text"), r"^resourceLogs\[0\].scopeLogs\[0\].logRecords\[0\].body: 'te"),
        (log_record(traceId="xyz"), r"traceId: 'xyz' is not hexadecimal"),
        (log_record(traceId="ab cd"), r"traceId: 'ab cd' is not hexadecimal"),
        (log_record(traceId=5), r"traceId: 5 is not hexadecimal"),
        (log_record(timeUnixNano="soon"), r"timeUnixNano: 'soon' is not a whole number"),
        (log_record(timeUnixNano=1.5), r"timeUnixNano: 1.5 is not a whole number"),
        (log_record(timeUnixNano=True), r"timeUnixNano: True is not a whole number"),
        (log_record(timeUnixNano="inf"), r"timeUnixNano: 'inf' is not a whole number"),
        (log_record(timeUnixNano=-1), "out of range"),
        (log_record(flags=2**32), "out of range"),
        (log_record(severityNumber="LOUD"), "severityNumber: 'LOUD' is not a whole number"),
        (log_record(severityNumber=[1]), r"severityNumber: \[1\] is not a whole number"),
        (log_record(body={"doubleValue": 10**400}), "too large"),
        (log_record(timeUnixNano="9" * 5000), "is not a whole number"),
        (log_record(eventName=7), "eventName: 7 is not a string"),
        (log_record(eventName="\ud800"), "surrogates not allowed"),
        (log_record(body={"boolValue": 1}), "body.boolValue: 1 is not true or false"),
        (log_record(body={"bytesValue": "!"}), "body.bytesValue: '!' is not base64"),
        (log_record(body={"doubleValue": "1e999"}), "body.doubleValue: '1e999' is not a number"),
        (log_record(body={"doubleValue": "x"}), "body.doubleValue: 'x' is not a number"),
        (log_record(body={"doubleValue": []}), r"body.doubleValue: \[\] is not a number"),
        (
            log_record(body={"stringValue": "a", "intValue": 1}),
            r"body: \['stringValue', 'intValue'\] is not one value",
        ),
        (
            log_record(attributes=[{"key": "a"}, {"key": "b"}, {"key": 5}]),
            r"attributes\[2\].key: 5 is not a string",
        ),
        (log_record(eventName={"x": "y" * 100}), r"eventName: \{'x': 'y+… is not a string"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, problem: str) -> None:
    """With the path to it."""
    with pytest.raises(InvalidArgument, match=problem):
        request_from_json(Signal.LOGS, data)


@pytest.mark.parametrize("depth", [60, 300, 100_000])
def test_values_nested_too_deep_are_refused(depth: int) -> None:
    """Here, or when the request is checked; a bad value at the end does not change that."""
    opening = b'{"arrayValue":{"values":[' * depth
    for innermost in (b'{"intValue":1}', b'{"intValue":true}'):
        value = opening + innermost + b"]}}" * depth
        data = log_record(body="BODY").replace(b'"BODY"', value)
        with pytest.raises(InvalidArgument):
            check_request(Signal.LOGS, request_from_json(Signal.LOGS, data).data)


@pytest.mark.parametrize(
    ("written", "instead", "place"),
    [
        (b'"logRecords": [', b'"logRecords": [], "log_records": [', r"\].log_records"),
        (b'"key": "a"', b'"key": "a", "key": "a"', r"attributes\[0\].key"),
        (b'"stringValue": "b"', b'"stringValue": "c", "stringValue": "b"', "value.stringValue"),
    ],
)
def test_field_that_is_there_twice_is_refused(written: bytes, instead: bytes, place: str) -> None:
    """With the path to it; at every depth, by either of its names, even with the same value."""
    data = log_record(attributes=[{"key": "a", "value": {"stringValue": "b"}}])
    assert request_from_json(Signal.LOGS, data).warning == ""
    with pytest.raises(InvalidArgument, match=f"{place}: is there twice"):
        request_from_json(Signal.LOGS, data.replace(written, instead))


def test_more_objects_than_allowed_are_refused_unread() -> None:
    """A request of a few megabytes would take hundreds."""
    data = log_record(attributes=[{}] * 100)
    assert len(read(data).attributes) == 100
    with pytest.raises(InvalidArgument, match="more than 100 objects and arrays"):
        request_from_json(Signal.LOGS, data, max_parts=50)
