"""Stores and servers for tests of the queue."""

from __future__ import annotations

import pytest

from tests.queue.plain_objects import PlainObjects
from tests.servers.fixtures import s3

__all__ = ["s3"]


@pytest.fixture
def plain() -> PlainObjects:
    """An empty store."""
    return PlainObjects()
