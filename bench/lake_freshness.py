"""How long after its sealing a span is in the lake, while the pipeline runs."""

from __future__ import annotations

import time
from statistics import median, quantiles
from typing import TYPE_CHECKING

from harness import Row, child
from lake_data import Requests, open_store
from lake_routes import lake_at, spark
from penstock.pipeline.flush.progress import Reports
from penstock.pipeline.flush.settings import FlushSettings
from penstock.pipeline.flush.stream import start_flush
from penstock.storage import DataDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness import Run
    from pyspark.sql.streaming.query import StreamingQuery

SEAL_EVERY_S = 0.5
REQUESTS_A_SEGMENT = 4
SEGMENT_BYTES = 64 * 1024 * 1024
SETTINGS = FlushSettings(flush_max_age_s=1.0)
LOOK_S = 0.2
START_LIMIT_S = 60.0


def freshness(run: Run) -> Iterator[Row]:
    """From the sealing of a batch's oldest segment to its commit."""
    with run.folder() as folder:
        data = folder / "data"
        DataDirectory(data).create()
        with child(_seal_steadily, data):
            lags = _lags(data, folder / "lake", 8.0 if run.quick else 60.0)
    name = f"from seal to commit, {4000} spans/s"
    yield Row(f"{name}, p50", median(lags), "s", target=3.0, better="lower")
    yield Row(f"{name}, p95", quantiles(lags, n=20)[-1], "s", better="lower")


def _lags(data: Path, lake: Path, seconds: float) -> list[float]:
    """Of the batches of that time; the first, which waited for the stream to start, is left out."""
    reports, lags = Reports(data), []
    query = start_flush(spark(), data, lake_at(lake), SETTINGS)
    try:
        _first_batch(query, reports)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(LOOK_S)
            lags += [report.lag_s for report in reports.new()]
    finally:
        query.stop()
    return lags


def _first_batch(query: StreamingQuery, reports: Reports) -> None:
    until = time.monotonic() + START_LIMIT_S
    while not reports.new():
        if not query.isActive or time.monotonic() > until:
            raise RuntimeError(f"the pipeline has done nothing: {query.exception()}")
        time.sleep(LOOK_S)


def _seal_steadily(data: Path) -> None:
    requests, number = Requests(16), 0
    with open_store(data, SEGMENT_BYTES) as store:
        due = time.monotonic()
        while True:
            for _ in range(REQUESTS_A_SEGMENT):
                store.append(requests.request(number))
                number += 1
            store.flush()
            due += SEAL_EVERY_S
            time.sleep(max(0.0, due - time.monotonic()))
