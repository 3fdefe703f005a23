"""A caller sees the rows of its own namespaces, whatever it asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.model import Topic
from penstock.model.errors import InvalidArgument
from penstock.tiers.cut import Tier
from tests.pipeline.flush.helpers import Plain, lake_files, without_spark
from tests.pipeline.helpers import Data, spans
from tests.query.helpers import answer, cold, hot, named, names, warm

A, B = Topic("a", "traces"), Topic("b", "traces")
LONG = Topic("a" * 30, "traces")


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Data]:
    """Spans 0 to 3 are of `a`, 10 to 13 of `b`, in all tiers; some share a file of the lake."""
    with pytest.MonkeyPatch.context() as patched:
        without_spark(patched)
        data = Data(tmp_path_factory.mktemp("tenants") / "data")
        cold(data, spans(0), topic=A)
        cold(data, spans(10), topic=B)
        warm(data, spans(1), topic=A)
        warm(data, spans(11), topic=B)
        Plain(data).run()
        warm(data, spans(2), topic=A)
        warm(data, spans(12), topic=B)
        with hot(data, spans(3), topic=A), hot(data, spans(13), topic=B):
            yield data


@pytest.mark.parametrize("view", ["spans", "otel_traces"])
def test_rows_of_other_namespaces_are_not_there(tenants: Data, view: str) -> None:
    """In no tier, table or view; without a choice everything is."""
    count = f"FROM {view} SELECT count(*) AS n"
    assert names(tenants, namespaces={"a"}) == named(range(4))
    assert names(tenants, namespaces=["b"]) == named(range(10, 14))
    assert len(names(tenants)) == len(names(tenants, namespaces={"a", "b"})) == 8
    assert answer(tenants, count, namespaces={"a"}).rows["n"].to_pylist() == [4]
    assert answer(tenants, count, namespaces=()).rows["n"].to_pylist() == [0]
    assert answer(tenants, count, namespaces={"c"}).rows["n"].to_pylist() == [0]


@pytest.mark.parametrize("tier", Tier)
def test_each_tier_has_the_callers_rows_alone(tenants: Data, tier: Tier) -> None:
    """Also where it is the only one that is asked."""
    found = names(tenants, namespaces={"a"}, tiers={tier})
    assert found == named({Tier.COLD: [0, 1], Tier.WARM: [2], Tier.HOT: [3]}[tier])


def test_namespace_with_a_long_name_is_told_from_one_that_begins_alike(data: Data) -> None:
    """Statistics of the lake cut names off."""
    cold(data, spans(0), topic=LONG)
    cold(data, spans(1), topic=Topic("a" * 29 + "b", "traces"))
    assert names(data, namespaces={"a" * 30}) == named([0])
    assert names(data, namespaces={"a" * 16}) == []


def test_no_way_leads_around_the_tables(tenants: Data) -> None:
    """Not even to files that a table consists of; other tests have more of these."""
    file = lake_files(tenants, "spans")[0]
    for sql in (
        f"FROM read_parquet('{file}')",
        f"FROM '{file}'",
        f"FROM query('FROM read_parquet(''{file}'') ')",
        f"EXPLAIN ANALYZE FROM read_parquet('{file}')",
        f'WITH "{file}" AS (VALUES (1)) FROM "{file}"',
        "SELECT * FROM (WITH duckdb_views AS (SELECT 1) FROM duckdb_views), duckdb_views",
        'FROM "fresh rows of spans"',
        'FROM "shared files of spans"',
    ):
        with pytest.raises(InvalidArgument):
            answer(tenants, sql, namespaces={"a"})


@pytest.mark.parametrize("condition", ["substr(name, 6)::INT < 10 OR error(name)", "error(name)"])
def test_no_condition_is_tried_on_rows_of_others(tenants: Data, condition: str) -> None:
    """An error, or none, would tell what they have."""
    mine = "name IN ('span 0', 'span 1', 'span 2', 'span 3')"
    sql = f"FROM spans SELECT name WHERE CASE WHEN {mine} THEN true ELSE {condition} END"
    assert answer(tenants, sql, namespaces={"a"}).rows.num_rows == 4


def test_choice_of_namespaces_is_of_whole_names(data: Data) -> None:
    """Nothing in a name is a pattern or a piece of SQL."""
    cold(data, spans(0), topic=A)
    for name in ("%", "a' OR '1'='1", "A", "", "a ", "*"):
        assert names(data, namespaces={name}) == []
