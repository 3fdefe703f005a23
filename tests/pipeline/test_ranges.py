"""What a segment says of the values in it."""

from __future__ import annotations

import datetime as dt

from penstock.pipeline.ranges import origin_ranges, time_ranges
from penstock.tiers.segments import DirectorySegments
from tests.pipeline.helpers import DAY_NS, LOGS, METRICS, Data, spans
from tests.pipeline.listing import damaged, segment
from tests.server import samples

MORNING = dt.datetime(2026, 1, 1, 8, tzinfo=dt.UTC)


def ranges(data: Data, table: str) -> dict[str, tuple[object, object]]:
    """Of the times in its only segment."""
    segments = DirectorySegments(data.root)
    [only] = segments.since({})
    return time_ranges(segments.open(only), table)


def test_origin_of_rows_is_known_from_the_listing() -> None:
    """Of a damaged segment all but its offsets."""
    assert origin_ranges(segment(4)) == {
        "_source": ("here", "here"),
        "_topic": ("/default/traces", "/default/traces"),
        "_topic_partition": (0, 0),
        "namespace": ("default", "default"),
        "_offset": (40, 49),
    }
    assert "_offset" not in origin_ranges(damaged(4))


def test_times_of_spans_lie_between_the_earliest_and_the_latest_start(data: Data) -> None:
    """Over all bundles, in UTC."""
    data.seal([spans(3), spans(1), spans(20)])
    assert ranges(data, "spans") == {
        "time": (MORNING + dt.timedelta(hours=1), MORNING + dt.timedelta(hours=20)),
        "date": (dt.date(2026, 1, 1), dt.date(2026, 1, 2)),
    }


def test_times_that_arrow_takes_for_negative_are_no_range(data: Data) -> None:
    """Nanoseconds from the year 2262 on do not fit into its timestamps."""
    data.seal([spans(1, start_ns=2**63 + DAY_NS), spans(1)])
    assert ranges(data, "spans") == {}


def test_logs_have_no_range(data: Data) -> None:
    """A record without a time is put where it was observed, of which segments say nothing."""
    data.seal([samples.logs("hello")], topic=LOGS)
    assert ranges(data, "logs") == {}


def test_points_without_a_time_are_not_after_anything(data: Data) -> None:
    """OTLP's zero is no time, and no filter on time chooses it."""
    data.seal([samples.metrics("load")], topic=METRICS)
    assert set(ranges(data, "metrics")) <= {"time", "date"}
