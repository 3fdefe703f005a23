"""A batch on its way: filled by `produce`, encoded, stored, enqueued."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from penstock.queue.batch import EncodedBatch, encode_batch
from penstock.queue.changes import NewEntry
from penstock.queue.entry import Metadata, encode_body
from penstock.queue.keys import batch_key
from penstock.queue.watcher import DurabilityWatcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.queue.settings import ProducerSettings
    from penstock.queue.ulid import Ulid

_OFF_LOOP_BYTES: Final = 256 * 1024
"""From this size on a batch is encoded in a thread, so that the event loop goes on."""

MAX_METADATA_BYTES: Final = 64 * 1024
"""Most metadata of one call. They are in the manifest, which is to stay small."""
_MUCH_METADATA_BYTES: Final = 256 * 1024


class Filling:
    """Entries of several calls that will be one object."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.metadata: list[Metadata] = []
        self.size = 0
        self._metadata_bytes = 0
        self.watcher = DurabilityWatcher()
        self.entry: NewEntry | None = None
        """What to enqueue; None while its object is not stored."""
        self.timer: asyncio.Task[None] | None = None
        """Ends the filling when its time has come."""
        self.gives_up_at = 0.0

    @property
    def calls(self) -> int:
        """How many calls of `produce` are in it."""
        return len(self.metadata)

    @property
    def has_much_metadata(self) -> bool:
        """Whether its entry would make the manifest large."""
        return self._metadata_bytes > _MUCH_METADATA_BYTES

    def add(self, records: Sequence[bytes], payload: bytes, time_ms: int) -> None:
        """Takes the entries of one call."""
        self.metadata.append(Metadata(len(self.records), time_ms, payload))
        self.records += records
        self.size += sum(map(len, records)) + len(payload)
        self._metadata_bytes += len(payload)

    async def encode(
        self, batch_id: Ulid, settings: ProducerSettings, version: int
    ) -> tuple[list[bytes], NewEntry]:
        """The object under that name, and its entry."""
        encoded = await self._encoded(batch_id, settings, version)
        location = batch_key(settings.data_path_prefix, batch_id)
        body = encode_body(location, self.metadata)
        size, count = encoded.size, encoded.record_count
        return encoded.pieces, NewEntry(batch_id, location, body, size, count, encoded.crc)

    async def _encoded(
        self, batch_id: Ulid, settings: ProducerSettings, version: int
    ) -> EncodedBatch:
        def work() -> EncodedBatch:
            packing = settings.batch_compression
            return encode_batch(self.records, batch_id, version=version, compression=packing)

        if self.size < _OFF_LOOP_BYTES:
            return work()
        return await asyncio.to_thread(work)
