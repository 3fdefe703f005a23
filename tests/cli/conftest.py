"""What the tests of the command line share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.running import log_folder, make_data
from tests.cli.stores import Placed, make_store

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with two partitions of one topic, closed and sound."""
    return make_data(tmp_path / "data")


@pytest.fixture
def log(data: Path) -> Path:
    """The folder of its first log: files that begin with offsets 0, 20 and 50, and end with 59."""
    return log_folder(data)


@pytest.fixture
def store(tmp_path: Path) -> Placed:
    """A closed store with three segments of four bundles and two subscribers; see `make_store`."""
    return make_store(tmp_path / "data")
