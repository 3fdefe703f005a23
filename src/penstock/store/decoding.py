"""Messages of the log become bundles of the open segment.

A store has one `Decoder`. The one here takes bundles as they are and keeps other messages as raw
bytes, many in one bundle; `penstock.otel` brings one that understands OTLP.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from penstock.model.bundle import Bundle
from penstock.model.errors import PenstockError
from penstock.model.slots import MAX_ROOT_RECORDS, RAW_LOGS
from penstock.store.messages import decode_bundle, decode_raw

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_RAW_SCHEMA = pa.schema([pa.field("data", pa.binary(), nullable=False)])
RAW_BUNDLE_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Decoded:
    """What became of consecutive messages."""

    first_offset: int
    messages: int
    bundle: Bundle | None
    """None: they cannot be decoded, and are set aside."""
    problem: str = ""


class Decoder(Protocol):
    """Turns messages into bundles, on a background thread, as often as a restart replays them."""

    def decode(self, first_offset: int, messages: Sequence[bytes]) -> Iterator[Decoded]:
        """Covers every message, in order. A problem of one message must not raise."""
        ...


class PlainDecoder:
    """Bundles as they are; other messages in `raw_slot`, one row each."""

    def __init__(self, raw_slot: int = RAW_LOGS) -> None:
        self._raw_slot = raw_slot

    def decode(self, first_offset: int, messages: Sequence[bytes]) -> Iterator[Decoded]:
        """Runs of raw messages share a bundle."""
        offset = first_offset
        for is_raw, run in groupby(messages, _is_raw):
            group = list(run)
            yield from self._raw(offset, group) if is_raw else _bundles(offset, group)
            offset += len(group)

    def _raw(self, offset: int, messages: list[bytes]) -> Iterator[Decoded]:
        for group in _limited(messages):
            data = pa.array([decode_raw(message) for message in group], pa.binary())
            batch = pa.RecordBatch.from_arrays([data], schema=_RAW_SCHEMA)
            yield Decoded(offset, len(group), Bundle({self._raw_slot: batch}, items=len(group)))
            offset += len(group)


def _is_raw(message: bytes) -> bool:
    return message[:1] != b"\0" or message[:2] == b"\0R"


def _bundles(offset: int, messages: list[bytes]) -> Iterator[Decoded]:
    for number, message in enumerate(messages, offset):
        try:
            yield Decoded(number, 1, decode_bundle(message))
        except PenstockError as error:
            yield Decoded(number, 1, None, str(error))


def _limited(messages: list[bytes]) -> Iterator[list[bytes]]:
    """In groups that are neither too many nor too large for one bundle."""
    group: list[bytes] = []
    size = 0
    for message in messages:
        full = len(group) == MAX_ROOT_RECORDS or size + len(message) > RAW_BUNDLE_BYTES
        if group and full:
            yield group
            group, size = [], 0
        group.append(message)
        size += len(message)
    yield group
