"""Attributes as VARIANT have the types that they were sent with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from penstock.pipeline.variant import with_variant

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SCHEMA = "n INT, attributes MAP<STRING, STRING>, attribute_types MAP<STRING, STRING>"
TEXTS = {
    "text": 'a "quoted" \\ text\n',
    "int": "9007199254740993",
    "double": "0.25",
    "bool": "true",
    "array": '[1,"b",null]',
    "map": '{"a":{"b":[]}}',
    "none": None,
    "nan": "nan",
    "bytes": "AAE=",
}
KINDS = {
    "int": "int",
    "double": "double",
    "bool": "bool",
    "array": "array",
    "map": "map",
    "none": "empty",
    "nan": "double",
    "bytes": "bytes",
}
TYPES = {
    "text": "STRING",
    "int": "BIGINT",
    "double": "DECIMAL(2,2)",
    "bool": "BOOLEAN",
    "array": "ARRAY<VARIANT>",
    "map": "OBJECT<a: OBJECT<b: ARRAY<VOID>>>",
    "none": "VOID",
    "nan": "STRING",
    "bytes": "STRING",
}


def test_every_value_has_its_type(spark: SparkSession, tmp_path: Path) -> None:
    """Also when it was written to a file and read again."""
    rows = spark.createDataFrame([(1, TEXTS, KINDS), (2, {"only": "7"}, None)], SCHEMA)
    with_variant(rows).write.parquet(str(tmp_path / "rows"))
    found = spark.read.parquet(str(tmp_path / "rows")).orderBy("n")
    kinds = [
        sf.schema_of_variant(sf.try_variant_get("attributes", f"$.{name}", "variant")).alias(name)
        for name in TYPES
    ]
    typed = found.select(*kinds).first()
    assert typed is not None
    assert typed.asDict()["int"] == TYPES["int"]
    assert {name: typed[name] for name in TYPES} == TYPES
    values = found.select(sf.try_variant_get("attributes", "$.text", "string")).collect()
    assert [value[0] for value in values] == [TEXTS["text"], None]
    only = found.select(sf.try_variant_get("attributes", "$.only", "string")).collect()
    assert only[1][0] == "7"


def test_no_attributes_are_no_variant(spark: SparkSession) -> None:
    """Null stays null."""
    rows = spark.createDataFrame([(1, None, None)], SCHEMA)
    assert with_variant(rows).where("attributes IS NULL").count() == 1
