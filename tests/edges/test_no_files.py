"""What is no file, where Penstock keeps one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.lake.settings import LakeSettings
from penstock.query.engine import ask
from penstock.storage.files import LocalFiles
from tests.lake.java_tables import java_lake


def test_a_pipe_beside_a_table_holds_up_no_question(tmp_path: Path) -> None:
    """Nobody will ever write to it; what it should say is found out again."""
    data = java_lake("rewritten_files", tmp_path / "data")
    [table] = {path.parent for path in (data / "lake").rglob("metadata")}
    (table / "seen").mkdir(exist_ok=True)
    for kind in ("doubles", "manifests"):
        path = table / "seen" / f"{kind}.json"
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    answer = ask(data, LakeSettings.of(data), "SELECT count(*) AS n FROM spans")
    assert answer.rows.to_pylist() == [{"n": 27}]


def test_a_pipe_is_refused_where_a_file_is_read(tmp_path: Path) -> None:
    """At once, by its name; mapped or read."""
    os.mkfifo(tmp_path / "pipe")
    for read in (LocalFiles().open, LocalFiles().map):
        with pytest.raises(OSError, match=r"not a regular file.*pipe"):
            read(tmp_path / "pipe")
