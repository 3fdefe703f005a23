"""What the store's tests share: small bundles, small stores, and ways to look at them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import HealthCheck, settings

from penstock.log.environment import Environment, MemoryBound
from penstock.metrics import Metrics
from penstock.model.bundle import Bundle
from penstock.model.settings import KIB, LogSettings, SegmentSettings, StoreSettings
from penstock.model.slots import LOGS
from penstock.segment import SegmentInfo
from penstock.store import Delivery, Store, Subscription
from tests.patience import PATIENCE_S, until

if TYPE_CHECKING:
    from penstock.store.status import SubscriberStatus

WAIT_S = PATIENCE_S
wait_until = until
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A slow machine is no failure."""
TOPIC = "topic"
NEVER_S = 100_000.0
SEGMENTS = SegmentSettings(target_bytes=64 * KIB, max_open_s=NEVER_S)
SETTINGS = StoreSettings(segment=SEGMENTS)
"""Sealed by `flush` or by size, never by age."""
SMALL_LOG = LogSettings(rotate_bytes=64 * KIB, retention_bytes=0, cache_bytes=0)


def bundle(number: int, size: int = 0) -> Bundle:
    """A bundle of one row that says its number, and is at least `size` bytes large."""
    batch = pa.RecordBatch.from_pydict({"number": [number], "padding": ["x" * size]})
    return Bundle({LOGS: batch})


def number_of(delivery: Delivery | Bundle) -> int:
    """The number that `bundle` was given."""
    found = delivery.bundle if isinstance(delivery, Delivery) else delivery
    return found[LOGS]["number"][0].as_py()


def open_store(folder: Path, settings: StoreSettings = SETTINGS, **parts: Any) -> Store:
    """A store with metrics and a memory bound of its own."""
    env = {"metrics": Metrics(), "memory": MemoryBound()}
    env |= {
        field.name: parts.pop(field.name) for field in fields(Environment) if field.name in parts
    }
    return Store.open(folder, settings, env=Environment(**env), **{"name": TOPIC, **parts})


def changed(**values: Any) -> StoreSettings:
    """The tests' settings with other values."""
    return replace(SETTINGS, **values)


def fill(store: Store, *segments: Iterable[int], size: int = 0) -> None:
    """Appends bundles of these numbers; each group becomes a segment."""
    for numbers in segments:
        for number in numbers:
            store.append(bundle(number, size))
        store.flush(WAIT_S)


def take(subscription: Subscription, count: int) -> list[Delivery]:
    """The next deliveries, which must come."""
    found = []
    for _ in range(count):
        delivery = subscription.next_bundle(WAIT_S)
        assert delivery is not None
        found.append(delivery)
    return found


def take_all(subscription: Subscription) -> list[Delivery]:
    """Every delivery that is due now."""
    found = []
    while (delivery := subscription.next_bundle(0)) is not None:
        found.append(delivery)
    return found


def numbers(deliveries: Iterable[Delivery]) -> list[int]:
    """The numbers of bundles."""
    return [number_of(delivery) for delivery in deliveries]


def drain(subscription: Subscription) -> list[int]:
    """Acknowledges every bundle that is due now, durably; returns their numbers."""
    found = take_all(subscription)
    for commit in [delivery.ack() for delivery in found]:
        commit.wait(WAIT_S)
    return numbers(found)


def status(store: Store, name: str) -> SubscriberStatus:
    """One subscriber's progress."""
    return next(each for each in store.subscribers() if each.name == name)


def counts(store: Store, name: str) -> dict[str, int]:
    """What became of a subscriber's bundles; zeros are left out."""
    each = status(store, name)
    kinds = ("acked", "nacked", "rejected", "dropped", "lost")
    return {kind: n for kind in kinds if (n := getattr(each, kind))}


def seqs(store: Store) -> list[int]:
    """The segments that are there."""
    return [info.segment_seq for info in store.segments]


def segment_files(folder: Path) -> list[str]:
    """The names in the folder of segments."""
    return sorted(path.name for path in (folder / "segments").iterdir())


def log_files(folder: Path) -> list[str]:
    """The names of the log's files."""
    return sorted(path.name for path in (folder / "log").glob("*.wal"))


def crash(folder: Path, to: Path) -> Path:
    """The folder as it would be if the process died now, when nothing but clean-up is under way."""
    while True:
        shutil.rmtree(to, ignore_errors=True)
        try:
            shutil.copytree(folder, to)
        except (shutil.Error, FileNotFoundError):  # a file went while it was copied
            continue
        return to


def flip(path: Path, position: int, bit: int = 0) -> None:
    """Turns one bit over, in a file that may be read-only."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    overwrite(path, bytes(data))


def overwrite(path: Path, data: bytes) -> None:
    """Replaces the contents of a file that may be read-only."""
    path.chmod(0o644)
    path.write_bytes(data)


def info(
    seq: int, bundles: int = 1, *, size: int = 100, offset: int | None = None, time_ns: int = 0
) -> SegmentInfo:
    """A segment that no file backs."""
    first = seq * 10 if offset is None else offset
    return SegmentInfo(seq, first, first + bundles, bundles, bundles, size, time_ns, time_ns, 0)
