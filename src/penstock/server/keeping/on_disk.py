"""What a worker does with requests that have come in: stores on this disk, or the buffer.

StoreKeeping    logs, open segments and sealed ones, in the data directory
BufferKeeping   the queue on object storage (`buffer`)
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from penstock.model.clock import SystemClock
from penstock.otel.signals import Signal
from penstock.server.flight.of_worker import WorkerFlight
from penstock.server.keeping.capping import capped_dedupe
from penstock.server.keeping.decoding import DecoderProcess, RemoteDecoder
from penstock.server.keeping.rates import Rates
from penstock.server.keeping.stores import Stores
from penstock.server.receiving.ingest import Ingest
from penstock.server.receiving.repeats import Repeats
from penstock.storage import DataDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from penstock.archive import Archiver
    from penstock.metrics import Metrics
    from penstock.server.configuration.config import Config
    from penstock.server.receiving.ingest import WayIn
    from penstock.store.decoding import Decoder

_LOG = logging.getLogger(__name__)
_TRY_AGAIN_S: Final = 2.0
_LOOK_S: Final = 1.0


class Keeping(Protocol):
    """One worker's. All of it belongs to one event loop."""

    way_in: WayIn

    async def open(self, report: Callable[[], dict[str, Any]]) -> None:
        """Recovers what was left; `report` is what others may ask for."""
        ...

    async def close(self) -> None:
        """Everything that was taken is durable and in order."""
        ...

    async def flush(self) -> None:
        """As `close`, and goes on."""
        ...

    def background(self) -> list[Coroutine[Any, Any, None]]:
        """What goes on until it is closed."""
        ...

    def sample(self) -> None:
        """Looks at itself, now and then."""
        ...

    def make_room(self, size: int) -> bool:
        """The disk lacks so many bytes: lets the oldest go where it may; False where it may not."""
        ...

    def failures(self) -> list[str]:
        """What cannot be used at present, and why."""
        ...

    def restarts(self) -> dict[str, int]:
        """How often a process that works for it had to be replaced, by what it is."""
        ...

    def report(self) -> dict[str, Any]:
        """For whoever asks how it is."""
        ...

    def topics(self) -> list[dict[str, Any]]:
        """What it holds, and who reads it."""
        ...


def _archiver(config: Config, metrics: Metrics) -> Archiver | None:
    if config.archive.url is None:
        return None
    from penstock.server.keeping.archiving import archiver_of

    return archiver_of(config, metrics)


class StoreKeeping:
    """A partition of every topic, on this disk."""

    def __init__(self, config: Config, number: int, metrics: Metrics) -> None:
        self._config = config
        self._number = number
        self._decoder = DecoderProcess(deadline_s=config.answer_deadline)
        decoders: dict[Signal, Decoder] = {
            each: RemoteDecoder(self._decoder, each) for each in Signal
        }
        directory = DataDirectory(config.data_dir)
        archiver = _archiver(config, metrics)
        self._stores = Stores(directory, number, config, decoders, metrics, archiver)
        self._rates = Rates(SystemClock())
        self._repeats = Repeats(capped_dedupe(config), config.data_dir, SystemClock())
        self._flight: WorkerFlight | None = None
        self.way_in: WayIn = Ingest(self._stores, self._repeats, config.limits)

    async def open(self, report: Callable[[], dict[str, Any]]) -> None:
        """Opens a part of the stores; `background` opens the others."""
        await self._stores.open_first()
        self._flight = self._open_flight(report)

    async def close(self) -> None:
        """Seals and closes."""
        self._decoder.hurry()
        if self._flight is not None:
            await asyncio.to_thread(self._flight.stop)
        await self._stores.close()
        self._decoder.close()
        self._repeats.close()

    async def flush(self) -> None:
        """Seals everything now, also what the last process left."""
        await self._stores.all_visited()
        await asyncio.gather(*(store.flush_async() for store in self._stores.all()))

    def background(self) -> list[Coroutine[Any, Any, None]]:
        """Opens what was left or failed to open, closes what is idle, hears of the pipeline."""
        rest = self._stores.open_rest()
        return [rest, self._open_missing(), self._close_idle(), self._acknowledge_outside()]

    def make_room(self, size: int) -> bool:
        """By `retention.size_cap_policy`."""
        return self._stores.make_room(size)

    def sample(self) -> None:
        """Counts."""
        self._rates.sample(self._stores.all())

    def failures(self) -> list[str]:
        """Of the stores, and of the process that decodes for them."""
        return self._stores.failures() + self._decoder.failures

    def restarts(self) -> dict[str, int]:
        """Of the process that decodes."""
        return {"decoder": self._decoder.restarts}

    def report(self) -> dict[str, Any]:
        """Rates, how many requests came again, and how many would not be known if they did."""
        return {
            "rates": self._rates.report(),
            "repeats": self._repeats.hits,
            "unremembered": self._repeats.unremembered,
        }

    def topics(self) -> list[dict[str, Any]]:
        """Of the stores, open or not."""
        return self._stores.described()

    def _open_flight(self, report: Callable[[], dict[str, Any]]) -> WorkerFlight | None:
        """Receiving does not depend on it: who finds no socket reads the log's files."""
        try:
            return WorkerFlight(self._config.data_dir, self._number, self._stores, report)
        except (OSError, pa.ArrowException) as error:
            _LOG.error("what is hot cannot be asked for: %s", error)
            return None

    async def _open_missing(self) -> None:
        while True:
            await asyncio.sleep(_TRY_AGAIN_S)
            await self._stores.open_missing()

    async def _acknowledge_outside(self) -> None:
        """Looks how far the pipeline has come."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await self._stores.hear_of_the_pipeline()

    async def _close_idle(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            await self._stores.close_idle()
