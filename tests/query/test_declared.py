"""Many files are read with declared columns: the same rows, and none is opened before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.lake.glance import glance
from penstock.lake.settings import LakeSettings
from penstock.query import declared
from penstock.query.files import listed
from tests.pipeline.helpers import Data, spans
from tests.query.helpers import cold, named, names, values
from tests.tiers.test_doubles import twice

if TYPE_CHECKING:
    from pathlib import Path

ALL = "SELECT * FROM spans ORDER BY name"


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files are many."""
    monkeypatch.setattr(declared, "FEW_FILES", 1)


def files(data: Data) -> list[str]:
    """Of the lake, in the order of their commits."""
    found = glance(LakeSettings.of(data.root), "spans").files
    return [file.path for file in sorted(found, key=lambda file: file.sequence)]


def test_rows_are_the_same_whichever_way_columns_are_found(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maps, structs and lists included."""
    for number in (1, 2, 3):
        cold(data, spans(number))
    one_way = values(data, ALL)
    monkeypatch.setattr(declared, "FEW_FILES", 1)
    assert declared.declared(files(data)) is not None
    assert values(data, ALL) == one_way
    assert len(one_way) == 3


@pytest.mark.usefixtures("many")
def test_doubles_are_left_out_by_the_numbers_of_their_rows(data: Data) -> None:
    """Which are counted in each file."""
    twice(data, spans(1, 2))
    twice(data, spans(2, 3))
    twice(data, spans(1, 4))
    assert names(data) == named([1, 2, 3, 4])


@pytest.mark.usefixtures("many")
def test_file_that_somebody_else_wrote_says_itself_which_columns_it_has(data: Data) -> None:
    """It may not number them as ours do."""
    cold(data, spans(1))
    cold(data, spans(2))
    ours = files(data)
    assert declared.declared([*ours, str(data.root / "lake" / "theirs.parquet")]) is None
    assert declared.declared(ours[:1]) is None


@pytest.mark.usefixtures("many")
def test_only_the_newest_file_is_opened_before_reading(data: Data) -> None:
    """The others may be thousands."""
    cold(data, spans(1))
    cold(data, spans(2))
    found = glance(LakeSettings.of(data.root), "spans").files
    first: Path = data.root / files(data)[0]
    first.rename(first.with_name("elsewhere"))
    assert "schema = MAP" in listed(found)
    first.with_name("elsewhere").rename(first)
    assert names(data) == named([1, 2])
