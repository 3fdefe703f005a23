"""Runs functions in Spark's tasks and brings back what they return.

A range of numbers is the cheapest thing that Spark distributes; each task calls the function with
its number. Everything else travels inside the function, pickled.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

Order = TypeVar("Order")
Result = TypeVar("Result")


def run_in_tasks(
    spark: SparkSession, function: Callable[[Order], Result], orders: Sequence[Order]
) -> list[Result]:
    """What the function makes of each order, in their order; each in a task of its own."""
    if not orders:
        return []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            results = [pickle.dumps(function(orders[number])) for number in numbers]
            yield pa.RecordBatch.from_pydict({"number": numbers, "result": results})

    tasks = spark.range(0, len(orders), 1, len(orders))
    rows = tasks.mapInArrow(run, "number long, result binary").collect()
    # Our own tasks wrote them.
    return [pickle.loads(row.result) for row in sorted(rows, key=lambda row: row.number)]  # noqa: S301
