"""One receiving process: its partition of every topic, and its share of the ports.

    python -m penstock.server.worker

The first question says what it is, and is answered when it listens; the others come from whoever
wants to know how it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import grpc.aio
import uvloop

from penstock.children.answering import begin, end_at_once
from penstock.children.frames import MOST_BYTES, decode_document, read_message_async
from penstock.metrics import Metrics
from penstock.server.auth import Gate
from penstock.server.certificates import certificates_of, grpc_credentials
from penstock.server.configuration import config as configuration
from penstock.server.descriptors import bounded
from penstock.server.keeping.on_disk import StoreKeeping
from penstock.server.logs import set_up_logging
from penstock.server.receiving.admission import SAMPLE_S, Admission
from penstock.server.receiving.checking import Checks
from penstock.server.receiving.grpc import OtlpGrpc, options
from penstock.server.receiving.http import OtlpHttp
from penstock.server.receiving.http_server import bind, http_server
from penstock.server.tasks import watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.children.answering import Parent
    from penstock.server.configuration.config import Config
    from penstock.server.keeping.on_disk import Keeping

_LOG = logging.getLogger(__name__)


class Worker:
    """Everything that one worker runs."""

    def __init__(self, config: Config, number: int, on_failure: Callable[[], None]) -> None:
        """`on_failure`: a part of it failed, and it must be started again."""
        self._config = config
        self._on_failure = on_failure
        self._number = number
        self._metrics = Metrics()
        self._keeping = _keeping(config, number, self._metrics)
        disk = config.data_dir if config.buffer.url is None else None
        self._admission = Admission(config.limits, disk)
        self._gate = Gate(config.auth.tokens_file)
        self._checks = Checks(config.limits, config.answer_deadline)
        ways = (self._keeping.way_in, self._gate, self._admission, self._checks, config.limits)
        self._certificates = certificates_of(config.tls)
        http = OtlpHttp(*ways)
        self._http = http_server(http, config, self._certificates, answers_half_closed=True)
        self._otlp_grpc = OtlpGrpc(*ways)
        self._grpc: grpc.aio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, grpc_port: int, http_port: int) -> None:
        """Recovers, then listens."""
        await self._keeping.open(lambda: {**self.report(), **self.topics()})
        self._grpc = grpc.aio.server(options=options(self._config.limits))
        self._grpc.add_generic_rpc_handlers(self._otlp_grpc.handlers())
        address = f"{_host(self._config)}:{grpc_port}"
        if self._certificates is None:
            self._grpc.add_insecure_port(address)
        else:
            self._grpc.add_secure_port(address, grpc_credentials(self._certificates))
        await self._grpc.start()
        listening = bind(self._config.listen.host, http_port)
        self._tasks = [
            watched(self._http.serve(sockets=[listening]), "the HTTP port", self._on_failure),
            *(
                watched(work, "work in the background", self._on_failure)
                for work in (self._sample(), *self._keeping.background())
            ),
        ]
        while not self._http.started:
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """Takes no more requests, answers those that it has, seals and closes."""
        deadline = self._config.stop_deadline
        self._http.should_exit = True
        if self._grpc is not None:
            await self._grpc.stop(deadline / 2)
        for task in self._tasks[1:]:
            task.cancel()
        await asyncio.wait(self._tasks, timeout=deadline / 2)
        await self._checks.close()
        await self._keeping.close()

    async def flush(self) -> None:
        """Everything that was taken is in its place."""
        await self._keeping.flush()

    def report(self) -> dict[str, Any]:
        """What the supervisor asks for."""
        doors = (self._gate, self._certificates)
        shut = [each.problem for each in doors if each is not None and each.problem]
        return {
            "worker": self._number,
            "pid": os.getpid(),
            "failures": [*self._keeping.failures(), *self._checks.failures(), *shut],
            "restarts": self._restarts(),
            "pressure": self._admission.pressure,
            "disk_full": self._admission.disk_full,
            "in_flight_bytes": self._admission.in_flight_bytes,
            **self._keeping.report(),
        }

    def metrics(self) -> dict[str, Any]:
        """Apart from the rest: with many topics it is much, and health is asked for often."""
        return {"metrics": self._metrics.exposition().decode(), "restarts": self._restarts()}

    def _restarts(self) -> dict[str, int]:
        return {"checker": self._checks.restarts, **self._keeping.restarts()}

    def topics(self) -> dict[str, Any]:
        """What it holds, and who reads it."""
        return {"topics": self._keeping.topics()}

    async def _sample(self) -> None:
        while True:
            try:
                self._admission.sample(self._keeping.make_room)
                self._gate.refresh()
                if self._certificates is not None:
                    self._certificates.refresh()
                self._keeping.sample()
            except OSError as error:
                _LOG.error("memory and disk could not be looked at: %s", error)
            await asyncio.sleep(SAMPLE_S)


def _keeping(config: Config, number: int, metrics: Metrics) -> Keeping:
    if config.buffer.url is None:
        return StoreKeeping(config, number, metrics)
    from penstock.server.keeping.in_queue import BufferKeeping

    return BufferKeeping(config, metrics)


def _host(config: Config) -> str:
    host = config.listen.host
    return f"[{host}]" if ":" in host else host


async def run(parent: Parent) -> None:
    """From the first question to the end."""
    loop = asyncio.get_running_loop()
    pipe = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(pipe), sys.stdin)
    orders = await _question(pipe)
    config = bounded(configuration.taken(orders))
    set_up_logging(config.logging, worker=orders["number"])
    stop, failed = asyncio.Event(), asyncio.Event()

    def fail() -> None:
        failed.set()
        stop.set()

    worker = Worker(config, orders["number"], fail)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop_or_die, stop)
    await worker.start(orders["grpc_port"], orders["http_port"])
    parent.say({"ready": True})
    questions = watched(_answer_questions(worker, parent, pipe), "answering questions", fail)
    await stop.wait()
    await worker.stop()
    questions.cancel()  # only now: it watches the supervisor, too
    if failed.is_set():
        raise SystemExit(1)  # the supervisor starts the next one


def _stop_or_die(stop: asyncio.Event) -> None:
    """A second signal ends at once; what was acknowledged is on disk."""
    if stop.is_set():
        os._exit(1)
    stop.set()


async def _question(pipe: asyncio.StreamReader) -> dict[str, Any]:
    try:
        [question] = await read_message_async(pipe, MOST_BYTES)
    except asyncio.IncompleteReadError:  # the supervisor is no more
        end_at_once()
    document: dict[str, Any] = decode_document(question)
    return document


async def _answer_questions(worker: Worker, parent: Parent, pipe: asyncio.StreamReader) -> None:
    asked: set[asyncio.Task[None]] = set()
    while True:
        task = asyncio.create_task(_answer(worker, parent, await _question(pipe)))
        asked.add(task)
        task.add_done_callback(asked.discard)


async def _answer(worker: Worker, parent: Parent, question: dict[str, Any]) -> None:
    answer: dict[str, Any] = {"id": question["id"]}
    try:
        if question["ask"] == "flush":
            await worker.flush()
        asked = {"topics": worker.topics, "metrics": worker.metrics, "ping": dict[str, Any]}
        answer.update(asked.get(question["ask"], worker.report)())
    except Exception as error:  # noqa: BLE001 - the supervisor must hear of it
        answer["error"] = str(error)
    parent.say(answer)


def main() -> None:
    """The process."""
    parent = begin(dies_with_starter=True)
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(run(parent))


if __name__ == "__main__":
    main()
