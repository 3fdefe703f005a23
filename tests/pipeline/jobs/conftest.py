"""A lake in an empty folder, for the jobs to work on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """An empty one."""
    with Lake.open(LakeSettings.of(tmp_path)) as lake:
        yield lake
