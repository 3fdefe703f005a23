"""A request that names thousands of days costs a few files, and every span of it is found again."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pyiceberg.catalog import load_catalog

from penstock.otel import Signal
from tests.cli.running import Answer, finish, run, start
from tests.edges.hooks import hooked
from tests.pipeline.cluster import run_command
from tests.server.running import serving

pytestmark = pytest.mark.away
DAYS = 5000
DAY_NS = 86_400 * 10**9
EVERY_SPAN = DAYS + 10
NEAR = 3 + 32
"""The days of a tenant that get files: that of arrival, those beside it, and some others."""
FEW_FILES = NEAR + 2 + 2
"""And those before them, and after; the other tenant's; and one more if it is midnight."""
A_MONTH_LATER = """
inner = module.SystemClock.wall_ns
module.SystemClock.wall_ns = lambda self: inner(self) + 33 * 86_400 * 10**9
"""


def request(starts_ns: list[int], name: str) -> bytes:
    """A span at each of those times, with ids of their own."""
    found = ExportTraceServiceRequest()
    made = found.resource_spans.add().scope_spans.add().spans
    for number, start_ns in enumerate(starts_ns, 1):
        made.add(
            trace_id=f"{name}-{number}".rjust(16, "-").encode()[-16:],
            span_id=number.to_bytes(8, "big"),
            name=name,
            start_time_unix_nano=start_ns,
            end_time_unix_nano=start_ns + 1000,
        )
    return found.SerializeToString()


class Edge:
    """A data directory, used by commands and ports alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.data = folder / "data"
        noon = dt.datetime.now(dt.UTC).replace(hour=12, minute=0, second=0, microsecond=0)
        self.today = noon.date()
        noon_ns = int(noon.timestamp()) * 10**9
        self.wild = [noon_ns + (number - 4000) * DAY_NS for number in range(DAYS)]
        """The times of spans of five thousand days, four thousand of them before today."""
        self.far = 0
        """How many of them the pipeline says are far off."""

    def send(self, *, again: bool = False) -> None:
        """The wild ones with those of an honest client or, once more, in another request."""
        sent = {"wild": request(self.wild, "wild")}
        if again:
            sent["wild"] += request([time.time_ns()], "again")
        else:
            sent["calm"] = request([time.time_ns()] * 10, "calm")
        with serving(self.data) as server:
            for tenant, body in sent.items():
                answer = server.post(Signal.TRACES, body, x_penstock_namespace=tenant)
                assert answer.status == 200
            assert server.stop() == 0

    def run(self, *arguments: str, **variables: str) -> Answer:
        """A command of `penstock pipeline`."""
        where = ("--json", "--data-dir", self.data)
        answer = run_command(self._folder, "pipeline", *arguments, *where, **variables)
        assert answer.code == 0, answer.err
        return answer

    def a_month_later(self) -> dict[str, str]:
        """Variables for a command that runs then."""
        return hooked(self._folder / "later", "penstock.model.clock", A_MONTH_LATER)

    def asked(self, sql: str) -> list[dict[str, Any]]:
        """What `penstock query` answers of the lake."""
        answer = finish(start("query", "--data-dir", self.data, "--format", "json", sql))
        assert answer.code == 0, answer.err
        rows: list[dict[str, Any]] = answer.json
        return rows

    def files(self, row_filter: str = "name IS NOT NULL") -> list[str]:
        """Those that another reader of Iceberg plans to read."""
        uri = f"sqlite:///{self.data}/lake/catalog.db"
        with load_catalog("penstock", type="sql", uri=uri) as catalog:
            table = catalog.load_table("otel.spans")
            return [task.file.file_path for task in table.scan(row_filter).plan_files()]


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Edge:
    """A batch has taken the spans of five thousand days to the lake, beside those of today."""
    edge = Edge(tmp_path_factory.mktemp("edge"))
    edge.send()
    [report] = edge.run("run", "--once").json_lines
    assert report["rows"] == {"spans": EVERY_SPAN}
    assert report["files"] <= FEW_FILES
    assert report["far_off"].keys() == {"wild"}
    edge.far = report["far_off"]["wild"]
    assert edge.far >= DAYS - NEAR - 1
    return edge


def test_thousands_of_days_cost_a_few_files(edge: Edge) -> None:
    """And a few pages each."""
    files = edge.files()
    assert len(files) <= FEW_FILES
    assert sum(Path(path).stat().st_size for path in files) < 3_000_000


def test_every_span_is_found_with_its_own_time(edge: Edge) -> None:
    """By the query, and by engines that read the files of the table themselves."""
    sql = "SELECT start_time_unix_nano AS start FROM {} WHERE name = 'wild' ORDER BY ALL"
    assert [row["start"] for row in edge.asked(sql.format("spans"))] == edge.wild
    read = f"read_parquet({edge.files()}, hive_partitioning=false)"
    assert [row[0] for row in duckdb.sql(sql.format(read)).fetchall()] == edge.wild


@pytest.mark.parametrize("away", [-4000, -3, 999])
def test_a_span_is_found_by_its_time(edge: Edge, away: int) -> None:
    """However far it is from its arrival; other engines plan the file that has it."""
    day = edge.today + dt.timedelta(days=away)
    end = day + dt.timedelta(days=1)
    within = f"time >= '{day}T00:00:00+00:00' AND time < '{end}T00:00:00+00:00'"
    [row] = edge.asked(f"SELECT count(*) AS n FROM spans WHERE name = 'wild' AND {within}")  # noqa: S608 - our own
    assert row["n"] == 1
    sql = (
        f"SELECT count(*) FROM read_parquet({edge.files(within)}) WHERE name = 'wild' AND {within}"  # noqa: S608 - our own
    )
    assert duckdb.sql(sql).fetchall() == [(1,)]


def test_a_question_about_the_present_reads_the_present(edge: Edge) -> None:
    """Neither the files of days long ago nor of those to come."""
    begin, end = edge.today - dt.timedelta(days=7), edge.today + dt.timedelta(days=7)
    within = f"time >= '{begin}T00:00:00+00:00' AND time < '{end}T00:00:00+00:00'"
    assert not [path for path in edge.files(within) if "-past-" in path or "-future-" in path]


def test_far_rows_are_counted_by_tenant(edge: Edge) -> None:
    """In `/metrics`, of whoever sent them."""
    with serving(edge.data) as server:
        name = "penstock_pipeline_far_off_rows_total"
        assert server.metric(name, namespace="wild") == server.metric(name) == edge.far


def test_expiry_keeps_them_as_long_as_what_came_with_them(edge: Edge) -> None:
    """Not by the year that they name: neither gone at once, nor there for ever."""
    old = ("expire", "--older-than", "30d", "--table", "spans", "--dry-run")
    [now] = edge.run(*old).json["tables"]
    assert now["rows"] == 0
    [later] = edge.run(*old, **edge.a_month_later()).json["tables"]
    assert later["rows"] >= edge.far + 10


@pytest.fixture(scope="module")
def sent_again(edge: Edge) -> Edge:
    """The same spans came once more, in another batch and with one that is new."""
    edge.send(again=True)
    [report] = edge.run("run", "--once").json_lines
    assert report["rows"] == {"spans": 1}
    assert (report["repeated"], report["far_off"]) == (DAYS, {})
    return edge


def test_what_is_sent_again_is_there_once(sent_again: Edge) -> None:
    """Far-off rows as well as others."""
    assert sent_again.asked("SELECT count(*) AS n FROM spans") == [{"n": EVERY_SPAN + 1}]
    assert run("fsck", sent_again.data / "lake").code == 0
