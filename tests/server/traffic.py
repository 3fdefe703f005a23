"""Clients that send for as long as they can, and remember what they were told."""

from __future__ import annotations

import http.client
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

import grpc

from penstock.otel import Signal
from tests.server.running import PATIENCE_S, PROTOBUF, Server, answer_of, export, until
from tests.server.samples import traces

PERMANENT = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED}


class Outcome:
    """What became of the requests, by the name of their one span."""

    def __init__(self) -> None:
        self.answered: set[str] = set()
        self.refused: set[str] = set()
        """For good: none of it may be stored."""
        self.unknown: set[str] = set()
        """No answer, or one that says to try again."""


class Traffic:
    """Several clients in threads; each ends when its server does, or when the block does."""

    def __init__(self, server: Server, name: str, clients: int = 6, padding: int = 300) -> None:
        self.outcome = Outcome()
        self._server = server
        self._name = name
        self._padding = padding
        self._ended = threading.Event()
        self._threads = ThreadPoolExecutor(clients)
        sends = [self._over_grpc, self._over_http]
        self._clients: list[Future[None]] = [
            self._threads.submit(sends[number % 2], number) for number in range(clients)
        ]

    def __enter__(self) -> Traffic:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._threads.shutdown()
        for client in self._clients:
            client.result()

    def wait_for(self, count: int) -> None:
        """Until so many requests were answered."""
        until(lambda: len(self.outcome.answered) >= count)

    def _requests(self, client: int) -> Any:
        """Every tenth one is wrong, and refused for good."""
        for number in itertools.count():
            if self._ended.is_set():
                return
            name = f"{self._name}-{client}-{number}"
            data = traces(name, padding=self._padding)
            yield name, data[:-1] if number % 10 == 9 else data

    def _send(self, client: int, send: Callable[[bytes], bool | None]) -> None:
        outcome = self.outcome
        for name, data in self._requests(client):
            found = send(data)
            if found is None:
                outcome.unknown.add(name)
                return
            (outcome.answered if found else outcome.refused).add(name)

    def _over_grpc(self, client: int) -> None:
        with self._server.channel() as channel:

            def send(data: bytes) -> bool | None:
                try:
                    export(channel, Signal.TRACES, data)
                except grpc.RpcError as error:
                    return False if error.code() in PERMANENT else None
                return True

            self._send(client, send)

    def _over_http(self, client: int) -> None:
        connection = self._server.connection()
        connection.timeout = PATIENCE_S

        def send(data: bytes) -> bool | None:
            try:
                connection.request("POST", "/v1/traces", data, {"content-type": PROTOBUF})
                status = answer_of(connection.getresponse()).status
            except (OSError, http.client.HTTPException):
                return None
            return {200: True, 400: False}.get(status)

        self._send(client, send)
        connection.close()
