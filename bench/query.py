"""The benchmark of the query: one question over three tiers, against engines that read one.

DuckDB and Polars read the lake's Parquet files alone, by their paths. Penstock finds the files in
the catalog, and answers over fresh spans too, each span once. A process that asks again remembers
what it has decoded, as a server does; the first question of a process is a row of its own.
"""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import polars as pl

import harness
from harness import Row, Run, in_child
from lake_data import REQUEST_SPANS, Requests
from penstock.lake.glance import glance
from penstock.lake.settings import LakeSettings
from penstock.query.engine import ask
from penstock.tiers.doubles import record_doubles
from query_data import DAY_US, Tiers, copies, fill_lake, many_files, shop_rows, three_tiers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Measure
    from penstock.store import Store

MINUTE = "make_timestamptz(epoch_us(time) // 60000000 * 60000000)"
FAILED = "status_code = 'STATUS_CODE_ERROR'"
COUNT = "SELECT service_name, count(*) FROM {} GROUP BY ALL"
ERRORS = f"SELECT {MINUTE} AS m, avg(CAST({FAILED} AS INT)) FROM {{}} GROUP BY ALL"  # noqa: S608 - our own
DAYS = (1, 30, 365)
SMALL_SPANS = 2000
MANY = (10, 1000, 10_000)


def aggregates(run: Run) -> Iterator[Row]:
    """Over all of it, in turns with engines that see the lake's files alone."""
    cold, warm, hot = _sizes(run)
    with run.folder() as folder, three_tiers(folder, cold=cold, warm=warm, hot=hot) as made:
        tiers, store = made
        first = in_child(_first_s, tiers)
        for name, sql, plan in (
            ("count by service", COUNT, _polars_count),
            ("error rate by minute", ERRORS, _polars_errors),
        ):
            yield from _against(run, tiers, name, sql, plan)
        yield Row("count by service, first of a process", first * 1000, "ms", better="lower")
        memory = in_child(_peak_mb, tiers)
        yield Row("peak memory of both", memory, "MB", target=1000.0, better="lower")
        yield from _trace(run, tiers, f"one trace of {cold / 1e6:.2g} M spans")
        yield from _freshness(run, tiers, store)
        yield from _start_up(run, tiers)


def one_trace(run: Run) -> Iterator[Row]:
    """By its id alone, with a file for each day."""
    rows = shop_rows(SMALL_SPANS)
    for days in DAYS[:2] if run.quick else DAYS:
        with run.folder() as folder:
            trace_id = fill_lake(folder, copies(rows, days, DAY_US))
            yield from _trace(run, Tiers(folder, trace_id), f"one trace of {days} days")


def _sizes(run: Run) -> tuple[int, int, int]:
    return (1_000_000, 20_000, 2_000) if run.quick else (10_000_000, 200_000, 20_000)


def _against(
    run: Run, tiers: Tiers, name: str, sql: str, plan: Callable[[pl.LazyFrame], pl.LazyFrame]
) -> Iterator[Row]:
    paths = [file.path for file in glance(tiers.lake, "spans").files]
    connection = duckdb.connect()
    scanned = sql.format(f"read_parquet({paths})")
    found = run.medians(
        {
            "penstock": partial(_timed, lambda: _ask(tiers, sql.format("spans"))),
            "DuckDB": partial(_timed, lambda: connection.execute(scanned).fetchall()),
            "Polars": partial(_timed, lambda: plan(pl.scan_parquet(paths)).collect()),
        }
    )
    ours = found.pop("penstock")
    best = min(found, key=lambda each: found[each])
    target = None if run.quick else 1.3
    label = f"{best}, the lake alone"
    yield Row(name, ours * 1000, "ms", label, found[best] * 1000, target=target, better="lower")


def _polars_count(rows: pl.LazyFrame) -> pl.LazyFrame:
    return rows.group_by("service_name").len()


def _polars_errors(rows: pl.LazyFrame) -> pl.LazyFrame:
    minute = pl.col("time").dt.truncate("1m")
    failed = (pl.col("status_code") == "STATUS_CODE_ERROR").mean()
    return rows.group_by(minute).agg(failed)


