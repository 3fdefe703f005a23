"""The tables have the columns and types of OTAP, and what OTLP leaves out is left out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyarrow import types

from penstock.model import slots
from penstock.model.slots import OTAP
from penstock.otel import Signal
from tests.otel.samples import bundle_of, full_request, rows

T = pa.timestamp("ns")
U16, U32, U64, I32, I64, F64 = (
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
    pa.int32(),
    pa.int64(),
    pa.float64(),
)
TEXT, BYTES, ID16, ID8 = pa.string(), pa.binary(), pa.binary(16), pa.binary(8)
COUNTS = pa.list_(pa.field("item", U64, nullable=False))

# Per column: its type, then "*" if required, "d" if a dictionary of u8 or u16 is allowed, "D" if
# one of u16 is.
CONTAINERS: dict[str, Any] = {
    "resource": {
        "id": (U16, ""),
        "schema_url": (TEXT, "d"),
        "dropped_attributes_count": (U32, ""),
    },
    "scope": {
        "id": (U16, ""),
        "name": (TEXT, "d"),
        "version": (TEXT, "d"),
        "dropped_attributes_count": (U32, ""),
    },
    "schema_url": (TEXT, "d"),  # OTAP has it plain here: one long URL would be thousands
}
VALUES: dict[str, Any] = {
    "type": (pa.uint8(), "*"),
    "str": (TEXT, "D"),
    "int": (I64, "D"),
    "double": (F64, ""),
    "bool": (pa.bool_(), ""),
    "bytes": (BYTES, "D"),
    "ser": (BYTES, "D"),
}
POINT: dict[str, Any] = {
    "id": (U32, ""),
    "parent_id": (U16, "*"),
    "start_time_unix_nano": (T, ""),
    "time_unix_nano": (T, "*"),
    "flags": (U32, ""),
}
DISTRIBUTION: dict[str, Any] = {"count": (U64, ""), "sum": (F64, "")}
EXTREMES: dict[str, Any] = {"min": (F64, ""), "max": (F64, "")}
BUCKETS = {"offset": (I32, ""), "bucket_counts": (COUNTS, "")}
QUANTILES = pa.list_(
    pa.field(
        "item",
        pa.struct(
            [pa.field("quantile", F64, nullable=False), pa.field("value", F64, nullable=False)]
        ),
        nullable=False,
    )
)
TABLES: dict[int, dict[str, Any]] = {
    slots.LOGS: {
        "id": (U16, ""),
        **CONTAINERS,
        "schema_url": (TEXT, "d"),
        "time_unix_nano": (T, ""),
        "observed_time_unix_nano": (T, ""),
        "trace_id": (ID16, "d"),
        "span_id": (ID8, "d"),
        "severity_number": (I32, "d"),
        "severity_text": (TEXT, "d"),
        "event_name": (TEXT, "d"),
        "body": VALUES,
        "dropped_attributes_count": (U32, ""),
        "flags": (U32, ""),
    },
    slots.SPANS: {
        "id": (U16, ""),
        **CONTAINERS,
        "start_time_unix_nano": (T, "*"),
        "duration_time_unix_nano": (pa.duration("ns"), "*"),
        "trace_id": (ID16, "*"),
        "span_id": (ID8, "*"),
        "trace_state": (TEXT, ""),
        "parent_span_id": (ID8, ""),
        "name": (TEXT, "*"),
        "kind": (I32, ""),
        "dropped_attributes_count": (U32, ""),
        "dropped_events_count": (U32, ""),
        "dropped_links_count": (U32, ""),
        "status": {"code": (I32, "d"), "status_message": (TEXT, "d")},
        "flags": (U32, ""),
    },
    slots.SPAN_EVENTS: {
        "id": (U32, ""),
        "parent_id": (U16, "*"),
        "time_unix_nano": (T, ""),
        "name": (TEXT, "*"),
        "dropped_attributes_count": (U32, ""),
    },
    slots.SPAN_LINKS: {
        "id": (U32, ""),
        "parent_id": (U16, "*"),
        "trace_id": (ID16, "*"),
        "span_id": (ID8, "*"),
        "trace_state": (TEXT, ""),
        "dropped_attributes_count": (U32, ""),
        "flags": (U32, ""),
    },
    slots.UNIVARIATE_METRICS: {
        "id": (U16, "*"),
        **CONTAINERS,
        "metric_type": (pa.uint8(), "*"),
        "name": (TEXT, "*"),
        "description": (TEXT, ""),
        "unit": (TEXT, ""),
        "aggregation_temporality": (I32, ""),
        "is_monotonic": (pa.bool_(), ""),
    },
    slots.NUMBER_DATA_POINTS: {**POINT, "int_value": (I64, ""), "double_value": (F64, "")},
    slots.SUMMARY_DATA_POINTS: {**POINT, **DISTRIBUTION, "quantile": (QUANTILES, "")},
    slots.HISTOGRAM_DATA_POINTS: {
        **POINT,
        **DISTRIBUTION,
        "bucket_counts": (COUNTS, ""),
        "explicit_bounds": (pa.list_(pa.field("item", F64, nullable=False)), ""),
        **EXTREMES,
    },
    slots.EXP_HISTOGRAM_DATA_POINTS: {
        **POINT,
        **DISTRIBUTION,
        "scale": (I32, ""),
        "zero_count": (U64, ""),
        "positive": BUCKETS,
        "negative": BUCKETS,
        **EXTREMES,
        "zero_threshold": (F64, ""),
    },
    **{
        slot: {
            "id": (U32, ""),
            "parent_id": (U32, "*d"),
            "time_unix_nano": (T, "*"),
            "int_value": (I64, "d"),
            "double_value": (F64, ""),
            "span_id": (ID8, "d"),
            "trace_id": (ID16, "d"),
        }
        for slot in range(slots.NUMBER_DP_EXEMPLARS, slots.EXP_HISTOGRAM_DP_EXEMPLARS + 1)
    },
    **{
        slot: {"parent_id": (U16, "*"), "key": (TEXT, "*d"), **VALUES}
        for slot in (
            slots.RESOURCE_ATTRS,
            slots.SCOPE_ATTRS,
            slots.METRIC_ATTRS,
            slots.LOG_ATTRS,
            slots.SPAN_ATTRS,
        )
    },
    **{
        slot: {"parent_id": (U32, "*d"), "key": (TEXT, "*d"), **VALUES}
        for slot in (*range(15, 19), *range(22, 25), 44, 45)
    },
}


def check_fields(fields: list[pa.Field], expected: dict[str, Any], where: str) -> set[str]:
    """Every field is one of the expected, and as expected; returns what was there."""
    found = set()
    for field in fields:
        name = f"{where}.{field.name}"
        wanted = expected[field.name]
        found.add(name)
        if isinstance(wanted, dict):
            found |= check_fields(list(field.type), wanted, name)
            continue
        type_, marks = wanted
        actual = field.type
        if types.is_dictionary(actual):
            allowed = {"d": (pa.uint8(), U16), "D": (U16,)}.get(marks[-1:], ())
            assert actual.index_type in allowed, name
            actual = actual.value_type
        assert actual == type_, name
        if "*" in marks:
            assert not field.nullable, name
    return found


def names_of(expected: dict[str, Any], where: str) -> set[str]:
    """All columns, also those within others."""
    inner = [
        names_of(wanted, f"{where}.{name}")
        for name, wanted in expected.items()
        if isinstance(wanted, dict)
    ]
    return {f"{where}.{name}" for name in expected}.union(*inner)


@pytest.mark.parametrize("signal", Signal, ids=lambda signal: signal.value)
def test_every_column_is_as_otap_has_it(signal: Signal) -> None:
    """Requests with everything in them have every column of every table of their signal."""
    found: set[str] = set()
    bundle = bundle_of(signal, *(full_request(signal, seed) for seed in range(60)))
    for slot, batch in bundle.slots.items():
        if slot in TABLES:
            found |= check_fields(list(batch.schema), TABLES[slot], OTAP.name(slot))
    present = [slot for slot in bundle if slot in TABLES]
    assert found == set().union(*(names_of(TABLES[slot], OTAP.name(slot)) for slot in present))


def test_every_table_of_otap_is_made() -> None:
    """None of the three signals leaves one out, but for metrics of several values."""
    made = {
        slot
        for signal in Signal
        for slot in bundle_of(signal, *(full_request(signal, seed) for seed in range(20)))
    }
    raw = {slots.RAW_LOGS, slots.RAW_METRICS, slots.RAW_TRACES}
    assert made >= set(OTAP.names) - raw - {slots.MULTIVARIATE_METRICS}


@pytest.mark.parametrize(
    ("signal", "columns"),
    [
        (
            Signal.TRACES,
            {
                "id",
                "resource",
                "scope",
                "start_time_unix_nano",
                "duration_time_unix_nano",
                "trace_id",
                "span_id",
                "name",
            },
        ),
        (Signal.LOGS, {"id", "resource", "scope"}),
        (Signal.METRICS, {"id", "resource", "scope", "metric_type", "name"}),
    ],
)
def test_columns_without_a_value_are_left_out(signal: Signal, columns: set[str]) -> None:
    """A record without anything has the required columns, and the numbers of what holds it."""
    request: Any = signal.request_class()
    outer, inner, records = signal.field_names
    scope = getattr(getattr(request, outer).add(), inner).add()
    getattr(scope, records).add()
    bundle = bundle_of(signal, request)
    assert set(bundle[signal.root_slot].schema.names) == columns
    assert [field.name for field in bundle[signal.root_slot].schema.field("scope").type] == ["id"]


def test_values_that_are_not_set_are_null() -> None:
    """Never a default that nobody sent."""
    request: Any = Signal.TRACES.request_class()
    spans = request.resource_spans.add().scope_spans.add().spans
    spans.add(trace_id=bytes(range(16)), span_id=b"12345678", kind=3, trace_state="a=b")
    spans.add(trace_id=bytes(range(16)), span_id=b"12345679", parent_span_id=b"12345678", flags=1)
    first, second = rows(bundle_of(Signal.TRACES, request), slots.SPANS)
    assert [first[name] for name in ("kind", "trace_state", "parent_span_id", "flags")] == [
        3,
        "a=b",
        None,
        None,
    ]
    assert [second[name] for name in ("kind", "trace_state", "parent_span_id", "flags")] == [
        None,
        None,
        b"12345678",
        1,
    ]


def test_times_keep_their_nanoseconds() -> None:
    """A span's end is its start and its duration."""
    request: Any = Signal.TRACES.request_class()
    request.resource_spans.add().scope_spans.add().spans.add(
        start_time_unix_nano=1_700_000_000_123_456_789, end_time_unix_nano=1_700_000_001_123_456_790
    )
    [span] = rows(bundle_of(Signal.TRACES, request), slots.SPANS)
    assert span["start_time_unix_nano"] == 1_700_000_000_123_456_789
    assert span["duration_time_unix_nano"] == 1_000_000_001


def test_a_log_without_a_time_has_none() -> None:
    """1970 would be the earliest event of its segment."""
    request: Any = Signal.LOGS.request_class()
    records = request.resource_logs.add().scope_logs.add().log_records
    records.add(observed_time_unix_nano=5)
    records.add(time_unix_nano=7)
    first, second = rows(bundle_of(Signal.LOGS, request), slots.LOGS)
    assert (first["time_unix_nano"], first["observed_time_unix_nano"]) == (None, 5)
    assert (second["time_unix_nano"], second["observed_time_unix_nano"]) == (7, None)


def test_each_kind_of_value_has_its_code_and_column() -> None:
    """0 empty, 1 str, 2 int, 3 double, 4 bool, 5 map, 6 slice, 7 bytes."""
    request: Any = Signal.LOGS.request_class()
    attributes = request.resource_logs.add().scope_logs.add().log_records.add().attributes
    attributes.add(key="empty").value.SetInParent()
    attributes.add(key="str").value.string_value = ""
    attributes.add(key="int").value.int_value = 0
    attributes.add(key="double").value.double_value = 0.0
    attributes.add(key="bool").value.bool_value = False
    attributes.add(key="map").value.kvlist_value.values.add(key="k").value.int_value = 1
    attributes.add(key="slice").value.array_value.values.add().int_value = 1
    attributes.add(key="bytes").value.bytes_value = b""
    attributes.add(key="absent")
    found = rows(bundle_of(Signal.LOGS, request), slots.LOG_ATTRS)
    held = [
        (row["type"], *(name for name in VALUES if name != "type" and row[name] is not None))
        for row in found
    ]
    assert held == [
        (0,),
        (1, "str"),
        (2, "int"),
        (3, "double"),
        (4, "bool"),
        (5, "ser"),
        (6, "ser"),
        (7, "bytes"),
        (0, "ser"),
    ]
    assert [row["ser"] for row in found if row["ser"] is not None] == [
        b"\xa1\x61k\x01",
        b"\x81\x01",
        b"\xf7",
    ]


