"""Spark Connect: the session is elsewhere, and the same things can be done with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
from penstock.pipeline.flush.progress import read_progress
from tests.patience import until
from tests.pipeline.cluster import (
    PATIENCE_S,
    ConnectServer,
    connect_server,
    run_command,
    start_command,
)
from tests.pipeline.helpers import Data, spans
from tests.pipeline.shop import fill, lake_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.away
_CLIENT = """
import sys
from penstock.pipeline import spark_session, stop_session
spark = spark_session(remote=sys.argv[1])
rows = spark.read.format("penstock").load(sys.argv[2]).where("service_name = 'bank'")
print([row.name for row in rows.collect()], spark.conf.get("spark.sql.session.timeZone"))
stop_session(spark)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """Started with the first test that needs it."""
    with connect_server(tmp_path_factory.mktemp("connect") / "server") as server:
        yield server


def run_once(server: ConnectServer, data: Data, folder: Path) -> dict[str, int]:
    """Takes what is there to the lake; what it says of the rows."""
    where = ("--remote", server.address, "--data-dir", data.root)
    answer = run_command(folder, "pipeline", "run", "--once", "--json", *where)
    assert (answer.code, answer.err) == (0, "")
    return answer.json["rows"] if answer.out else {}


def test_pipeline_runs_over_connect(server: ConnectServer, data: Data, tmp_path: Path) -> None:
    """The flush travels to the server and leaves nothing there; the lake has what was stored."""
    stored = fill(data)
    assert run_once(server, data, tmp_path) == stored == lake_rows(data.root)
    until(lambda: not any("foreach_batch" in name for name in server.part.running.values()))


def test_source_can_be_read_over_connect(server: ConnectServer, data: Data) -> None:
    """With the settings that results depend on."""
    data.seal([spans(1), spans(2, service="bank")])
    command = [sys.executable, "-c", _CLIENT, server.address, str(data.root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.stdout, done.stderr) == ("['span 2'] UTC\n", "")


@pytest.mark.soak
def test_stream_of_a_killed_client_ends_when_another_runs(
    server: ConnectServer, data: Data, tmp_path: Path
) -> None:
    """Until then the server goes on with it; no row is in the lake twice."""
    stored = fill(data)
    command = ("pipeline", "run", "--remote", server.address, "--data-dir", data.root)
    with start_command(tmp_path, *command, PENSTOCK_PIPELINE_FLUSH_MAX_AGE_SECS="0") as killed:
        until(lambda: read_progress(data.root) is not None)
        killed.kill()
    assert run_once(server, data, tmp_path) == {}
    data.seal([spans(*range(10))], [spans(*range(10, 20))])
    server.part.says("Query penstock-flush.* (terminated with error)")
    assert run_once(server, data, tmp_path) == {"spans": 20}
    assert lake_rows(data.root) == {**stored, "spans": stored["spans"] + 20}


@pytest.mark.soak
def test_server_that_dies_is_told_in_one_sentence(data: Data, tmp_path: Path) -> None:
    """Spark itself would look for it for ten minutes, deaf to signals."""
    stored = fill(data)
    with connect_server(tmp_path / "server") as server:
        command = ("pipeline", "run", "--remote", server.address, "--data-dir", data.root)
        with start_command(tmp_path, *command, PENSTOCK_PIPELINE_FLUSH_MAX_AGE_SECS="0") as run:
            until(lambda: read_progress(data.root) is not None)
            server.part.end()
            _, err = run.communicate(timeout=PATIENCE_S)
    assert err == "penstock: Spark does not answer any more; what was committed is in the lake\n"
    assert lake_rows(data.root) == stored


def test_a_refusal_of_the_flush_is_one_sentence(
    server: ConnectServer, data: Data, tmp_path: Path
) -> None:
    """As with a local master: Connect puts the traceback of its worker around it."""
    fill(data)
    with Lake.open(LakeSettings.of(data.root)) as lake, lake.table("spans").update_schema() as gone:
        gone.delete_column(("resource", "attributes"))
    where = ("--remote", server.address, "--data-dir", data.root)
    answer = run_command(tmp_path, "pipeline", "run", "--once", *where)
    assert answer.is_one_sentence(), answer.err
    told = "resource.attributes is not in the table any more, and Penstock writes it"
    assert answer.err == f"penstock: {told}\n"
