"""A subscriber on another machine: bundles over Arrow Flight, each answered by its holder.

ticket  := {"subscribe": topic, "partition": number, "subscriber": name, "wait_s": seconds?}
actions := register   {"topic", "partition", "subscriber", "start": earliest | latest | seq}
         | unregister {"topic", "partition", "subscriber"}
         | ack | nack | reject
                      {"topic", "partition", "subscriber", "bundles": [[segment_seq, index], …],
                       "partial": bool?, "retry_after_s"?}
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.flight as pf

from penstock.client.absence import PATIENCE_S, Absence
from penstock.model.errors import ConnectionClosed, ServerUnreachable
from penstock.store.messages import decode_bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from penstock.model.bundle import Bundle

DELIVERIES: Final = pa.schema(
    [
        pa.field("segment_seq", pa.uint64(), nullable=False),
        pa.field("bundle_index", pa.uint32(), nullable=False),
        pa.field("attempt", pa.uint32(), nullable=False),
        pa.field("first_offset", pa.uint64(), nullable=False),
        pa.field("messages", pa.uint32(), nullable=False),
        pa.field("ingested_at_ns", pa.int64(), nullable=False),
        pa.field("message", pa.large_binary(), nullable=False),
    ]
)
"""A bundle a row; a batch without rows says that the other side is there."""
_AWAY: Final = (ServerUnreachable, pf.FlightUnavailableError, pf.FlightCancelledError)
_TRANSPORT: Final = [
    # Channels of one process would share connections, and the pauses after those that failed.
    ("grpc.use_local_subchannel_pool", 1),
    # A machine that is gone says nothing; a stream of a live one has a beat every half second.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
]


class _Stream:
    """Of bundles. Its holder ends it; the server, or the network, only interrupts it."""

    has_ended = False


@dataclass(frozen=True, slots=True)
class RemoteDelivery:
    """A bundle that waits for its answer. Left unanswered, it comes again when the stream ends.

    Answers return True when they are durable. False: the server was away meanwhile and knows
    nothing of the bundle, so that it comes again; or it does not come back in time.
    """

    subscriber: RemoteSubscriber
    stream: _Stream
    bundle: Bundle
    segment_seq: int
    bundle_index: int
    attempt: int
    first_offset: int
    messages: int

    def ack(self) -> bool:
        """The subscriber has it."""
        return self.subscriber.answer("ack", self)

    def nack(self, retry_after_s: float | None = None) -> bool:
        """Not now; it comes again."""
        return self.subscriber.answer("nack", self, retry_after_s=retry_after_s)

    def reject(self) -> bool:
        """Never."""
        return self.subscriber.answer("reject", self)


class RemoteSubscriber:
    """One partition of a topic, as a named subscriber. At least once, in the order of segments.

    A server that goes away is called again until it is back, with pauses that grow. Bundles that it
    gave and that were not answered durably come again. May be closed by another thread.
    """

    def __init__(
        self,
        location: str | Callable[[], str],
        topic: str,
        name: str,
        *,
        partition: int = 0,
        token: str | None = None,
        patience_s: float = PATIENCE_S,
        **options: Any,
    ) -> None:
        """`location` is like `grpc://host:4319`, or says it for each connection that is made.

        `patience_s` is how long the server may be away from a call. `options` are those of
        `pyarrow.flight.FlightClient`. Nothing is sent yet.
        """
        heads = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
        self._headers = pf.FlightCallOptions(headers=heads)
        self._location = location if callable(location) else lambda: location
        self._options = {"generic_options": _TRANSPORT, **options}
        self._patience_s = patience_s
        self._who = {"partition": partition, "subscriber": name}
        self._topic = topic
        self._lock = threading.Lock()
        self._client: pf.FlightClient | None = None
        self._closed = threading.Event()

    def register(self, start: int | str = "earliest") -> bool:
        """From now on everything is kept for it; False where it was registered already.

        So it was, too, where the server went away before it said so.
        """
        return bool(self._act("register", start=start)["registered"])

    def unregister(self) -> None:
        """Forgets it for good."""
        self._act("unregister")

    def bundles(self, wait_s: float | None = None, most: int = 16) -> Iterator[RemoteDelivery]:
        """On and on, or until none came for `wait_s`; up to `most` of them come unanswered.

        Without `wait_s` a server that answered once is waited for without end. Ending it gives back
        what is unanswered, and so does closing the subscriber.
        """
        asked = {"subscribe": self._topic, **self._who, "wait_s": wait_s, "most": most}
        stream, absence = _Stream(), Absence(self._patience_s, self._closed)
        try:
            while True:
                try:
                    for batch in self._batches(pf.Ticket(json.dumps(asked).encode())):
                        absence.over()
                        absence.patience_s = None if wait_s is None else self._patience_s
                        for row in range(batch.num_rows):
                            yield self._delivery(stream, batch, row)
                    if wait_s is not None:
                        return
                    # Nothing but a server that stops ends a stream that has no end.
                    absence.wait(ServerUnreachable("the server ended the stream"))
                except _AWAY as error:
                    absence.wait(error)
        except ConnectionClosed:
            return
        finally:
            stream.has_ended = True

    def answer(self, how: str, *deliveries: RemoteDelivery, **more: Any) -> bool:
        """`ack`, `nack` or `reject` several at once, for the price of one durable write.

        True: all of them are answered durably.
        """
        places = [[each.segment_seq, each.bundle_index] for each in deliveries]
        # Who ended a stream gave its bundles back: answering them is a mistake, and is told.
        partial = not any(each.stream.has_ended for each in deliveries)
        try:
            done = self._act(how, bundles=places, partial=partial, **more)
        except _AWAY:
            return False
        return int(done["answered"]) == len(deliveries)

    def close(self) -> None:
        """Ends the connection, and waiting for one."""
        self._closed.set()
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def __enter__(self) -> RemoteSubscriber:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- the connection ------------------------------------------------------------------------

    def _connected(self) -> pf.FlightClient:
        """The connection, made anew where the last one failed: the server may have moved."""
        with self._lock:
            if self._closed.is_set():
                raise ConnectionClosed("the subscriber is closed")
            if self._client is None:
                self._client = pf.FlightClient(self._location(), **self._options)
            return self._client

    def _forget(self, failed: pf.FlightClient | None) -> None:
        """Not closed: another stream may still have it."""
        with self._lock:
            if self._client is failed:
                self._client = None

    def _batches(self, ticket: pf.Ticket) -> Iterator[pa.RecordBatch]:
        client = None
        try:
            client = self._connected()
            reader = client.do_get(ticket, self._headers)
            try:
                for chunk in reader:
                    if self._closed.is_set():  # looked at with each beat
                        raise ConnectionClosed("the subscriber is closed")
                    yield chunk.data
            finally:
                reader.cancel()
        except _AWAY:
            self._forget(client)
            raise

    def _act(self, what: str, **more: Any) -> dict[str, Any]:
        """An action, again where its answer did not come: each of them may be done twice."""
        asked = {"topic": self._topic, **self._who, **more}
        action = pf.Action(what, json.dumps(asked).encode())
        absence = Absence(self._patience_s, self._closed)
        while True:
            client = None
            try:
                client = self._connected()
                [result] = client.do_action(action, self._headers)
                answer: dict[str, Any] = json.loads(result.body.to_pybytes())
            except _AWAY as error:
                self._forget(client)
                absence.wait(error)
            else:
                return answer

    def _delivery(self, stream: _Stream, batch: pa.RecordBatch, row: int) -> RemoteDelivery:
        *_, message = (column[row] for column in batch.columns)
        fields = {name: batch[name][row].as_py() for name in DELIVERIES.names[:5]}
        bundle = decode_bundle(memoryview(message.as_buffer()))
        return RemoteDelivery(self, stream, bundle, **fields)
