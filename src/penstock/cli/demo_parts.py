"""The demo's server, which gets killed, and its client, which remembers what was acknowledged."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from penstock.model.clock import SystemClock
from penstock.model.errors import PenstockError
from penstock.otel.signals import Signal

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.load.supply import Request

WORKERS: Final = 2
BATCH: Final = 100
_PAUSE_S: Final = 0.1
_TIMEOUT_S: Final = 5.0
_STOP_S: Final = 60.0
_SETTINGS: Final = {"PENSTOCK_SEGMENT_MAX_OPEN_DURATION": "10m"}
"""What came last is still in the log when it is looked for, however slow the machine is."""
_PORTS: Final = ("grpc", "http", "flight", "web")

SpanId = tuple[bytes, bytes]


class DemoServer:
    """`penstock serve`, in processes of its own."""

    def __init__(self, data_dir: Path, log: Path) -> None:
        self._data_dir = data_dir
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.ports = dict.fromkeys(_PORTS, 0)

    def start(self) -> float:
        """Returns the seconds until it was ready. It comes back on the ports that it had."""
        flags = [f"--{name}-port={port}" for name, port in self.ports.items()]
        command = [sys.executable, "-c", "from penstock.cli import main; main()", "serve"]
        started = time.monotonic()
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - our own
                [*command, f"--data-dir={self._data_dir}", f"--workers={WORKERS}", *flags],
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **_SETTINGS},
                start_new_session=True,
            )
        assert self._process.stdout is not None
        with self._process.stdout as answers:
            line = answers.readline()
        if not line:
            raise PenstockError(f"the server does not start: {self._last_words()}")
        ready = json.loads(line)
        self.ports = {name: ready[name] for name in _PORTS}
        return time.monotonic() - started

    def kill(self) -> None:
        """All of its processes at once, without a word."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def flush(self) -> None:
        """Seals everything."""
        from penstock.client import connect

        connect(self._data_dir).flush()

    def wait(self) -> None:
        """Until somebody stops it."""
        assert self._process is not None
        self._process.wait()

    def end(self) -> None:
        """In order, so that nobody writes any more; at once where that takes too long."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"


class DemoClient:
    """Sends the shop's telemetry over OTLP/gRPC, and sends again what was not answered."""

    def __init__(self, port: int) -> None:
        from penstock.load.plan import Plan
        from penstock.load.supply import Supply

        self._port = port
        self._supply = Supply(Plan(batch=BATCH, seed=time.time_ns()), 0, SystemClock())
        self._number = 0
        self.sent: set[SpanId] = set()
        self.acknowledged: set[SpanId] = set()
        self.records = dict.fromkeys(Signal, 0)
        """Acknowledged."""
        self.retried = 0

    @contextlib.contextmanager
    def sending(self, spans_per_second: float) -> Any:
        """In the background, until the block ends; everything is answered by then."""
        stop = threading.Event()
        thread = threading.Thread(target=self._send, args=(stop, spans_per_second), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def send_once(self) -> None:
        """One unit of the shop's work."""
        stop = threading.Event()
        stop.set()
        self._send(stop, 0.0)

    def _send(self, stop: threading.Event, spans_per_second: float) -> None:
        import grpc

        with grpc.insecure_channel(f"127.0.0.1:{self._port}") as channel:
            while True:
                for request in self._supply.requests(self._number):
                    self._deliver(channel, request)
                self._number += 1
                pause_s = BATCH / spans_per_second if spans_per_second else 0.0
                if stop.wait(pause_s):
                    return

    def _deliver(self, channel: Any, request: Request) -> None:
        import grpc

        spans = _span_ids(request)
        self.sent |= spans
        call = channel.unary_unary(request.signal.grpc_method)
        while True:
            try:
                call(request.data, timeout=_TIMEOUT_S, wait_for_ready=True)
                break
            except grpc.RpcError:
                self.retried += 1
                time.sleep(_PAUSE_S)
        self.acknowledged |= spans
        self.records[request.signal] += request.records


def _span_ids(request: Request) -> set[SpanId]:
    if request.signal is not Signal.TRACES:
        return set()
    parsed: Any = Signal.TRACES.request_class.FromString(request.data)
    return {
        (span.trace_id, span.span_id)
        for resource in parsed.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }
