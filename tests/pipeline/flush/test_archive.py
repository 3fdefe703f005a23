"""Tables are made anew from the archive, and the pipeline goes on from there."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest

from penstock.model.positions import Reached
from penstock.pipeline.feeds import ArchiveFeed
from penstock.storage import DataDirectory
from tests.archive.worlds import archive_topics
from tests.pipeline.flush.helpers import Plain, logs, names_in, positions, without_spark
from tests.pipeline.helpers import LOGS, TRACES, Data, named, spans

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.model import Topic


@pytest.fixture
def feed(data: Data, tmp_path: Path) -> ArchiveFeed:
    """Of an archive that is still empty."""
    return ArchiveFeed(
        data.root, (tmp_path / "objects").as_uri(), (tmp_path / "metadata.db").as_uri()
    )


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch)


def archive(data: Data, feed: ArchiveFeed, *topics: Topic) -> None:
    """All that the logs of these topics have."""
    asyncio.run(archive_topics(data.root, feed.url, feed.metadata_url, *topics))


def test_a_lost_lake_is_made_from_the_archive(data: Data, feed: ArchiveFeed) -> None:
    """Segments that were deleted since are no matter."""
    data.seal([spans(1), spans(2)], [spans(3)])
    data.seal([logs("a")], topic=LOGS)
    archive(data, feed, TRACES, LOGS)
    shutil.rmtree(DataDirectory(data.root).partition(TRACES, 0).segments_folder)
    Plain(data, feed).run()
    assert names_in(data) == named(1, 2, 3)
    assert positions(data)[("/default/traces", 0)] == Reached(0, 3)


def test_replay_goes_on_where_it_ended(data: Data, feed: ArchiveFeed) -> None:
    """Objects that the tables have are passed over."""
    data.seal([spans(1)])
    archive(data, feed, TRACES)
    Plain(data, feed).run()
    data.seal([spans(2)])
    archive(data, feed, TRACES)
    Plain(data, feed).run()
    assert names_in(data) == named(1, 2)


def test_pipeline_goes_on_after_a_replay(data: Data, feed: ArchiveFeed, tmp_path: Path) -> None:
    """With a segment of which the archive had the first message, and the lake therefore too."""
    before = Data(tmp_path / "before")
    shutil.copy(data.root / "penstock.json", before.root)  # as it was once
    before.seal([spans(1)])
    archive(before, feed, TRACES)
    data.seal([spans(1), spans(2)], [spans(3)])
    Plain(data, feed).run()
    assert names_in(data) == named(1)
    Plain(data).run()
    assert names_in(data) == named(1, 2, 3)
