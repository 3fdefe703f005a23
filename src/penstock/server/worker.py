"""One receiving process: its partition of every topic, and its share of the ports.

    python -m penstock.server.worker

Takes lines of JSON on stdin: first what it is, then questions; answers with lines on stdout. The
end of stdin is the end of its supervisor, and its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, Final

import grpc.aio
import pyarrow as pa
import uvloop

from penstock.metrics import Metrics
from penstock.model.clock import SystemClock
from penstock.model.errors import PenstockError
from penstock.otel.signals import Signal
from penstock.server import config as configuration
from penstock.server.admission import SAMPLE_S, Admission
from penstock.server.auth import Gate
from penstock.server.decoding import DecoderProcess, RemoteDecoder
from penstock.server.grpc import OtlpGrpc, options
from penstock.server.http import OtlpHttp
from penstock.server.http_server import bind, http_server
from penstock.server.ingest import Ingest
from penstock.server.logs import set_up_logging
from penstock.server.rates import Rates
from penstock.server.repeats import Repeats
from penstock.server.stores import Stores
from penstock.server.topics import describe
from penstock.server.worker_flight import WorkerFlight
from penstock.storage import DataDirectory
from penstock.store.outside import DeliveredFile, acknowledge

if TYPE_CHECKING:
    from penstock.server.config import Config
    from penstock.store.decoding import Decoder

_LOG = logging.getLogger(__name__)
_TRY_AGAIN_S: Final = 2.0
_LOOK_S: Final = 1.0


class Worker:
    """Everything that one worker runs."""

    def __init__(self, config: Config, number: int) -> None:
        self._config = config
        self._number = number
        self._metrics = Metrics()
        self._decoder = DecoderProcess()
        decoders: dict[Signal, Decoder] = {
            each: RemoteDecoder(self._decoder, each) for each in Signal
        }
        self._stores = Stores(
            DataDirectory(config.data_dir), number, config, decoders, self._metrics
        )
        self._admission = Admission(config.limits, config.data_dir)
        self._gate = Gate(config.auth.tokens_file)
        self._rates = Rates(SystemClock())
        self._repeats = Repeats(config.dedupe, SystemClock())
        ingest = Ingest(self._stores, self._repeats, config.limits)
        ways = (ingest, self._gate, self._admission, config.limits)
        self._http = http_server(OtlpHttp(*ways), config)
        self._otlp_grpc = OtlpGrpc(*ways)
        self._grpc: grpc.aio.Server | None = None
        self._flight: WorkerFlight | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()

    async def start(self, grpc_port: int, http_port: int) -> None:
        """Recovers, then listens."""
        await self._stores.open_all()
        self._grpc = grpc.aio.server(options=options(self._config.limits))
        self._grpc.add_generic_rpc_handlers(self._otlp_grpc.handlers())
        address = f"{_host(self._config)}:{grpc_port}"
        credentials = _credentials(self._config)
        if credentials is None:
            self._grpc.add_insecure_port(address)
        else:
            self._grpc.add_secure_port(address, credentials)
        await self._grpc.start()
        self._flight = self._open_flight()
        listening = bind(self._config.listen.host, http_port)
        self._tasks = [
            asyncio.create_task(self._http.serve(sockets=[listening])),
            asyncio.create_task(self._sample()),
            asyncio.create_task(self._open_missing()),
            asyncio.create_task(self._acknowledge_outside()),
        ]
        while not self._http.started:
            await asyncio.sleep(0.005)

    def _open_flight(self) -> WorkerFlight | None:
        """Receiving does not depend on it: who finds no socket reads the log's files."""
        about = (self._config.data_dir, self._number, self._stores)
        try:
            return WorkerFlight(*about, lambda: {**self.report(), **self.topics()})
        except (OSError, pa.ArrowException) as error:
            _LOG.error("what is hot cannot be asked for: %s", error)
            return None

    async def stop(self) -> None:
        """Takes no more requests, answers those that it has, seals and closes."""
        deadline = self._config.stop_deadline
        self._http.should_exit = True
        if self._grpc is not None:
            await self._grpc.stop(deadline / 2)
        for task in self._tasks[1:]:
            task.cancel()
        await asyncio.wait(self._tasks, timeout=deadline / 2)
        if self._flight is not None:
            await asyncio.to_thread(self._flight.stop)
        await self._stores.close()
        self._decoder.close()
        self._repeats.close()

    async def flush(self) -> None:
        """Seals everything now."""
        await asyncio.gather(*(store.flush_async() for store in self._stores.all()))

    def report(self) -> dict[str, Any]:
        """What the supervisor asks for."""
        return {
            "worker": self._number,
            "pid": os.getpid(),
            "failures": self._stores.failures(),
            "pressure": self._admission.pressure,
            "disk_full": self._admission.disk_full,
            "in_flight_bytes": self._admission.in_flight_bytes,
            "rates": self._rates.report(),
            "repeats": self._repeats.hits,
            "metrics": self._metrics.exposition().decode(),
        }

    def topics(self) -> dict[str, Any]:
        """What its stores hold, and who reads them."""
        return {"topics": [describe(*place) for place in self._stores.places()]}

    async def _open_missing(self) -> None:
        while True:
            await asyncio.sleep(_TRY_AGAIN_S)
            await self._stores.open_missing()

    async def _acknowledge_outside(self) -> None:
        """Looks how far the pipeline has come."""
        file = DeliveredFile(self._config.data_dir)
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                delivered = file.read()
                if delivered is not None:
                    for store in self._stores.all():
                        await asyncio.to_thread(acknowledge, store, delivered)
            except (OSError, PenstockError) as error:
                _LOG.error("what the pipeline has could not be acknowledged: %s", error)

    async def _sample(self) -> None:
        while True:
            try:
                self._admission.sample()
                self._gate.refresh()
                self._rates.sample(self._stores.all())
            except OSError as error:
                _LOG.error("memory and disk could not be looked at: %s", error)
            await asyncio.sleep(SAMPLE_S)


