"""Data directories with sealed segments of the shop's spans, as a server would leave them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from penstock.load.requests import resources, trace_request
from penstock.load.shop import Shop
from penstock.load.stamps import Stamp, nonce
from penstock.log import Environment
from penstock.metrics import Metrics
from penstock.model import Topic
from penstock.model.settings import Durability, LogSettings, SegmentSettings, StoreSettings
from penstock.otel import Signal, decode_requests
from penstock.storage import DataDirectory
from penstock.store import Store
from penstock.store.decoding import Decoded
from penstock.tiers.segments import DirectorySegments

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.tiers.segments import Segment

TRACES = Topic("default", "traces")
REQUEST_SPANS = 500
START_NS = 1_790_000_000_000_000_000  # 2026-09-21T14:13:20Z, hours before midnight
SPANS_A_SECOND = 10_000
INSTANCES = 4
"""Of every service of the shop."""


@dataclass(frozen=True)
class Sealed:
    """A data directory that nobody writes to any more."""

    folder: Path
    spans: int

    def segments(self) -> list[Segment]:
        """In the order of sealing."""
        return DirectorySegments(self.folder).since({})


class Requests:
    """Requests of 500 spans without end; `distinct` of them differ in more than ids and times."""

    def __init__(self, distinct: int, seed: int = 1) -> None:
        random = Random(seed)
        shop = Shop(random)
        described = [resources(random, instance) for instance in range(INSTANCES)]
        self._first = random.getrandbits(40)
        self._stamps = [
            Stamp(
                Signal.TRACES,
                trace_request(shop.spans(REQUEST_SPANS), described[number % INSTANCES]),
                REQUEST_SPANS,
                START_NS,
            )
            for number in range(distinct)
        ]

    def request(self, number: int, now_ns: int | None = None) -> bytes:
        """The request of that number, sent when the shop has made so many spans."""
        stamp = self._stamps[number % len(self._stamps)]
        if now_ns is None:
            now_ns = START_NS + number * REQUEST_SPANS * 10**9 // SPANS_A_SECOND
        return stamp.copy(now_ns, nonce(self._first, number))


def seal(folder: Path, spans: int, segment_bytes: int, *, distinct: int) -> Sealed:
    """Makes a data directory; the log that the segments came from is deleted."""
    requests = Requests(min(distinct, max(1, spans // REQUEST_SPANS)))
    with open_store(folder, segment_bytes) as store:
        for number in range(spans // REQUEST_SPANS):
            store.append(requests.request(number))
        store.flush()
    return Sealed(folder, spans // REQUEST_SPANS * REQUEST_SPANS)


def open_store(folder: Path, segment_bytes: int) -> Store:
    """Of the traces; segments are sealed at that size, or by `flush`."""
    directory = DataDirectory(folder)
    directory.create()
    settings = StoreSettings(
        log=LogSettings(durability=Durability.INTERVAL, retention_bytes=0),
        segment=SegmentSettings(target_bytes=segment_bytes, max_open_s=3600.0),
    )
    partition = directory.partition(TRACES, 0)
    return Store.open(
        partition.folder,
        settings,
        name=f"{TRACES}/0",
        decoder=_Decoder(),
        env=Environment(metrics=Metrics()),
    )


class _Decoder:
    """What a server's decoder does, in this process."""

    def decode(self, first_offset: int, messages: Sequence[bytes]) -> Iterator[Decoded]:
        for part in decode_requests(Signal.TRACES, messages):
            yield Decoded(first_offset, part.count, part.bundle, part.problem)
            first_offset += part.count
