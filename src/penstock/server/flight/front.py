"""What stands before Arrow's Flight server: the token before the message, and bounds on everything.

Arrow's server reads a message of any size, from anybody, before it asks us; Python cannot set that.
So it listens on a socket in the data directory, and gRPC's own server takes the calls. A call shows
its token, gets a place, and only then is its one message read, within its bound and in time. The
answer is passed on as it comes, one message at a time, to a client that takes it; who does not is
cut off. A thread has each call for its whole life.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import grpc

from penstock.children.asking import resident_bytes
from penstock.server.auth import NAMESPACE_HEADER
from penstock.server.certificates import grpc_credentials
from penstock.server.receiving.grpc import options
from penstock.server.receiving.newcomers import Newcomers
from penstock.server.refusals import MESSAGE_CHARACTERS, Cause, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.server.auth import Caller, Gate
    from penstock.server.certificates import Certificates
    from penstock.server.configuration.config import Config

SERVICE: Final = "arrow.flight.protocol.FlightService"
ASKING: Final = (
    "DoGet",
    "DoAction",
    "ListActions",
)
"""One message each."""
NOT_THERE: Final = (
    "Handshake",
    "DoPut",
    "DoExchange",
    "ListFlights",
    "GetFlightInfo",
    "PollFlightInfo",
    "GetSchema",
)
"""Nobody answers these; what they send is not read."""
MESSAGE_BYTES: Final = 1024 * 1024
"""A ticket, or the answers to as many bundles as anybody holds."""
_LEAST_RATE: Final = 1024 * 1024
"""Bytes a second that a client must take, beside its time for a message."""
_LOOK_S: Final = 0.25
_FIRST_PART_BYTES: Final = 1024 * 1024
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


class FlightFront:
    """Listens from `start` on."""

    def __init__(self, config: Config, gate: Gate, socket_path: str) -> None:
        self._limits = config.limits
        self._gate = gate
        most = config.limits.flight_calls
        self._places = Places(most, most // 2 if gate.wants_tokens else most)
        self._room = Room(config.limits.in_flight)
        self._calls = Calls()
        self._newcomers: Newcomers | None = None
        unbounded = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self._behind = grpc.insecure_channel(f"unix:{socket_path}", unbounded)
        # A few threads more, in which those who find no place are told so.
        transport = options(config.limits, message_bytes=MESSAGE_BYTES, answer_bytes=-1)
        self._server = grpc.server(ThreadPoolExecutor(most + 8), options=transport)
        methods = {name: self._handler(name) for name in (*ASKING, *NOT_THERE)}
        handlers = grpc.method_handlers_generic_handler(SERVICE, methods)
        self._server.add_generic_rpc_handlers((handlers,))

    def start(self, address: str, certificates: Certificates | None) -> None:
        """OSError where it cannot listen there."""
        if certificates is None:
            port = self._server.add_insecure_port(address)
        else:
            port = self._server.add_secure_port(address, grpc_credentials(certificates))
        if not port:
            raise OSError(f"the Flight port cannot listen at {address}")
        self._newcomers = Newcomers(port, self._limits, tls=certificates is not None)
        threading.Thread(
            target=self._newcomers.watch,
            args=(threading.Event(),),
            name="penstock-flight-newcomers",
            daemon=True,
        ).start()
        self._server.start()

    def _handler(self, method: str) -> grpc.RpcMethodHandler:
        # As streams, also where there is one message: it is read when we ask for it.
        return grpc.stream_stream_rpc_method_handler(functools.partial(self._answer, method))

    def _answer(self, method: str, messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        try:
            yield from self._parts(method, messages, context)
        except grpc.RpcError as error:
            if context.is_active():
                context.set_trailing_metadata(_passed_on(error))
                context.abort(error.code(), error.details() or "")
        except Refusal as refusal:
            error_code = _CODES[refusal.cause.grpc_code]
            context.abort(error_code, refusal.message[:MESSAGE_CHARACTERS])

    def _parts(self, method: str, messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        if self._newcomers is not None:
            self._newcomers.moved(context.peer())
        headers = {name: _text(value) for name, value in context.invocation_metadata()}
        self._gate.refresh()
        caller = self._gate.caller(headers.get("authorization"))
        if method in NOT_THERE:
            raise Refusal(Cause.NOT_INSTALLED, f"this server has no {method}")
        with self._places.held(caller), self._calls.one(context) as patience:
            self._check_memory()
            with patience.within(self._limits.timeout):
                message = next(messages, None)
            if message is None:
                raise Refusal(Cause.INVALID, "the call ended without a request")
            # Of what came twice, that which was looked at: the server behind takes the first.
            sent = [(n, v) for n, v in headers.items() if n in ("authorization", NAMESPACE_HEADER)]
            call = self._behind.unary_stream(f"/{SERVICE}/{method}")(message, metadata=sent)
            context.add_callback(call.cancel)  # whoever asked has gone, or was cut off
            for part in self._room.through(call, caller):
                with patience.within(self._limits.flight_write + len(part) / _LEAST_RATE):
                    yield part

    def _check_memory(self) -> None:
        most = self._limits.memory
        if most is not None and (memory := resident_bytes()) > most:
            text = f"the memory in use is {memory} bytes of {most}"
            raise Refusal(Cause.UNAVAILABLE, text, retry_after_s=1.0)


class Places:
    """Calls that may be there at once, of all callers and of each."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self._most, self._most_of_one = most, most_of_one
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()

    @contextlib.contextmanager
    def held(self, caller: Caller) -> Iterator[None]:
        """One of them; Refusal where there is none."""
        who = caller.identity
        with self._lock:
            if self._held.total() >= self._most or self._held[who] >= self._most_of_one:
                text = f"{self._held[who]} calls of this token are being answered already"
                raise Refusal(Cause.UNAVAILABLE, text, retry_after_s=1.0)
            self._held[who] += 1
        try:
            yield
        finally:
            with self._lock:
                self._held[who] -= 1
                self._held += Counter()  # who has none is forgotten


