"""What the tests of the flush share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.pipeline.flush.helpers import Sent, without_spark

if TYPE_CHECKING:
    from tests.pipeline.helpers import Data


@pytest.fixture
def sent(data: Data) -> Sent:
    """An empty data directory that knows what is put into it."""
    return Sent(data)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flushes of this test call their tasks instead of giving them to Spark."""
    without_spark(monkeypatch)
