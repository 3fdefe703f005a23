"""One bound on the memory of all open segments of a process, however many stores it has."""

from __future__ import annotations

import threading
import weakref
from functools import cache
from typing import Final, Protocol

from penstock.model.settings import MIB

OPEN_BYTES: Final = 256 * MIB


class Holder(Protocol):
    """Somebody with an open segment."""

    def seal_soon(self) -> None:
        """Frees its memory, in the background."""
        ...


class MemoryBound:
    """Asks the largest holder to seal when all together hold too much."""

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
