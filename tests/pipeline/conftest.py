"""What the tests of the pipeline share: one Spark for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.pipeline import spark_session, stop_session
from tests.pipeline.helpers import Data

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK_JAVA = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
FOR_FEW_ROWS = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}
"""Compiling a query costs more than a test's rows."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores, started with the first test that needs it."""
    session = spark_session("local[2]", settings={**QUICK_JAVA, **FOR_FEW_ROWS})
    yield session
    stop_session(session)


@pytest.fixture
def data(tmp_path: Path) -> Data:
    """An empty data directory."""
    return Data(tmp_path / "data")
