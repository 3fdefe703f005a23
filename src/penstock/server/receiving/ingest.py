"""From a request that was checked to a durable message: the same for gRPC and HTTP."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.model.errors import PenstockError
from penstock.server.refusals import Cause, Refusal, refusal_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from penstock.log.commit import Append
    from penstock.otel.signals import Signal
    from penstock.server.auth import Admitted, Gate
    from penstock.server.configuration.config import Limits
    from penstock.server.places import Client
    from penstock.server.receiving.admission import Admission
    from penstock.server.receiving.checker import Checked
    from penstock.server.receiving.checking import Arrived, Checks
    from penstock.server.receiving.repeats import Repeats, Storing

_LOG = logging.getLogger(__name__)
PATIENCE_S: Final = 2.0
"""How long a request waits for room on disk before the client is asked to come again."""


class WayIn(Protocol):
    """Where requests go that were checked."""

    async def take(self, signal: Signal, namespace: str, checked: Checked) -> None:
        """Returns when the request is durable; Refusal says why it is not."""
        ...


class Appendable(Protocol):
    """Where requests of one topic become durable; for the process that receives, its log."""

    @property
    def folder(self) -> Path:
        """Where it is, by which requests that come again are known."""
        ...

    async def append_async(self, message: bytes, *, timeout: float | None = None) -> Append:
        """Its turn in the next group commit."""
        ...


class Topics(Protocol):
    """All that receiving knows of who keeps what it has taken."""

    def using(self, namespace: str, signal: Signal) -> AbstractAsyncContextManager[Appendable]:
        """The one of a topic, which stays open for so long; Refusal where there is none."""
        ...

    def check_owner(self, topic: Any) -> None:
        """Fenced where another owner has the topic, or may have. Last before an answer."""
        ...


@dataclass(frozen=True, slots=True)
class Intake:
    """What the ports have in common: from a request that has come to one that is durable."""

    way_in: WayIn
    gate: Gate
    admission: Admission
    checks: Checks
    limits: Limits

    async def take(
        self, arrived: Arrived, admitted: Admitted, client: Client, grow: Callable[[int], None]
    ) -> Checked:
        """Returns when it is durable, with what the client is to be told; Refusal: it is not."""
        checked = await self.checks.check(arrived, client, grow)
        admitted.check()  # the request may have taken long to come
        await self.way_in.take(arrived.signal, admitted.namespace, checked)
        return checked


class Ingest:
    """One worker's way in. A cancelled request is stored whole or not at all."""

    def __init__(self, topics: Topics, repeats: Repeats, limits: Limits) -> None:
        self._topics = topics
        self._repeats = repeats
        self._left: set[asyncio.Task[None]] = set()
        self._left_bytes = 0
        """Of requests whose clients have gone, and which are being stored all the same."""
        self._most_left_bytes = limits.in_flight

    async def take(self, signal: Signal, namespace: str, checked: Checked) -> None:
        """Returns when the request is durable; Refusal says why nothing of it was stored."""
        if self._left_bytes > self._most_left_bytes:
            text = f"{self._left_bytes} bytes of requests are being stored whose clients have gone"
            raise Refusal(Cause.BUSY, text, retry_after_s=PATIENCE_S)
        if not checked.records:
            return
        try:
            async with self._topics.using(namespace, signal) as topic:
                await self._store(signal, topic, checked.data)
        except PenstockError as error:
            raise refusal_of(error) from error

    async def _store(self, signal: Signal, topic: Appendable, data: bytes) -> None:
        """Goes on when the client has gone: its retry must find that the request is stored."""
        storing = await self._repeats.begin(signal, topic.folder, data)
        if storing is None:
            return
        stored = left = False
        try:
            append = await topic.append_async(data, timeout=PATIENCE_S)
            try:
                await append.durable
            except asyncio.CancelledError:
                left = True
                self._leave(storing, append, len(data))
                raise
            # What is answered now is on disk, and the topic was still ours after it was.
            self._topics.check_owner(topic)
            stored = True
        finally:
            if not left:
                storing.end(stored=stored)

    def _leave(self, storing: Storing, append: Append, size: int) -> None:
        task = asyncio.create_task(self._finish(storing, append, size))
        self._left.add(task)
        task.add_done_callback(self._left.discard)

    async def _finish(self, storing: Storing, append: Append, size: int) -> None:
        self._left_bytes += size
        stored = False
        try:
            await append.durable
            stored = True
        except PenstockError as error:
            _LOG.warning("a request whose client had gone was not stored: %s", error)
        finally:
            self._left_bytes -= size
            storing.end(stored=stored)
