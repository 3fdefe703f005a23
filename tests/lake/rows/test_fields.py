"""Numbers and times keep what fits, and what was not sent is null."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from penstock.lake.rows import rows_of
from penstock.lake.rows.fields import Fields, days, micros, named
from penstock.otel import Signal
from tests.lake.rows.comparable import ORIGIN, row_of
from tests.lake.rows.samples import only_span, span_request
from tests.otel.samples import bundle_of

FAR_NS = 2**64 - 1
DAY_NS = 86_400 * 10**9


def test_times_are_in_microseconds_and_days_in_utc() -> None:
    """The last nanosecond of a day is on that day."""
    bits = pa.array([DAY_NS - 1, DAY_NS, 0, None], pa.uint64())
    times = micros(bits)
    assert times.type == pa.timestamp("us", "UTC")
    assert times.to_pylist()[0] == datetime(1970, 1, 1, 23, 59, 59, 999_999, UTC)
    assert days(times).to_pylist() == [date(1970, 1, 1), date(1970, 1, 2), None, None]


def test_a_far_time_keeps_its_microseconds() -> None:
    """No int64 has so many nanoseconds, but `time` and `date` have it."""
    request = span_request()
    only_span(request).start_time_unix_nano = FAR_NS
    rows = rows_of(bundle_of(Signal.TRACES, request), Signal.TRACES, ORIGIN)
    assert rows["start_time_unix_nano"].to_pylist() == [None]
    assert rows["time"].cast(pa.int64()).to_pylist() == [FAR_NS // 1000]
    assert rows["date"].to_pylist()[0].year == 2554


@pytest.mark.parametrize(
    ("start", "end", "duration"),
    [
        (1000, 1500, 500),
        (1500, 1000, -500),
        (0, 1000, None),
        (1000, 0, None),
        (1, 2**63, 2**63 - 1),
        (1, 2**63 + 1, None),
        (FAR_NS, FAR_NS - 9, -9),
        (FAR_NS, 1, None),
    ],
)
def test_a_duration_is_exact_or_null(start: int, end: int, duration: int | None) -> None:
    """Null where a time was not sent, or the difference is over int64."""
    request = span_request()
    only_span(request).start_time_unix_nano = start
    only_span(request).end_time_unix_nano = end
    assert row_of(Signal.TRACES, request)["duration_ns"] == duration


def test_counts_over_int64_are_null() -> None:
    """And those beside them are kept."""
    request: Any = Signal.METRICS.request_class()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    point = metric.histogram.data_points.add(count=2**63)
    point.bucket_counts.extend([2**63 - 1, 2**64 - 1, 0])
    histogram = row_of(Signal.METRICS, request)["histogram"]
    assert histogram["count"] is None
    assert histogram["bucket_counts"] == [2**63 - 1, None, 0]


def test_what_was_not_sent_is_null() -> None:
    """A span that has nothing but its ids invents nothing."""
    row = row_of(Signal.TRACES, span_request())
    kept = {
        "trace_id",
        "span_id",
        "name",
        "_source",
        "_topic",
        "_topic_partition",
        "_offset",
        "namespace",
    }
    assert {name for name, value in row.items() if value is not None} == kept


def test_a_status_without_a_code_is_unset() -> None:
    """It was sent, unlike that of a span without a status."""
    request = span_request()
    only_span(request).status.message = "?"
    row = row_of(Signal.TRACES, request)
    assert (row["status_code"], row["status_message"]) == ("STATUS_CODE_UNSET", "?")


def test_unknown_numbers_of_enums_are_text() -> None:
    """A newer client may know more of them."""
    found = named(pa.array([1, 7, -1, None], pa.int32()), {1: "ONE"})
    assert found.dictionary_decode().to_pylist() == ["ONE", "7", "-1", None]


def test_a_log_without_a_time_has_the_observed_one() -> None:
    """In `time` and `date`; `time_unix_nano` is what was sent."""
    request: Any = Signal.LOGS.request_class()
    record = request.resource_logs.add().scope_logs.add().log_records.add()
    record.observed_time_unix_nano = DAY_NS + 5000
    row = row_of(Signal.LOGS, request)
    assert (row["time"], row["observed_time"], row["date"]) == (86_400_000_005, 86_400_000_005, 1)
    assert row["time_unix_nano"] is None


def test_a_missing_column_is_null() -> None:
    """Of whatever type it would be."""
    fields = Fields({"nothing": pa.nulls(2)}, 2)
    for name in ("nothing", "missing"):
        columns = [fields.text(name), fields.nanos(name), fields.unsigned(name)]
        columns += [fields.positive(name), fields.plain(name, pa.bool_()), fields.bits(name)]
        assert [column.null_count for column in columns] == [2] * 6
