"""Whose the positions are that 0.1 left in a lake."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.lake.settings import LakeSettings
from penstock.model.errors import ForeignPosition
from penstock.model.positions import UNKNOWN, Reached, SourcePartition
from penstock.storage import DataDirectory
from penstock.tiers.adoption import DirectoryAdoption, OldPositions, QueueAdoption, adopted
from tests.edges.lake_v1 import unpacked
from tests.pipeline.helpers import Data, spans

TRACES = SourcePartition(UNKNOWN, "/default/traces", 0)
QUEUED = SourcePartition(UNKNOWN, "/default/traces", 65_535)
AT = {TRACES: Reached(1, 3)}
"""Where the lake of the fixture is."""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A directory of 0.1, with its lake in it; its log ends at 5."""
    return unpacked(tmp_path)


def elsewhere(tmp_path: Path) -> LakeSettings:
    """A lake that lies in no data directory."""
    return LakeSettings(warehouse=str(tmp_path / "elsewhere"))


def own(data: Path) -> SourcePartition:
    """The same partition, of that directory."""
    return TRACES._replace(source=DataDirectory(data).identity())


def test_the_lake_in_a_directory_is_its_own(old: Path) -> None:
    """And what came from a queue is not."""
    adoption = DirectoryAdoption(old, LakeSettings.of(old))
    assert adoption({**AT, QUEUED: Reached(1, 2)}) == {TRACES: own(old)}
    assert adopted(AT, (), adoption) == {own(old): Reached(1, 3)}
    assert adopted(AT, {adoption.source}, adoption) == AT, "it has claimed the table, and left them"


def test_a_directory_whose_pipeline_ran_under_0_1_adopts_them_elsewhere(
    tmp_path: Path, old: Path
) -> None:
    """Unless it had a lake of its own, or nothing says that it ran: then somebody has to say."""
    lake = elsewhere(tmp_path)
    with pytest.raises(ForeignPosition, match="--old-positions"):
        DirectoryAdoption(old, lake)(AT)
    (old / "lake").rename(tmp_path / "elsewhere")
    assert DirectoryAdoption(old, lake)(AT) == {TRACES: own(old)}
    shutil.rmtree(old / "pipeline")
    with pytest.raises(ForeignPosition, match="--old-positions"):
        DirectoryAdoption(old, lake)(AT)
    assert DirectoryAdoption(old, lake, OldPositions.ADOPT)(AT) == {TRACES: own(old)}
    assert DirectoryAdoption(old, lake, OldPositions.LEAVE)(AT) == {}


def test_a_position_beyond_the_log_is_never_adopted_in_silence(old: Path) -> None:
    """It cannot be this directory's."""
    with pytest.raises(ForeignPosition, match="offset 6"):
        DirectoryAdoption(old, LakeSettings.of(old))({TRACES: Reached(9, 6)})


def test_a_fresh_directory_leaves_them(tmp_path: Path) -> None:
    """Nothing of it was ever let go of, so nothing of it can be in the lake."""
    fresh = Data(tmp_path / "fresh")
    adoption = DirectoryAdoption(fresh.root, elsewhere(tmp_path))
    assert adoption(AT) == {}
    fresh.seal([spans(1)], [spans(2)], [spans(3)], [spans(4)])
    assert adoption(AT) == {}


def test_a_queue_adopts_those_of_queues() -> None:
    """Its sequences say whether they are its own."""
    adoption = QueueAdoption("ab" * 16)
    assert adoption({**AT, QUEUED: Reached(7, 8)}) == {QUEUED: QUEUED._replace(source="ab" * 16)}
