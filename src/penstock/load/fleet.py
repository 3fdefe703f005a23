"""Several sending processes that begin together."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from penstock.children.asking import Child, ChildDied
from penstock.children.frames import decode_document, encode_document
from penstock.load.plan import Endpoint
from penstock.load.tally import Tally
from penstock.model.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.load.plan import Plan

PROCESS: Final = "penstock.load.process"
_CONNECT_S: Final = 5.0
_SILENT_S: Final = 60.0
"""Each tells twice a second how far it is."""


def run_load(
    plan: Plan,
    on_progress: Callable[[Tally], object] = lambda _: None,
    module: str = PROCESS,
) -> Tally:
    """What became of the plan; PenstockError where nobody listens or a process dies.

    `on_progress` is called a few times a second with what was sent so far.
    """
    endpoint = Endpoint.parse(plan.endpoint)
    try:
        socket.create_connection((endpoint.host, endpoint.port), _CONNECT_S).close()
    except OSError as error:
        why = error.strerror or str(error)
        raise PenstockError(f"nobody answers at {endpoint.authority}: {why}") from None
    return _Fleet(plan, on_progress).run(module)


class _Fleet:
    def __init__(self, plan: Plan, on_progress: Callable[[Tally], object]) -> None:
        self._plan = plan
        self._on_progress = on_progress
        self._sent = [Tally() for _ in range(plan.processes)]
        self._lock = threading.Lock()

    def run(self, module: str) -> Tally:
        children = [Child(module) for _ in range(self._plan.processes)]
        with ThreadPoolExecutor(len(children)) as threads:
            try:
                for work in (self._prepare, self._follow):
                    list(threads.map(work, range(len(children)), children))
            finally:  # after Ctrl-C too
                for child in children:
                    child.end()
        return Tally.together(self._sent)

    def _prepare(self, number: int, child: Child) -> None:
        orders = {"plan": asdict(self._plan), "number": number}
        try:
            child.ask([encode_document(orders)], _SILENT_S)
        except ChildDied as error:
            raise _ended(child) from error

    def _follow(self, number: int, child: Child) -> None:
        try:
            for answer in child.ask_all([encode_document({"start": True})], _SILENT_S):
                with self._lock:
                    self._sent[number] = Tally.from_json(decode_document(answer[0])["sent"])
                    self._on_progress(Tally.together(self._sent))
        except ChildDied as error:
            raise _ended(child) from error


def _ended(child: Child) -> PenstockError:
    child.end()
    return PenstockError(f"a sending process ended with {child.exit_code}")
