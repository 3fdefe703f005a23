"""Small lakes of known content in a data directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
from tests.lake.helpers import NEXT_DAY, Flush, spans

if TYPE_CHECKING:
    from pathlib import Path


def make_lake(data: Path) -> Path:
    """40 spans of one day and 30 of the next, in a commit and a file each; returns the folder."""
    with Lake.open(LakeSettings.of(data)) as lake:
        flush = Flush(lake.table("spans"))
        flush.flush(spans(range(40)))
        flush.flush(spans(range(40, 70), NEXT_DAY))
    return data / "lake"
