"""Whether there is room for one more request. The hot path adds two numbers and reads a flag."""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from penstock.children.asking import resident_bytes
from penstock.server.refusals import Cause, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.server.configuration.config import Limits

SAMPLE_S: Final = 0.5
_RETRY_S: Final = 1.0
STUCK_S: Final = 30.0
"""Over the limit of memory for so long, and no request has any: nobody will give it back."""
_TRIM_S: Final = 5.0
_SHARE: Final = 0.75
"""Of `limits.in_flight`, for one client; a request alone may be larger."""


class Admission:
    """One worker's bounds. `sample` runs in the background."""

    def __init__(
        self,
        limits: Limits,
        data_dir: Path | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without a directory no disk is looked at."""
        self._clock = clock
        self._trimmed_at = float("-inf")
        self._over_since: float | None = None
        self._was_within = False
        self._limits = limits
        self._data_dir = data_dir
        self._in_flight = 0
        self._clients: Counter[str] = Counter()
        self.pressure: str | None = None
        """Why requests are put off at present."""
        self.disk_full = False

    def check(self, size: int = 0) -> None:
        """Refusal where there is no room for so many bytes more."""
        if self.pressure is not None:
            raise Refusal(Cause.BUSY, self.pressure, retry_after_s=_RETRY_S)
        if self._in_flight + size > self._limits.in_flight and self._in_flight:
            text = f"{self._in_flight} bytes of other requests are being answered"
            raise Refusal(Cause.BUSY, text, retry_after_s=_RETRY_S)

    @contextlib.contextmanager
    def hold(self, size: int = 0, *, who: str = "") -> Iterator[Callable[[int], None]]:
        """Counts a request's bytes while it is being answered; the result counts more of them.

        Refusal for want of room, at first or as it grows. `who` has no more than its share: what
        one client begins and does not end leaves room for others.
        """
        held, over = 0, False

        def grow(more: int) -> None:
            nonlocal held
            if over:  # the client has gone, and nobody would give it back
                return
            self.check(more)
            self._check_share(who, held, more)
            held += more
            self._in_flight += more
            self._clients[who] += more

        try:
            grow(size)
            yield grow
        finally:
            over = True
            self._in_flight -= held
            self._clients[who] -= held
            if not self._clients[who]:
                del self._clients[who]

    def _check_share(self, who: str, own: int, more: int) -> None:
        others = self._clients[who] - own
        if who and others and more and others + own + more > self._limits.in_flight * _SHARE:
            text = f"{others} bytes of other requests of this client are being answered"
            raise Refusal(Cause.BUSY, text, retry_after_s=_RETRY_S)

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of requests being answered."""
        return self._in_flight

    def sample(self, make_room: Callable[[int], bool]) -> None:
        """Looks at memory and disk.

        Requests go on while `make_room` finds something to let go for the bytes that the disk
        lacks.
        """
        free = 0
        if self._data_dir is not None:
            free = shutil.disk_usage(self._data_dir).free
            lacking = self._limits.disk_free - free
            self.disk_full = lacking > 0 and not make_room(lacking)
        most = self._limits.memory
        memory = self._memory(most)
        if self.disk_full:
            self.pressure = f"the disk has only {free} bytes left"
        elif most is not None and memory > most:
            self.pressure = f"the memory in use is {memory} bytes of {most}"
        else:
            self.pressure = None

    @property
    def is_stuck(self) -> bool:
        """Whether the process has to be replaced; not where the limit was always too low."""
        since = self._over_since
        return self._was_within and since is not None and self._clock() - since > STUCK_S

    def _memory(self, most: int | None) -> int:
        """Resident. What was freed and not given back to the system is given back first."""
        memory, now = resident_bytes(), self._clock()
        if most is not None and memory > most and now - self._trimmed_at > _TRIM_S:
            self._trimmed_at = now
            give_back_memory()
            memory = resident_bytes()
        is_over = most is not None and memory > most
        self._was_within = self._was_within or not is_over
        if not is_over or self._in_flight:
            self._over_since = None
        elif self._over_since is None:
            self._over_since = now
        return memory


def give_back_memory() -> None:
    """Where the C library can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
