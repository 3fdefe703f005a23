"""How far each subscriber of a topic is, kept where the topic can be opened elsewhere.

A subscriber that resumes from here gets again what it had acknowledged since the last save: at
least once, never less.
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.model.errors import Damaged, MetadataUnavailable
from penstock.model.topics import encode_part

if TYPE_CHECKING:
    from penstock.archive.catalog import Catalog
    from penstock.model.clock import Clock
    from penstock.storage.metadata import Lease
    from penstock.store import Store

_TOGETHER = 50


class Progress:
    """The offsets below which each subscriber has everything. Only the lease's owner saves."""

    def __init__(
        self, catalog: Catalog, lease: Lease, clock: Clock, store: Store | None = None
    ) -> None:
        """With a `store`, its subscribers are looked at before each save."""
        self._store = store
        self._catalog = catalog
        self._lease = lease
        self._clock = clock
        self._offsets: dict[str, int] = {}
        self._unsaved: set[str] = set()

    async def load(self) -> dict[str, int]:
        """What was last saved, by whomever had the topic."""
        entries = await self._catalog.metadata.range(self._prefix)
        self._offsets = dict(decode_progress(entry.data) for entry in entries)
        self._unsaved.clear()
        return dict(self._offsets)

    def offset(self, name: str) -> int | None:
        """Where the subscriber is; None where it is unknown."""
        return self._offsets.get(name)

    def note(self, name: str, offset: int) -> None:
        """Remembers it for the next save."""
        if self._offsets.get(name) != offset:
            self._offsets[name] = offset
            self._unsaved.add(name)

    async def save(self) -> int:
        """Writes what has changed; returns how many. Fenced: another has the topic now."""
        if self._store is not None:
            for name, offset in store_offsets(self._store).items():
                self.note(name, offset)
        names = sorted(self._unsaved)
        for start in range(0, len(names), _TOGETHER):
            some = names[start : start + _TOGETHER]
            await self._lease.commit({self._key(name): self._encoded(name) for name in some})
            self._unsaved.difference_update(some)
        return len(names)

    async def forget(self, name: str) -> None:
        """The subscriber is no more."""
        self._offsets.pop(name, None)
        self._unsaved.discard(name)
        await self._lease.commit({}, deletes=[self._key(name)])

    async def run(self, interval_s: float) -> None:
        """Saves at an interval until it is cancelled. Raises Fenced."""
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self.save()
            except MetadataUnavailable:
                continue  # what was not saved is saved with the next

    @property
    def _prefix(self) -> str:
        return f"{self._catalog.path}/subscribers/"

    def _key(self, name: str) -> str:
        return self._prefix + encode_part(name)

    def _encoded(self, name: str) -> bytes:
        now = datetime.fromtimestamp(self._clock.wall_ns() / 1e9, UTC)
        return encode_progress(name, self._offsets[name], now.isoformat(timespec="milliseconds"))


def encode_progress(name: str, offset: int, updated_at: str) -> bytes:
    """The JSON of the key `…/subscribers/<name>`."""
    fields = {"version": 1, "name": name, "offset": offset, "updated_at": updated_at}
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_progress(data: bytes) -> tuple[str, int]:
    """(name, offset); Damaged where it is none."""
    try:
        fields = json.loads(data)
        return str(fields["name"]), int(fields["offset"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Damaged("not the progress of a subscriber") from None


def store_offsets(store: Store) -> dict[str, int]:
    """For each subscriber of a store the offset below which it has everything, or less."""
    segments = store.segments
    end = segments[-1].end_offset if segments else store.log.start_offset
    return {
        each.name: next(
            (info.first_offset for info in segments if info.segment_seq >= each.segment_seq), end
        )
        for each in store.subscribers()
    }
