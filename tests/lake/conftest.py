"""A lake in an empty folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.table import Table

from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """An empty one."""
    with Lake.open(LakeSettings.of(tmp_path)) as lake:
        yield lake


@pytest.fixture
def table(lake: Lake) -> Table:
    """The table of spans, empty."""
    return lake.table("spans")
