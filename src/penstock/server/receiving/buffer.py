"""Receiving without a disk: a request is acknowledged when it is in the queue on object storage.

Stands in the place of a worker's stores and of its way in. Requests of one topic that come within
a few milliseconds are one call of the producer, since the manifest says something of each call.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.model.errors import PenstockError
from penstock.model.topics import Topic
from penstock.queue.otlp import Origin, encode_origin
from penstock.server.refusals import Cause, refusal_of, unavailable

if TYPE_CHECKING:
    from penstock.otel.signals import Signal
    from penstock.queue import AsyncProducer, WriteHandle
    from penstock.server.receiving.checker import Checked

_LOG = logging.getLogger(__name__)
GATHER_S: Final = 0.005


@dataclass(slots=True, eq=False)
class _Call:
    """Requests that are produced together."""

    taken: asyncio.Future[WriteHandle]
    requests: list[bytes] = field(default_factory=list)


class _NotStored(Exception):
    """The queue could not take it."""


class Buffer:
    """One worker's way into the queue. A cancelled request may be stored all the same."""

    def __init__(self, producer: AsyncProducer) -> None:
        self._producer = producer
        self._gathering: dict[Origin, _Call] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._failure: str | None = None

    async def take(self, signal: Signal, namespace: str, checked: Checked) -> None:
        """Returns when the request is durable; Refusal says why the client is to send it again."""
        try:
            if checked.records:
                await self._store(Origin(Topic(namespace, signal.value), signal), checked.data)
            self._failure = None
        except _NotStored as error:
            self._failure = str(error)
            raise unavailable(error) from error
        except PenstockError as error:
            refusal = refusal_of(error)
            if refusal.cause is Cause.BUSY:
                self._failure = str(error)
            raise refusal from error

    async def flush(self) -> None:
        """Everything that was taken is durable, or its callers know that it is not."""
        await asyncio.gather(*self._calls)
        await self._producer.flush()

    async def close(self) -> None:
        """Takes nothing more, and answers what it has."""
        await asyncio.gather(*self._calls)
        await self._producer.close()

    def failures(self) -> list[str]:
        """Why the last request could not be stored; empty when it could."""
        failure = self.stopped or self._failure
        return [] if failure is None else [f"the queue: {failure}"]

    @property
    def stopped(self) -> str | None:
        """Why nothing more can be stored by this object; None while it can."""
        failure = self._producer.failure
        return None if failure is None else str(failure)

    @property
    def waiting_bytes(self) -> int:
        """Of requests that are not durable yet."""
        return self._producer.buffered_bytes

    async def _store(self, origin: Origin, data: bytes) -> None:
        call = self._gathering.get(origin)
        if call is None:
            call = self._gathering[origin] = _Call(asyncio.get_running_loop().create_future())
            task = asyncio.create_task(self._produce(origin, call))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)
        call.requests.append(data)
        handle = await asyncio.shield(call.taken)
        try:
            await handle.watcher.await_durable()
        except PenstockError as error:
            # Whatever it was, it was not the request's fault. Where the outcome is unknown it may
            # be there twice then; the pipeline knows a span again.
            raise _NotStored(str(error)) from error

    async def _produce(self, origin: Origin, call: _Call) -> None:
        await asyncio.sleep(GATHER_S)
        del self._gathering[origin]
        try:
            handle = await self._producer.produce(call.requests, encode_origin(origin), block=False)
        except PenstockError as error:
            stopped = self._producer.failure is not None
            call.taken.set_exception(_NotStored(str(error)) if stopped else error)
            call.taken.exception()  # its clients may all have gone
        else:
            call.taken.set_result(handle)
