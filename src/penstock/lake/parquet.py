"""How rows become Parquet: encodings, row groups, statistics, filters.

Measured on 250 000 spans of the shop (`penstock load`), bytes a span; 53.5 is what
`pq.write_table(compression="zstd")` makes of the same rows:

    sorted by (service_name, time), nothing else          55.8   trace ids are scattered
    ids without a dictionary, times as deltas             45.7
    dictionaries of up to 4 MiB                           44.4   those of trace ids stay whole
    page index, bloom filter of trace_id (1 %)            45.0
    zstd level 3 instead of 1                             45.1   and 10 % slower
    row groups of 64 Ki instead of 128 Ki rows            47.0   one trace: 29 ms, not 39

Writing takes as long as `pq.write_table`: there are fewer values to hash, and a filter to make.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator

ROW_GROUP_ROWS: Final = 64 * 1024
TRACE_ID: Final = "trace_id"
_UNIQUE: Final = frozenset({"span_id", "parent_span_id"})
_TIMES: Final = frozenset(
    {
        *("time", "observed_time", "time_unix_nano", "observed_time_unix_nano"),
        *("start_time_unix_nano", "end_time_unix_nano", "duration_ns"),
    }
)
_DICTIONARY_BYTES: Final = 4 * 1024 * 1024
_SCATTERED: Final = 0.6
"""A dictionary of trace ids is larger than the ids where more of them than this are different."""
_REPEATED: Final = 0.2
"""Times have a dictionary where fewer of them than this are different, as in metrics, whose data
points are read together."""
_SAMPLE_ROWS: Final = 8192
_FALSE_POSITIVES: Final = 0.01


def writer_options(rows: pa.Table) -> dict[str, Any]:
    """Arguments of `pq.ParquetWriter` for a file that begins with these rows."""
    traces = _distinct(rows, TRACE_ID, ROW_GROUP_ROWS)
    encodings = _encodings(rows, traces)
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": [path for path in leaf_paths(rows.schema) if path not in encodings],
        "column_encoding": encodings,
        "dictionary_pagesize_limit": _DICTIONARY_BYTES,
        "write_page_index": True,
        "write_page_checksum": True,  # else two of three flipped bits are read as data
        "store_schema": False,
        "bloom_filter_options": _filters(traces),
    }


def leaf_paths(schema: pa.Schema) -> Iterator[str]:
    """The columns as Parquet has them: `events.list.element.name`, `attributes.key_value.key`."""
    for field in schema:
        yield from _leaves(field.name, field.type)


def _encodings(rows: pa.Table, traces: int) -> dict[str, str]:
    """Of the columns that have no dictionary."""
    names = set(rows.column_names)
    found = dict.fromkeys(_UNIQUE & names, "DELTA_LENGTH_BYTE_ARRAY")
    found |= dict.fromkeys({"_offset"} & names, "DELTA_BINARY_PACKED")
    if traces > _SCATTERED * min(rows.num_rows, ROW_GROUP_ROWS):
        found[TRACE_ID] = "DELTA_LENGTH_BYTE_ARRAY"
    sample = min(rows.num_rows, _SAMPLE_ROWS)
    for name in _TIMES & names:
        if _distinct(rows, name, sample) > _REPEATED * sample:
            found[name] = "DELTA_BINARY_PACKED"
    return found


def _distinct(rows: pa.Table, name: str, first: int) -> int:
    """How many different values the column has in its first rows."""
    if name not in rows.column_names:
        return 0
    return int(pc.count_distinct(rows[name].slice(0, first), mode="only_valid").as_py())


def _filters(traces: int) -> dict[str, Any] | None:
    return {TRACE_ID: {"ndv": traces, "fpp": _FALSE_POSITIVES}} if traces else None


def _leaves(path: str, type_: pa.DataType) -> Iterator[str]:
    if pa.types.is_struct(type_):
        for field in type_:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(type_):
        yield from _leaves(f"{path}.key_value.key", type_.key_type)
        yield from _leaves(f"{path}.key_value.value", type_.item_type)
    elif pa.types.is_list(type_):
        yield from _leaves(f"{path}.list.element", type_.value_type)
    else:
        yield path
