"""Names of data files, and what they say."""

from __future__ import annotations

import datetime as dt

import pytest

from penstock.lake.layout import (
    batch_key,
    data_path,
    day_folder,
    key_of,
    may_be_in_flight,
    new_attempt,
    replacement_key,
)
from penstock.model.positions import Reached, SourcePartition
from tests.lake.helpers import SOURCE

TRACES = SourcePartition(SOURCE, "/default/traces", 0)
START = {TRACES: Reached(3, 30)}
END = {TRACES: Reached(4, 40)}
DAY = dt.date(2025, 1, 5)


def test_a_repeated_batch_has_the_same_names() -> None:
    """Whatever the order in which its positions are listed."""
    other = SourcePartition(SOURCE, "/default/traces", 1)
    one = {TRACES: Reached(3, 30), other: Reached(1, 1)}
    same = dict(reversed(one.items()))
    assert batch_key(START, one, 7) == batch_key(START, same, 7)


@pytest.mark.parametrize(
    "key", [batch_key({}, END, 7), batch_key(START, START, 7), batch_key(START, END, 8)]
)
def test_another_batch_or_another_writer_has_other_names(key: str) -> None:
    """A writer that was fenced does not overwrite its successor's files."""
    assert key != batch_key(START, END, 7)


def test_a_replacement_is_named_by_what_it_replaces() -> None:
    """In any order; the same name in another day's folder is another file."""
    assert replacement_key(["/x/a", "/x/b"]) == replacement_key(["/x/b", "/x/a"])
    assert replacement_key(["/x/a"]) != replacement_key(["/y/a"])


def test_rows_have_the_folder_of_their_day() -> None:
    """In the form that engines read as columns."""
    path = data_path("/lake/spans/", DAY, batch_key(START, END, 7), 3, "0123456789ab")
    assert path.startswith("/lake/spans/data/year=2025/month=01/day=05/b00000007-")
    assert path.endswith("-00003-0123456789ab.parquet")


def test_rows_without_a_time_have_the_folder_of_null() -> None:
    """With the name that engines take for it."""
    assert day_folder(None).count("__HIVE_DEFAULT_PARTITION__") == 3


@pytest.mark.parametrize("key", [batch_key(START, END, 10**9), replacement_key(["/x/a"])])
def test_the_name_says_what_the_file_is_for(key: str) -> None:
    """Also with large numbers, and without an attempt, as 0.1 wrote it."""
    assert key_of(data_path("/lake/spans", DAY, key, 123_456, new_attempt())) == key
    assert key_of(f"/lake/spans/data/{key}-00003.parquet") == key


@pytest.mark.parametrize("name", ["part-0.parquet", "b7-0.parquet", "x", "r00-0.parquet"])
def test_names_of_others_say_nothing(name: str) -> None:
    """Files may be there that Penstock did not write."""
    assert key_of(f"/lake/spans/data/{name}") is None


def test_only_a_batch_that_can_still_be_committed_is_in_flight() -> None:
    """Its writer is the newest of its source, and the table is where it began."""
    path = data_path("/lake/spans", DAY, batch_key(START, END, 7), 0, new_attempt())
    others = {TRACES._replace(source="b"): Reached(1, 2)}
    assert may_be_in_flight(path, {**START, **others}, {SOURCE: 7, "b": 9})
    assert may_be_in_flight(path, START, {SOURCE: 6}), "it may have claimed the table since"
    assert not may_be_in_flight(path, START, {SOURCE: 8, "b": 3})
    assert not may_be_in_flight(path, START, {SOURCE: 8, "b": 7})
    assert not may_be_in_flight(path, END, {SOURCE: 7})
    assert not may_be_in_flight("/lake/spans/data/x.parquet", START, {SOURCE: 7})
    replaced = f"/lake/{replacement_key(['/x/a'])}-00000.parquet"
    assert not may_be_in_flight(replaced, START, {})
