"""Rules of waiting for a server that is away."""

from __future__ import annotations

import threading
import time

import pytest

from penstock.client.absence import Absence
from penstock.model.errors import ConnectionClosed, ServerUnreachable

AWAY = ServerUnreachable("away")


def test_patience_ends_with_the_error_of_the_last_try() -> None:
    """Counted from the first failure, not from the last."""
    absence = Absence(0.4)
    absence.wait(AWAY)  # 0.1 s at most
    last = ServerUnreachable("the last")
    with pytest.raises(ServerUnreachable) as raised:
        absence.wait(last, least_s=0.5)
    assert raised.value is last


def test_answer_renews_the_patience() -> None:
    """A server that comes back and goes again is as new."""
    absence = Absence(0.1)
    began = time.monotonic()
    while time.monotonic() - began < 0.3:
        absence.wait(AWAY)
        absence.over()


def test_closing_ends_the_waiting() -> None:
    """At once, from any thread, however patient it is."""
    closed = threading.Event()
    closed.set()
    with pytest.raises(ConnectionClosed):
        Absence(None, closed).wait(AWAY, least_s=3600)
