"""Stores of one process take turns: a backlog of some keeps no other from being sealed."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import Bundle, Store
from penstock.log import Environment
from penstock.log.environment import MemoryBound
from penstock.log.pool import WORKERS
from penstock.metrics import Metrics
from penstock.model.settings import KIB, SegmentSettings, StoreSettings
from penstock.store.decoding import Decoded
from tests.patience import PATIENCE_S, until

BUSY = WORKERS + 2
SETTINGS = StoreSettings(
    segment=SegmentSettings(target_bytes=64 * 1024 * KIB, max_open_s=0.5),
    max_log_bytes=256 * 1024 * KIB,
)
LOGS = 30
"""A slot of OTAP, where anything may stand in these tests."""


class SlowDecoder:
    """Makes a small bundle of each message, and takes its time."""

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s
        self.decoded = 0

    def decode(self, first_offset: int, messages: Sequence[bytes]) -> Iterator[Decoded]:
        """As `penstock.store.decoding.Decoder`."""
        for number in range(len(messages)):
            time.sleep(self.pause_s)
            self.decoded += 1
            batch = pa.RecordBatch.from_pydict({"number": [first_offset + number]})
            yield Decoded(first_offset + number, 1, Bundle({LOGS: batch}))


class Backlogged:
    """A store that is always behind: it gets messages faster than it can decode them."""

    def __init__(self, folder: Path) -> None:
        self.decoder = SlowDecoder(0.01)
        self.store = Store.open(
            folder,
            SETTINGS,
            decoder=self.decoder,
            env=Environment(metrics=Metrics(), memory=MemoryBound()),
        )
        self.written = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._feed)
        self._thread.start()

    @property
    def behind(self) -> int:
        """Messages that wait to be decoded."""
        return self.written - self.decoder.decoded

    def close(self) -> None:
        """What waits is decoded quickly, and sealed."""
        self._ended.set()
        self._thread.join()
        self.decoder.pause_s = 0.0
        self.store.close()

    def _feed(self) -> None:
        while not self._ended.is_set():
            if self.behind < 200:
                self.store.append_durable(b"x" * 32 * KIB)
                self.written += 1
            else:
                time.sleep(0.005)


@pytest.fixture(scope="module")
def backlogged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Backlogged]]:
    """More of them than there are threads, each well behind."""
    with contextlib.ExitStack() as stack:
        folder = tmp_path_factory.mktemp("busy")
        stores = [Backlogged(folder / str(number)) for number in range(BUSY)]
        for each in stores:
            stack.callback(each.close)
        until(lambda: all(each.behind > 100 and each.decoder.decoded for each in stores))
        yield stores


def test_bundle_of_an_idle_store_is_sealed_beside_backlogs(
    tmp_path: Path, backlogged: list[Backlogged]
) -> None:
    """By age, and delivered and removed, while every other store is still behind."""
    env = Environment(metrics=Metrics(), memory=MemoryBound())
    with Store.open(tmp_path / "idle", SETTINGS, decoder=SlowDecoder(0.0), env=env) as idle:
        subscription = idle.subscribe("me")
        idle.append_durable(b"one")
        delivery = subscription.next_bundle(PATIENCE_S)
        assert delivery is not None, "it was never sealed"
        delivery.ack().wait()
        until(lambda: not idle.segments)
        assert all(each.behind for each in backlogged)


def test_age_and_flushes_do_not_wait_for_the_end_of_a_backlog(backlogged: list[Backlogged]) -> None:
    """A store that never comes to the end of its log seals what it has, and what it was asked."""
    busy = backlogged[0]
    until(lambda: len(busy.store.segments) >= 2)
    busy.store.flush(PATIENCE_S)
    assert all(each.behind for each in backlogged)