def _trace(run: Run, tiers: Tiers, name: str) -> Iterator[Row]:
    sql = f"SELECT * FROM spans WHERE trace_id = '{tiers.trace_id}'"  # noqa: S608 - our own
    assert _ask(tiers, sql) > 0
    spent = run.medians({"": partial(_timed, lambda: _ask(tiers, sql))})[""]
    yield Row(name, spent * 1000, "ms", target=50.0, better="lower")


def _freshness(run: Run, tiers: Tiers, store: Store) -> Iterator[Row]:
    """From an acknowledgement until a question that began after it is answered with the span."""
    requests, lags = Requests(8, seed=3), []
    seen = _value(tiers, "SELECT count(*) FROM spans")
    for number in range(20 if run.quick else 200):
        store.append(requests.request(number, time.time_ns())).durable.wait()
        started = time.perf_counter()
        seen += REQUEST_SPANS
        if _value(tiers, "SELECT count(*) FROM spans") != seen:
            raise RuntimeError("an acknowledged request was not seen")
        lags.append(time.perf_counter() - started)
    lags.sort()
    slowest = lags[int(len(lags) * 0.99)]
    name = f"acknowledged to visible, {REQUEST_SPANS} spans, p99"
    yield Row(name, slowest, "s", target=1.0, better="lower")


def _start_up(run: Run, tiers: Tiers) -> Iterator[Row]:
    """Wall time of a command that asks for nothing much."""
    penstock = Path(sys.executable).with_name("penstock")
    command = [str(penstock), "query", "--data-dir", str(tiers.folder)]

    def trivial(sql: str) -> None:
        subprocess.run([*command, sql], check=True, stdout=subprocess.DEVNULL)

    measures: dict[str, Measure] = {
        "SELECT 1": partial(_timed, lambda: trivial("SELECT 1")),
        "SELECT count(*)": partial(_timed, lambda: trivial("SELECT count(*) FROM spans")),
    }
    for name, spent in run.medians(measures).items():
        target = 1.0 if name == "SELECT 1" else None
        yield Row(f"penstock query '{name}'", spent, "s", target=target, better="lower")


def _first_s(tiers: Tiers) -> float:
    return _timed(lambda: _ask(tiers, COUNT.format("spans")))


def _peak_mb(tiers: Tiers) -> float:
    """In a process that does nothing else."""
    for sql in (COUNT, ERRORS):
        _ask(tiers, sql.format("spans"))
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


def _ask(tiers: Tiers, sql: str) -> int:
    answer = ask(tiers.folder, tiers.lake, sql)
    if answer.warnings:
        raise RuntimeError(answer.warnings[0])
    return int(answer.rows.num_rows)


def _value(tiers: Tiers, sql: str) -> int:
    return int(ask(tiers.folder, tiers.lake, sql).rows[0][0].as_py())


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def many_small_files(run: Run) -> Iterator[Row]:
    """How much later a question begins in a new process the more files there are.

    It wants one row, so that what is measured is finding the files, not reading them. They were
    compared before, as the pipeline does beside writing them.
    """
    begun: dict[int, float] = {}
    for count in MANY[:2] if run.quick else MANY:
        with run.folder() as folder:
            many_files(folder, count)
            spent = _timed(partial(record_doubles, LakeSettings.of(folder)))
            yield Row(f"comparing {count:,} files once", spent, "s", better="lower")
            found = run.medians(
                {
                    "begins": partial(_command_s, folder, "SELECT name FROM spans LIMIT 1"),
                    "counted": partial(_command_s, folder, "SELECT count(*) FROM spans"),
                }
            )
        begun[count] = found["begins"]
        yield Row(f"count of {count:,} files", found["counted"], "s", better="lower")
        later = begun[count] - begun[MANY[0]]
        name = f"a question over {count:,} files begins later than over {MANY[0]}"
        yield Row(name, later, "s", target=1.0, better="lower")


def _command_s(folder: Path, sql: str) -> float:
    penstock = Path(sys.executable).with_name("penstock")
    command = [str(penstock), "query", "--data-dir", str(folder), sql]
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


CASES = [aggregates, one_trace, many_small_files]

if __name__ == "__main__":
    harness.main("query", CASES)
