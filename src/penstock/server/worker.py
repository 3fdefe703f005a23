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
import threading
from typing import TYPE_CHECKING, Any, Protocol

import grpc.aio
import uvloop

from penstock.children.answering import begin, end_at_once
from penstock.children.frames import MOST_BYTES, decode_document, read_message_async
from penstock.metrics import Metrics
from penstock.server.auth import Gate
from penstock.server.certificates import certificates_of, grpc_credentials
from penstock.server.configuration import config as configuration
from penstock.server.descriptors import bounded
from penstock.server.http.server import bind, http_server
from penstock.server.log_lines import set_up_logging
from penstock.server.receiving.admission import SAMPLE_S, Admission
from penstock.server.receiving.checking import Checks
from penstock.server.receiving.grpc import OtlpGrpc, options
from penstock.server.receiving.http import OtlpHttp
from penstock.server.receiving.ingest import Intake
from penstock.server.receiving.newcomers import Newcomers
from penstock.server.tasks import watched
from penstock.server.with_disk import WithDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from penstock.children.answering import Parent
    from penstock.server.configuration.config import Config
    from penstock.server.receiving.ingest import WayIn

_LOG = logging.getLogger(__name__)


class Behind(Protocol):
    """What is behind the ports: a disk (`with_disk`), or the queue (`without_disk`).

    All of it belongs to one event loop.
    """

    way_in: WayIn

    async def open(self, report: Callable[[], dict[str, Any]]) -> None:
        """Recovers what was left; `report` is what others may ask for."""
        ...

    async def close(self) -> None:
        """Everything that was taken is durable and in order."""
        ...

    async def flush(self) -> None:
        """As `close`, and goes on."""
        ...

    def background(self) -> list[Coroutine[Any, Any, None]]:
        """What goes on until it is closed."""
        ...

    def sample(self) -> None:
        """Looks at itself, now and then."""
        ...

    def make_room(self, size: int) -> bool:
        """The disk lacks so many bytes: lets the oldest go where it may; False where it may not."""
        ...

    def failures(self) -> list[str]:
        """What cannot be used at present, and why."""
        ...

    def restarts(self) -> dict[str, int]:
        """How often a process that works for it had to be replaced, by what it is."""
        ...

    def report(self) -> dict[str, Any]:
        """For whoever asks how it is."""
        ...

    def topics(self) -> list[dict[str, Any]]:
        """What it holds, and who reads it."""
        ...


class Worker:
    """Everything that one worker runs."""

    def __init__(self, config: Config, number: int, on_failure: Callable[[], None]) -> None:
        """`on_failure`: a part of it failed, and it must be started again."""
        self._config = config
        self._on_failure = on_failure
        self._number = number
        self._metrics = Metrics()
        self._behind = _behind(config, number, self._metrics)
        disk = config.data_dir if config.buffer.url is None else None
        self._admission = Admission(config.limits, disk)
        self._gate = Gate(config.auth.tokens_file)
        self._checks = Checks(config.limits, config.answer_deadline)
        intake = Intake(
            self._behind.way_in, self._gate, self._admission, self._checks, config.limits
        )
        self._certificates = certificates_of(config.tls)
        http = OtlpHttp(intake)
        self._http = http_server(http, config, self._certificates, answers_half_closed=True)
        self._intake = intake
        self._grpc: grpc.aio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._ended = threading.Event()

    async def start(self, grpc_port: int, http_port: int) -> None:
        """Recovers, then listens."""
        await self._behind.open(lambda: {**self.report(), **self.topics()})
        self._grpc = grpc.aio.server(options=options(self._config.limits))
        tls = self._certificates is not None
        soon = asyncio.get_running_loop().call_soon_threadsafe
        newcomers = Newcomers(grpc_port, self._config.limits, tls=tls, call_soon=soon)
        self._grpc.add_generic_rpc_handlers(OtlpGrpc(self._intake, newcomers).handlers())
        address = f"{_host(self._config)}:{grpc_port}"
        if self._certificates is None:
            self._grpc.add_insecure_port(address)
        else:
            self._grpc.add_secure_port(address, grpc_credentials(self._certificates))
        watch = threading.Thread(target=newcomers.watch, args=(self._ended,), daemon=True)
        watch.start()
        await self._grpc.start()
        listening = bind(self._config.listen.host, http_port)
        self._tasks = [
            watched(self._http.serve(sockets=[listening]), "the HTTP port", self._on_failure),
            *(
                watched(work, "work in the background", self._on_failure)
                for work in (self._sample(), *self._behind.background())
            ),
        ]
        while not self._http.started:
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """Takes no more requests, answers those that it has, seals and closes."""
        deadline = self._config.stop_deadline
        self._http.should_exit = True
        self._checks.hurry()
        if self._grpc is not None:
            await self._grpc.stop(deadline / 2)
        for task in self._tasks[1:]:
            task.cancel()
        await asyncio.wait(self._tasks, timeout=deadline / 2)
        self._ended.set()
        await self._checks.close()
        await self._behind.close()

    async def flush(self) -> None:
        """Everything that was taken is in its place."""
        await self._behind.flush()

    def report(self) -> dict[str, Any]:
        """What the supervisor asks for."""
        doors = (self._gate, self._certificates)
        shut = [each.problem for each in doors if each is not None and each.problem]
        return {
            "worker": self._number,
            "pid": os.getpid(),
            "failures": [*self._behind.failures(), *self._checks.failures(), *shut],
            "restarts": self._restarts(),
            "pressure": self._admission.pressure,
            "disk_full": self._admission.disk_full,
            "in_flight_bytes": self._admission.in_flight_bytes,
            **self._behind.report(),
        }

    def metrics(self) -> dict[str, Any]:
        """Apart from the rest: with many topics it is much, and health is asked for often."""
        return {"metrics": self._metrics.exposition().decode(), "restarts": self._restarts()}

    def _restarts(self) -> dict[str, int]:
        return {"checker": self._checks.restarts, **self._behind.restarts()}

    def topics(self) -> dict[str, Any]:
        """What it holds, and who reads it."""
        return {"topics": self._behind.topics()}

    async def _sample(self) -> None:
        while True:
            try:
                self._admission.sample(self._behind.make_room)
                self._gate.refresh()
                if self._certificates is not None:
                    self._certificates.refresh()
                self._behind.sample()
                if self._admission.is_stuck:
                    _LOG.error(
                        "%s, and no request has any: starting again", self._admission.pressure
                    )
                    self._on_failure()
                    return
            except OSError as error:
                _LOG.error("memory and disk could not be looked at: %s", error)
            await asyncio.sleep(SAMPLE_S)


def _behind(config: Config, number: int, metrics: Metrics) -> Behind:
    if config.buffer.url is None:
        return WithDisk(config, number, metrics)
    from penstock.server.without_disk import WithoutDisk

    return WithoutDisk(config, metrics)


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
    parent = begin(dies_with_starter=True)
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(run(parent))


if __name__ == "__main__":
    main()
