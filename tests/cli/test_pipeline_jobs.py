"""`penstock pipeline compact | rollup | expire`: what they print, and how they end."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli import pipeline, pipeline_jobs
from penstock.lake.files import files_of_day
from penstock.lake.schemas import TABLES
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
from penstock.pipeline.jobs.schemas import SHAPES
from penstock.storage import DataDirectory
from tests.cli.running import Answer, run
from tests.lake.helpers import DAY, Flush, spans


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs are commands of the group."""
    for job in (pipeline_jobs.compact, pipeline_jobs.rollup, pipeline_jobs.expire):
        assert job.name is not None
        monkeypatch.setitem(pipeline.pipeline.commands, job.name, job)


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """No command may ask for Spark."""

    def refused(*_: object) -> None:
        raise AssertionError("there is nothing for Spark to do")

    monkeypatch.setattr(pipeline_jobs, "spark", refused)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data directory whose lake has three small files of one day."""
    root = tmp_path / "data"
    DataDirectory(root).create()
    with Lake.open(LakeSettings.of(root)) as lake:
        flush = Flush(lake.table("spans"))
        for number in range(3):
            flush.flush(spans(range(4 * number, 4 * number + 4)))
    return root


def job(name: str, root: Path, *options: str) -> Answer:
    """A job on the data directory, in this process."""
    return run("pipeline", name, "--data-dir", root, *options)


def first_file(root: Path) -> Path:
    """A data file of the lake."""
    with Lake.open(LakeSettings.of(root)) as lake:
        return Path(files_of_day(lake.table("spans"), DAY)[0].path)


@pytest.mark.usefixtures("warm")
def test_compaction_says_what_became_of_each_day(root: Path) -> None:
    """A line a day; the second time there is nothing to do."""
    answer = job("compact", root, "--min-files", "2")
    assert (answer.code, answer.err) == (0, "")
    assert re.fullmatch(
        r"spans 2025-11-15: 3 files \(.*iB\) are now 1 \(.*iB\) with 12 rows\n", answer.out
    )
    assert job("compact", root, "--min-files", "2").out == "nothing to do\n"


@pytest.mark.usefixtures("warm")
def test_compaction_reports_in_one_document(root: Path) -> None:
    """With everything that the lines say."""
    answer = job("compact", root, "--min-files", "2", "--json")
    [day] = answer.json["days"]
    assert (day["table"], day["day"], day["problem"]) == ("spans", "2025-11-15", None)
    assert (day["files_before"], day["files_after"]) == (3, 1)
    assert (day["rows"], day["repeats"]) == (12, 0)
    assert day["bytes_before"] > day["bytes_after"] > 0


@pytest.mark.usefixtures("without_spark")
@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--min-files", "2", "--table", "logs"],
        ["--min-files", "2", "--day", "2025-11-16"],
        ["--min-files", "2", "--target-size", "1kB"],
    ],
    ids=" ".join,
)
def test_spark_is_not_started_where_nothing_is_due(root: Path, options: list[str]) -> None:
    """Too few files, other tables, other days, files that are large enough."""
    assert job("compact", root, *options) == Answer(0, "nothing to do\n", "")


@pytest.mark.usefixtures("warm")
def test_day_with_a_problem_fails_the_command(root: Path) -> None:
    """After all days are done, in one sentence; which one stands in the report."""
    first_file(root).write_bytes(b"PAR1" + bytes(100))
    answer = job("compact", root, "--min-files", "2")
    assert (answer.code, answer.err) == (1, "penstock: 1 of 1 days have a problem\n")
    assert answer.out.startswith("spans 2025-11-15: 3 files")
    assert "arquet" in answer.out


@pytest.mark.usefixtures("warm")
def test_rollup_says_what_it_has_computed(root: Path) -> None:
    """A line for each table and day; the second time there is nothing to do."""
    answer = job("rollup", root, "--table", "traces", "--table", "service_red_1m")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines() == [
        "traces 2025-11-15: 3 rows of 12 spans in 3 files",
        "service_red_1m 2025-11-15: 3 rows of 12 spans in 3 files",
    ]
    assert job("rollup", root, "--table", "traces").out == "nothing to do\n"
    answer = job("rollup", root, "--json", "--day", "2025-11-15")
    assert [day["table"] for day in answer.json["days"]] == ["service_edges_1h"]


@pytest.mark.usefixtures("without_spark")
def test_expiry_lets_old_rows_go_without_spark(root: Path) -> None:
    """What goes is said, table by table; a dry run says what would."""
    line = "spans: 12 rows in 3 files, 0 snapshots and 0 unused files (0 B) "
    tried = job("expire", root, "--older-than", "30d", "--dry-run")
    assert tried == Answer(0, f"{line}would go\n", "")
    done = job("expire", root, "--older-than", "30d")
    assert done == Answer(0, f"{line}went\n", "")
    assert job("expire", root, "--older-than", "30d", "--json").json["tables"] == [
        {
            "table": "spans",
            "rows": 0,
            "files": 0,
            "snapshots": 0,
            "orphans": 0,
            "orphan_bytes": 0,
            "problem": None,
        }
    ]


def test_expiry_does_not_import_spark(root: Path) -> None:
    """It runs where Spark is not installed."""
    code = (
        "import sys; from penstock.cli import pipeline_jobs\n"
        "try:\n    pipeline_jobs.expire(sys.argv[1:])\n"
        "except SystemExit: print('pyspark' in sys.modules)"
    )
    command = [sys.executable, "-c", code, "--data-dir", str(root), "--json"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[1:] == ["False"]


@pytest.mark.usefixtures("without_spark")
@pytest.mark.parametrize("name", ["compact", "rollup", "expire"])
def test_data_without_a_lake_are_nothing_to_do(name: str, tmp_path: Path) -> None:
    """And no error: the pipeline may not have run yet."""
    DataDirectory(tmp_path).create()
    assert job(name, tmp_path) == Answer(0, "nothing to do\n", "")
    assert len(job(name, tmp_path, "--json").json_lines) == 1


@pytest.mark.parametrize("name", ["compact", "rollup", "expire"])
def test_missing_data_directory_is_one_sentence(name: str, tmp_path: Path) -> None:
    """No lake is made where no data are."""
    assert job(name, tmp_path / "nowhere").is_one_sentence()
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["compact", "--table", "traces"],
        ["compact", "--day", "yesterday"],
        ["compact", "--target-size", "large"],
        ["compact", "--min-files", "1"],
        ["rollup", "--table", "spans"],
        ["rollup", "--trace-max", "long"],
        ["expire", "--older-than", "soon"],
        ["expire", "--orphan-grace", "-1s"],
    ],
    ids=" ".join,
)
def test_arguments_that_mean_nothing_are_usage_errors(arguments: list[str]) -> None:
    """Exit code 2, and nothing on stdout."""
    answer = run("pipeline", *arguments)
    assert (answer.code, answer.out) == (2, "")


def test_tables_of_the_command_line_are_those_of_the_lake() -> None:
    """They are written down twice so that `--help` need not import Arrow."""
    assert tuple(TABLES) == pipeline_jobs.DATA
    assert tuple(SHAPES) == pipeline_jobs.ROLLUPS
