"""What an answer may cost, and how it is told what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.model.errors import InvalidArgument, QueryTooLarge, QueryTooSlow
from penstock.query.engine import QueryLimits
from tests.query.helpers import answer, values

if TYPE_CHECKING:
    from tests.pipeline.helpers import Data


def test_mistake_is_told_in_one_line(data: Data) -> None:
    """With the names that would have been right."""
    with pytest.raises(InvalidArgument, match="servicename") as raised:
        answer(data, "SELECT servicename FROM spans")
    assert "\n" not in str(raised.value)
    assert "service_name" in str(raised.value)


def test_answer_has_at_most_the_rows_it_may(data: Data) -> None:
    """One more is an error, and not an answer that lacks some."""
    sql = "SELECT * FROM range({})"
    limits = QueryLimits(rows=1000)
    assert len(values(data, sql.format(1000), limits=limits)) == 1000
    with pytest.raises(QueryTooLarge, match="more than 1000 rows"):
        answer(data, sql.format(1001), limits=limits)


def test_answer_has_at_most_the_bytes_it_may(data: Data) -> None:
    """Few rows can be large."""
    with pytest.raises(QueryTooLarge, match="more than 10000 bytes"):
        answer(data, "SELECT repeat('x', 20000)", limits=QueryLimits(bytes=10_000))


def test_query_that_takes_too_long_is_stopped(data: Data) -> None:
    """Whatever it is doing."""
    sql = "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b"
    with pytest.raises(QueryTooSlow, match=r"longer than 0\.2 s"):
        answer(data, sql, limits=QueryLimits(seconds=0.2))


def test_query_that_needs_too_much_memory_is_an_error(data: Data) -> None:
    """And not the end of the process."""
    sql = "SELECT list(range::VARCHAR || repeat('x', 1000)) FROM range(1000000)"
    with pytest.raises((QueryTooLarge, InvalidArgument)):
        answer(data, sql, limits=QueryLimits(memory_bytes=20_000_000, seconds=60))


def test_rollup_that_was_never_made_says_how(data: Data) -> None:
    """The table is promised, so its absence is explained."""
    with pytest.raises(InvalidArgument, match="penstock pipeline rollup"):
        answer(data, "SELECT * FROM service_red_1m")


def test_columns_of_one_name_are_told_apart(data: Data) -> None:
    """None of them is lost, in any format."""
    found = answer(data, "SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS b, 5 AS a").rows
    assert found.column_names == ["a", "a_2", "a_1", "b", "a_3"]
    assert found.to_pylist() == [{"a": 1, "a_2": 2, "a_1": 3, "b": 4, "a_3": 5}]
