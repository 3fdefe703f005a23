"""Batches with rows of days far from their arrival."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from penstock.lake.layout import Side, far_off_of
from penstock.pipeline.feeds import ArchiveFeed, DirectoryFeed
from penstock.pipeline.flush.progress import read_progress
from tests.archive.worlds import archive_topics
from tests.pipeline.flush.helpers import (
    Plain,
    lake_files,
    lake_rows,
    logs,
    names_in,
    without_spark,
)
from tests.pipeline.helpers import DAY_NS, LOGS, TRACES, Data, named, spans

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.pipeline.feeds import Feed

HOURS = range(24, 24 * 41, 24)
"""A span of each is a day after the one before."""
NARROW: dict[str, Any] = {"day_window_s": 10 * 86_400.0, "days_per_batch": 4}


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch)


def sides(data: Data, table: str = "spans") -> list[Side | None]:
    """Of the files of a table; None of those of a day."""
    found = [far_off_of(path) for path in lake_files(data, table)]
    return sorted((each and each.side for each in found), key=str)


def around_now() -> bytes:
    """Forty days, twenty of them past."""
    return spans(*HOURS, start_ns=time.time_ns() - 21 * DAY_NS)


def test_rows_far_from_now_share_a_file_on_each_side(data: Data) -> None:
    """Three usual days and the nearest four have theirs."""
    data.seal([around_now()])
    Plain(data, **NARROW).run()
    assert sides(data) == [None] * 7 + [Side.FUTURE, Side.PAST]
    assert names_in(data) == named(*HOURS)
    progress = read_progress(data.root)
    assert progress is not None
    assert progress["far_off"] == {"default": 33}


def test_a_far_row_that_comes_again_is_taken_out_of_its_file(data: Data) -> None:
    """The rest of the piece is written anew, as it was: not a file for each day."""
    data.seal([around_now()])
    Plain(data, **NARROW).run()
    data.seal([around_now() + spans(7, start_ns=DAY_NS)])
    Plain(data, **NARROW).run()
    assert names_in(data) == named(7, *HOURS)
    assert sides(data) == [None] * 7 + [Side.FUTURE, Side.PAST, Side.PAST]
    progress = read_progress(data.root)
    assert progress is not None
    assert progress["far_off"] == {"default": 34}


def test_logs_are_bounded_as_spans_are(data: Data) -> None:
    """Each table by itself."""
    data.seal([logs("long ago", start_ns=DAY_NS), logs("now", start_ns=time.time_ns())], topic=LOGS)
    Plain(data, **NARROW).run()
    assert sides(data, "logs") == [None, Side.PAST]
    assert sorted(lake_rows(data, "logs")["body"].to_pylist()) == ["long ago", "now"]


def test_an_archive_says_when_its_rows_came(data: Data, tmp_path: Path) -> None:
    """By its objects; a segment by its seal."""
    begun_ns = time.time_ns()
    data.seal([spans(1)])
    objects, metadata = (tmp_path / "objects").as_uri(), (tmp_path / "metadata.db").as_uri()
    asyncio.run(archive_topics(data.root, objects, metadata, TRACES))
    feeds: list[Feed] = [DirectoryFeed(data.root), ArchiveFeed(data.root, objects, metadata)]
    for source in (feed.segments() for feed in feeds):
        [segment] = source.since({})
        assert begun_ns - 10**9 <= source.arrived_ns(segment) <= time.time_ns() + 10**9
