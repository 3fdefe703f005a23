"""A running server, by its data directory or the address of its web port."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from penstock.client.absence import PATIENCE_S, Absence
from penstock.client.server_file import running_server
from penstock.model.errors import (
    AnswerIncomplete,
    InvalidArgument,
    PenstockError,
    ServerUnreachable,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    import pyarrow as pa

    from penstock.client.subscriber import RemoteSubscriber

_ARROW: Final = "application/vnd.apache.arrow.stream"
_ANSWER_S: Final = 600.0
_LATER: Final = (429, 503)
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where a server listens


@dataclass(frozen=True, slots=True)
class _Identity:
    """Who calls, and whom it trusts."""

    token: str | None
    ca: Path | None
    certificate: Path | None
    key: Path | None

    def context(self) -> ssl.SSLContext:
        found = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            found.load_cert_chain(self.certificate, self.key)
        return found

    def flight_options(self) -> dict[str, Any]:
        files = {
            "tls_root_certs": self.ca,
            "cert_chain": self.certificate,
            "private_key": self.key,
        }
        return {name: path.read_bytes() for name, path in files.items() if path is not None}


def connect(
    where: str | Path,
    *,
    token: str | None = None,
    ca: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    patience_s: float = PATIENCE_S,
) -> Connection:
    """The server at `http://host:4320` or `https://…`, or the one of a data directory.

    Nothing is sent yet. The server may be restarted and move to other ports: those of a data
    directory are looked up for each connection, and the Flight port in any case. `patience_s` is
    how long it may be away from a call.
    """
    return Connection(where, _Identity(token, ca, certificate, key), patience_s)


class Connection:
    """Subscribes, asks and administers. Every call may be repeated safely; any thread may call.

    ServerUnreachable: the server was away for longer than `patience_s`. InvalidArgument: it cannot
    be answered as it is. AnswerIncomplete: rows cannot be read. PenstockError: it may not be asked.
    """

    def __init__(self, where: str | Path, identity: _Identity, patience_s: float) -> None:
        self._where = where
        self._identity = identity
        self._patience_s = patience_s
        self._closed = threading.Event()

    # --- bundles -------------------------------------------------------------------------------

    def subscriber(self, topic: str, name: str, *, partition: int = 0) -> RemoteSubscriber:
        """Somebody to take bundles; nothing is kept for it before its `register`."""
        from penstock.client.subscriber import RemoteSubscriber

        return RemoteSubscriber(
            self._flight_location,
            topic,
            name,
            partition=partition,
            token=self._identity.token,
            patience_s=self._patience_s,
            **self._identity.flight_options(),
        )

    def subscribe(
        self, topic: str, name: str, start: int | str = "earliest", *, partition: int = 0
    ) -> RemoteSubscriber:
        """The same, registered: from now on everything is kept for it."""
        found = self.subscriber(topic, name, partition=partition)
        found.register(start)
        return found

    # --- questions -----------------------------------------------------------------------------

    def query(
        self, sql: str, *, tiers: Sequence[str] | None = None, partial: bool = False
    ) -> pa.Table:
        """The rows of one statement; `penstock.warnings` is in the metadata of their schema."""
        import pyarrow as pa

        asked: dict[str, Any] = {"sql": sql, "partial": partial}
        asked |= {} if tiers is None else {"tiers": list(tiers)}
        answer = self._ask("POST", "query", asked, accept=_ARROW)
        with pa.ipc.open_stream(answer) as reader:
            return reader.read_all()

    def trace(self, trace_id: str) -> dict[str, Any]:
        """The spans of a trace."""
        return self._json("GET", f"traces/{trace_id}")

    def topics(self) -> list[dict[str, Any]]:
        """Every partition: offsets, sizes, lag of its slowest subscriber."""
        found: list[dict[str, Any]] = self._json("GET", "topics")["topics"]
        return found

    def subscribers(self) -> list[dict[str, Any]]:
        """Every subscriber: its mark, lag and counts."""
        found: list[dict[str, Any]] = self._json("GET", "subscribers")["subscribers"]
        return found

    def status(self) -> dict[str, Any]:
        """The workers and their state."""
        return self._json("GET", "status")

    # --- administration ------------------------------------------------------------------------

    def flush(self) -> None:
        """Seals everything now; returns when that is done."""
        self._json("POST", "flush")

    def hot_snapshot(self, *, partial: bool = False) -> dict[str, Any]:
        """Writes `snapshots/hot_snapshot.parquet`, and says what is in it."""
        return self._json("POST", f"hot-snapshot?partial={str(partial).lower()}")

    def close(self) -> None:
        """Ends waiting for the server."""
        self._closed.set()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- calls ---------------------------------------------------------------------------------

    def _json(self, method: str, path: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._ask(method, path))
        return found

    def _ask(
        self, method: str, path: str, body: Any = None, *, accept: str = "application/json"
    ) -> bytes:
        absence = Absence(self._patience_s, self._closed)
        while True:
            try:
                status, headers, answer = self._once(method, path, body, accept)
            except (OSError, http.client.HTTPException) as error:
                absence.wait(_unreachable(error))
            except ServerUnreachable as error:
                absence.wait(error)
            else:
                if status == http.HTTPStatus.OK:
                    return answer
                refused = _refusal(status, answer)
                if status not in _LATER:
                    raise refused
                absence.wait(refused, float(headers.get("retry-after", 0)))

    def _once(
        self, method: str, path: str, body: Any, accept: str
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        heads = {"accept": accept, "content-type": "application/json"}
        if self._identity.token is not None:
            heads["authorization"] = f"Bearer {self._identity.token}"
        sent = None if body is None else json.dumps(body)
        connection = self._http()
        try:
            connection.request(method, f"/api/v1/{path}", sent, heads)
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def _http(self) -> http.client.HTTPConnection:
        scheme, host, port = self._web_address()
        if scheme == "https":
            context = self._identity.context()
            return http.client.HTTPSConnection(host, port, timeout=_ANSWER_S, context=context)
        return http.client.HTTPConnection(host, port, timeout=_ANSWER_S)

    # --- addresses -----------------------------------------------------------------------------

    def _web_address(self) -> tuple[str, str, int]:
        if _is_url(self._where):
            address = urlsplit(str(self._where))
            if address.hostname is None:
                raise InvalidArgument(f"{self._where} has no host")
            return address.scheme, address.hostname, address.port or 4320
        scheme, host, _, web = self._from_file()
        return scheme, host, web

    def _flight_location(self) -> str:
        if _is_url(self._where):
            scheme, host, _ = self._web_address()
            port = self.status()["flight_port"]
            if port is None:
                raise ServerUnreachable(f"the server at {self._where} has no Flight port now")
        else:
            scheme, host, port, _ = self._from_file()
        host = f"[{host}]" if ":" in host else host
        return f"{'grpc+tls' if scheme == 'https' else 'grpc'}://{host}:{port}"

    def _from_file(self) -> tuple[str, str, int, int]:
        """Scheme, host, Flight port and web port of the server that runs at present."""
        server = running_server(Path(self._where))
        if server is None:
            raise ServerUnreachable(f"no server runs on {self._where}")
        host = _EVERYWHERE.get(server.host, server.host)
        return "https" if server.tls else "http", host, server.flight_port, server.web_port


def _is_url(where: str | Path) -> bool:
    return str(where).startswith(("http://", "https://"))


def _unreachable(error: Exception) -> ServerUnreachable:
    return ServerUnreachable(str(error) or type(error).__name__)


def _refusal(status: int, answer: bytes) -> PenstockError:
    try:
        message = str(json.loads(answer)["message"])
    except (ValueError, KeyError, TypeError):
        message = answer.decode(errors="replace")[:500]
    kinds: dict[int, type[PenstockError]] = dict.fromkeys((400, 404, 413, 422), InvalidArgument)
    kinds |= dict.fromkeys(_LATER, ServerUnreachable) | {500: AnswerIncomplete}
    return kinds.get(status, PenstockError)(message)
