"""Which rows of a data file its deletes mean, whatever kind they are: numbers of rows.

An error is Damaged, with the name of the delete file: without it nobody knows which rows count.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.lake.columns import number_of
from penstock.lake.deletes import PATH_ID, POSITION_ID, Content, plain_path, vector_rows
from penstock.model.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from penstock.lake.deletes import DeleteFile, Deletions, Opener, RowNumbers

_NONE: Final = np.zeros(0, np.int64)


def deleted_in(data: pq.ParquetFile, deletes: Deletions, opener: Opener) -> RowNumbers:
    """The rows of the data file that are deleted, rising."""
    found = [_NONE]
    equal: dict[tuple[int, ...], list[pa.Table]] = {}
    for file in deletes.files:
        with _naming(file):
            if file.content is Content.EQUALITY:
                equal.setdefault(file.equality_ids, []).append(_values(file, opener))
            elif file.vector is not None:
                found.append(_of_vector(file, file.vector, opener))
            else:
                found.append(_positions(file, opener, deletes.of))
    found += [_equal_rows(data, numbers, pa.concat_tables(each)) for numbers, each in equal.items()]
    rows = np.unique(np.concatenate(found))
    inside: RowNumbers = rows[rows < data.metadata.num_rows]
    return inside


@contextlib.contextmanager
def _naming(file: DeleteFile) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise Damaged(f"the delete file {file.path} cannot be read: {error}") from error


def _of_vector(file: DeleteFile, place: tuple[int, int], opener: Opener) -> RowNumbers:
    begin, size = place
    with opener(file.path) as stream:
        stream.seek(begin)
        return vector_rows(stream.read(size), file.path)


def _positions(file: DeleteFile, opener: Opener, path: str) -> RowNumbers:
    with opener(file.path) as stream, pq.ParquetFile(stream) as parquet:
        rows = parquet.read()
    paths = _column(rows, PATH_ID).dictionary_encode().combine_chunks()
    names = [plain_path(name) for name in paths.dictionary.to_pylist()]
    if path not in names:
        return _NONE
    chosen = paths.indices.to_numpy() == names.index(path)
    return np.asarray(_column(rows, POSITION_ID).to_numpy()[chosen], np.int64)


# --- rows that are equal to a delete -----------------------------------------------------------


def _values(file: DeleteFile, opener: Opener) -> pa.Table:
    """The values that are deleted, a column for each number."""
    with opener(file.path) as stream, pq.ParquetFile(stream) as parquet:
        rows = parquet.read()
    numbers = file.equality_ids
    return pa.table({str(number): _column(rows, number) for number in numbers})


def _equal_rows(data: pq.ParquetFile, numbers: tuple[int, ...], values: pa.Table) -> RowNumbers:
    """The rows with the values of a delete in all of these columns; null is equal to null."""
    names = [field.name for field in data.schema_arrow if _has(field, numbers)]
    rows = data.read(columns=names)
    count = data.metadata.num_rows
    codes = np.zeros(count + values.num_rows, np.int64)
    for number in numbers:
        deleted = values[str(number)]
        try:
            held = _column(rows, number)
        except KeyError:  # the file is older than the column
            held = pa.chunked_array([pa.nulls(count, deleted.type)])
        # Codes of the columns so far, and of this one, become codes of them together.
        pairs = np.stack([codes, _codes(held, deleted)])
        codes = np.unique(pairs, axis=1, return_inverse=True)[1].reshape(-1)
    return np.flatnonzero(np.isin(codes[:count], codes[count:])).astype(np.int64)


def _codes(held: pa.ChunkedArray, deleted: pa.ChunkedArray) -> RowNumbers:
    """A number for each value of both, the same for the same; in the wider of their types."""
    fields = [pa.schema([("value", each.type)]) for each in (held, deleted)]
    type_ = pa.unify_schemas(fields, promote_options="permissive").field("value").type
    chunks = [*held.cast(type_).chunks, *deleted.cast(type_).chunks]
    encoded = pa.concat_arrays(chunks).dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices.to_numpy(), np.int64)


def _column(rows: pa.Table, number: int) -> pa.ChunkedArray:
    """A column by its number; also one inside of a struct."""
    for place, field in enumerate(rows.schema):
        if number_of(field) == number:
            return rows.column(place)
        if pa.types.is_struct(field.type) and _has(field, (number,)):
            inside = pa.schema(list(field.type))
            return _column(pa.table(rows.column(place).flatten(), schema=inside), number)
    raise KeyError(f"there is no column {number}")


def _has(field: pa.Field, numbers: Collection[int]) -> bool:
    inside: Sequence[pa.Field] = list(field.type) if pa.types.is_struct(field.type) else ()
    return number_of(field) in numbers or any(_has(each, numbers) for each in inside)
