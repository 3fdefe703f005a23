"""The Flight port: hot rows, and bundles for remote subscribers.

Tokens, namespaces and TLS are those of every port. Bundles and answers pass through to the worker
that has the partition.

    ticket := {"table": spans | logs | metrics, "tiers": [hot, warm]?, "partial": bool?}    rows
            | {"subscribe": …}                                           see `client.subscriber`

Rows are whole or the stream ends in an error that names what cannot be read, unless `partial`.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.flight as pf

from penstock.client.server_file import FLIGHT_SOCKET
from penstock.client.workers import worker_client
from penstock.model.errors import ServerUnreachable
from penstock.server.auth import NAMESPACE_HEADER, Caller, Gate, Role, Standing
from penstock.server.flight.registrations import MAY_REGISTER, TOO_MANY, Registered, Registrations
from penstock.server.flight.worker_socket import (
    ACTIONS,
    make_sockets,
    number,
    question,
    text,
    told,
    told_batches,
    told_error,
    topic,
)
from penstock.server.refusals import Cause, Refusal
from penstock.store.outside import is_own_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from penstock.server.configuration.config import Config

TABLES: Final = ("spans", "logs", "metrics")
TIERS: Final = ("hot", "warm")
_MOST_LOOKS: Final = 2
"""At once: each holds the rows of a table."""
_ANSWERING: Final = (Role.SUBSCRIBE,)
_ROLES_OF: Final = dict.fromkeys(("register", "unregister"), (Role.SUBSCRIBE, Role.ADMIN))
"""Who may call an action; all others are answers."""


class _Admitted(pf.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    """Who calls, and the namespace that it narrows itself to."""

    def __init__(self, gate: Gate, caller: Caller, asked: str | None) -> None:
        self.caller = caller
        self._gate = gate
        self._asked = asked

    def namespaces(self, *roles: Role) -> frozenset[str] | None:
        """Where it has one of the roles; FlightUnauthorizedError where it has it nowhere."""
        try:
            return self.caller.readable(roles, self._asked)
        except Refusal as refusal:
            raise _error_of(refusal) from None

    def while_it_stands(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same, as long as the token of the call is as good as it was."""
        standing = Standing(self._gate, self.caller)
        for batch in batches:
            try:
                standing.check()
            except Refusal as refusal:
                raise _error_of(refusal) from None
            yield batch


def _error_of(refusal: Refusal) -> pf.FlightError:
    kinds = {
        Cause.UNAUTHENTICATED: pf.FlightUnauthenticatedError,
        Cause.UNAVAILABLE: pf.FlightUnavailableError,
    }
    return kinds.get(refusal.cause, pf.FlightUnauthorizedError)(refusal.message)


class _Door(pf.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Looks at the token of every call."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def start_call(self, _: Any, headers: dict[str, list[str]]) -> _Admitted:
        """FlightUnauthenticatedError where it may not come in."""
        values = {name.lower(): each[0] for name, each in headers.items() if each}
        try:
            self._gate.refresh()
            caller = self._gate.caller(values.get("authorization"))
        except Refusal as refusal:
            raise _error_of(refusal) from None
        return _Admitted(self._gate, caller, values.get(NAMESPACE_HEADER))


class FlightService(pf.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Listens from its making on, at a socket: what comes from outside comes by `flight_front`.

    It looks at tokens all the same.
    """

    def __init__(self, config: Config, gate: Gate) -> None:
        self._config = config
        self._looks = threading.BoundedSemaphore(_MOST_LOOKS)
        most = config.limits.subscribers
        self._registrations = Registrations(config.data_dir.absolute(), most)
        folder = make_sockets(config.data_dir)
        (folder / FLIGHT_SOCKET).unlink(missing_ok=True)
        self._folder = os.open(folder, os.O_PATH | os.O_DIRECTORY)  # its path may be too long
        self.socket_path = f"/proc/self/fd/{self._folder}/{FLIGHT_SOCKET}"
        super().__init__(f"grpc+unix://{self.socket_path}", middleware={"door": _Door(gate)})

    @told
    def do_get(self, context: Any, ticket: pf.Ticket) -> pf.FlightDataStream:
        """Rows of a table, or bundles for a subscriber."""
        asked, door = question(ticket.ticket), context.get_middleware("door")
        if "subscribe" in asked:
            _check_subscriber(asked, "subscribe", door.namespaces(Role.SUBSCRIBE))
            return self._passed_on(asked, ticket, door)
        return self._rows(asked, door)

    @told
    def do_action(self, context: Any, action: pf.Action) -> Iterator[bytes]:
        if action.type not in ACTIONS:
            raise pf.FlightServerError(f"there is no action {action.type[:80]!r}")
        asked = question(action.body.to_pybytes())
        door = context.get_middleware("door")
        _check_subscriber(asked, "topic", door.namespaces(*_ROLES_OF.get(action.type, _ANSWERING)))
        place = str(topic(asked, "topic")), number(asked, "partition")
        one = Registered(*place, text(asked, "subscriber"))
        asked[MAY_REGISTER] = self._may_register(action.type, door.caller, one)
        try:
            with self._worker(asked) as client:
                passed = pf.Action(action.type, json.dumps(asked).encode())
                done = [result.body.to_pybytes() for result in client.do_action(passed)]
        except BaseException:
            self._registrations.look_again(one)
            raise
        if action.type == "unregister":
            self._registrations.leave(one)
        return iter(done)

    def list_actions(self, _: Any) -> list[tuple[str, str]]:
        """Names and what they do."""
        return list(ACTIONS.items())

    def _may_register(self, action: str, caller: Caller, one: Registered) -> bool:
        """Whether the token has room for the subscriber; counted before anything is kept for it."""
        if action == "unregister":
            return False
        has_room = self._registrations.enter(caller.identity, one)
        if action == "register" and not has_room:
            raise pf.FlightUnauthorizedError(TOO_MANY)
        return has_room

    def _rows(self, asked: dict[str, Any], door: _Admitted) -> pf.FlightDataStream:
        seen = door.namespaces(Role.QUERY)
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
        batches = door.while_it_stands(stream.batches())
        return pf.GeneratorStream(stream.schema, told_batches(batches))

    def _passed_on(
        self, asked: dict[str, Any], ticket: pf.Ticket, door: _Admitted
    ) -> pf.FlightDataStream:
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

        return pf.GeneratorStream(schema, door.while_it_stands(batches()))

    @contextlib.contextmanager
    def _worker(self, asked: dict[str, Any]) -> Iterator[pf.FlightClient]:
        worker = number(asked, "partition") % self._config.workers
        try:
            with worker_client(self._config.data_dir.absolute(), worker) as client:
                yield client
        except ServerUnreachable as error:
            refused = isinstance(error.__cause__, pf.FlightServerError)  # it is there, and says why
            raise pf.FlightServerError(str(error)) if refused else told_error(error) from None


def _check_subscriber(asked: dict[str, Any], key: str, seen: frozenset[str] | None) -> None:
    namespace = topic(asked, key).namespace
    if seen is not None and namespace not in seen:
        raise pf.FlightUnauthorizedError(f"the namespace {namespace[:80]!r} may not be used")
    if is_own_name(name := text(asked, "subscriber")):
        raise pf.FlightUnauthorizedError(f"the name {name} is the server's own")


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
        from penstock.tiers.fresh_rows import fresh_rows

        self._tiers, self._partial = tiers, partial
        self._file = tempfile.TemporaryFile()  # it has no name that could be left behind
        self._spool = Path(f"/proc/self/fd/{self._file.fileno()}")
        where = config.data_dir.absolute(), config.lake_settings()
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
