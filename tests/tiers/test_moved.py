"""A segment that goes to the lake between planning and reading is read there, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.lake.schemas import TABLES
from penstock.model.errors import DataMoved
from pyspark_penstock import DefaultSource
from tests.pipeline.flush.helpers import Plain, without_spark
from tests.pipeline.helpers import Data, named, spans

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Data:
    """An empty data directory; flushes do without Spark."""
    without_spark(monkeypatch)
    return Data(tmp_path / "data")


def planned(data: Data) -> Any:
    """A query over all tiers, as Spark plans it, and what reads it."""
    source = DefaultSource({"path": str(data.root), "table": "spans"})
    reader = source.reader(from_arrow_schema(TABLES["spans"]))
    return reader, reader.partitions()


def read(reader: Any, parts: Any) -> list[str]:
    """The names of the spans, as tasks find them."""
    batches = [batch for part in parts for batch in reader.read(part)]
    return sorted(name for batch in batches for name in batch.column("name").to_pylist())


def flush(data: Data, **settings: Any) -> None:
    """To the lake, which lets go of what it has."""
    Plain(data, **settings).run()
    for path in data.root.rglob("*.seg"):
        path.unlink()


def test_segment_that_went_to_the_lake_is_read_there(data: Data) -> None:
    """Each span once, what was sent again before too."""
    data.seal([spans(1, 2)])
    flush(data)
    data.seal([spans(2, 3)], [spans(3, 4)])
    reader, parts = planned(data)
    flush(data)
    assert read(reader, parts) == named(1, 2, 3, 4)


def test_segment_that_is_nowhere_is_an_error(data: Data) -> None:
    """It was dropped, or the lake has other rows of it than those that were planned."""
    data.seal([spans(1)])
    reader, parts = planned(data)
    for path in data.root.rglob("*.seg"):
        path.unlink()
    with pytest.raises(DataMoved, match=r"\.seg was moved .* read again"):
        read(reader, parts)
