"""Runs the command line, in this process or as its users do, on small data directories."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from penstock.cli import main
from penstock.model import Topic
from penstock.storage import DataDirectory
from tests.log.small_logs import write_log
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

SCRIPT = Path(sys.executable).parent / "penstock"
ROOT = Path(__file__).parents[2]
TRACES = Topic("default", "traces")

_WRITER = """
import sys
from pathlib import Path
from penstock.log import Log
from tests.log.small_logs import QUICK, append
with Log.open(Path(sys.argv[1]), QUICK) as log:
    print("open", flush=True)
    for line in sys.stdin:
        append(log, int(line))
        print(log.end_offset, flush=True)
"""


class Answer(NamedTuple):
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its one JSON document."""
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        """Its JSON, line by line."""
        return [json.loads(line) for line in self.out.splitlines()]

    def is_one_sentence(self) -> bool:
        """Whether it failed as a command should: one line on stderr, nothing on stdout."""
        return (
            self.code == 1
            and self.out == ""
            and re.fullmatch(r"penstock: [^\n]+\n", self.err) is not None
        )


def run(*arguments: str | Path) -> Answer:
    """Runs a command in this process, from its arguments to its exit code."""
    out, err = _Output(), _Output()
    argv = ["penstock", *map(str, arguments)]
    with (
        mock.patch.object(sys, "argv", argv),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            return Answer(int(end.code or 0), out.text, err.text)
    raise AssertionError("a command ends with an exit code")


def inspect(path: str | Path, *arguments: str) -> dict[str, Any]:
    """What `penstock inspect` says of a path, as JSON."""
    answer = run("inspect", "--json", *arguments, path)
    assert (answer.code, answer.err) == (0, "")
    said: dict[str, Any] = answer.json
    return said


def fsck(path: str | Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code of `penstock fsck`, and its JSON document."""
    answer = run("fsck", "--json", *arguments, path)
    assert answer.err == ""
    return answer.code, answer.json


class _Output(io.TextIOWrapper):
    """Takes text and, as a pipe does, bytes."""

    def __init__(self) -> None:
        self._bytes = io.BytesIO()
        super().__init__(self._bytes, encoding="utf-8", write_through=True)

    @property
    def text(self) -> str:
        """All that was written."""
        return self._bytes.getvalue().decode()


def start(*arguments: str | Path, stdout: int | IO[bytes] = subprocess.PIPE) -> subprocess.Popen:
    """Starts the command as its users do."""
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    return subprocess.Popen(
        [SCRIPT, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=environment,
    )


def finish(process: subprocess.Popen, patience_s: float = PATIENCE_S) -> Answer:
    """Waits for its end."""
    with process:
        try:
            out, err = process.communicate(timeout=patience_s)
        finally:
            process.kill()
    return Answer(process.returncode, (out or b"").decode(), err.decode())


def writer_process(folder: Path) -> AbstractContextManager[subprocess.Popen[str]]:
    """Another process that has the log open; `tell` makes it append."""
    return other_process(_WRITER, folder)


@contextlib.contextmanager
def other_process(code: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, which says `open` when it has opened what is in the folder."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", code, os.fspath(folder)]
    with subprocess.Popen(command, cwd=ROOT, **pipes) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "open\n"
            yield other
        finally:
            other.kill()


def tell(writer: subprocess.Popen[str], count: int) -> int:
    """Has it append so many messages; returns the end offset after it."""
    assert writer.stdin is not None
    assert writer.stdout is not None
    writer.stdin.write(f"{count}\n")
    writer.stdin.flush()
    return int(writer.stdout.readline())


def log_folder(data: Path, partition: int = 0, topic: Topic = TRACES) -> Path:
    """Where a log of the data directory is."""
    return DataDirectory(data).partition(topic, partition).log_folder


def make_data(data: Path) -> Path:
    """A data directory with 60 messages in partition 0 of `traces` and 7 in partition 1."""
    DataDirectory(data).create()
    write_log(log_folder(data), (20, 30, 10))
    write_log(log_folder(data, 1), (7,))
    return data
