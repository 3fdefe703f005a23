"""Filters decide as Spark does, on rows and on the ranges of segments."""

from __future__ import annotations

import datetime as dt
import operator
import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from penstock.pipeline.filters import Predicate

DAY = dt.date(2026, 1, 1)
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
SCHEMA = pa.schema(
    [
        ("n", pa.int32()),
        ("s", pa.string()),
        ("time", pa.timestamp("us", "UTC")),
        ("date", pa.date32()),
        ("f", pa.float64()),
        ("struct", pa.struct([("n", pa.int64())])),
    ]
)
NUMBERS = st.one_of(st.none(), st.integers(-2, 2))
_COMPARISONS: dict[type, Any] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


def decide(each: Any, value: Any) -> bool | None:
    """What SQL says of one value; None is unknown."""
    match each:
        case Not(child):
            inner = decide(child, value)
            return None if inner is None else not inner
        case IsNull():
            return value is None
        case IsNotNull():
            return value is not None
        case EqualNullSafe(_, other):
            return bool(value == other)
    if value is None:
        return None
    if isinstance(each, In):
        return value in each.value
    return bool(_COMPARISONS[type(each)](value, each.value))


PLAIN_FILTERS = st.one_of(
    st.sampled_from([*_COMPARISONS, EqualNullSafe]).flatmap(
        lambda kind: st.integers(-2, 2).map(lambda value: kind(("n",), value))
    ),
    st.lists(st.integers(-2, 2), min_size=1).map(lambda values: In(("n",), values)),
    st.sampled_from([IsNull(("n",)), IsNotNull(("n",))]),
)
FILTERS = st.one_of(PLAIN_FILTERS, PLAIN_FILTERS.map(Not))


@given(st.lists(NUMBERS), st.lists(FILTERS, max_size=3))
def test_rows_are_those_that_sql_chooses(values: list[int | None], filters: list[Filter]) -> None:
    """Nulls included: a row stays only where every filter is true, not unknown."""
    predicate = Predicate(SCHEMA, filters)
    assert len(predicate.taken) == len(filters)
    batch = pa.RecordBatch.from_pylist([{"n": value} for value in values], SCHEMA)
    expected = [v for v in values if all(decide(each, v) is True for each in filters)]
    assert predicate.rows(batch).column("n").to_pylist() == expected


@given(st.lists(st.integers(-2, 2), min_size=1), st.lists(FILTERS, max_size=3))
def test_no_row_is_lost_by_a_range(values: list[int], filters: list[Filter]) -> None:
    """What is left out by its range would have given no row."""
    predicate = Predicate(SCHEMA, filters)
    batch = pa.RecordBatch.from_pylist([{"n": value} for value in values], SCHEMA)
    if not predicate.may_hold({"n": (min(values), max(values))}):
        assert predicate.rows(batch).num_rows == 0


@pytest.mark.parametrize(
    ("each", "may"),
    [
        (EqualTo(("n",), 5), False),
        (EqualTo(("n",), 3), True),
        (In(("n",), [0, 9]), False),
        (In(("n",), [0, 4]), True),
        (GreaterThan(("n",), 4), False),
        (GreaterThanOrEqual(("n",), 4), True),
        (LessThan(("n",), 2), False),
        (LessThanOrEqual(("n",), 2), True),
        (EqualTo(("s",), "x"), True),
        (IsNull(("n",)), True),
    ],
)
def test_ranges_leave_out_what_cannot_match(each: Filter, may: bool) -> None:
    """Here with values from 2 to 4; of other columns nothing is known."""
    assert Predicate(SCHEMA, [each]).may_hold({"n": (2, 4)}) is may


@pytest.mark.parametrize(
    ("each", "expected"),
    [
        (EqualTo(("s",), "b"), ["b"]),
        (StringStartsWith(("s",), "b"), ["b", "bc"]),
        (GreaterThan(("time",), NOON), ["bc"]),
        (EqualTo(("time",), NOON.astimezone(dt.timezone(dt.timedelta(hours=3)))), ["b"]),
        (LessThanOrEqual(("date",), DAY), ["b"]),
    ],
)
def test_text_and_times_are_compared(each: Filter, expected: list[str]) -> None:
    """In whatever zone Spark gives a time."""
    rows = [
        {"s": "b", "time": NOON, "date": DAY},
        {"s": "bc", "time": NOON + dt.timedelta(seconds=1), "date": DAY + dt.timedelta(days=1)},
        {},
    ]
    predicate = Predicate(SCHEMA, [each])
    found = predicate.rows(pa.RecordBatch.from_pylist(rows, SCHEMA))
    assert found.column("s").to_pylist() == expected


@pytest.mark.parametrize(
    "each",
    [
        GreaterThan(("f",), 1.0),
        EqualTo(("struct", "n"), 1),
        IsNotNull(("struct",)),
        EqualTo(("unknown",), 1),
        EqualTo(("n",), "text"),
        EqualTo(("n",), 2**40),
        EqualTo(("n",), None),
        EqualNullSafe(("n",), None),
        In(("n",), [1, None]),
        StringContains(("s",), "b"),
        Not(StringContains(("s",), "b")),
    ],
    ids=repr,
)
def test_what_could_be_decided_differently_is_left_to_spark(each: Filter) -> None:
    """Not a Number, parts of structs, and values that the column cannot hold."""
    assert Predicate(SCHEMA, [each]).taken == ()


def test_predicate_goes_to_the_workers() -> None:
    """By pickling."""
    predicate = pickle.loads(pickle.dumps(Predicate(SCHEMA, [EqualTo(("n",), 1)])))  # noqa: S301
    assert predicate.columns == {"n"}
