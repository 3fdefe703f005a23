"""A span that is in two files of the lake counts once."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.lake.files import live_files
from penstock.lake.replace import take_out
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
from penstock.model import Topic
from penstock.otel import Signal
from penstock.tiers.cut import Tier
from tests.pipeline.flush.helpers import Plain, lake_files, lake_rows
from tests.pipeline.helpers import MORNING_NS, Data, spans
from tests.query.helpers import answer, named, names, values, warm

FORGETFUL = {"repeat_window_s": 0.0}
"""A pipeline that compares nothing with what it wrote before."""


def twice(data: Data, *requests: bytes, **where: Any) -> None:
    """Commits requests as a pipeline does that has forgotten them."""
    warm(data, *requests, **where)
    Plain(data, **FORGETFUL).run()


def test_span_in_two_files_counts_once(data: Data) -> None:
    """However often it was sent; the lake has it as often."""
    twice(data, spans(1, 2))
    twice(data, spans(2, 3))
    twice(data, spans(1, 4))
    assert lake_rows(data, "spans").num_rows == 6
    assert names(data) == named([1, 2, 3, 4])
    assert values(data, "SELECT count(*), count(DISTINCT span_id) FROM spans") == [(4, 4)]
    assert names(data, tiers={Tier.COLD}) == named([1, 2, 3, 4])


def test_one_trace_has_each_span_once(data: Data) -> None:
    """Also when only the files that have it are read."""
    twice(data, spans(1, 2))
    twice(data, spans(2, 3))
    for trace, count in values(data, "SELECT trace_id, count(*) FROM spans GROUP BY ALL"):
        found = values(data, f"FROM spans SELECT count(*) WHERE trace_id = '{trace}'")
        assert found == [(count,)] == [(1,)]


def test_fresh_copy_of_what_the_lake_has_twice_is_left_out(data: Data) -> None:
    """Three copies are one span."""
    twice(data, spans(1))
    twice(data, spans(1))
    warm(data, spans(1, 5))
    assert names(data) == named([1, 5])


def test_equal_span_ids_in_two_traces_are_kept_in_the_lake(data: Data) -> None:
    """An id belongs to its trace."""
    request: Any = Signal.TRACES.request_class.FromString(spans(1))
    [span] = request.resource_spans[0].scope_spans[0].spans
    span.trace_id = bytes(15) + b"\1"
    twice(data, spans(1))
    twice(data, request.SerializeToString())
    assert names(data) == named([1, 1])


def test_equal_spans_of_two_namespaces_are_kept(data: Data) -> None:
    """Tenants know nothing of each other."""
    twice(data, spans(1), topic=Topic("a", "traces"))
    twice(data, spans(1), topic=Topic("b", "traces"))
    assert names(data) == named([1, 1])


@pytest.mark.parametrize("namespaces", [None, {"a"}, {"a", "b"}])
def test_files_that_namespaces_share_have_each_span_once(
    data: Data, namespaces: set[str] | None
) -> None:
    """What a caller sees of them."""
    a, b = Topic("a", "traces"), Topic("b", "traces")
    for _ in range(2):
        warm(data, spans(1, 2), topic=a)
        twice(data, spans(1, 2), topic=b)
    count = 2 if namespaces == {"a"} else 4
    assert len(names(data, namespaces=namespaces)) == count


def test_later_file_is_compared_when_it_comes(data: Data) -> None:
    """What is remembered of files does not hide new ones."""
    twice(data, spans(1, 2))
    assert names(data) == named([1, 2])
    twice(data, spans(2, 3))
    assert names(data) == named([1, 2, 3])
    twice(data, spans(3, 4))
    assert names(data) == named([1, 2, 3, 4])


def test_copy_that_a_replacement_kept_counts(data: Data) -> None:
    """Compaction may keep the later one of two, where the earlier one was left out before."""
    twice(data, spans(1))
    twice(data, spans(1, 2))
    assert names(data) == named([1, 2])
    first = next(file for file in _live(data) if file.rows == 1)
    with Lake.open(LakeSettings.of(data.root)) as lake:
        take_out(lake.table("spans"), [first], operation="compact")
    assert names(data) == named([1, 2])


def _live(data: Data) -> list[Any]:
    with Lake.open(LakeSettings.of(data.root)) as lake:
        return list(live_files(lake.table("spans")))


def test_late_row_makes_no_other_row_a_double(data: Data) -> None:
    """A file with one old span overlaps every file since."""
    for number in range(1, 6):
        twice(data, spans(number, start_ns=MORNING_NS + number * 60_000_000_000))
    twice(data, spans(7, 9, start_ns=MORNING_NS - 8 * 3_600_000_000_000))
    assert names(data) == named([*range(1, 6), 7, 9])
    assert len(lake_files(data, "spans")) == 6
    assert answer(data, "FROM spans").warnings == []
