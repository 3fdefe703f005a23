"""A subscriber on another machine: bundles over Arrow Flight, each answered by its holder.

ticket  := {"subscribe": topic, "partition": number, "subscriber": name, "wait_s": seconds?}
actions := register   {"topic", "partition", "subscriber", "start": earliest | latest | seq}
         | unregister {"topic", "partition", "subscriber"}
         | answer     {"topic", "partition", "subscriber", "answer": ack | nack | reject,
                       "bundles": [[segment_seq, bundle_index], …], "retry_after_s"?}
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.store.messages import decode_bundle

if TYPE_CHECKING:
    from collections.abc import Iterator
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


@dataclass(frozen=True, slots=True)
class RemoteDelivery:
    """A bundle that waits for its answer. Left unanswered, it comes again when the stream ends."""

    subscriber: RemoteSubscriber
    bundle: Bundle
    segment_seq: int
    bundle_index: int
    attempt: int
    first_offset: int
    messages: int

    def ack(self) -> None:
        """The subscriber has it; returns when that is durable."""
        self.subscriber.answer("ack", self)

    def nack(self, retry_after_s: float | None = None) -> None:
        """Not now; it comes again."""
        self.subscriber.answer("nack", self, retry_after_s=retry_after_s)

    def reject(self) -> None:
        """Never."""
        self.subscriber.answer("reject", self)


class RemoteSubscriber:
    """One partition of a topic, as a named subscriber. At least once, in the order of segments."""

    def __init__(
        self, location: str, topic: str, name: str, *, partition: int = 0, **options: Any
    ) -> None:
        """`location` is like `grpc://host:4319`; `token` and what FlightClient takes are options.

        Nothing is sent yet.
        """
        import pyarrow.flight as pf

        token = options.pop("token", None)
        headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
        self._options = pf.FlightCallOptions(headers=headers)
        self._client = pf.FlightClient(location, **options)
        self._who = {"partition": partition, "subscriber": name}
        self._topic = topic

    def register(self, start: int | str = "earliest") -> bool:
        """From now on everything is kept for it; False where it was registered already."""
        return bool(self._act("register", start=start)["registered"])

    def unregister(self) -> None:
        """Forgets it for good."""
        self._act("unregister")

    def bundles(self, wait_s: float | None = None, most: int = 16) -> Iterator[RemoteDelivery]:
        """On and on, or until none came for `wait_s`; up to `most` of them come unanswered.

        Ending it gives back what is unanswered.
        """
        import pyarrow.flight as pf

        asked = {"subscribe": self._topic, **self._who, "wait_s": wait_s, "most": most}
        reader = self._client.do_get(pf.Ticket(json.dumps(asked).encode()), self._options)
        try:
            for chunk in reader:
                for row in range(chunk.data.num_rows):
                    yield self._delivery(chunk.data, row)
        finally:
            reader.cancel()

    def answer(self, how: str, *deliveries: RemoteDelivery, **more: Any) -> None:
        """`ack`, `nack` or `reject` several at once, for the price of one durable write."""
        places = [[each.segment_seq, each.bundle_index] for each in deliveries]
        self._act(how, bundles=places, **more)

    def close(self) -> None:
        """Ends the connection."""
        self._client.close()

    def __enter__(self) -> RemoteSubscriber:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _delivery(self, batch: pa.RecordBatch, row: int) -> RemoteDelivery:
        *_, message = (column[row] for column in batch.columns)
        fields = {name: batch[name][row].as_py() for name in DELIVERIES.names[:5]}
        return RemoteDelivery(self, decode_bundle(memoryview(message.as_buffer())), **fields)

    def _act(self, what: str, **more: Any) -> dict[str, Any]:
        import pyarrow.flight as pf

        asked = {"topic": self._topic, **self._who, **more}
        action = pf.Action(what, json.dumps(asked).encode())
        [result] = self._client.do_action(action, self._options)
        answer: dict[str, Any] = json.loads(result.body.to_pybytes())
        return answer
