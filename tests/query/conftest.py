"""What the tests of the query share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pytest

from tests.pipeline.flush.helpers import without_spark
from tests.pipeline.helpers import Data, spans
from tests.query.helpers import cold, warm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from duckdb import DuckDBPyConnection


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Data:
    """An empty data directory; flushes do without Spark."""
    without_spark(monkeypatch)
    return Data(tmp_path / "data")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Data]:
    """A data directory with a span in the lake and one in a segment, for tests that only read."""
    with pytest.MonkeyPatch.context() as patched:
        without_spark(patched)
        data = Data(tmp_path_factory.mktemp("filled") / "data")
        cold(data, spans(1))
        warm(data, spans(2))
        yield data


@pytest.fixture(scope="module")
def connection() -> Iterator[DuckDBPyConnection]:
    """A database with nothing in it."""
    with duckdb.connect(":memory:") as found:
        found.execute("SET TimeZone = 'UTC'")
        yield found
