"""What the tests of the command line share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.cli.running import log_folder, make_data
from tests.cli.stores import Placed, make_store

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


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


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    """The one of the pipeline's tests, if they run in this process too."""
    from penstock.pipeline import spark_session, stop_session
    from tests.pipeline.conftest import FOR_FEW_ROWS, QUICK_JAVA

    session = spark_session("local[2]", settings={**QUICK_JAVA, **FOR_FEW_ROWS})
    yield session
    stop_session(session)


@pytest.fixture
def warm(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands use a Spark session that is there, and leave it."""

    @contextlib.contextmanager
    def given(master: str, remote: str | None) -> Iterator[SparkSession]:
        assert (master, remote) == ("local[*]", None)
        yield session

    for module in ("pipeline", "pipeline_jobs"):
        monkeypatch.setattr(f"penstock.cli.{module}.spark", given)
