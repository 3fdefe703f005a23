"""After a replay of the archive each message is in one tier, whoever asks."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from penstock.otel import Signal
from tests.cli.conftest import session, warm
from tests.cli.running import run
from tests.cli.test_pipeline import data
from tests.pipeline.flush.test_archive import archive, feed
from tests.pipeline.helpers import TRACES, Data, named, spans
from tests.server.running import serving

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from penstock.pipeline.feeds import ArchiveFeed

__all__ = ["data", "feed", "session", "warm"]


def found(data: Data, *options: str) -> list[str]:
    """The names of spans that `penstock query` counts, without a word of warning."""
    sql = "SELECT name FROM spans ORDER BY name"
    command = ("query", "--data-dir", data.root, *options, "--json", sql)
    answer = run(*command)
    assert (answer.code, answer.err) == (0, "")
    return [row["name"] for row in answer.json]


def snapshot(data: Data) -> dict[str, Any]:
    """The hot snapshot of a server that has just begun."""
    with serving(data.root) as server:
        answer = server.ask("POST", "/api/v1/hot-snapshot", port="web")
        taken: dict[str, Any] = answer.json
    return taken


@pytest.mark.usefixtures("warm")
def test_segments_that_the_archive_had_in_part_give_their_rest(
    data: Data, feed: ArchiveFeed, tmp_path: Path, session: SparkSession
) -> None:
    """To a question, to Spark and to the hot snapshot; then the pipeline takes that rest."""
    before = Data(tmp_path / "before")
    shutil.copy(data.root / "penstock.json", before.root)  # the same directory, as it was once
    before.seal([spans(1)], [spans(2), spans(3)])
    archive(before, feed, TRACES)
    data.seal([spans(1)], [spans(2), spans(3), spans(4)], [spans(5)])
    command = ("pipeline", "replay", "--archive", feed.url, "--metadata", feed.metadata_url)
    assert run(*command, "--data-dir", data.root).code == 0

    assert found(data, "--tier", "cold") == named(1, 2, 3)
    assert found(data, "--tier", "warm") == named(4, 5)
    assert found(data) == named(1, 2, 3, 4, 5)
    rows = session.read.format("penstock").option("table", "spans").load(str(data.root))
    assert sorted(row["name"] for row in rows.select("name").collect()) == named(1, 2, 3, 4, 5)
    assert snapshot(data)["row_count"] == 2

    assert run("pipeline", "run", "--once", "--data-dir", data.root).code == 0
    assert found(data, "--tier", "cold") == found(data) == named(1, 2, 3, 4, 5)
    assert snapshot(data)["row_count"] == 0


@pytest.mark.usefixtures("warm")
def test_an_archive_that_is_ahead_of_the_segments_is_not_counted_twice(
    data: Data, feed: ArchiveFeed
) -> None:
    """What is archived and not sealed yet is cold, and no longer hot."""
    data.seal([spans(1)])
    archive(data, feed, TRACES)
    with serving(data.root) as server:
        assert server.post(Signal.TRACES, spans(2)).status == 200
        server.kill()
    archive(data, feed, TRACES)
    command = ("pipeline", "replay", "--archive", feed.url, "--metadata", feed.metadata_url)
    assert run(*command, "--data-dir", data.root).code == 0
    assert found(data, "--tier", "cold") == found(data) == named(1, 2)
    with serving(data.root) as server:
        assert server.post(Signal.TRACES, spans(3)).status == 200
        assert found(data) == named(1, 2, 3)
        taken = server.ask("POST", "/api/v1/hot-snapshot", port="web").json
        assert taken["row_count"] == 1
