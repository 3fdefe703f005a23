"""What logs and stores take from outside: files, time, threads, counters, memory, chance.

One value, made once and handed down whole, so that a test can replace any of it and no constructor
carries the world in its arguments.
"""

from __future__ import annotations

import random
import threading
import weakref
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Protocol

from penstock.log.pool import Pool, shared_pool, shared_upkeep, shared_workers
from penstock.metrics import Metrics, shared_metrics
from penstock.model.clock import Clock, SystemClock
from penstock.model.settings import MIB
from penstock.storage.files import Files, LocalFiles

OPEN_BYTES: Final = 256 * MIB


class Holder(Protocol):
    """Somebody with an open segment."""

    def seal_soon(self) -> None:
        """Frees its memory, in the background."""
        ...


class MemoryBound:
    """One bound on the memory of all open segments, however many stores there are.

    Asks the largest holder to seal when all together hold too much.
    """

    def __init__(self, limit_bytes: int = OPEN_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._held: weakref.WeakKeyDictionary[Holder, int] = weakref.WeakKeyDictionary()
        self._total = 0

    def hold(self, holder: Holder, nbytes: int) -> None:
        """Notes what the holder has now."""
        with self._lock:
            self._total += nbytes - self._held.get(holder, 0)
            self._held[holder] = nbytes
            if self._total <= self.limit_bytes:
                return
            self._total = sum(self._held.values())  # without those that are gone
            if self._total <= self.limit_bytes:
                return
            largest = max(self._held, key=lambda each: self._held[each])
        largest.seal_soon()


@cache
def shared_memory_bound() -> MemoryBound:
    """The bound of this process."""
    return MemoryBound()


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The machine and this process, unless something else is named."""

    files: Files = field(default_factory=LocalFiles)
    clock: Clock = field(default_factory=SystemClock)
    pool: Pool = field(default_factory=shared_pool)
    """Commits: nothing else may keep an acknowledgement waiting."""
    workers: Pool = field(default_factory=shared_workers)
    """Fill and seal for every store, in turns."""
    upkeep: Pool = field(default_factory=shared_upkeep)
    """Cleans up and wakes: room on disk must not wait for a backlog to be sealed."""
    metrics: Metrics = field(default_factory=shared_metrics)
    memory: MemoryBound = field(default_factory=shared_memory_bound)
    jitter: random.Random = field(default_factory=random.Random)
