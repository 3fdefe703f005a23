"""The process of the Flight port, apart from those that receive.

    python -m penstock.server.flight.process

Takes a line of JSON on stdin: what it is; says on stdout when it listens. The end of stdin is the
end of its supervisor, and its own (`parent`).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any, Final

from penstock.server.auth import Gate
from penstock.server.certificates import certificates_of
from penstock.server.configuration import config as configuration
from penstock.server.descriptors import bounded
from penstock.server.flight.front import FlightFront
from penstock.server.flight.service import FlightService
from penstock.server.lean import leave_out_pandas
from penstock.server.logs import set_up_logging
from penstock.server.parent import end_at_once, end_with_parent

NICENESS: Final = 5
"""Whoever waits for an acknowledgement comes first."""


def main() -> None:
    """The process."""
    end_with_parent()
    leave_out_pandas()
    os.nice(NICENESS)
    orders = json.loads(sys.stdin.readline())
    config = bounded(configuration.load(orders["config"], {}, {}))
    set_up_logging(config.logging)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    gate = Gate(config.auth.tokens_file)
    service = FlightService(config, gate)  # listens while it is referred to
    front = FlightFront(config, gate, service.socket_path)
    name = f"[{config.listen.host}]" if ":" in config.listen.host else config.listen.host
    front.start(f"{name}:{orders['flight_port']}", certificates_of(config.tls))
    threading.Thread(target=_watch, daemon=True).start()
    _say({"ready": True})
    stop.wait()
    os._exit(0)  # a stream may go on for ever; what it has handed out is delivered again


def _watch() -> None:
    """Answers who asks whether it is well; the end of stdin is its own."""
    for line in sys.stdin:
        _say({"id": json.loads(line)["id"]})
    end_at_once()


def _say(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
