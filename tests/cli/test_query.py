"""`penstock query` answers in every format, and fails as a command should."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.running import Answer, finish, run, start
from tests.patience import PATIENCE_S
from tests.pipeline.flush.helpers import without_spark
from tests.pipeline.helpers import Data, spans
from tests.query.helpers import cold, hot, warm

NAMES = "SELECT name, attributes FROM spans ORDER BY name"
MANY = "SELECT range AS number, repeat('x', 100) AS text FROM range(200000)"


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data directory with a span in each tier."""
    with pytest.MonkeyPatch.context() as patched:
        without_spark(patched)
        data = Data(tmp_path_factory.mktemp("asked") / "data")
        cold(data, spans(1))
        warm(data, spans(2))
        with hot(data, spans(3)):
            yield data.root


def query(data: Path, *arguments: str) -> Answer:
    """Runs the command in this process."""
    return run("query", "--data-dir", data, *arguments)


def piped(data: Path, *arguments: str) -> bytes:
    """What the command writes into a pipe."""
    process = start("query", "--data-dir", data, *arguments)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (0, b"")
    return bytes(out)


def test_table_has_a_header_and_a_line_for_each_row(asked: Path) -> None:
    """For people."""
    answer = query(asked, "SELECT name, service_name FROM spans ORDER BY name")
    header, *lines = answer.out.splitlines()
    assert header.split() == ["name", "service_name"]
    assert [line.split() for line in lines] == [["span", str(n), "shop"] for n in (1, 2, 3)]
    assert (answer.code, answer.err) == (0, "")


@pytest.mark.parametrize("arguments", [("--format", "json"), ("--json",)])
def test_json_is_one_document_and_nothing_else(asked: Path, arguments: tuple[str, ...]) -> None:
    """Both options say the same."""
    found = json.loads(piped(asked, *arguments, NAMES))
    assert found == [{"name": f"span {n}", "attributes": {"number": str(n)}} for n in (1, 2, 3)]


def test_csv_can_be_read_again(asked: Path) -> None:
    """With a line of names."""
    text = piped(asked, "--format", "csv", NAMES).decode()
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows[0] == ["name", "attributes"]
    assert rows[1] == ["span 1", '{"number": "1"}']
    assert len(rows) == 4


def test_arrow_is_a_stream(asked: Path) -> None:
    """With the types that the answer has."""
    rows = pa.ipc.open_stream(piped(asked, "--format", "arrow", NAMES)).read_all()
    assert rows["name"].to_pylist() == ["span 1", "span 2", "span 3"]
    assert pa.types.is_map(rows.schema.field("attributes").type)


def test_parquet_is_a_file(asked: Path) -> None:
    """That can be written into a pipe as well."""
    rows = pq.read_table(io.BytesIO(piped(asked, "--format", "parquet", NAMES)))
    assert rows["name"].to_pylist() == ["span 1", "span 2", "span 3"]


@pytest.mark.parametrize(
    ("tier", "count"), [("hot", 1), ("warm", 1), ("cold", 1), ("hot,cold", 2), (" cold , warm", 2)]
)
def test_only_the_tiers_that_are_named_are_asked(asked: Path, tier: str, count: int) -> None:
    """In any order."""
    answer = query(asked, "--tier", tier, "SELECT name FROM spans")
    assert len(answer.out.splitlines()) == 1 + count


def test_explain_tells_rows_and_times_of_each_tier_on_stderr(asked: Path) -> None:
    """The answer stays alone on stdout."""
    answer = query(asked, "--explain", "SELECT name FROM spans")
    assert len(answer.out.splitlines()) == 4
    lines = answer.err.splitlines()
    assert lines[0] == "spans:"
    for tier, rows in (("hot", "1 rows"), ("warm", "1 rows"), ("cold", "1 rows in 1 files")):
        [line] = (line for line in lines if line.split()[0] == tier)
        assert f"{rows}, looked at in " in line
        assert line.endswith(" ms")
    assert lines[-1].startswith("3 rows in ")


@pytest.mark.parametrize(
    "sql",
    [
        "SELEC 1",
        "SELECT nothing FROM spans",
        "FROM nowhere",
        "DROP VIEW spans",
        "FROM '/etc/passwd'",
    ],
)
def test_statement_that_is_wrong_is_one_sentence(asked: Path, sql: str) -> None:
    """On stderr, with exit code 1."""
    assert query(asked, sql).is_one_sentence()


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--tier", "lukewarm", "SELECT 1"),
        ("--tier", "", "SELECT 1"),
        ("--format", "xml", "SELECT 1"),
        ("--nonsense", "SELECT 1"),
        ("SELECT 1", "SELECT 2"),
    ],
)
def test_wrong_use_has_exit_code_2(asked: Path, arguments: tuple[str, ...]) -> None:
    """With how it is meant."""
    answer = query(asked, *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert "Usage: penstock query" in answer.err


def test_folder_that_is_no_data_directory_is_one_sentence(tmp_path: Path) -> None:
    """Nothing is made there."""
    assert query(tmp_path, "SELECT 1").is_one_sentence()
    assert query(tmp_path / "absent", "SELECT 1").is_one_sentence()
    assert list(tmp_path.iterdir()) == []


def test_damage_is_told_on_stderr_and_the_rest_answered_on_demand(tmp_path: Path) -> None:
    """Exit code 0 where a partial answer is asked for."""
    data = Data(tmp_path / "data")
    warm(data, spans(1))
    warm(data, spans(2))
    path = data.segment(0)
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-40])
    answer = query(data.root, "--partial", "--tier", "warm", "SELECT name FROM spans")
    assert answer.code == 0
    assert answer.out.split() == ["name", "span", "2"]
    assert path.name in answer.err


@pytest.mark.parametrize("shown", ["table", "json", "csv", "arrow", "parquet"])
def test_reader_that_goes_away_is_no_error(asked: Path, shown: str) -> None:
    """As with `head`: silence, and exit code 0."""
    process = start("query", "--data-dir", asked, "--format", shown, MANY)
    assert process.stdout is not None
    assert process.stdout.read(10)
    process.stdout.close()
    process.stdout = None
    answer = finish(process)
    assert (answer.code, answer.err) == (0, "")


def test_help_has_an_example() -> None:
    """And names the tables."""
    answer = run("query", "--help")
    assert answer.code == 0
    assert 'Example: penstock query "SELECT' in answer.out
    assert "service_red_1m" in answer.out
