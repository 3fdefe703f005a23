"""Starts `penstock serve` as its users do, talks to it, and looks at what it stored."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal as signals
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from penstock.model import Topic
from penstock.otel import Signal, encode_bundle
from penstock.segment import SegmentReader
from penstock.storage import DataDirectory, LocalFiles
from tests.patience import PATIENCE_S, until

ROOT = Path(__file__).parents[2]
PROTOBUF = "application/x-protobuf"
JSON = "application/json"
_COMMAND = [sys.executable, "-c", "from penstock.cli import main; main()"]


class Answer(NamedTuple):
    """What an HTTP server said."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Its JSON document."""
        return json.loads(self.body)


class Reached:
    """A server that runs somewhere, by its ports."""

    def __init__(self, ready: dict[str, Any]) -> None:
        self._ready = ready
        self.tls: ssl.SSLContext | None = None
        self.channel_credentials: grpc.ChannelCredentials | None = None

    def connection(self, port: str = "http") -> http.client.HTTPConnection:
        """To one of its ports."""
        number = self._ready[port]
        if self.tls is None:
            return http.client.HTTPConnection("127.0.0.1", number, timeout=PATIENCE_S)
        return http.client.HTTPSConnection(
            "127.0.0.1", number, timeout=PATIENCE_S, context=self.tls
        )

    def get(self, path: str, **headers: str) -> Answer:
        """From its web port."""
        return self.ask("GET", path, port="web", headers=_names(headers))

    def post(self, sent: Signal, body: bytes, kind: str = PROTOBUF, **headers: str) -> Answer:
        """A request over HTTP; `content_encoding` is the header `content-encoding`."""
        heads = {"content-type": kind, **_names(headers)}
        return self.ask("POST", sent.http_path, body, headers=heads)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        port: str = "http",
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """One request on a connection of its own."""
        connection = self.connection(port)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            return answer_of(connection.getresponse())

    def socket(self, port: str = "http") -> socket.socket:
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self._ready[port]), PATIENCE_S)

    @contextlib.contextmanager
    def channel(self, **options: int) -> Iterator[grpc.Channel]:
        """To its gRPC port; `max_send_message_length` is `grpc.max_send_message_length`."""
        target = f"127.0.0.1:{self._ready['grpc']}"
        # Without this, channels of one process would share connections.
        pairs = [("grpc.use_local_subchannel_pool", 1)]
        pairs += [(f"grpc.{name}", value) for name, value in options.items()]
        made = (
            grpc.insecure_channel(target, pairs)
            if self.channel_credentials is None
            else grpc.secure_channel(target, self.channel_credentials, pairs)
        )
        with made as channel:
            yield channel

    def export(self, sent: Signal, data: bytes, **metadata: str) -> Any:
        """A request over gRPC; its response, or grpc.RpcError."""
        with self.channel() as channel:
            return export(channel, sent, data, **metadata)


