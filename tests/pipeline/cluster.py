"""Real parts of Spark on loopback: a standalone cluster, and a Connect server.

Each is a process in a session of its own, so all that it has started can be found by that, whatever
process groups Spark's Python has made; and what still runs when it has ended is ended, too.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

from penstock.pipeline.java import find_java
from tests.cli.running import SCRIPT, Answer
from tests.patience import PATIENCE_S, until
from tests.pipeline.conftest import FOR_FEW_ROWS

SPARK_HOME = Path(pyspark.__file__).parent
MEMORY = "512m"
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
_PORTS = ("--port", "0", "--webui-port", "0")


class Part:
    """A process of Spark and all that it starts. What it prints is in `<folder>/log`."""

    def __init__(self, folder: Path, *command: str) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [SPARK_HOME / "bin" / "spark-class", *command],
                cwd=folder,
                env=_environment(folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def says(self, pattern: str) -> str:
        """Waits until it has printed that; what the pattern's group was."""
        found: re.Match[str] | None = None

        def printed() -> bool:
            nonlocal found
            found = re.search(pattern, self._log)
            return found is not None or self._process.poll() is not None

        until(printed)
        assert found is not None, self._log
        return found[1]

    @property
    def running(self) -> dict[int, str]:
        """Its processes: the command of each, by its id."""
        return dict(_of_session(self._process.pid))

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs that it has started."""
        return self.running.keys() == {self._process.pid}

    def end(self) -> None:
        """As an operator does; then whatever has not obeyed."""
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_S)
        finally:
            # Spark's workers for `foreachBatch` look for their server for ten minutes.
            for process_id in self.running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process_id, signal.SIGKILL)
        until(lambda: not self.running)

    @property
    def _log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")


@dataclass(frozen=True)
class Cluster:
    """A standalone cluster."""

    master: str
    parts: list[Part]

    @property
    def executors(self) -> list[list[str]]:
        """What each worker has run: its applications' executors, by their folders."""
        folders = [part.folder / "work" for part in self.parts[1:]]
        return [[path.name for path in folder.glob("app-*/*")] for folder in folders]


@contextlib.contextmanager
def standalone_cluster(
    folder: Path, hosts: Sequence[str] = ("127.0.0.1", "127.0.0.1")
) -> Iterator[Cluster]:
    """A master and a worker of one core at each address, ready; ended with the block."""
    with contextlib.ExitStack() as ending:

        def start(name: str, *command: str) -> Part:
            part = Part(folder / name, *command)
            ending.callback(part.end)
            return part

        master = start("master", _MASTER, "--host", "127.0.0.1", *_PORTS)
        address = master.says(r"Starting Spark master at (spark://\S+)")
        size = ("--cores", "1", "--memory", MEMORY, "--work-dir", "work")
        parts = [
            start(f"worker{n}", _WORKER, "--host", host, *_PORTS, *size, address)
            for n, host in enumerate(hosts)
        ]
        for part in parts:
            part.says("(Successfully registered) with master")
        yield Cluster(address, [master, *parts])


@dataclass(frozen=True)
class ConnectServer:
    """A server of Spark Connect that runs its tasks itself."""

    address: str
    part: Part


@contextlib.contextmanager
def connect_server(folder: Path) -> Iterator[ConnectServer]:
    """Ready; ended with the block."""
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        **FOR_FEW_ROWS,
        "spark.driver.extraJavaOptions": _QUICK,
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    pairs = [f"--conf={name}={value}" for name, value in settings.items()]
    part = Part(folder, _SUBMIT, "--class", _CONNECT, "--master=local[2]", *pairs, "spark-internal")
    try:
        port = part.says(r"Spark Connect server started at: 127\.0\.0\.1:([0-9]+)")
        yield ConnectServer(f"sc://127.0.0.1:{port}", part)
    finally:
        part.end()


@contextlib.contextmanager
def start_command(
    folder: Path, *arguments: str | Path, **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """Starts `penstock` as its users do; it is over after the block."""
    process = subprocess.Popen(
        [SCRIPT, *arguments],
        env={**os.environ, **quick_spark(folder), **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def run_command(folder: Path, *arguments: str | Path, **variables: str) -> Answer:
    """Waits for its end."""
    with start_command(folder, *arguments, **variables) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    return Answer(process.returncode, out, err)


def quick_spark(folder: Path, **more: str) -> dict[str, str]:
    """Variables for programs that start Spark: little work, and executors that fit the workers.

    `speculation="true"` is `spark.speculation`, and likewise with dots for underscores.
    """
    settings = {
        **{f"spark.{name.replace('_', '.')}": value for name, value in more.items()},
        **FOR_FEW_ROWS,
        "spark.executor.extraJavaOptions": _QUICK,
        "spark.executor.memory": MEMORY,
    }
    conf = folder / "conf"
    conf.mkdir(exist_ok=True)
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    (conf / "spark-defaults.conf").write_text("".join(lines))
    return {"SPARK_CONF_DIR": str(conf), "SPARK_SUBMIT_OPTS": _QUICK}


def _environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": f"{_QUICK} -Dspark.master.rest.enabled=false",
        "SPARK_DAEMON_MEMORY": "1g",
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def _of_session(session_id: int) -> Iterator[tuple[int, str]]:
    """The processes of a session, without those that have ended and wait to be noticed."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            # Behind the name, which may hold anything: state, parent, group, session.
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            if int(session) == session_id and state != "Z":
                command = stat.with_name("cmdline").read_text(errors="replace")
                yield int(stat.parent.name), command.replace("\0", " ")