@pytest.mark.parametrize(
    ("field", "code"),
    [
        ("gauge", 1),
        ("sum", 2),
        ("histogram", 3),
        ("exponential_histogram", 4),
        ("summary", 5),
        (None, 0),
    ],
)
def test_each_kind_of_metric_has_its_code(field: str | None, code: int) -> None:
    """Also one that has no points, and one that is of no kind."""
    request: Any = Signal.METRICS.request_class()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add()
    if field is not None:
        getattr(metric, field).SetInParent()
    [row] = rows(bundle_of(Signal.METRICS, request), slots.UNIVARIATE_METRICS)
    assert row["metric_type"] == code


def test_keys_have_a_dictionary_and_unique_values_none() -> None:
    """A dictionary of values that do not repeat would only take more space."""
    request: Any = Signal.LOGS.request_class()
    records = request.resource_logs.add().scope_logs.add().log_records
    for number in range(100):
        records.add().attributes.add(key="request.id").value.string_value = str(number)
    schema = bundle_of(Signal.LOGS, request)[slots.LOG_ATTRS].schema
    assert types.is_dictionary(schema.field("key").type)
    assert schema.field("str").type == TEXT
    for record in records:
        record.attributes[0].value.string_value = "always"
    assert types.is_dictionary(
        bundle_of(Signal.LOGS, request)[slots.LOG_ATTRS].schema.field("str").type
    )


def test_more_keys_than_a_dictionary_can_number_are_stored_plain() -> None:
    """u16 is the widest index that OTAP has."""
    request: Any = Signal.LOGS.request_class()
    attributes = request.resource_logs.add().scope_logs.add().log_records.add().attributes
    for number in range(65_536):
        attributes.add(key=str(number))
    batch = bundle_of(Signal.LOGS, request)[slots.LOG_ATTRS]
    assert batch.schema.field("key").type == TEXT


def test_items_are_what_users_count() -> None:
    """Data points, not metrics."""
    request: Any = Signal.METRICS.request_class()
    metrics = request.resource_metrics.add().scope_metrics.add().metrics
    metrics.add().gauge.data_points.add()
    for _ in range(3):
        metrics.add().summary.data_points.add()
    metrics.add()
    assert bundle_of(Signal.METRICS, request).items == 4
    assert bundle_of(Signal.LOGS, full_request(Signal.LOGS)).items == sum(
        len(scope.log_records)
        for resource in full_request(Signal.LOGS).resource_logs
        for scope in resource.scope_logs
    )
