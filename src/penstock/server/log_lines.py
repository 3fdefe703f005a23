"""What the server says of itself: one JSON object a line, or a line for people on a terminal."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.model.printable import printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.server.configuration.config import Logging


class JsonLines(logging.Formatter):
    """One JSON object a record."""

    def __init__(self, worker: int | None) -> None:
        super().__init__()
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._worker is not None:
            line["worker"] = str(self._worker)
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


class Lines(logging.Formatter):
    """For people: nothing that a client sent, and a message quotes, is obeyed by their terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, with those of a traceback below it."""
        return printable_lines(super().format(record))


def set_up_logging(settings: Logging, worker: int | None = None) -> None:
    """Sends every logger of this process to stderr, until it ends: it must be all ours."""
    root = logging.getLogger()
    root.handlers[:] = [_to_stderr(settings, worker)]
    root.setLevel(settings.level.upper())


@contextlib.contextmanager
def logging_set_up(settings: Logging) -> Iterator[None]:
    """The same for the time of a command, whose process may be somebody else's."""
    root = logging.getLogger()
    level, handlers = root.level, [*root.handlers]
    set_up_logging(settings)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def _to_stderr(settings: Logging, worker: int | None) -> logging.Handler:
    pretty = settings.format == "pretty" or (settings.format == "auto" and sys.stderr.isatty())
    who = "" if worker is None else f" worker {worker}"
    text = f"%(asctime)s %(levelname)-7s{who} %(message)s"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines(text, "%H:%M:%S") if pretty else JsonLines(worker))
    return handler
