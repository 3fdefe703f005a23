"""Which rows are the same, and which of them stays."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.lake.identity import identities, repeated
from penstock.lake.schemas import TABLES

Row = dict[str, Any]


def rows_of(table: str, *rows: Row) -> pa.Table:
    """A table of these, each row in a chunk of its own."""
    schema = TABLES[table]
    return pa.concat_tables([pa.Table.from_pylist([row], schema=schema) for row in rows])


def span(trace: int = 1, span: int = 1, **columns: Any) -> Row:
    """A span with these ids."""
    ids = {"trace_id": f"{trace:032x}", "span_id": f"{span:016x}"}
    return {
        "namespace": "default",
        "_topic": "/default/traces",
        "_topic_partition": 0,
        **ids,
        **columns,
    }


def log(offset: int = 0, **columns: Any) -> Row:
    """A log record of the message at that offset."""
    place = {"_topic": "/default/logs", "_topic_partition": 0, "_offset": offset}
    return {"namespace": "default", "body": "disk full", "attributes": [("a", "1")], **place} | (
        columns
    )


def kept(table: str, *rows: Row) -> list[int]:
    """The numbers of those rows that stay."""
    found = rows_of(table, *rows)
    again = repeated(table, found, identities(table, found))
    return [number for number, out in enumerate(again) if not out]


def test_first_of_equal_spans_stays() -> None:
    """Whatever else they say: a span is its ids."""
    rows = span(1, 1), span(1, 2), span(1, 1, name="sent again", _offset=7), span(1, 2), span(1, 3)
    assert kept("spans", *rows) == [0, 1, 4]


def test_spans_of_other_traces_and_namespaces_are_kept() -> None:
    """A span id alone says nothing; tenants may have the same traces."""
    rows = span(1, 1), span(2, 1), span(1, 1, namespace="acme"), span(2, 1, namespace="acme")
    assert kept("spans", *rows) == [0, 1, 2, 3]


def test_span_sent_to_another_partition_is_the_same() -> None:
    """A client that retries may reach another worker."""
    assert kept("spans", span(1, 1), span(1, 1, _topic_partition=3, _offset=70)) == [0]


@pytest.mark.parametrize(
    "ids",
    [
        {"trace_id": None},
        {"span_id": None},
        {"trace_id": None, "span_id": None},
        {"trace_id": "0" * 32},
        {"span_id": "0" * 16},
    ],
)
def test_spans_without_ids_are_not_taken_for_each_other(ids: Row) -> None:
    """They are known by what they say, as log records are."""
    sent = [("a", 1), ("b", 1), ("a", 1), ("b", 2), ("c", 2), ("c", 3)]
    rows = [span(name=name, _offset=offset, **ids) for name, offset in sent]
    assert kept("spans", *rows) == [0, 1, 2, 4]


@pytest.mark.parametrize("table", ["logs", "metrics"])
def test_equal_records_of_one_message_all_stay(table: str) -> None:
    """Something may well happen twice in the same way."""
    row = log(5, time_unix_nano=10) if table == "logs" else point(5)
    assert kept(table, row, row, row) == [0, 1, 2]


@pytest.mark.parametrize("table", ["logs", "metrics"])
def test_equal_records_of_two_messages_are_one(table: str) -> None:
    """The second message is the first, sent again; those of the first all stay."""
    row = log if table == "logs" else point
    assert kept(table, row(5), row(5), row(6), row(5), row(6), row(7)) == [0, 1, 3]


def point(offset: int = 0, **columns: Any) -> Row:
    """A data point of the message at that offset."""
    place = {"_topic": "/default/metrics", "_topic_partition": 0, "_offset": offset}
    return {"name": "load", "value_double": 0.5, "time_unix_nano": 10, **place, **columns}


@pytest.mark.parametrize(
    "change",
    [
        {"body": "disk fuller"},
        {"attributes": [("a", "2")]},
        {"attributes": None},
        {"attribute_types": [("a", "int")]},
        {"time_unix_nano": 11},
        {"resource": {"attributes": [("service.name", "shop")]}},
        {"namespace": "acme"},
        {"trace_id": "0" * 32},
        {"severity_number": 9},
    ],
)
def test_records_that_differ_in_anything_all_stay(change: Row) -> None:
    """Nanoseconds, resources, types of values and namespaces too."""
    assert kept("logs", log(1), log(2, **change)) == [0, 1]


def test_histograms_that_differ_in_a_bucket_all_stay() -> None:
    """What is nested counts."""
    histogram = {"count": 3, "sum": 1.0, "bucket_counts": [1, 2], "explicit_bounds": [0.5]}
    other = {**histogram, "bucket_counts": [2, 1]}
    assert kept("metrics", point(1, histogram=histogram), point(2, histogram=other)) == [0, 1]
    assert kept("metrics", point(1, histogram=histogram), point(2, histogram=histogram)) == [0]


def test_where_a_row_came_from_is_no_part_of_it() -> None:
    """Or nothing would ever be the same."""
    other = {"_topic": "/default/logs2", "_topic_partition": 9, "_offset": 123}
    keys = identities("logs", rows_of("logs", log(1), log(1, **other)))
    assert (keys[0] == keys[1]).all()


@pytest.mark.parametrize("table", TABLES)
def test_identity_does_not_depend_on_the_order_of_columns(table: str) -> None:
    """A file of a table that has grown has more columns, and others first."""
    rows = rows_of(table, {"spans": span(trace_id=None), "logs": log(), "metrics": point()}[table])
    turned = rows.select(rows.column_names[::-1]).append_column("new", pa.array([1]))
    assert identities(table, turned).tolist() == identities(table, rows).tolist()


@pytest.mark.parametrize("table", TABLES)
def test_no_rows_have_no_identities(table: str) -> None:
    """A piece may be empty when everything in it was sent before."""
    for rows in (TABLES[table].empty_table(), pa.Table.from_batches([], TABLES[table])):
        keys = identities(table, rows)
        assert keys.shape == (0, 2)
        assert repeated(table, rows, keys).tolist() == []
