"""`penstock pipeline run` as the processes that it is, to be killed one by one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.patience import PATIENCE_S
from tests.pipeline.flush.running import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
SCRIPT = Path(sys.executable).parent / "penstock"
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "PENSTOCK_PIPELINE_FLUSH_MAX_MB": "1B",
    "PENSTOCK_PIPELINE_FLUSH_INTERVAL": "50ms",
}
"""A batch as soon as there is a segment."""
TARGETS = ("worker", "java", "driver")


class Pipeline:
    """The command, in a session of its own, and the processes below it. No others are touched."""

    def __init__(self, data_dir: Path, folder: Path, *options: str) -> None:
        self._out, self._err = folder / "out", folder / "err"
        command = [SCRIPT, "pipeline", "run", "--data-dir", data_dir, "--master", "local[2]"]
        environment = {**os.environ, **SETTINGS, "SPARK_SUBMIT_OPTS": QUICK_JAVA}
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [*command, *options],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment,
                start_new_session=True,
            )

    @property
    def out(self) -> list[str]:
        """What it has printed so far."""
        return self._out.read_text().splitlines()

    @property
    def err(self) -> str:
        """The same of stderr."""
        return self._err.read_text()

    @property
    def is_running(self) -> bool:
        """Whether the command itself is."""
        return self.process.poll() is None

    def pids(self, target: str) -> list[int]:
        """Its processes of that kind, by what runs in them."""
        if target == "driver":
            return [self.process.pid]
        wanted = b"/bin/java\0" if target == "java" else b"pyspark.daemon\0pyspark.worker"
        return [pid for pid in descendants(self.process.pid) if wanted in command_line(pid)]

    def wait_for(self, target: str) -> list[int]:
        """Until there is such a process, or the command has ended."""
        found: list[int] = []

        def is_there() -> bool:
            found[:] = self.pids(target)
            return bool(found) or not self.is_running

        wait_for(is_there)
        return found

    def kill(self, target: str) -> bool:
        """SIGKILL; whether there was one."""
        for pid in self.wait_for(target)[-1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def end(self) -> int:
        """Waits until nothing of it is left; its exit code."""
        code = self.process.wait(PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        while _is_group_alive(self.process.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not _is_group_alive(self.process.pid), "it left processes behind"
        return code

    def give_up(self) -> None:
        """Whatever is left, after a test that failed."""
        below = descendants(self.process.pid)
        for pid in (self.process.pid, *below):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def descendants(pid: int) -> list[int]:
    """The processes that it started, and those that they started, oldest first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        own = sorted(children.get(left.pop(0), []))
        found += own
        left += own
    return found


def command_line(pid: int) -> bytes:
    """Its arguments; none where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _is_group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@contextlib.contextmanager
def running(data_dir: Path, folder: Path, *options: str) -> Iterator[Pipeline]:
    """A pipeline of which nothing is left."""
    pipeline = Pipeline(data_dir, folder, *options)
    try:
        yield pipeline
    finally:
        if pipeline.is_running:
            pipeline.give_up()


@contextlib.contextmanager
def writing(data_dir: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that seals segments meanwhile."""
    command = [sys.executable, "-m", "tests.pipeline.flush.sealing_writer", str(data_dir)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as writer:
        try:
            yield writer
        finally:
            writer.kill()


def sealed(writer: subprocess.Popen[str]) -> tuple[int, int]:
    """Ends it; how many traces and logs it has sealed."""
    out, _ = writer.communicate(timeout=PATIENCE_S)
    word, traces, logs = out.split()
    assert word == "sealed"
    return int(traces), int(logs)
