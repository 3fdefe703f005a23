"""What the tests of the tiers share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.pipeline.flush.helpers import without_spark
from tests.pipeline.helpers import Data

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Data:
    """An empty data directory; flushes do without Spark."""
    without_spark(monkeypatch)
    return Data(tmp_path / "data")
