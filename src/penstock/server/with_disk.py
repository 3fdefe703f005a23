"""A worker with a disk: its partition of every topic, from the request to the subscriber.

Puts together what receives (`receiving`), what keeps (`keeping`) and what answers others about hot
rows (`flight`); they know of each other what is said here.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.model.clock import SystemClock
from penstock.otel.signals import Signal
from penstock.server.flight.worker_socket import WorkerFlight
from penstock.server.keeping.decoding import DecoderProcess, RemoteDecoder
from penstock.server.keeping.opening import Opener
from penstock.server.keeping.stores import Stores
from penstock.server.receiving.ingest import Ingest
from penstock.server.receiving.repeats import Repeats, bounded_dedupe

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from penstock.archive import Archiver
    from penstock.metrics import Metrics
    from penstock.model.clock import Clock
    from penstock.server.configuration.config import Config
    from penstock.server.receiving.ingest import WayIn
    from penstock.store import Store
    from penstock.store.decoding import Decoder

_LOG = logging.getLogger(__name__)
_TRY_AGAIN_S: Final = 2.0
_LOOK_S: Final = 1.0
WINDOW_S: Final = 10.0
"""Of the rates."""


def _archiver(config: Config, metrics: Metrics) -> Archiver | None:
    if config.archive.url is None:
        return None
    from penstock.server.keeping.archiving import archiver_of

    return archiver_of(config, metrics)


class WithDisk:
    """A partition of every topic, on this disk."""

    def __init__(self, config: Config, number: int, metrics: Metrics) -> None:
        self._config = config
        self._number = number
        self._decoder = DecoderProcess(deadline_s=config.answer_deadline)
        decoders: dict[Signal, Decoder] = {
            each: RemoteDecoder(self._decoder, each) for each in Signal
        }
        opener = Opener(config, decoders, metrics, _archiver(config, metrics))
        self._stores = Stores(opener, number, config)
        self._rates = Rates(SystemClock())
        self._repeats = Repeats(bounded_dedupe(config), config.data_dir, SystemClock())
        self._flight: WorkerFlight | None = None
        self.way_in: WayIn = Ingest(self._stores, self._repeats, config.limits)

    async def open(self, report: Callable[[], dict[str, Any]]) -> None:
        """Opens a part of the stores; `background` opens the others."""
        await self._stores.open_first()
        self._flight = self._open_flight(report)

    async def close(self) -> None:
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


class Rates:
    """How much comes in a second, of late.

    Looks at the ends of the logs now and then; requests do not count themselves.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends: dict[str, int] = {}
        self._taken = 0
        self._samples: deque[tuple[float, int]] = deque()

    def sample(self, stores: Iterable[Store]) -> None:
        """What has come since the last look; a log that is new is known from here on."""
        for store in stores:
            end = store.log.end_offset
            self._taken += max(0, end - self._ends.get(store.name, end))
            self._ends[store.name] = end
        now = self._clock.monotonic()
        self._samples.append((now, self._taken))
        while now - self._samples[0][0] > WINDOW_S:
            self._samples.popleft()

    def report(self) -> dict[str, float]:
        """Requests a second, over the last ten."""
        if len(self._samples) < 2:
            return {"requests_per_second": 0.0}
        (begin, before), (end, after) = self._samples[0], self._samples[-1]
        return {"requests_per_second": round((after - before) / max(end - begin, 1e-9), 3)}
