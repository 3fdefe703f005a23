"""How long after its sealing a span is in the lake, while the pipeline runs."""

from __future__ import annotations

import contextlib
import time
from statistics import median
from typing import TYPE_CHECKING

from harness import Row, child
from lake_data import REQUEST_SPANS, Requests, open_store
from lake_routes import lake_at, spark
from penstock.pipeline.flush.progress import Reports
from penstock.pipeline.flush.settings import FlushSettings
from penstock.pipeline.flush.stream import start_flush
from penstock.storage import DataDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql.streaming.query import StreamingQuery

    from harness import Run

SEAL_EVERY_S = 0.5
REQUESTS_A_SEGMENT = 4
SEGMENT_BYTES = 64 * 1024 * 1024
SPANS_A_SECOND = int(REQUESTS_A_SEGMENT * REQUEST_SPANS / SEAL_EVERY_S)
SETTINGS = FlushSettings(flush_max_age_s=1.0)
LOOK_S = 0.2
START_LIMIT_S = 60.0


def freshness(run: Run) -> Iterator[Row]:
    """From the sealing of a batch's oldest segment to its commit."""
    with run.folder() as folder, _pipeline(folder) as (query, reports), child(_seal, folder):
        _first_batch(query, reports)  # it has waited for the stream to start
        lags = list(_lags(reports, 6.0 if run.quick else 45.0))
    name = f"seal to commit, {SPANS_A_SECOND} spans/s"
    yield Row(f"{name}, p50", median(lags), "s", target=3.0, better="lower")
    yield Row(f"{name}, longest", max(lags), "s", better="lower")


@contextlib.contextmanager
def _pipeline(folder: Path) -> Iterator[tuple[StreamingQuery, Reports]]:
    """As `penstock pipeline run` has it within its session, with a shorter age."""
    DataDirectory(folder).create()
    reports = Reports(folder)
    query = start_flush(spark(), folder, lake_at(folder / "lake"), SETTINGS)
    try:
        yield query, reports
        while query.status["isTriggerActive"]:
            time.sleep(LOOK_S)
    finally:
        query.stop()


def _lags(reports: Reports, seconds: float) -> Iterator[float]:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(LOOK_S)
        yield from (report.lag_s for report in reports.new())


def _first_batch(query: StreamingQuery, reports: Reports) -> None:
    until = time.monotonic() + START_LIMIT_S
    while not reports.new():
        if not query.isActive or time.monotonic() > until:
            raise RuntimeError(f"the pipeline has done nothing: {query.exception()}")
        time.sleep(LOOK_S)


def _seal(data: Path) -> None:
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
