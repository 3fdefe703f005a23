"""Attributes as Spark's VARIANT: every value with the type that it was sent with.

Iceberg tables have no such column yet for who writes them from Python, so it is made of the two
maps when it is asked for. What is written from it keeps it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sf

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_BARE: Final = ("int", "bool", "map", "array")
"""What stands in JSON as it is in the map. A double does too, unless JSON has no such number."""
_NO_NUMBERS: Final = ("nan", "inf", "-inf")


def with_variant(rows: DataFrame, column: str = "attributes") -> DataFrame:
    """The rows with `attributes` as VARIANT instead of a map; `attribute_types` is left out.

    Numbers, truth values, arrays and maps are what they were; bytes are text in base64, and numbers
    that are none (`nan`, `inf`) are text too. Null where there were no attributes.
    """
    return rows.withColumn(column, variant(column, "attribute_types")).drop("attribute_types")


def variant(texts: str, kinds: str) -> Column:
    """One value out of a map of texts and a map of what they were."""
    entries = sf.transform(sf.map_entries(sf.col(texts)), lambda entry: _member(entry, kinds))
    document = sf.concat(sf.lit("{"), sf.array_join(entries, ","), sf.lit("}"))
    return sf.parse_json(document)


def _member(entry: Column, kinds: str) -> Column:
    key, text = entry["key"], entry["value"]
    # A null map of types means that all are texts, and looking into it gives null.
    kind = sf.element_at(sf.col(kinds), key)
    number = kind.eqNullSafe("double") & ~sf.lower(text).isin(*_NO_NUMBERS)
    bare = sf.coalesce(kind.isin(*_BARE), sf.lit(False)) | number
    value = sf.when(text.isNull(), "null").when(bare, text).otherwise(_quoted(text))
    return sf.concat(_quoted(key), sf.lit(":"), value)


def _quoted(text: Column) -> Column:
    """As JSON writes it; Spark does so for values of arrays, not for values alone."""
    listed = sf.to_json(sf.array(text))
    return sf.substring(listed, sf.lit(2), sf.length(listed) - 2)
