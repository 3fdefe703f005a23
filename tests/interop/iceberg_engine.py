"""Iceberg's Java library on Spark, in a process and an environment of its own.

    python iceberg_engine.py WAREHOUSE JAR [JAR …]

Reads orders from stdin, one JSON object a line, and answers each with one on stdout. The tables of
the catalog file in WAREHOUSE are `penstock.otel.NAME`. Knows nothing of Penstock's code.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import uuid
from typing import Any

from pyspark.sql import SparkSession

CATALOG = "penstock"


def start_session(warehouse: str, jars: list[str]) -> SparkSession:
    """Spark with the catalog file of a lake."""
    options = {
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{CATALOG}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        f"spark.sql.catalog.{CATALOG}.uri": f"jdbc:sqlite:file:{warehouse}/catalog.db",
        f"spark.sql.catalog.{CATALOG}.jdbc.schema-version": "V1",
        f"spark.sql.catalog.{CATALOG}.warehouse": warehouse,
        f"spark.sql.catalog.{CATALOG}.cache-enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


class Engine:
    """What can be ordered."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def sql(self, text: str) -> list[list[Any]]:
        """The rows of a statement, as text and numbers."""
        rows = self._spark.sql(text).collect()
        return [[_plain(value) for value in row] for row in rows]

    def equality_delete(
        self, table: str, columns: list[str], rows: list[list[Any]], partition: str
    ) -> int:
        """Deletes the rows of a partition, `name=value`, that have these values.

        By an equality delete file, as Flink writes them; Spark itself never does.
        """
        iceberg: Any = self._spark._jvm.org.apache.iceberg
        loaded = self._table(table)
        schema, spec = loaded.schema().select(columns), loaded.spec()
        records = [iceberg.data.GenericRecord.create(schema) for _ in rows]
        for record, row in zip(records, rows, strict=True):
            for column, value in zip(columns, row, strict=True):
                record.setField(column, value)
        name = f"{loaded.location()}/data/eq-{uuid.uuid4()}.parquet"
        plain = iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(
            loaded.io().newOutputFile(name)
        )
        kind = records[0].getClass().getInterfaces()[0]
        writer = (
            iceberg.formats.FormatModelRegistry.equalityDeleteWriteBuilder(
                iceberg.FileFormat.PARQUET, kind, plain
            )
            .schema(schema)
            .spec(spec)
            .partition(iceberg.DataFiles.data(spec, partition))
            .equalityFieldIds([schema.findField(column).fieldId() for column in columns])
            .build()
        )
        for record in records:
            writer.write(record)
        writer.close()
        loaded.newRowDelta().addDeletes(writer.toDeleteFile()).commit()
        return len(rows)

    def stream(self, table: str, checkpoint: str) -> int:
        """How many rows a stream reader gets that goes on where it was; fails where it stops."""
        count = 0

        def add(frame: Any, _: int) -> None:
            nonlocal count
            count += frame.count()

        query = (
            self._spark.readStream.format("iceberg")
            .load(f"{CATALOG}.{table}")
            .writeStream.foreachBatch(add)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return count

    def stage_delete(self, table: str, since: str) -> int:
        """Begins to delete all days from a time on, and does not commit it yet."""
        iceberg: Any = self._spark._jvm.org.apache.iceberg
        later = iceberg.expressions.Expressions.greaterThanOrEqual("time", since)
        self._staged = self._table(table).newDelete().deleteFromRowFilter(later)
        return 0

    def commit_staged(self) -> int:
        """Commits it, by the rules of Iceberg: tried again on top of what others committed."""
        self._staged.commit()
        return 0

    def _table(self, name: str) -> Any:
        jvm: Any = self._spark._jvm
        return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
            self._spark._jsparkSession,
            f"{CATALOG}.{name}",
        )


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def main() -> None:
    """Until stdin ends."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Java prints is no answer
    engine = Engine(start_session(sys.argv[1], sys.argv[2:]))
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = {"answer": getattr(engine, order.pop("do"))(**order)}
        except Exception as error:  # noqa: BLE001 - whoever ordered it is told
            answer = {"error": str(error), "trace": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
