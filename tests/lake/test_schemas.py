"""The columns of the lake's tables are those that are promised."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyarrow import types

from penstock.lake.schemas import LOGS, METRICS, SPANS, TABLES, signal_of, table_of
from penstock.model.errors import InvalidArgument
from penstock.otel import Signal
from penstock.pipeline.jobs.schemas import SHAPES

END = "resource instrumentation_scope resource_schema_url scope_schema_url"
END += " _source _topic _topic_partition _offset"


def test_spans_have_the_promised_columns() -> None:
    """In this order."""
    columns = "time date namespace service_name trace_id span_id parent_span_id trace_state flags"
    columns += " name kind start_time_unix_nano end_time_unix_nano duration_ns status_code"
    columns += " status_message attributes attribute_types events links dropped_attributes_count"
    columns += f" dropped_events_count dropped_links_count {END}"
    assert SPANS.names == columns.split()


def test_logs_have_the_promised_columns() -> None:
    """In this order."""
    columns = "time observed_time date namespace service_name trace_id span_id flags"
    columns += " time_unix_nano observed_time_unix_nano severity_number severity_text body"
    columns += f" body_type event_name attributes attribute_types dropped_attributes_count {END}"
    assert LOGS.names == columns.split()


def test_metrics_have_the_promised_columns() -> None:
    """In this order."""
    columns = "time date namespace service_name name description unit type time_unix_nano"
    columns += " start_time_unix_nano value_int value_double is_monotonic"
    columns += " aggregation_temporality histogram exp_histogram summary exemplars attributes"
    columns += f" attribute_types flags {END}"
    assert METRICS.names == columns.split()


def leaves(type_: pa.DataType) -> Iterator[pa.DataType]:
    """The types within lists, structs and maps."""
    if types.is_map(type_):
        yield from (type_.key_type, type_.item_type)
    elif types.is_list(type_):
        yield from leaves(type_.value_type)
    elif types.is_struct(type_):
        for field in type_:
            yield from leaves(field.type)
    else:
        yield type_


@pytest.mark.parametrize("name", TABLES)
def test_every_reader_takes_the_types(name: str) -> None:
    """No unsigned numbers, nanoseconds, dictionaries, or strings with long offsets."""
    taken = {pa.string(), pa.bool_(), pa.int32(), pa.int64(), pa.float64(), pa.date32()}
    taken.add(pa.timestamp("us", "UTC"))
    found = {leaf for field in TABLES[name] for leaf in leaves(field.type)}
    assert found <= taken
    assert all(field.nullable for field in TABLES[name])


def test_tables_and_signals_name_each_other() -> None:
    """Spans are what traces are made of."""
    assert [table_of(signal) for signal in Signal] == list(TABLES)
    assert [signal_of(name) for name in TABLES] == list(Signal)


def test_an_unknown_table_is_refused() -> None:
    """The message says which there are."""
    with pytest.raises(InvalidArgument, match="no table 'traces'; it has spans, logs, metrics"):
        signal_of("traces")


RESERVED = """
    _file _pos _deleted _spec_id _partition _row_id _last_updated_sequence_number _change_type
    _change_ordinal _commit_snapshot_id
"""
"""Names that Iceberg keeps for itself: its library refuses to write to a table that has one."""


@pytest.mark.parametrize("schema", [*TABLES.values(), *(each.schema for each in SHAPES.values())])
def test_no_column_has_a_name_that_iceberg_keeps_for_itself(schema: pa.Schema) -> None:
    """Else nobody could write to the table with Iceberg's own library."""
    assert set(schema.names).isdisjoint(RESERVED.split())
