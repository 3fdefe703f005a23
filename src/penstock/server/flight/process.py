"""The process of the Flight port, apart from those that receive.

    python -m penstock.server.flight.process

The first question says what it is, and is answered when it listens; the others ask whether it is
well.
"""

from __future__ import annotations

import os
import signal

from penstock.children.answering import NICENESS, begin
from penstock.server.auth import Gate
from penstock.server.certificates import certificates_of
from penstock.server.configuration import config as configuration
from penstock.server.descriptors import bounded
from penstock.server.flight.front import FlightFront
from penstock.server.flight.service import FlightService
from penstock.server.log_lines import set_up_logging


def main() -> None:
    parent = begin(niceness=NICENESS, dies_with_starter=True)
    questions = parent.documents()
    orders = next(questions)
    config = bounded(configuration.taken(orders))
    set_up_logging(config.logging)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    gate = Gate(config.auth.tokens_file)
    service = FlightService(config, gate)  # listens while it is referred to
    front = FlightFront(config, gate, service.socket_path)
    name = f"[{config.listen.host}]" if ":" in config.listen.host else config.listen.host
    front.start(f"{name}:{orders['flight_port']}", certificates_of(config.tls))
    parent.say({"ready": True})
    for question in questions:
        parent.say({"id": question["id"]})
    # No end in order: a stream may go on for ever; what it has handed out is delivered again.
    os._exit(0)


if __name__ == "__main__":
    main()
