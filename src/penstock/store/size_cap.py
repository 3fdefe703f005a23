"""One limit over everything that a server keeps: every namespace, topic, partition and worker.

Invariant: what all stores hold together never exceeds the cap. A store uses what it holds, but for
the segment that it is sealing; those that have no room for theirs seal one after the other in each
process, so that the disk is over the cap by no more than one segment for each worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.model.clock import SystemClock
from penstock.model.settings import KIB
from penstock.storage.files import LocalFiles
from penstock.store.budget import Claim, SharedFile, asked_of, line_key

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.model.clock import Clock
    from penstock.storage.files import Files

LEAST_STORE_BYTES: Final = 960 * KIB
"""A store that may have less cannot work: its logs are begun with zeros, and segments have a least
size."""
_UNITS: Final = 256
"""A cap is handed out in so many parts."""


class SizeCap:
    """One store's view of the cap, through the file that all of them share.

    Equal parts for the stores that there are, however many: a new one makes the parts smaller. With
    `borrows` a store may use what others leave, and has to give it back when one asks for its part.
    What is used beyond a part that has become smaller is not taken away; until it is freed, others
    wait.
    """

    whole_folder: bool = True

    def __init__(
        self,
        path: Path,
        total_bytes: int,
        *,
        key: str,
        borrows: bool,
        files: Files | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._file = SharedFile(files or LocalFiles(), path)
        self._clock = clock or SystemClock()
        self._total = total_bytes
        self._borrows = borrows
        self._unit = max(4 * KIB, total_bytes // _UNITS)
        self._key = line_key(key)

    @property
    def most_bytes(self) -> int:
        """Everything, where no other store has anything."""
        return self._total

    def limit(self, used_bytes: int, wanted_bytes: int) -> int:
        """Brings its line up to date, claiming or giving back; returns what it may use."""
        with self._file.held():
            others = [claim for claim in self._file.claims() if claim.key != self._key]
            mine = self._decide(others, used_bytes, wanted_bytes)
            self._file.write([*others, mine])
        return mine.granted_bytes

    def enter(self) -> bool:
        """Makes room for a store that is not there yet; False where there is none at present.

        Never for more stores than could each have what one needs at least: they would all starve.
        Where others have borrowed its part, the file says so, and they give it back.
        """
        now = self._clock.wall_ns()
        with self._file.held():
            claims = [claim for claim in self._file.claims() if claim.key != self._key]
            others = [c for c in claims if c.held_bytes or asked_of([c], now)]  # the rest gave up
            if (len(others) + 1) * LEAST_STORE_BYTES > self._total:
                return False
            mine = self._decide(others, 0, LEAST_STORE_BYTES)
            self._file.write([*others, mine])
        return mine.granted_bytes >= LEAST_STORE_BYTES

    def close(self) -> None:
        """Its last line stands: what it uses still counts."""

    def _decide(self, others: list[Claim], used: int, wanted: int) -> Claim:
        share, now = self._total // (len(others) + 1), self._clock.wall_ns()
        free = self._total - sum(claim.held_bytes for claim in others)
        most = min(share, free)
        if self._borrows and free > share:  # beyond its part only what nobody else asks for
            most = max(share, free - asked_of(others, now))
        need = -(-max(used, wanted) // self._unit) * self._unit
        granted = max(0, min(need, most))
        return Claim(self._key, used, granted, max(0, min(need, share) - granted), now)


def begin_ledger(path: Path, used: Mapping[str, int]) -> None:
    """Writes the file anew, from what the stores take on disk. Nobody may have a store open.

    So stores that are gone count no longer, and those that cannot be opened do.
    """
    file = SharedFile(LocalFiles(), path)
    with file.held():
        file.write([Claim(line_key(key), size, size, 0, 0) for key, size in used.items()])
