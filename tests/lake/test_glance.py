"""What a table has, without pyiceberg: the same that pyiceberg sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.lake.files import live_files
from penstock.lake.glance import NOTHING, ColdFile, glance, glance_at_positions
from penstock.lake.positions import read_positions
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
from penstock.model.errors import Damaged
from tests.pipeline.flush.helpers import Plain, without_spark
from tests.pipeline.helpers import DAY_NS, MORNING_NS, Data, spans


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Data:
    """An empty data directory; flushes do without Spark."""
    without_spark(monkeypatch)
    return Data(tmp_path / "data")


def fill(data: Data, days: int = 3) -> LakeSettings:
    """A commit for each of some days."""
    pipeline = Plain(data)
    for day in range(days):
        data.seal([spans(day, start_ns=MORNING_NS + day * DAY_NS)])
        pipeline.run()
    return LakeSettings.of(data.root)


def test_files_and_positions_are_those_of_the_last_commit(data: Data) -> None:
    """Commit by commit, without pyiceberg's help."""
    settings = fill(data)
    with Lake.open(settings) as lake:
        table = lake.table("spans")
        wanted = {(f.path, f.rows, f.bytes, f.day) for f in live_files(table)}
        positions = read_positions(table)
    found = glance(settings, "spans")
    assert {(f.path, f.rows, f.bytes, f.day) for f in found.files} == wanted
    assert found.positions == positions
    assert glance_at_positions(settings, "spans") == positions


def test_times_of_a_file_are_known(data: Data) -> None:
    """So that a query can pass it over."""
    settings = fill(data, days=1)
    [file] = glance(settings, "spans").files
    assert isinstance(file, ColdFile)
    assert file.times_us == (MORNING_NS // 1000, MORNING_NS // 1000)


def test_other_catalogs_are_asked_through_pyiceberg(data: Data) -> None:
    """The same files, at another price."""
    settings = fill(data)
    uri = f"sqlite:///{settings.warehouse}/catalog.db"
    other = LakeSettings(warehouse=settings.warehouse, catalog={"type": "sql", "uri": uri})
    own, asked = glance(settings, "spans"), glance(other, "spans")
    assert {file.path for file in asked.files} == {file.path for file in own.files}
    assert asked.positions == own.positions


def test_lake_that_is_not_there_has_nothing(tmp_path: Path) -> None:
    """And a look does not make it."""
    settings = LakeSettings.of(tmp_path)
    assert glance(settings, "spans") == NOTHING
    assert glance_at_positions(settings, "spans") == {}
    assert list(tmp_path.iterdir()) == []


def test_table_that_is_not_there_has_nothing(data: Data) -> None:
    """In a lake that has others."""
    assert glance(fill(data, days=1), "service_red_1m") == NOTHING


def test_damaged_metadata_are_named(data: Data) -> None:
    """An empty table would be a lie."""
    settings = fill(data, days=1)
    for path in (data.root / "lake" / "spans" / "metadata").glob("*.avro"):
        path.write_bytes(b"no Avro")
    with pytest.raises(Damaged, match="table spans"):
        glance(settings, "spans")
