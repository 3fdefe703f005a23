"""The cold flush on a real Spark, and tables as other engines read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl

from penstock.lake.schemas import TABLES
from penstock.lake.settings import LakeSettings
from penstock.pipeline.flush.settings import FlushSettings
from penstock.pipeline.flush.stream import start_flush
from tests.lake.rows.comparable import _struct, comparable
from tests.patience import PATIENCE_S, until
from tests.pipeline.flush.helpers import lake_files, opened_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.pipeline.helpers import Data

Row = dict[str, Any]
wait_for = until


def start(
    spark: SparkSession, data: Data, *, once: bool = False, **settings: Any
) -> StreamingQuery:
    """The stream, with these settings."""
    chosen = FlushSettings(**{"check_interval_s": 0.05, **settings})
    return start_flush(spark, data.root, LakeSettings.of(data.root), chosen, once=once)


def run_once(spark: SparkSession, data: Data, **settings: Any) -> None:
    """Takes what is sealed now; raises what the stream does."""
    query = start(spark, data, once=True, **settings)
    try:
        assert query.awaitTermination(int(PATIENCE_S))
    finally:
        query.stop()


# --- other engines -------------------------------------------------------------------------------


def duckdb_rows(data: Data, table: str) -> list[Row]:
    """By DuckDB, from the table's files."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        query = f"FROM read_parquet({lake_files(data, table)}, hive_partitioning=false)"
        found = connection.sql(query).to_arrow_table()
    return comparable(found.select(TABLES[table].names))


def polars_rows(data: Data, table: str) -> list[Row]:
    """By Polars, which has no maps: they are lists of structs."""
    found = pl.read_parquet(lake_files(data, table), hive_partitioning=False)
    return [_struct(_with_maps(row)) for row in found.select(TABLES[table].names).to_dicts()]


def pyiceberg_rows(data: Data, table: str) -> list[Row]:
    """By pyiceberg, from the metadata."""
    with opened_lake(data) as lake:
        found = lake.table(table).scan().to_arrow()
    return comparable(found.select(TABLES[table].names))


def _with_maps(value: Any) -> Any:
    match value:
        case [{"key": _, "value": _}, *_]:
            return [(each["key"], each["value"]) for each in value]
        case list():
            return [_with_maps(each) for each in value]
        case dict():
            return {name: _with_maps(each) for name, each in value.items()}
        case _:
            return value


def without_null_lists(value: Any) -> Any:
    """What pyiceberg makes of rows: it reads null as empty where a list has structs."""
    if isinstance(value, dict):
        nested = {"events", "links", "exemplars", "quantiles"}
        return {
            name: [] if each is None and name in nested else without_null_lists(each)
            for name, each in value.items()
        }
    return [without_null_lists(each) for each in value] if isinstance(value, list) else value
