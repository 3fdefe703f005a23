"""The engine is shut off, and leaves nothing behind."""

from __future__ import annotations

import tempfile
from functools import cache
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.query import database
from penstock.query.database import NO_FILES, Engine, connection_to
from penstock.storage import scratch

if TYPE_CHECKING:
    from pathlib import Path

MEMORY_BYTES = 60_000_000


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A lake that nobody else has a database for; what is spilled goes to `spilled`."""
    (tmp_path / "spilled").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spilled"))
    monkeypatch.setattr(database, "_scratch", cache(lambda: scratch.Scratch("query")))
    monkeypatch.setattr(scratch, "_base_apart", cache(scratch._base_apart.__wrapped__))
    return str(tmp_path / "lake")


@pytest.mark.parametrize(
    "sql",
    [
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
        "SET memory_limit = '100GB'",
        "SET TimeZone = 'Europe/Paris'",
        "RESET lock_configuration",
        "FROM read_text('/etc/passwd')",
        "COPY (SELECT 1) TO '{folder}/written.csv'",
        "ATTACH '{folder}/other.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "FROM 'https://example.invalid/x.parquet'",
        "FROM lake",
    ],
)
def test_engine_refuses_by_itself(lake: str, tmp_path: Path, sql: str) -> None:
    """Whatever would pass the look at a statement."""
    with connection_to(Engine(lake, MEMORY_BYTES)) as connection, pytest.raises(duckdb.Error):
        connection.execute(sql.format(folder=tmp_path)).fetchall()


def test_tables_are_those_of_their_connection(lake: str) -> None:
    """Of two at once, neither sees the other's; nor does one that comes later."""
    with (
        connection_to(Engine(lake, MEMORY_BYTES)) as one,
        connection_to(Engine(lake, MEMORY_BYTES)) as other,
    ):
        one.execute("CREATE TEMP VIEW spans AS SELECT 1 AS mine")
        assert one.execute("FROM spans").fetchall() == [(1,)]
        with pytest.raises(duckdb.CatalogException):
            other.execute("FROM spans")
    with connection_to(Engine(lake, MEMORY_BYTES)) as later, pytest.raises(duckdb.CatalogException):
        later.execute("FROM spans")


def test_what_is_spilled_is_for_nobody_else(lake: str, tmp_path: Path) -> None:
    """A query that needs no room on disk takes none."""
    with connection_to(Engine(lake, MEMORY_BYTES)) as connection:
        connection.execute("SELECT 1").fetchall()
        [base] = (tmp_path / "spilled").iterdir()
        [folder] = base.glob("query-*[!k]")
        assert list(folder.iterdir()) == []
        assert base.stat().st_mode & 0o077 == folder.stat().st_mode & 0o077 == 0


def test_folder_of_somebody_else_is_not_used(lake: str, tmp_path: Path) -> None:
    """It may have been put there to read what is spilled."""
    with connection_to(Engine(lake, MEMORY_BYTES)):
        [folder] = (tmp_path / "spilled").iterdir()
    folder.chmod(0o777)
    database._scratch.cache_clear()
    database.forget(Engine(lake, MEMORY_BYTES))
    with connection_to(Engine(lake, MEMORY_BYTES)) as connection:
        [(used,)] = connection.execute("SELECT current_setting('temp_directory')").fetchall()
    assert not used.startswith(f"{folder}/")
    assert used.startswith(str(tmp_path / "spilled"))


def test_database_that_has_failed_is_not_used_again(lake: str) -> None:
    """The next query has a new one."""
    with pytest.raises(duckdb.FatalException), connection_to(Engine(lake, MEMORY_BYTES)):
        raise duckdb.FatalException("as if it had")
    with connection_to(Engine(lake, MEMORY_BYTES)) as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_engine_reaches_the_files_that_it_was_made_for(lake: str, tmp_path: Path) -> None:
    """No other of the lake, by whatever text; and none where it was made for none."""
    folder = tmp_path / "lake"
    folder.mkdir()
    mine, other = str(folder / "mine.parquet"), str(folder / "other.parquet")
    for path in (mine, other):
        pq.write_table(pa.table({"name": [path]}), path)
    with connection_to(Engine(lake, MEMORY_BYTES, frozenset({mine}))) as connection:
        assert connection.execute("FROM read_parquet(?)", [mine]).fetchall() == [(mine,)]
        for text in (other, f"{folder}/*.parquet", f"{mine}/../other.parquet", "/etc/passwd"):
            with pytest.raises(duckdb.Error):
                connection.execute("FROM read_parquet(?)", [text]).fetchall()
        plan = f"FROM read_parquet('{other}')"
        [(said,)] = connection.execute("SELECT json_serialize_plan(?)", [plan]).fetchall()
        assert "disabled by configuration" in said
    with (
        connection_to(Engine(lake, MEMORY_BYTES, NO_FILES)) as connection,
        pytest.raises(duckdb.PermissionException),
    ):
        connection.execute("FROM read_parquet(?)", [mine]).fetchall()


def test_what_is_spilled_is_bounded(lake: str) -> None:
    """A query that needs more than its room on disk ends; the same without a bound is answered."""
    sql = (
        "SELECT max(n) FROM"
        " (SELECT row_number() OVER (ORDER BY hash(range)) AS n FROM range(6000000))"
    )
    with (
        connection_to(Engine(lake, MEMORY_BYTES, NO_FILES, 16 * 1024**2)) as connection,
        pytest.raises(duckdb.OutOfMemoryException, match="max_temp_directory_size"),
    ):
        connection.execute(sql).fetchall()
    with connection_to(Engine(lake, MEMORY_BYTES)) as connection:
        assert connection.execute(sql).fetchall() == [(6_000_000,)]
