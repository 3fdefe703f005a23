"""What a store has beyond its segments, as a stream of messages.

The open segment is only referred to: its batches never change. What the log has and the open
segment lacks (not decoded yet, or set aside) goes as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.client.workers import SCHEMA
from penstock.model.errors import OffsetUnavailable
from penstock.store.messages import encode_bundle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.log.cache import Batch
    from penstock.segment import StoredBundle
    from penstock.store import Store

MOST_RAW_BYTES: Final = 64 * 1024 * 1024
"""Of messages that are not decoded yet; beyond, whoever asks reads the log's files."""


class HotStream:
    """One look: everything durable from `start` on, up to the end of the log at this moment."""

    def __init__(self, store: Store, start: int) -> None:
        self._log = store.log
        self._start = start
        # In this order: what is decoded in between is in the log that is read.
        self._bundles = [each for each in store.snapshot()[1] if each.end_offset > start]
        self.end = self._log.end_offset
        self._left = MOST_RAW_BYTES

    def batches(self) -> Iterator[pa.RecordBatch]:
        """In the order of offsets; a bundle alone, messages together."""
        at = self._start
        for bundle in self._bundles:
            if bundle.first_offset > at:
                yield from self._messages(at, bundle.first_offset)
            if self._left <= 0:
                return
            yield _bundle_batch(bundle)
            at = bundle.end_offset
        yield from self._messages(at, self.end)

    def _messages(self, at: int, end: int) -> Iterator[pa.RecordBatch]:
        """Of the log; what was removed is in segments, and what is damaged is left out."""
        at = max(at, self._log.start_offset)
        if at >= end:
            return
        try:
            reader = self._log.read(at)
            while at < end and self._left > 0 and (batch := reader.read_batch()) is not None:
                at = batch.first_offset + len(batch.messages)
                messages = batch.messages[: len(batch.messages) - max(0, at - end)]
                self._left -= sum(map(len, messages))
                if messages:
                    yield _message_batch(batch, messages)
        except OffsetUnavailable:
            return  # removed just now


def _bundle_batch(bundle: StoredBundle) -> pa.RecordBatch:
    return _batch([bundle.first_offset], [bundle.messages], [encode_bundle(bundle.bundle)])


def _message_batch(batch: Batch, messages: list[bytes]) -> pa.RecordBatch:
    offsets = list(range(batch.first_offset, batch.first_offset + len(messages)))
    return _batch(offsets, [1] * len(messages), messages)


def _batch(offsets: list[int], counts: list[int], messages: list[bytes]) -> pa.RecordBatch:
    columns = zip((offsets, counts, messages), SCHEMA.types, strict=True)
    arrays = [pa.array(values, type_) for values, type_ in columns]
    return pa.record_batch(arrays, schema=SCHEMA)