class Room:
    """Bytes of answers on their way to clients, of all callers; each may have half of it.

    How large a part is nobody knows before it is there: it is taken to be as large as the last.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: Counter[str] = Counter()
        self._changed = threading.Condition()

    def through(self, call: Any, caller: Caller) -> Iterator[bytes]:
        """The parts of an answer, each asked for when there is room for it."""
        size, who = _FIRST_PART_BYTES, caller.identity
        while True:
            with self._taken(call, who, size):
                part = next(call, None)
                if part is None:
                    return
                yield part
            size = len(part)

    @contextlib.contextmanager
    def _taken(self, call: Any, who: str, size: int) -> Iterator[None]:
        def is_free() -> bool:
            mine, total = self._held[who], self._held.total()
            fits = total + size <= self._most and mine + size <= self._most // 2
            return fits or not mine  # one part goes through, however large

        with self._changed:
            while not self._changed.wait_for(is_free, _LOOK_S):
                if not call.is_active():
                    break
            self._held[who] += size
        try:
            yield
        finally:
            with self._changed:
                self._held[who] -= size
                self._held += Counter()
                self._changed.notify_all()


class Patience:
    """Until when a client has to have sent, or taken, what it is waited for."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._until: float | None = None

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """The client has so long for what is in the block."""
        self._until = time.monotonic() + seconds
        try:
            yield
        finally:
            self._until = None

    def look(self) -> None:
        """Cuts it off where it took longer. What it has not taken is freed with the call."""
        until = self._until
        if until is not None and time.monotonic() > until:
            self._context.cancel()


class Calls:
    """Those that are there, looked at by one thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._there: set[Patience] = set()
        threading.Thread(target=self._watch, name="penstock-flight-watch", daemon=True).start()

    @contextlib.contextmanager
    def one(self, context: Any) -> Iterator[Patience]:
        """A call, for its whole life."""
        patience = Patience(context)
        with self._lock:
            self._there.add(patience)
        try:
            yield patience
        finally:
            with self._lock:
                self._there.discard(patience)

    def _watch(self) -> None:
        while True:
            time.sleep(_LOOK_S)
            with self._lock:
                there = list(self._there)
            for patience in there:
                patience.look()


def _passed_on(error: Any) -> tuple[tuple[str, str | bytes], ...]:
    """What Arrow says beside the code."""
    return tuple((each.key, each.value) for each in error.trailing_metadata() or ())


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value
