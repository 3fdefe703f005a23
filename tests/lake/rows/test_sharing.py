"""Rows with shared strings are the rows: in memory, in their hashes, and in files."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.lake.hashing import hash_columns
from penstock.lake.rows import row_batches
from penstock.lake.schemas import SHARING, TABLES, table_of
from penstock.otel import Signal
from tests.lake.rows.comparable import ORIGIN
from tests.otel.samples import bundle_of, full_request

SIGNALS = pytest.mark.parametrize("signal", Signal, ids=lambda signal: signal.value)


def both_ways(signal: Signal) -> tuple[pa.Table, pa.Table]:
    """Several batches of each."""
    bundles = [
        (bundle_of(signal, full_request(signal, seed, share=1.0)), ORIGIN.after(seed))
        for seed in range(4)
    ]
    found = []
    for schema in (TABLES[table_of(signal)], SHARING[table_of(signal)]):
        batches = [batch for each in bundles for batch in row_batches([each], signal, schema)]
        found.append(pa.Table.from_batches(batches, schema))
    return found[0], found[1]


def assert_same(rows: pa.Table, others: pa.Table) -> None:
    """Not by `equals`, for which a number that is none differs from itself."""
    assert repr(rows.to_pylist()) == repr(others.to_pylist())


@SIGNALS
def test_shared_strings_are_the_same_strings(signal: Signal) -> None:
    """Every value of every column, at every depth."""
    plain, shared = both_ways(signal)
    assert plain.num_rows
    assert_same(shared.cast(plain.schema), plain)


@SIGNALS
def test_rows_have_the_same_hashes(signal: Signal) -> None:
    """So that what was written the one way is recognised the other way."""
    plain, shared = (
        hash_columns([column.combine_chunks() for column in rows.itercolumns()])
        for rows in both_ways(signal)
    )
    assert np.array_equal(plain, shared)


@SIGNALS
def test_files_do_not_tell_whether_strings_were_shared(signal: Signal) -> None:
    """Also in an order of their own, and without some of the rows."""
    plain, shared = both_ways(signal)
    some = pa.array(range(plain.num_rows - 1, 0, -2))
    file = BytesIO()
    with pq.ParquetWriter(file, shared.schema, store_schema=False) as writer:
        writer.write_table(shared.combine_chunks().take(some))
    file.seek(0)
    assert_same(pq.read_table(file).cast(plain.schema), plain.take(some))
