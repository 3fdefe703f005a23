"""The catalog is made once, whoever comes first."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy.exc import OperationalError

from penstock.lake import catalog
from penstock.lake.catalog import open_catalog
from penstock.lake.settings import LakeSettings

if TYPE_CHECKING:
    from pathlib import Path


def test_the_package_alone_imports_nothing_large() -> None:
    """The server and its commands start without Iceberg."""
    code = "import sys, penstock.lake; print({'pyiceberg', 'pyarrow'} & set(sys.modules))"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, check=True, capture_output=True).stdout == b"set()\n"


def test_the_default_catalog_is_a_file_beside_the_tables(tmp_path: Path) -> None:
    """With the namespace of the lake in it."""
    settings = LakeSettings.of(tmp_path)
    with open_catalog(settings) as opened:
        assert opened.list_namespaces() == [("otel",)]
    with sqlite3.connect(tmp_path / "lake" / "catalog.db") as database:
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    database.close()
    assert ("iceberg_tables",) in tables


@pytest.mark.parametrize("failures", [1, 7])
def test_a_race_for_the_catalog_s_tables_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """Another process has made them between our look and our try."""
    monkeypatch.setattr(catalog.time, "sleep", lambda _: None)
    left, real = iter(range(failures)), catalog.load_catalog

    def load(*arguments: Any, **properties: Any) -> Any:
        for _ in left:
            raise OperationalError("CREATE TABLE", {}, sqlite3.OperationalError("exists"))
        return real(*arguments, **properties)

    monkeypatch.setattr(catalog, "load_catalog", load)
    with open_catalog(LakeSettings.of(tmp_path)) as opened:
        assert opened.namespace_exists("otel")


def test_a_catalog_that_never_answers_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database's own, after a bounded number of attempts."""
    monkeypatch.setattr(catalog.time, "sleep", lambda _: None)

    def load(*_: Any, **__: Any) -> Any:
        raise OperationalError("SELECT", {}, sqlite3.OperationalError("disk I/O error"))

    monkeypatch.setattr(catalog, "load_catalog", load)
    with pytest.raises(OperationalError, match="disk I/O"):
        open_catalog(LakeSettings.of(tmp_path))
