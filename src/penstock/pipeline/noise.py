"""Keeps the terminal quiet: what Spark and its Java print that nobody needs to act on.

What goes wrong in a query reaches the caller as an exception, so the loggers that print the same
once more are off. Everything else that is an error still stands on stderr.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

LOG4J_FILE: Final = "log4j2.properties"
_FIRST_LINES: Final = 3
_JAVA_WARNING: Final = "WARNING: "
"""How every line begins that Java prints about modules and deprecated methods."""

_RAISED_AS_EXCEPTIONS: Final = (
    "org.apache.spark.api.python.PythonRunner",
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.datasources.v2",
    "org.apache.spark.sql.execution.streaming",
    "org.apache.spark.util.Utils",
)
_LOG4J: Final = """\
status = off
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.console.type = Console
appender.console.name = stderr
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark: %p %c{1}: %m%n%ex
logger.python.name = org.apache.spark.api.python.PythonGatewayServer
logger.python.level = error
"""
# Where that logger has another level than the root, Spark says so, and takes it for both.


def write_log_settings(folder: Path) -> Path:
    """Log4j's file that says so."""
    lines = [_LOG4J]
    for number, logger in enumerate(_RAISED_AS_EXCEPTIONS):
        lines += [f"logger.l{number}.name = {logger}", f"logger.l{number}.level = off"]
    path = folder / LOG4J_FILE
    path.write_text("\n".join(lines) + "\n")
    return path


class Relay:
    """Takes what a Java process prints, and passes on to stderr what is no noise.

    stdout is taken too: what a command prints there must be the command's own. Until the process
    has started, what it says is kept back, since it is about to become an error.
    """

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()
        self._lock = threading.Lock()
        self._kept_back: list[str] | None = []
        self._thread = threading.Thread(target=self._run, name="spark output", daemon=True)
        self._thread.start()

    def started(self) -> None:
        """The process has the other end; the relay ends with it and its children."""
        os.close(self.write_end)
        with self._lock:
            lines, self._kept_back = self._kept_back or [], None
            for line in lines:
                _print(line)

    def given_up(self, timeout_s: float) -> str:
        """The process did not start. What it said, in one line; empty if it said nothing."""
        os.close(self.write_end)
        self.wait(timeout_s)
        with self._lock:
            return " ".join(line.strip() for line in (self._kept_back or [])[:_FIRST_LINES])

    def wait(self, timeout_s: float) -> None:
        """Returns when the process has closed its end and everything was passed on."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        with os.fdopen(self._read_end, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.strip() and not line.startswith(_JAVA_WARNING):
                    self._pass_on(line)

    def _pass_on(self, line: str) -> None:
        with self._lock:
            if self._kept_back is None:
                _print(line)
            else:
                self._kept_back.append(line)


def _print(line: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed: nobody listens
        sys.stderr.write(line)
        sys.stderr.flush()
