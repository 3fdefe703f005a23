# ruff: noqa: S608 - statements of our own
"""Iceberg's Java library writes to our tables, and everything here agrees with it afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
from penstock.storage import DataDirectory
from tests.cli.running import finish, start
from tests.interop.iceberg_java import JavaEngine, Unreachable, java_engine
from tests.interop.make_iceberg_fixtures import SPANS, make_base
from tests.lake.helpers import Flush, spans
from tests.lake.java_tables import metadata_of

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]
COUNT = f"SELECT count(*) FROM {SPANS}"


@pytest.fixture
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory whose lake has 28 spans in four files."""
    data = tmp_path_factory.mktemp("java") / "data"
    DataDirectory(data).create()
    make_base(data)
    return data


@pytest.fixture
def java(data: Path) -> Iterator[JavaEngine]:
    """The library on that lake."""
    try:
        with java_engine(data / "lake") as engine:
            yield engine
    except Unreachable as error:
        pytest.skip(f"not reached: {error}")


def counted(data: Path) -> int:
    """What `penstock query` says."""
    answer = finish(
        start("query", "--data-dir", data, "--format", "json", "SELECT count(*) AS n FROM spans"),
        120,
    )
    assert answer.code == 0, answer.err
    count: int = answer.json[0]["n"]
    return count


def agree(data: Path, java: JavaEngine, count: int) -> None:
    """Library, query and fsck."""
    assert java.sql(COUNT) == [[count]]
    assert counted(data) == count
    answer = finish(start("fsck", "--json", data), 120)
    assert (answer.code, answer.json["rows"]) == (0, count)


def test_engines_take_turns_at_one_table(data: Path, java: JavaEngine, tmp_path: Path) -> None:
    """Deletes, updates, merges, rewrites, schema changes and a stream, with ours between them."""
    stream = {"table": "otel.spans", "checkpoint": str(tmp_path / "stream")}
    assert java.order("stream", **stream) == 28

    merge = "'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read'"
    java.sql(f"ALTER TABLE {SPANS} SET TBLPROPERTIES ({merge}, 'write.merge.mode'='merge-on-read')")
    java.sql(f"ALTER TABLE {SPANS} ADD COLUMN team string")
    answer = finish(start("pipeline", "compact", "--min-files", "2", "--data-dir", data), 300)
    assert answer.code == 0, answer.err
    assert metadata_of(data)["snapshots"][-1]["summary"]["operation"] == "replace"
    assert java.order("stream", **stream) == 0  # it passes over what changes no row
    agree(data, java, 28)

    java.sql(f"DELETE FROM {SPANS} WHERE _offset IN (1, 9, 25)")
    agree(data, java, 25)
    java.sql(f"UPDATE {SPANS} SET team = 'red' WHERE _offset < 8")
    java.sql(f"ALTER TABLE {SPANS} RENAME COLUMN team TO squad")
    java.sql(
        f"MERGE INTO {SPANS} t USING (SELECT 10 AS o) s ON t._offset = s.o "
        "WHEN MATCHED THEN UPDATE SET squad = 'blue'"
    )
    java.order(
        "equality_delete",
        table="otel.spans",
        columns=["span_id"],
        rows=[[f"{2:016x}"]],
        partition="time_day=2025-11-15",
    )
    agree(data, java, 24)

    with Lake.open(LakeSettings.of(data)) as lake:
        Flush(lake.table("spans")).flush(spans(range(100, 103)))
    agree(data, java, 27)
    answer = finish(start("pipeline", "compact", "--min-files", "2", "--data-dir", data), 300)
    assert answer.code == 0, answer.err
    agree(data, java, 27)
    squads = f"SELECT squad, count(*) FROM {SPANS} GROUP BY 1 ORDER BY 2"
    assert java.sql(squads) == [["blue", 1], ["red", 6], [None, 20]]

    java.sql("CALL penstock.system.rewrite_data_files(table => 'otel.spans')")
    java.sql("CALL penstock.system.rewrite_manifests(table => 'otel.spans')")
    java.sql(f"ALTER TABLE {SPANS} UNSET TBLPROPERTIES ('write.delete.mode')")
    java.sql(f"DELETE FROM {SPANS} WHERE _offset = 100")  # copy on write
    agree(data, java, 26)


def test_a_commit_of_the_library_goes_through_beside_ours(data: Path, java: JavaEngine) -> None:
    """It tries again on top of ours, which no property of the table forbids any more."""
    before = counted(data)
    [[rows]] = java.sql(f"SELECT count(*) FROM {SPANS} WHERE date = DATE '2025-11-16'")
    java.order("stage_delete", table="otel.spans", since="2025-11-16T00:00:00+00:00")
    with Lake.open(LakeSettings.of(data)) as lake:
        Flush(lake.table("spans")).flush(spans(range(200, 205)))
    java.order("commit_staged")
    assert counted(data) == before - int(rows) + 5
