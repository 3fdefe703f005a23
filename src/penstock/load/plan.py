"""What to send, where to, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import urlsplit

from penstock.model.errors import InvalidArgument

_SCHEMES: Final[dict[str, tuple[Literal["grpc", "http"], bool, int]]] = {
    "grpc": ("grpc", False, 4317),
    "grpcs": ("grpc", True, 4317),
    "http": ("http", False, 4318),
    "https": ("http", True, 4318),
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server of OTLP."""

    transport: Literal["grpc", "http"]
    tls: bool
    host: str
    port: int
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """From `host:port`, which is gRPC, or a URL: grpc, grpcs, http, https."""
        url = text if "://" in text else f"grpc://{text}"
        try:
            parts = urlsplit(url)
            transport, tls, port = _SCHEMES[parts.scheme]
            host, port = parts.hostname, parts.port or port
        except (KeyError, ValueError):
            host = None
        if not host:
            known = ", ".join(_SCHEMES)
            raise InvalidArgument(f"{text!r} is neither host:port nor a URL of {known}")
        return cls(transport, tls, host, port, parts.path.rstrip("/"))

    @property
    def authority(self) -> str:
        """Host and port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run. The rate, the batch and the count are those of the shop's spans."""

    endpoint: str = "127.0.0.1:4317"
    signals: tuple[str, ...] = ("traces", "logs", "metrics")
    spans_per_second: float = 0.0
    """Of all processes together; 0: as fast as the server answers."""
    seconds: float | None = 10.0
    spans: int | None = None
    """How many in all; None: until the time is over."""
    processes: int = 1
    concurrency: int = 8
    """Connections of each process; on each, one request waits for its answer."""
    batch: int = 500
    """Spans in a request."""
    seed: int = 0
    namespace: str | None = None
    token: str | None = None
    patience_s: float = 30.0
    """How long a request is retried before it counts as refused."""
    timeout_s: float = 30.0
    """How long an answer is waited for."""

    def spans_of(self, process: int) -> int | None:
        """The share of one process."""
        if self.spans is None:
            return None
        share, rest = divmod(self.spans, self.processes)
        return share + (process < rest)
