"""Which stores of a worker are open, which of them are in use, and what is known of the others.

A worker may have many more topics than it has descriptors and memory for. A store that is closed
has everything in segments; what it was like is remembered until it is opened again. All of it
belongs to one event loop; other threads may look.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from penstock.model.topics import Topic

if TYPE_CHECKING:
    from penstock.store import Store
    from penstock.store.outside import Taken

Key: TypeAlias = tuple[Topic, int]
"""A topic and the number of its partition."""
IDLE_S: Final = 60.0
KEPT_OPEN: Final = 64
"""So many stay open, however idle."""


class Asleep(NamedTuple):
    """A store that is closed."""

    name: str
    segments: int
    told: Taken | None
    """How far the pipeline was when it was closed; once it is further, segments may go."""
    description: dict[str, Any]
    """As it was."""


class Residents:
    """In the order of their last use."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: OrderedDict[Key, Store] = OrderedDict()
        self._uses: Counter[Key] = Counter()
        self._used_at: dict[Key, float] = {}
        self._asleep: dict[Key, Asleep | None] = {}

    # --- those that are open -------------------------------------------------------------------

    def get(self, key: Key) -> Store | None:
        """None where it is not open."""
        return self._open.get(key)

    def items(self) -> list[tuple[Key, Store]]:
        return list(self._open.items())

    def add(self, key: Key, store: Store, now: float) -> None:
        self._asleep.pop(key, None)
        self._open[key] = store
        self._used_at[key] = now

    def take(self, key: Key) -> Store:
        """It is about to be closed."""
        self._used_at.pop(key, None)
        return self._open.pop(key)

    def first_to_go(self, key: Key) -> None:
        """Nobody has asked for it: it makes way before those that somebody used."""
        if key in self._open:
            self._open.move_to_end(key, last=False)

    def begin_use(self, key: Key) -> None:
        """It must not be closed until `end_use`."""
        self._uses[key] += 1
        self._open.move_to_end(key)

    def end_use(self, key: Key, now: float) -> None:
        """Once for each `begin_use`."""
        self._uses[key] -= 1
        if not self._uses[key]:
            del self._uses[key]
        if key in self._open:
            self._used_at[key] = now

    def unused(self) -> list[tuple[Key, Store]]:
        """Those that may be closed, the one first whose last use is longest ago."""
        return [(key, store) for key, store in self._open.items() if key not in self._uses]

    def idle(self, now: float) -> list[tuple[Key, Store]]:
        """Of those the ones that were not used for long; none where few are open."""
        if len(self._open) <= KEPT_OPEN:
            return []
        return [each for each in self.unused() if now - self._used_at[each[0]] > IDLE_S]

    # --- those that are not --------------------------------------------------------------------

    @property
    def known(self) -> set[Key]:
        return {*self._open, *self._asleep}

    def expect(self, key: Key) -> None:
        """It is on disk, and nobody has looked at it yet."""
        self._asleep[key] = None

    def unvisited(self) -> list[Key]:
        """Those that nobody has looked at yet."""
        return [key for key, asleep in self._asleep.items() if asleep is None]

    def is_unvisited(self, key: Key) -> bool:
        """Whether it is one of them."""
        return key in self._asleep and self._asleep[key] is None

    def note_asleep(self, key: Key, asleep: Asleep) -> None:
        self._asleep[key] = asleep

    def forget(self, key: Key) -> None:
        """It cannot be opened, or is not there."""
        self._asleep.pop(key, None)

    def asleep(self) -> list[tuple[Key, Asleep | None]]:
        """Those that are closed; None for one that nobody has looked at."""
        return list(self._asleep.items())


def describe(topic: Topic, partition: int, store: Store) -> dict[str, Any]:
    """Offsets, sizes, and the progress of every subscriber."""
    status, segments, log = store.status(), store.segments, store.log
    earliest = min([log.start_offset, *(info.first_offset for info in segments)])
    sealed = max([earliest, *(info.end_offset for info in segments)])
    return {
        "topic": str(topic),
        "namespace": topic.namespace,
        "name": topic.name,
        "partition": partition,
        "earliest": earliest,
        "sealed": sealed,
        "end": log.end_offset,
        "segments": status.segments,
        "bytes": status.used_bytes,
        "limit_bytes": _whole(status.limit_bytes),
        "open_bytes": status.open_bytes,
        "subscribers": [asdict(each) for each in status.subscribers],
    }


def _whole(limit: float) -> int | None:
    return None if limit == float("inf") else int(limit)
