"""The cold tier as DuckDB reads it: the lake's files, and of shared ones only the caller's rows.

A file whose rows all belong to one namespace is the caller's or not. DuckDB may try a statement's
conditions on a row before those of a view, and an error would tell of it; so rows of files that
several namespaces share pass through Arrow, which leaves out the others' before DuckDB sees them.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.reader import opened_here, without_numbers
from penstock.query.files import listed, without_rows
from penstock.query.quoting import identifier

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow.dataset as ds
    from duckdb import DuckDBPyConnection

    from penstock.lake.glance import ColdFile


def cold_sources(
    connection: DuckDBPyConnection,
    table: str,
    files: Sequence[ColdFile],
    namespaces: frozenset[str] | None,
    doubles: Mapping[str, Collection[int]] = MappingProxyType({}),
) -> list[str]:
    """What to select from for the rows of some files that belong to some namespaces.

    Without the rows that are `doubles`, by file.
    """
    whole, shared = divided(files, namespaces)
    clean = [file for file in whole if file.path not in doubles]
    sources = [without_rows(file, doubles[file.path]) for file in whole if file.path in doubles]
    if clean:
        sources.append(listed(clean))
    if shared and namespaces is not None:
        name = f"shared files of {table}"  # no name that a statement could have
        belong = pc.field("namespace").isin(pa.array(sorted(namespaces), pa.string()))
        connection.register(name, _dataset(shared, doubles).filter(belong))
        sources.append(identifier(name))
    return sources


def _dataset(files: Sequence[ColdFile], doubles: Mapping[str, Collection[int]]) -> ds.Dataset:
    """The files; those that are not simply all of their rows are read at once: they are few."""
    import pyarrow.dataset as ds  # it imports pandas, which takes longer than most queries

    clean = [file for file in files if _is_whole(file) and file.path not in doubles]
    others = [file for file in files if file not in clean]
    parts = [ds.dataset(_rows(file, doubles.get(file.path, ()))) for file in others]
    if clean:
        paths = [file.path for file in clean]
        parts.append(ds.dataset(paths, format="parquet", partitioning=None))
    return ds.dataset(parts) if len(parts) > 1 else parts[0]


def _is_whole(file: ColdFile) -> bool:
    return file.deletes is None and file.columns is None


def _rows(file: ColdFile, doubles: Collection[int]) -> pa.Table:
    with opened_here(file) as data:
        columns = data.held if file.columns is None else file.columns.schema
        unwanted = np.union1d(np.array(sorted(doubles), np.int64), data.deleted)
        batches = data.batches(columns, max(data.footer.num_rows, 1))
        return without_numbers(pa.Table.from_batches(batches, columns), unwanted)


def divided(
    files: Sequence[ColdFile], namespaces: frozenset[str] | None
) -> tuple[list[ColdFile], list[ColdFile]]:
    """Files that the caller may see all of, and those that may have others' rows."""
    if namespaces is None:
        return list(files), []
    whole = [file for file in files if file.namespace in namespaces]
    return whole, [file for file in files if file.namespace is None]
