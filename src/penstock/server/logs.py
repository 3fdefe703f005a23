"""What the server says of itself: one JSON object a line, or a line for people on a terminal."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.server.config import Logging


class JsonLines(logging.Formatter):
    """One JSON object a record."""

    def __init__(self, worker: int | None) -> None:
        super().__init__()
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
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


def set_up_logging(settings: Logging, worker: int | None = None) -> None:
    """Sends every logger of this process to stderr."""
    pretty = settings.format == "pretty" or (settings.format == "auto" and sys.stderr.isatty())
    who = "" if worker is None else f" worker {worker}"
    text = f"%(asctime)s %(levelname)-7s{who} %(message)s"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(text, "%H:%M:%S") if pretty else JsonLines(worker))
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)
