"""A worker without a disk: everything goes to the queue on object storage.

Whatever stops the producer, its clients are put off, `/healthz` says why, and it is opened again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from penstock.model.errors import InvalidSetting, PenstockError
from penstock.server.receiving.buffer import Buffer
from penstock.server.refusals import Cause, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from penstock.metrics import Metrics
    from penstock.otel.signals import Signal
    from penstock.server.configuration.config import Config
    from penstock.server.receiving.checker import Checked
    from penstock.server.receiving.ingest import WayIn
    from penstock.storage.objects import ObjectStore

_LOG = logging.getLogger(__name__)
_TRY_AGAIN_S: Final = 2.0


class WithoutDisk:
    """Opens the queue, and goes on trying where the object store does not answer."""

    def __init__(self, config: Config, metrics: Metrics) -> None:
        self._config = config
        self._metrics = metrics
        self._objects: ObjectStore | None = None
        self._buffer: Buffer | None = None
        self._problem = "the queue was not opened yet"
        self.way_in: WayIn = self

    async def take(self, signal: Signal, namespace: str, checked: Checked) -> None:
        """Returns when the request is durable in the queue."""
        if self._buffer is None:
            raise Refusal(Cause.UNAVAILABLE, self._problem, retry_after_s=_TRY_AGAIN_S)
        await self._buffer.take(signal, namespace, checked)

    async def open(self, report: Callable[[], dict[str, Any]]) -> None:  # noqa: ARG002 - nobody asks
        """Receives even where the object store does not answer yet: clients are put off."""
        await self._try_to_open()

    async def close(self) -> None:
        """What was taken is durable, or its clients know that it is not."""
        if self._buffer is not None:
            await self._buffer.close()
        if self._objects is not None:
            await self._objects.close()

    async def flush(self) -> None:
        """The batches under way are stored."""
        if self._buffer is not None:
            await self._buffer.flush()

    def background(self) -> list[Coroutine[Any, Any, None]]:
        """Opens what is not open, for as long as it runs."""
        return [self._keep_open()]

    def make_room(self, size: int) -> bool:  # noqa: ARG002 - nothing is kept here
        """There is no disk."""
        return False

    def sample(self) -> None:
        """The producer counts by itself."""

    def failures(self) -> list[str]:
        """Why clients are put off."""
        return [self._problem] if self._buffer is None else self._buffer.failures()

    def restarts(self) -> dict[str, int]:
        """It has no process."""
        return {}

    def report(self) -> dict[str, Any]:
        """How much is on its way."""
        waiting = 0 if self._buffer is None else self._buffer.waiting_bytes
        return {"buffer": self._config.buffer.url, "waiting_bytes": waiting}

    def topics(self) -> list[dict[str, Any]]:
        """None are here."""
        return []

    async def _keep_open(self) -> None:
        while True:
            await asyncio.sleep(_TRY_AGAIN_S)
            stopped = self._buffer.stopped if self._buffer is not None else None
            if self._buffer is not None and stopped is not None:
                _LOG.warning("the queue is opened again: %s", stopped)
                self._problem = stopped
                former, self._buffer = self._buffer, None
                await former.close()  # its clients were answered when it stopped
            if self._buffer is None:
                await self._try_to_open()

    async def _try_to_open(self) -> None:
        from penstock.queue import AsyncProducer

        try:
            if self._objects is None:
                self._objects = _objects(self._config)
            producer = await AsyncProducer.open(
                self._objects, self._config.buffer, metrics=self._metrics
            )
        except PenstockError as error:
            if str(error) != self._problem:
                _LOG.error("the queue cannot be opened: %s", error)
            self._problem = str(error)
        else:
            self._buffer = Buffer(producer)


def check_buffer(config: Config) -> None:
    """InvalidSetting, or what is missing, before anything is started."""
    _objects(config)


def _objects(config: Config) -> ObjectStore:
    from penstock.storage.objects import open_objects

    if config.buffer.url is None:
        raise InvalidSetting("buffer.url is not set")
    return open_objects(config.buffer.url, dict(config.buffer.objects))
