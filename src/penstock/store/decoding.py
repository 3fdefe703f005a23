"""Messages of the log become bundles of the open segment.

The one way from messages to bundles, wherever they lie: in the log, an archive or a queue. What
decoders differ in is what they make of requests: `PlainDecoder` keeps them as raw bytes, many in
one bundle, `RequestDecoder` understands OTLP, and a server's does that in another process.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import pyarrow as pa

from penstock.model.bundle import Bundle
from penstock.model.errors import PenstockError
from penstock.model.slots import MAX_ROOT_RECORDS, RAW_LOGS
from penstock.store.messages import decode_bundle, decode_raw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.otel.signals import Signal

_RAW_SCHEMA = pa.schema([pa.field("data", pa.binary(), nullable=False)])
RAW_BUNDLE_BYTES: Final = 1024 * 1024
Part: TypeAlias = tuple[int, Bundle | None, str]
"""Of how many messages, the bundle that they are, and what is wrong where it is None."""


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


def decoded(
    first_offset: int,
    messages: Iterable[bytes],
    of_requests: Callable[[list[bytes]], Iterable[Part]],
) -> Iterator[Decoded]:
    """Consecutive messages of a log as bundles: those that are bundles already, and requests.

    `of_requests` is given each run of messages that are requests, as the log has them.
    """
    offset = first_offset
    for is_raw, run in groupby(messages, _is_raw):
        for count, bundle, problem in of_requests([*run]) if is_raw else map(bundle_in, run):
            yield Decoded(offset, count, bundle, problem)
            offset += count


def bundle_in(message: bytes | memoryview, count: int = 1) -> Part:
    """The bundle that a message is; of `count` messages, where it was made of them."""
    try:
        return count, decode_bundle(message), ""
    except PenstockError as error:
        return count, None, str(error)


class PlainDecoder:
    """Bundles as they are; other messages in `raw_slot`, one row each."""

    def __init__(self, raw_slot: int = RAW_LOGS) -> None:
        self._raw_slot = raw_slot

    def decode(self, first_offset: int, messages: Sequence[bytes]) -> Iterator[Decoded]:
        """Runs of raw messages share a bundle."""
        return decoded(first_offset, messages, self._raw)

    def _raw(self, messages: list[bytes]) -> Iterator[Part]:
        for group in _limited(messages):
            data = pa.array([decode_raw(message) for message in group], pa.binary())
            batch = pa.RecordBatch.from_arrays([data], schema=_RAW_SCHEMA)
            yield len(group), Bundle({self._raw_slot: batch}, items=len(group)), ""


class RequestDecoder:
    """Bundles as they are; other messages are requests of one signal, decoded in this process."""

    def __init__(self, signal: Signal) -> None:
        self._signal = signal

    def decode(self, first_offset: int, messages: Iterable[bytes]) -> Iterator[Decoded]:
        """Requests that stand together are decoded together."""
        return decoded(first_offset, messages, self._requests)

    def _requests(self, messages: list[bytes]) -> Iterator[Part]:
        from penstock.otel import decode_requests  # it takes longer to import than most stores

        requests = [decode_raw(message) or b"" for message in messages]
        return (
            (part.count, part.bundle, part.problem)
            for part in decode_requests(self._signal, requests)
        )


def _is_raw(message: bytes) -> bool:
    return message[:1] != b"\0" or message[:2] == b"\0R"


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
