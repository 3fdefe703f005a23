"""Spark Connect: the session is elsewhere, and the same things can be done with it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from penstock.pipeline import launch
from tests.pipeline.helpers import Data, spans
from tests.store.helpers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "127.0.0.1"
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_CLIENT = """
import sys
from penstock.pipeline import spark_session, stop_session
spark = spark_session(remote=sys.argv[1])
rows = spark.read.format("penstock").load(sys.argv[2]).where("service_name = 'bank'")
print([row.name for row in rows.collect()], spark.conf.get("spark.sql.session.timeZone"))
stop_session(spark)
"""
_NOBODY = """
from penstock.model.errors import PenstockError
from penstock.pipeline import spark_session
try:
    spark_session(remote="sc://127.0.0.1:1")
except PenstockError as error:
    print(error)
"""


def is_open(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as client:
        return client.connect_ex((HOST, port)) == 0


@pytest.fixture
def address() -> Iterator[str]:
    """A server of Spark Connect."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    settings = [f"spark.connect.grpc.binding.port={port}", "spark.ui.enabled=false"]
    options = [word for setting in settings for word in ("--conf", setting)]
    start = [Path(pyspark.__file__).parent / "bin" / "spark-submit", "--class", _SERVER]
    server = subprocess.Popen(
        [*start, "--master", "local[1]", *options, "spark-internal"],
        env={**os.environ, **launch._variables("local[1]")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with server:
        wait_until(lambda: is_open(port))
        yield f"sc://{HOST}:{port}"
        server.terminate()


def run(program: str, *arguments: str) -> str:
    """What it prints; its stderr is empty."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.soak
def test_source_can_be_read_over_connect(address: str, data: Data) -> None:
    """With the settings that results depend on."""
    pytest.importorskip("grpc_status")
    data.seal([spans(1), spans(2, service="bank")])
    assert run(_CLIENT, address, str(data.root)) == "['span 2'] UTC\n"


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_server_that_is_not_there_is_one_sentence() -> None:
    """As is a package that is not installed."""
    assert run(_NOBODY).startswith("sc://127.0.0.1:1 cannot be used: ")
