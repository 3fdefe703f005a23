"""From a request's bytes to a durable message: the same for gRPC and HTTP."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from penstock.model.errors import PenstockError
from penstock.otel.validate import RequestLimits, check_request
from penstock.server.refusals import Cause, Refusal, refusal_of

if TYPE_CHECKING:
    from penstock.log.commit import Append
    from penstock.otel.signals import Signal
    from penstock.server.config import Limits
    from penstock.server.repeats import Repeats, Storing
    from penstock.server.stores import Stores
    from penstock.store import Store

_LOG = logging.getLogger(__name__)
PATIENCE_S: Final = 2.0
"""How long a request waits for room on disk before the client is asked to come again."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a client is told: everything else of the request is durable."""

    rejected: int = 0
    message: str = ""


class WayIn(Protocol):
    """Where a request's bytes go."""

    async def take(self, signal: Signal, namespace: str, data: bytes) -> Accepted:
        """Returns when the request is durable; Refusal says why it is not."""
        ...


class Ingest:
    """One worker's way in. A cancelled request is stored whole or not at all."""

    def __init__(self, stores: Stores, repeats: Repeats, limits: Limits) -> None:
        self._stores = stores
        self._repeats = repeats
        self._limits = RequestLimits(max_records=limits.records, max_parts=limits.parts)
        self._left: set[asyncio.Task[None]] = set()
        self._left_bytes = 0
        """Of requests whose clients have gone, and which are being stored all the same."""
        self._most_left_bytes = limits.in_flight

    async def take(self, signal: Signal, namespace: str, data: bytes) -> Accepted:
        """Returns when the request is durable; Refusal says why nothing of it was stored."""
        if self._left_bytes > self._most_left_bytes:
            text = f"{self._left_bytes} bytes of requests are being stored whose clients have gone"
            raise Refusal(Cause.BUSY, text, retry_after_s=PATIENCE_S)
        try:
            checked = check_request(signal, data, self._limits)
            if checked.records:
                async with self._stores.using(namespace, signal) as store:
                    await self._store(signal, store, checked.data)
            return Accepted(checked.rejected, checked.problem)
        except PenstockError as error:
            raise refusal_of(error) from error

    async def _store(self, signal: Signal, store: Store, data: bytes) -> None:
        """Goes on when the client has gone: its retry must find that the request is stored."""
        storing = await self._repeats.begin(signal, store.folder, data)
        if storing is None:
            return
        stored = left = False
        try:
            append = await store.append_async(data, timeout=PATIENCE_S)
            try:
                await append.durable
            except asyncio.CancelledError:
                left = True
                self._leave(storing, append, len(data))
                raise
            self._stores.check_owner(store)
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
