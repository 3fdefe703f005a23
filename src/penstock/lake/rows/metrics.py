"""The rows of `metrics`: one for each data point, those of one kind after those of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.rows.containers import container_columns
from penstock.lake.rows.fields import Fields, named
from penstock.lake.rows.origin import constants
from penstock.lake.rows.points import point_columns
from penstock.model import slots
from penstock.otel.columns import plain
from penstock.otel.metrics import POINTS
from penstock.otel.records import row_ids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.lake.rows.tables import Tables

_TYPES: Final = {
    0: None,
    1: "gauge",
    2: "sum",
    3: "histogram",
    4: "exponential_histogram",
    5: "summary",
}
_TEMPORALITIES: Final = {
    0: None,
    1: "AGGREGATION_TEMPORALITY_DELTA",
    2: "AGGREGATION_TEMPORALITY_CUMULATIVE",
}
_PLACE: Final = pa.int64()


def metric_columns(tables: Tables) -> Iterator[dict[str, pa.Array]]:
    """The columns of the table, for each kind of data points that there are."""
    root = tables.bundle[slots.UNIVARIATE_METRICS]
    metrics = _shared_columns(tables, Fields.of(root))
    for slot in POINTS:
        points = tables.get(slot)
        if points is not None and points.num_rows:
            metric = _metric_of(points, row_ids(root))
            yield {
                **{name: _gathered(array, metric) for name, array in metrics.items()},
                **point_columns(tables, slot),
                **constants(tables.origin, points.num_rows),
            }


def _shared_columns(tables: Tables, metrics: Fields) -> dict[str, pa.Array]:
    """What all data points of a metric have in common: a row for each metric."""
    temporality = metrics.plain("aggregation_temporality", pa.int32())
    return {
        "name": metrics.text("name"),
        "description": metrics.text("description"),
        "unit": metrics.text("unit"),
        "type": named(metrics.plain("metric_type", pa.uint8()), _TYPES),
        "is_monotonic": metrics.plain("is_monotonic", pa.bool_()),
        "aggregation_temporality": named(temporality, _TEMPORALITIES),
        **container_columns(tables, metrics),
        "_offset": tables.offsets,
    }


def _metric_of(points: pa.RecordBatch, ids: pa.Array) -> pa.Array:
    """The row of each data point's metric; null for a point without one."""
    parents = plain(points.column("parent_id")).cast(_PLACE)
    return pc.index_in(parents, value_set=ids.cast(_PLACE), skip_nulls=True)


def _gathered(array: pa.Array, rows: pa.Array) -> pa.Array:
    """What the metrics have, for their data points: strings stay where they are."""
    if pa.types.is_string(array.type):
        return pa.DictionaryArray.from_arrays(rows, array)
    return array.take(rows)