def _host(config: Config) -> str:
    host = config.listen.host
    return f"[{host}]" if ":" in host else host


def _credentials(config: Config) -> grpc.ServerCredentials | None:
    tls = config.tls
    if tls.certificate is None or tls.key is None:
        return None
    roots = tls.client_ca.read_bytes() if tls.client_ca is not None else None
    pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
    return grpc.ssl_server_credentials([pair], roots, require_client_auth=roots is not None)


async def run() -> None:
    """From the first line of stdin to the end."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    orders = json.loads(await lines.readline())
    config = configuration.load(orders["config"], {}, {})
    set_up_logging(config.logging, worker=orders["number"])
    worker = Worker(config, orders["number"])
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop_or_die, stop)
    await worker.start(orders["grpc_port"], orders["http_port"])
    say({"ready": True})
    questions = asyncio.create_task(_answer_questions(worker, lines, stop))
    await stop.wait()
    questions.cancel()
    await worker.stop()


def _stop_or_die(stop: asyncio.Event) -> None:
    """A second signal ends at once; what was acknowledged is on disk."""
    if stop.is_set():
        os._exit(1)
    stop.set()


async def _answer_questions(
    worker: Worker, lines: asyncio.StreamReader, stop: asyncio.Event
) -> None:
    asked: set[asyncio.Task[None]] = set()
    while line := await lines.readline():
        task = asyncio.create_task(_answer(worker, json.loads(line)))
        asked.add(task)
        task.add_done_callback(asked.discard)
    stop.set()


async def _answer(worker: Worker, question: dict[str, Any]) -> None:
    answer: dict[str, Any] = {"id": question["id"]}
    try:
        if question["ask"] == "flush":
            await worker.flush()
        answer.update(worker.topics() if question["ask"] == "topics" else worker.report())
    except Exception as error:  # noqa: BLE001 - the supervisor must hear of it
        answer["error"] = str(error)
    say(answer)


def say(document: dict[str, Any]) -> None:
    """One line on stdout."""
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def main() -> None:
    """The process."""
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(run())


if __name__ == "__main__":
    main()
