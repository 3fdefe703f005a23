"""The Flight port: hot rows, and bundles for remote subscribers.

Tokens, namespaces and TLS are those of every port. Bundles and answers pass through to the worker
that has the partition.

    ticket := {"table": spans | logs | metrics, "tiers": [hot, warm]?, "partial": bool?}    rows
            | {"subscribe": …}                                                see `query.remote`

Rows are whole or the stream ends in an error that names what cannot be read, unless `partial`.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.flight as pf

from penstock.model.errors import ServerUnreachable
from penstock.query.flight import worker_client
from penstock.server.auth import NAMESPACE_HEADER, Gate
from penstock.server.lakes import lake_settings
from penstock.server.refusals import Cause, Refusal
from penstock.server.worker_flight import ACTIONS, number, question, text, told, told_batches, topic
from penstock.store.outside import OWN_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from penstock.server.config import Config

TABLES: Final = ("spans", "logs", "metrics")
TIERS: Final = ("hot", "warm")
_MOST_LOOKS: Final = 2
"""At once: each holds the rows of a table."""


class _Admitted(pf.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    """What the caller may see."""

    def __init__(self, namespaces: frozenset[str] | None) -> None:
        self.namespaces = namespaces


class _Door(pf.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Looks at the token of every call."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def start_call(self, _: Any, headers: dict[str, list[str]]) -> _Admitted:
        """FlightUnauthenticatedError or FlightUnauthorizedError where it may not come in."""
        values = {name.lower(): each[0] for name, each in headers.items() if each}
        try:
            self._gate.refresh()
            asked = values.get(NAMESPACE_HEADER)
            return _Admitted(self._gate.readable(values.get("authorization"), asked))
        except Refusal as refusal:
            kind = (
                pf.FlightUnauthenticatedError
                if refusal.cause is Cause.UNAUTHENTICATED
                else pf.FlightUnauthorizedError
            )
            raise kind(refusal.message) from None


class FlightService(pf.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Listens from its making on."""

    def __init__(self, config: Config, port: int) -> None:
        self._config = config
        self._looks = threading.BoundedSemaphore(_MOST_LOOKS)
        host, tls = config.listen.host, config.tls
        options: dict[str, Any] = {"middleware": {"door": _Door(Gate(config.auth.tokens_file))}}
        if tls.certificate is not None and tls.key is not None:
            pair = (tls.certificate.read_bytes(), tls.key.read_bytes())
            options["tls_certificates"] = [pair]
        if tls.client_ca is not None:
            options |= {"verify_client": True, "root_certificates": tls.client_ca.read_bytes()}
        scheme = "grpc+tls" if "tls_certificates" in options else "grpc+tcp"
        name = f"[{host}]" if ":" in host else host
        super().__init__(f"{scheme}://{name}:{port}", **options)

    @told
    def do_get(self, context: Any, ticket: pf.Ticket) -> pf.FlightDataStream:
        """Rows of a table, or bundles for a subscriber."""
        asked, seen = question(ticket.ticket), context.get_middleware("door").namespaces
        if "subscribe" in asked:
            self._check_subscriber(asked, "subscribe", seen)
            return self._passed_on(asked, ticket)
        return self._rows(asked, seen)

    @told
    def do_action(self, context: Any, action: pf.Action) -> Iterator[bytes]:
        """Of subscribers."""
        if action.type not in ACTIONS:
            raise pf.FlightServerError(f"there is no action {action.type[:80]!r}")
        asked = question(action.body.to_pybytes())
        self._check_subscriber(asked, "topic", context.get_middleware("door").namespaces)
        with self._worker(asked) as client:
            return iter([result.body.to_pybytes() for result in client.do_action(action)])

    def list_actions(self, _: Any) -> list[tuple[str, str]]:
        """Names and what they do."""
        return list(ACTIONS.items())

    def _rows(self, asked: dict[str, Any], seen: frozenset[str] | None) -> pf.FlightDataStream:
        table, tiers = text(asked, "table"), asked.get("tiers", ["hot"])
        if table not in TABLES or not isinstance(tiers, list) or any(t not in TIERS for t in tiers):
            raise pf.FlightServerError(f"table is one of {TABLES}, tiers a list of {TIERS}")
        partial = asked.get("partial", False)
        if not isinstance(partial, bool):
            raise pf.FlightServerError("partial is true or false")
        if not self._looks.acquire(blocking=False):
            raise pf.FlightUnavailableError("others are being answered; try again")
        try:
            stream = FreshStream(self._config, table, tiers, seen, partial=partial)
        finally:
            self._looks.release()
        return pf.GeneratorStream(stream.schema, told_batches(stream.batches()))

    def _passed_on(self, asked: dict[str, Any], ticket: pf.Ticket) -> pf.FlightDataStream:
        stack = contextlib.ExitStack()
        client = stack.enter_context(self._worker(asked))
        try:
            reader = client.do_get(ticket)
            schema = reader.schema
        except BaseException:
            stack.close()
            raise

        def batches() -> Iterator[pa.RecordBatch]:
            with stack:
                try:
                    for chunk in reader:
                        yield chunk.data
                finally:
                    reader.cancel()  # whoever asked has gone; the worker is not to go on

        return pf.GeneratorStream(schema, batches())

    def _check_subscriber(
        self, asked: dict[str, Any], key: str, seen: frozenset[str] | None
    ) -> None:
        namespace = topic(asked, key).namespace
        if seen is not None and namespace not in seen:
            raise pf.FlightUnauthorizedError(f"the namespace {namespace[:80]!r} may not be used")
        if (name := text(asked, "subscriber")) in OWN_NAMES:
            raise pf.FlightUnauthorizedError(f"the name {name} is the server's own")

    @contextlib.contextmanager
    def _worker(self, asked: dict[str, Any]) -> Iterator[pf.FlightClient]:
        worker = number(asked, "partition") % self._config.workers
        try:
            with worker_client(self._config.data_dir.absolute(), worker) as client:
                yield client
        except ServerUnreachable as error:
            raise pf.FlightServerError(str(error)) from None


class FreshStream:
    """The rows of a table, looked at when it is made; read once."""

    def __init__(
        self,
        config: Config,
        table: str,
        tiers: list[str],
        seen: frozenset[str] | None,
        *,
        partial: bool,
    ) -> None:
        from penstock.lake.schemas import TABLES as SCHEMAS
        from penstock.server.fresh import fresh_rows

        self._tiers, self._partial = tiers, partial
        self._file = tempfile.TemporaryFile()  # it has no name that could be left behind
        self._spool = Path(f"/proc/self/fd/{self._file.fileno()}")
        where = config.data_dir.absolute(), lake_settings(config)
        self._fresh = fresh_rows(*where, table, self._spool, seen)
        self._fresh.said.check(partial=partial)
        said = {"penstock.warnings": json.dumps(self._fresh.said.warnings)}
        self.schema = SCHEMAS[table].with_metadata(said)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Those of segments first; AnswerIncomplete where one turns out to be unreadable."""
        with self._file:
            for batch in self._fresh.warm() if "warm" in self._tiers else ():
                self._fresh.said.check(partial=self._partial)
                yield batch
            self._fresh.said.check(partial=self._partial)
            yield from self._fresh.hot(self._spool) if "hot" in self._tiers else ()
