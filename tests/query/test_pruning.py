"""Files that cannot have what is asked for are not opened, and no answer is another one."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.lake.commit import claim, commit
from penstock.lake.glance import glance
from penstock.lake.layout import batch_key
from penstock.lake.positions import read_positions
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake, Shape
from penstock.lake.target import Target
from penstock.lake.writer import write_rows
from penstock.model.positions import Reached, SourcePartition
from penstock.query.engine import ask
from tests.lake.helpers import SOURCE
from tests.pipeline.flush.helpers import lake_files, without_spark
from tests.pipeline.helpers import DAY_NS, MORNING_NS, Data, spans, trace_id
from tests.query.helpers import answer, cold, hot, named, names, values, warm

DAYS = 6


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Data]:
    """A span a day, each in a file of its own; one in a segment and one in the log."""
    with pytest.MonkeyPatch.context() as patched:
        without_spark(patched)
        data = Data(tmp_path_factory.mktemp("week") / "data")
        cold(data, *(_of_day(number) for number in range(1, DAYS + 1)))
        warm(data, _of_day(DAYS + 1))
        with hot(data, _of_day(DAYS + 2)):
            yield data


def _of_day(number: int) -> bytes:
    return spans(number, start_ns=MORNING_NS + number * DAY_NS - number * 3_600_000_000_000)


def opened(data: Data, sql: str) -> int:
    """How many files of the lake a statement reads."""
    return len(answer(data, sql).tables["spans"].cold.files)


@pytest.mark.parametrize(
    ("condition", "files", "numbers"),
    [
        ("time >= '2026-01-05'", 3, range(4, 9)),
        ("time < '2026-01-03'", 1, [1]),
        ("time BETWEEN '2026-01-03' AND '2026-01-05'", 2, [2, 3]),
        ("time = '2026-01-03 08:00:00'", 1, [2]),
        ("date = '2026-01-03'", 2, [2]),
        (f"start_time_unix_nano > {MORNING_NS + 5 * DAY_NS}", 2, [6, 7, 8]),
        (f"trace_id = '{trace_id(4).hex()}'", 1, [4]),
        (f"trace_id IN ('{trace_id(4).hex()}', '{trace_id(7).hex()}')", 1, [4, 7]),
        (f"trace_id = '{trace_id(8).hex()}'", 0, [8]),
        (f"trace_id = '{trace_id(4).hex()}' AND time < '2026-01-02'", 0, []),
        ("trace_id = 'nonsense'", 0, []),
        ("time >= '2026-01-05' OR name = 'span 1'", 6, [1, *range(4, 9)]),
        ("true", 6, range(1, 9)),
    ],
)
def test_condition_chooses_files_and_not_rows(
    week: Data, condition: str, files: int, numbers: list[int]
) -> None:
    """The answer is that of the condition, over all tiers; views too."""
    sql = f"FROM spans SELECT name WHERE {condition} ORDER BY name"
    assert [name for (name,) in values(week, sql)] == named(numbers)
    assert opened(week, sql) == files


def test_views_choose_files_too(week: Data) -> None:
    """By the names that they have for the columns."""
    for sql, files in (
        ("FROM otel_traces WHERE Timestamp < '2026-01-03'", 1),
        (f"FROM otel_traces WHERE TraceId = '{trace_id(4).hex()}'", 1),
        ("FROM otel_traces", 6),
    ):
        assert opened(week, sql) == files


def test_trace_with_large_columns_is_whole(week: Data) -> None:
    """Of segments and the log only what has the trace is decoded, and all of that."""
    for number in (7, 8):
        sql = f"FROM spans SELECT attributes, events WHERE trace_id = '{trace_id(number).hex()}'"
        [(attributes, events)] = values(week, sql)
        assert dict(attributes) == {"number": str(number)}
        assert [event["name"] for event in events] == ["done"]


def test_columns_that_are_left_out_come_when_they_are_asked_for(data: Data) -> None:
    """Whatever was asked before."""
    warm(data, spans(1))
    count, tag = "SELECT count(*) FROM spans", "SELECT attributes['number'] FROM spans"
    assert [values(data, sql) for sql in (count, tag, count)] == [[(1,)], [("1",)], [(1,)]]


def test_spans_without_ids_are_told_apart_by_their_content(data: Data) -> None:
    """Also where a statement needs none of it."""
    request = spans(0)
    other = spans(0, service="mail")
    warm(data, request, request, other)
    assert values(data, "SELECT count(*) FROM spans") == [(2,)]


def test_lake_under_another_name_is_read(data: Data, tmp_path: Path) -> None:
    """Manifests have the paths that they were written with."""
    cold(data, spans(1))
    link = tmp_path / "link"
    link.symlink_to(data.root)
    assert names(Data(link)) == named([1])


def test_lake_of_another_catalog_has_the_same_files(week: Data, tmp_path: Path) -> None:
    """With all that is known of them; one that does not answer is named."""
    own = LakeSettings.of(week.root)
    catalog = {"type": "sql", "uri": f"sqlite:///{own.warehouse}/catalog.db"}
    other = LakeSettings(warehouse=own.warehouse, catalog=catalog)
    by_path = attrgetter("path")
    files = sorted(glance(own, "spans").files, key=by_path)
    assert sorted(glance(other, "spans").files, key=by_path) == files
    found = ask(week.root, other, "FROM spans WHERE time < '2026-01-03'")
    assert (found.rows["name"].to_pylist(), found.warnings) == (named([1]), [])
    nowhere = {"type": "sql", "uri": f"sqlite:///{tmp_path}/absent/catalog.db"}
    silent = LakeSettings(warehouse=own.warehouse, catalog=nowhere)
    asked = "SELECT name FROM spans WHERE name = 'span 8'"
    found = ask(week.root, silent, asked, partial=True)
    assert (found.rows.num_rows, len(found.warnings)) == (1, 1)


def test_rollup_shows_a_caller_its_own_rows(data: Data) -> None:
    """In files that are the caller's, are not, or are shared."""
    schema = pa.schema(
        [("time", pa.timestamp("us", "UTC")), ("namespace", pa.string()), ("n", pa.int64())]
    )
    shape = Shape(schema, sorted_by=("n",))
    for number, owners in enumerate((["a"], ["b"], ["a", "b"])):
        rows = pa.table([[0] * len(owners), owners, [number] * len(owners)], schema=schema)
        _commit(data, "traces", shape, rows, number)
    found = {
        seen: values(data, "SELECT namespace, n FROM traces ORDER BY ALL", namespaces=seen)
        for seen in ((), ("a",), ("b",), ("a", "b"))
    }
    assert found[()] == []
    assert found[("a",)] == [("a", 0), ("a", 2)]
    assert found[("b",)] == [("b", 1), ("b", 2)]
    assert found[("a", "b")] == [("a", 0), ("a", 2), ("b", 1), ("b", 2)]
    assert len(lake_files(data, "traces")) == 3


def _commit(data: Data, name: str, shape: Shape, rows: pa.Table, number: int) -> None:
    with Lake.open(LakeSettings.of(data.root)) as lake:
        table = lake.table(name, shape)
        epoch, start = claim(table, [SOURCE]), read_positions(table)
        place = SourcePartition(SOURCE, "/default/made", 0)
        end = {**start, place: Reached(number + 1, number + 1)}
        key = batch_key(start, end, epoch)
        written = write_rows(rows, Target.of(table), key, 0)
        commit(table, written, start=start, end=end, epoch=epoch)
