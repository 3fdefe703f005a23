"""`penstock up`: the server and the pipeline in one."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

import click

from penstock.cli.common import data_dir_option, say, setting_option
from penstock.cli.pipeline import master_option
from penstock.cli.serve import config_option
from penstock.server.configuration.config import Config

if TYPE_CHECKING:
    from pathlib import Path

_COMMAND: Final = (sys.executable, "-c", "from penstock.cli import main; main()")
_POLL_S: Final = 0.2
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0


@click.command()
@data_dir_option
@config_option
@master_option
@setting_option(Config, "workers", preset=False)
def up(data_dir: Path, file: Path | None, master: str, workers: int | None) -> None:
    """Run the server and the pipeline on one data directory.

    The server's line of JSON is on stdout, and behind it a line for each batch. A pipeline that
    ends is started again; when the server ends, all does. SIGTERM or Ctrl-C stops both in order.

    Example: penstock up --data-dir data
    """
    common = [f"--data-dir={data_dir}", *([f"--config={file}"] if file else [])]
    serving = ["serve", *common, *([f"--workers={workers}"] if workers else [])]
    server = _start(serving, stdout=subprocess.PIPE)
    stopped = _Stop()
    assert server.stdout is not None
    line = server.stdout.readline()
    say(line.decode(), nl=False)
    pipeline = _Restarted(["pipeline", "run", *common, f"--master={master}"])
    try:
        while line and server.poll() is None and not stopped.asked:
            pipeline.keep_up()
            time.sleep(_POLL_S)
    finally:
        pipeline.stop()
        server.terminate()
        server.wait()
    sys.exit(server.returncode)


class _Stop:
    """Asked to stop: by the first signal; both children are told by us, in order."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, *_: object) -> None:
        self.asked = True


class _Restarted:
    """A command that is started again when it ends, after a pause that doubles."""

    def __init__(self, arguments: list[str]) -> None:
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._pause_s = _FIRST_PAUSE_S
        self._due = 0.0

    def keep_up(self) -> None:
        """Starts it when that is due."""
        now = time.monotonic()
        if self._process is not None and self._process.poll() is not None:
            say(f"penstock: the pipeline ended; again in {self._pause_s:.0f} s", err=True)
            self._process, self._due = None, now + self._pause_s
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        if self._process is None and now >= self._due:
            self._process = _start(self._arguments)

    def stop(self) -> None:
        """After the batch under way."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


def _start(arguments: list[str], stdout: int | None = None) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C is for us to pass on."""
    return subprocess.Popen(  # noqa: S603 - our own command
        [*_COMMAND, *arguments], stdout=stdout, start_new_session=True
    )