class Server(Reached):
    """A running `penstock serve`."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Path) -> None:
        super().__init__({})
        self.process = process
        self._errors = errors

    # --- its life ------------------------------------------------------------------------------

    @classmethod
    def begin(cls, data: Path, *flags: str, config: dict[str, Any] | None = None) -> Server:
        """Starts it and does not wait."""
        data.parent.mkdir(parents=True, exist_ok=True)
        settings = data.parent / f"{data.name}.yaml"
        settings.write_text(json.dumps(config or {}))
        errors = data.parent / f"{data.name}.stderr"
        ports = [f"--{name}-port=0" for name in ("grpc", "http", "flight", "web")]
        command = [*_COMMAND, "serve", f"--config={settings}", f"--data-dir={data}", *ports, *flags]
        with errors.open("ab") as stderr:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")},
            )
        return cls(process, errors)

    @classmethod
    def start(cls, data: Path, *flags: str, config: dict[str, Any] | None = None) -> Server:
        """Starts it and waits for its line."""
        server = cls.begin(data, *flags, config=config)
        try:
            server.wait_until_ready()
        except BaseException:
            server.kill()
            raise
        return server

    def wait_until_ready(self) -> None:
        """Reads the one line that says so."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it ended instead: {self.errors}"
        self._ready = json.loads(line)
        assert self._ready["ready"] is True

    def stop(self, number: int = signals.SIGTERM) -> int:
        """Ends it in order; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Its exit code."""
        try:
            return self.process.wait(PATIENCE_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends all of its processes at once, as a power loss would."""
        pids = self.pids()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signals.SIGKILL)
        self.process.kill()
        self.process.wait(PATIENCE_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        until(lambda: not any(map(is_alive, pids)))

    # --- what can be seen of it ----------------------------------------------------------------

    @property
    def ready(self) -> dict[str, Any]:
        """The line."""
        return self._ready

    @property
    def errors(self) -> str:
        """Everything it said on stderr."""
        return self._errors.read_text(encoding="utf-8", errors="replace")

    def pids(self) -> list[int]:
        """It, its workers and their decoders."""
        found = [self.process.pid] if self.process.poll() is None else []
        for pid in found:
            found += children_of(pid)
        return found

    def workers(self) -> list[int]:
        """Its workers, by number."""
        return [each["pid"] for each in self.get("/api/v1/status").json["workers"]]

    def resident_bytes(self) -> int:
        """The memory of all its processes together."""
        return sum(map(resident_bytes, self.pids()))

    def metric(self, name: str, **labels: str) -> float:
        """The sum of all samples of that name whose labels are these."""
        parts = [f'{label}="{value}"' for label, value in labels.items()]
        lines = self.get("/metrics").body.decode().splitlines()
        found = [line for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(e.rpartition(" ")[2]) for e in found if all(p in e for p in parts))


def export(
    channel: grpc.Channel,
    sent: Signal,
    data: bytes,
    compression: grpc.Compression | None = None,
    **metadata: str,
) -> Any:
    """The same over a channel that is there."""
    method = channel.unary_unary(
        sent.grpc_method, response_deserializer=sent.response_class.FromString
    )
    pairs = tuple(_names(metadata).items())
    return method(data, metadata=pairs, timeout=PATIENCE_S, compression=compression)


def answer_of(response: http.client.HTTPResponse) -> Answer:
    """All of a response."""
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, response.read())


@contextlib.contextmanager
def serving(data: Path, *flags: str, config: dict[str, Any] | None = None) -> Iterator[Server]:
    """A server for the length of a block; it is killed at the end, if it is not stopped before."""
    server = Server.start(data, *flags, config=config)
    try:
        yield server
    finally:
        server.kill()


# --- processes ---------------------------------------------------------------------------------


def children_of(pid: int) -> list[int]:
    """Its children; none where it has ended."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def is_alive(pid: int) -> bool:
    """Whether it runs; one that has ended and was not waited for does not.

    Its first thread ends before the others, and files and locks are the last one's to let go of.
    """
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX" or len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def resident_bytes(pid: int) -> int:
    """The memory of one process; 0 where it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


# --- what is stored ----------------------------------------------------------------------------


def stored(data: Path, sent: Signal, namespace: str = "default") -> list[Any]:
    """The requests that the sealed segments of a topic hold, those of a bundle as one."""
    topic = Topic(namespace, sent.value)
    found = []
    for partition in DataDirectory(data).partitions():
        if partition.topic == topic:
            for path in sorted((partition.folder / "segments").glob("*.seg")):
                reader = SegmentReader.open(LocalFiles(), path)
                bundles = [reader.bundle(number).bundle for number in range(len(reader))]
                found += [sent.request_class.FromString(encode_bundle(sent, b)) for b in bundles]
    return found


def records(request: Any, sent: Signal) -> list[Any]:
    """Its spans, log records or metrics."""
    outer, inner, name = sent.field_names
    return [
        record
        for resource in getattr(request, outer)
        for scope in getattr(resource, inner)
        for record in getattr(scope, name)
    ]


def stored_records(data: Path, sent: Signal, namespace: str = "default") -> list[Any]:
    """The spans, log records or metrics of a topic."""
    return [each for r in stored(data, sent, namespace) for each in records(r, sent)]


def stored_names(data: Path, sent: Signal, namespace: str = "default") -> list[str]:
    """The names of the spans or metrics, the bodies of the log records; sorted."""
    found = stored_records(data, sent, namespace)
    return sorted(e.body.string_value if sent is Signal.LOGS else e.name for e in found)


def _names(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
