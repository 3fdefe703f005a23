"""Promoted attributes are columns in every tier, whenever they were promoted."""

from __future__ import annotations

from dataclasses import replace

from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
from tests.pipeline.helpers import Data, spans
from tests.query.helpers import cold, hot, values, warm


def promote(data: Data, *keys: str) -> None:
    """As a pipeline does that is told so."""
    with Lake.open(replace(LakeSettings.of(data.root), promoted=keys)) as lake:
        lake.table("spans")


def test_a_promoted_attribute_is_a_column_of_all_tiers(data: Data) -> None:
    """Null in files from before; typed, and there for conditions."""
    cold(data, spans(1))
    promote(data, "number:int", "resource:service.name")
    sql = "SELECT name, attr_number FROM spans ORDER BY name"
    assert values(data, sql) == [("span 1", None)]
    cold(data, spans(2))
    warm(data, spans(3))
    with hot(data, spans(4)):
        assert values(data, sql) == [("span 1", None), ("span 2", 2), ("span 3", 3), ("span 4", 4)]
        wanted = "SELECT name FROM spans WHERE attr_number >= 3 AND resource_service_name = 'shop'"
        assert values(data, f"{wanted} ORDER BY name") == [("span 3",), ("span 4",)]
        assert values(data, "SELECT count(*) FROM spans") == [(4,)]
        everything = values(data, "SELECT * FROM spans ORDER BY name")
        assert [row[-2] for row in everything] == [None, 2, 3, 4]
