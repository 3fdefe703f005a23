"""A lake in an empty folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake

if TYPE_CHECKING:
    from pyiceberg.table import Table


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """An empty one."""
    with Lake.open(LakeSettings.of(tmp_path)) as lake:
        yield lake


@pytest.fixture
def table(lake: Lake) -> Table:
    """The table of spans, empty."""
    return lake.table("spans")
