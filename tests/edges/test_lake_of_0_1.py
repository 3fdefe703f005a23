"""A data directory of 0.1 and its lake go on; a fresh directory leaves them alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.otel import Signal
from tests.cli.conftest import session, warm
from tests.cli.running import run
from tests.edges.lake_v1 import HOT, IN_LAKE, SEALED, spans, unpacked
from tests.server.running import serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["session", "warm"]
ALL = sorted([*IN_LAKE, *SEALED, *HOT])


def ask(data: Path, sql: str, *options: str) -> list[dict[str, Any]]:
    """`penstock query`."""
    answer = run("query", "--data-dir", data, *options, "--json", sql)
    assert answer.code == 0, answer.err
    found: list[dict[str, Any]] = answer.json
    return found


def names(data: Path, *options: str) -> list[str]:
    """Of all spans."""
    return sorted(row["name"] for row in ask(data, "SELECT name FROM spans", *options))


def test_the_lake_of_0_1_is_read_as_it_is(tmp_path: Path) -> None:
    """Before any pipeline has touched it: what lake and segment both have counts once."""
    data = unpacked(tmp_path)
    assert names(data) == ALL
    assert names(data, "--tier", "cold") == sorted(IN_LAKE)
    with serving(data) as server:
        taken = server.ask("POST", "/api/v1/hot-snapshot", port="web").json
        assert taken["row_count"] == len(ALL) - len(IN_LAKE)
        assert names(data) == ALL


@pytest.mark.usefixtures("warm")
def test_the_lake_of_0_1_goes_on(tmp_path: Path, session: SparkSession) -> None:
    """Flushed further, compacted and read by Spark, each row once and with its place."""
    data = unpacked(tmp_path)
    assert run("pipeline", "run", "--once", "--data-dir", data).code == 0
    assert names(data, "--tier", "cold") == sorted([*IN_LAKE, *SEALED])
    assert names(data) == ALL
    command = ("pipeline", "compact", "--min-files", "2", "--table", "spans")
    assert run(*command, "--data-dir", data).code == 0
    places = "SELECT name, _source, _topic_partition AS part, _offset FROM spans ORDER BY _offset"
    found = ask(data, places)
    assert sorted(row["name"] for row in found) == ALL
    assert [row["part"] for row in found] == [0] * len(ALL)
    assert [row["_offset"] for row in found] == [0, 0, 1, 1, 2, 2, 3, 4]
    identity = json.loads((data / "penstock.json").read_text())["id"]
    assert [row["_source"] for row in found] == [None] * 6 + [identity] * 2
    rows = session.read.format("penstock").option("table", "spans").load(str(data))
    read = rows.select("name", "_topic_partition").collect()
    assert sorted((row[0], row[1]) for row in read) == [(name, 0) for name in ALL]
    assert run("fsck", data / "lake").code == 0


@pytest.mark.usefixtures("warm")
def test_a_fresh_directory_does_not_adopt_what_0_1_left(tmp_path: Path) -> None:
    """It begins at its own first message; the old directory still goes on from its own."""
    old = unpacked(tmp_path)
    lake = tmp_path / "lake.yaml"
    lake.write_text(json.dumps({"lake": {"warehouse": str(old / "lake")}}))
    fresh = tmp_path / "fresh"
    with serving(fresh) as server:
        assert server.post(Signal.TRACES, spans("new")).status == 200
        server.stop()
    shutil.rmtree(fresh / "lake", ignore_errors=True)
    run_once = ("pipeline", "run", "--once", "--config", lake, "--data-dir")
    assert run(*run_once, fresh).code == 0
    assert names(old, "--tier", "cold") == sorted([*IN_LAKE, "new"])
    assert run(*run_once, old).code == 0
    assert names(old) == sorted([*ALL, "new"])
    assert names(old, "--tier", "cold") == sorted([*IN_LAKE, *SEALED, "new"])


@pytest.mark.usefixtures("warm")
def test_positions_of_0_1_that_may_be_anybodys_are_asked_about(tmp_path: Path) -> None:
    """Neither skipped nor repeated without a word: whoever runs it says whose they are."""
    old, lake = unpacked(tmp_path, tmp_path / "lake"), tmp_path / "lake.yaml"
    lake.write_text(json.dumps({"lake": {"warehouse": str(tmp_path / "lake")}}))
    assert names(old, "--config", str(lake)) == ALL, "its pipeline has noted that it ran"
    shutil.rmtree(old / "pipeline")
    command = ("pipeline", "run", "--once", "--config", lake, "--data-dir", old)
    for refused in (run(*command), run("query", "--config", lake, "--data-dir", old, "FROM spans")):
        assert refused.is_one_sentence()
        assert "--old-positions adopt" in refused.err
    assert run(*command, "--old-positions", "adopt").code == 0
    assert names(old, "--config", str(lake)) == ALL
    assert names(old, "--config", str(lake), "--tier", "cold") == sorted([*IN_LAKE, *SEALED])
