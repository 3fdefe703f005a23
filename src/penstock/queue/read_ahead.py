"""Fetches batches before they are asked for, several at a time, and keeps them in order."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.model.errors import QueueClosed
from penstock.queue.fetch import ConsumedBatch, fetch_batch

if TYPE_CHECKING:
    from penstock.queue.entries import Entries
    from penstock.queue.entry import Entry
    from penstock.queue.format import Manifest
    from penstock.queue.settings import ConsumerSettings
    from penstock.storage.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class _Coming:
    sequence: int
    size: int
    task: asyncio.Task[ConsumedBatch]


class ReadAhead:
    """The batches from `position` on, as far as they are being fetched."""

    def __init__(self, objects: ObjectStore, entries: Entries, settings: ConsumerSettings) -> None:
        self._objects = objects
        self._entries = entries
        self._settings = settings
        self._coming: deque[_Coming] = deque()
        self.position = 0
        """The sequence that comes next."""

    async def fill(self, manifest: Manifest) -> None:
        """Starts to fetch what may be fetched: the next batch in any case."""
        begin = self.position + len(self._coming)
        wanted = 1 + self._settings.read_ahead_batches - len(self._coming)
        room = self._settings.read_ahead_bytes - sum(coming.size for coming in self._coming)
        if wanted <= 0 or begin >= manifest.next_sequence or (self._coming and room <= 0):
            return
        for entry in await self._entries.read(manifest, begin, wanted):
            size = entry.extent.batch_bytes if entry.extent is not None else 0
            if self._coming and size > room:
                return
            room -= size
            self._start(entry, size)

    async def first(self) -> tuple[ConsumedBatch, bool]:
        """The batch at `position`, and whether it had to be waited for.

        After an error it is fetched anew by the next `fill`. Cancelled, it goes on coming.
        """
        coming = self._coming[0]
        waited = not coming.task.done()
        if waited:
            await asyncio.wait([coming.task])
        if coming.task.cancelled():  # by `close`; the caller was not
            raise QueueClosed("the consumer is closed")
        try:
            return coming.task.result(), waited
        except Exception:
            self.drop()
            raise

    def advance(self, position: int) -> None:
        """Goes on at `position`; what lies before is dropped."""
        while self._coming and self._coming[0].sequence < position:
            self._coming.popleft()
        self.position = position

    def restart(self, position: int) -> None:
        """Goes on at any position."""
        self.drop()
        self.position = position

    def drop(self) -> None:
        """Forgets everything that was fetched or is being fetched."""
        self._coming.clear()

    async def close(self) -> None:
        """Drops everything, and waits until nothing is under way."""
        tasks = [coming.task for coming in self._coming]
        self.drop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, entry: Entry, size: int) -> None:
        limit = self._settings.max_batch_bytes
        work = fetch_batch(self._objects, entry, max_batch_bytes=limit)
        task = asyncio.ensure_future(work)
        task.add_done_callback(_hear)
        self._coming.append(_Coming(entry.sequence, size, task))


def _hear(task: asyncio.Task[ConsumedBatch]) -> None:
    """Takes note of how a task ended: asyncio would complain if it is dropped and nobody did."""
    if not task.cancelled():
        task.exception()
