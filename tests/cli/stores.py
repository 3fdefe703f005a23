"""Small stores of known content in a data directory, and another process that has one open."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from penstock.log import Environment
from penstock.metrics import Metrics
from penstock.model import Topic
from penstock.model.bundle import Bundle
from penstock.model.slots import SPAN_ATTRS, SPANS
from penstock.segment import segment_name
from penstock.storage import DataDirectory
from penstock.store import Store
from tests.cli.running import PATIENCE_S, other_process

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

LOGS = Topic("default", "logs")

_OWNER = """
import sys
from tests.cli.stores import bundle, open_store
from pathlib import Path
with open_store(Path(sys.argv[1])) as store:
    exporter = store.subscribe("exporter")
    print("open", flush=True)
    for line in sys.stdin:
        for number in range(int(line)):
            store.append(bundle(number))
            store.flush()
            exporter.next_bundle().ack()
        print("done", flush=True)
"""


class Placed(NamedTuple):
    """Where a store is, and parts of it."""

    data: Path
    folder: Path

    @property
    def ack_log(self) -> Path:
        """Its acknowledgement log."""
        return self.folder / "ack.log"

    @property
    def checkpoint(self) -> Path:
        """The second copy of its snapshot."""
        return self.folder / "ack.ckpt"

    def segment(self, segment_seq: int) -> Path:
        """One of its segments."""
        return self.folder / "segments" / segment_name(segment_seq)


def bundle(number: int) -> Bundle:
    """Two slots, whose rows say the bundle's number."""
    spans = pa.record_batch(
        {"id": pa.array([number] * 3, pa.uint16()), "name": [f"span {number}"] * 3}
    )
    return Bundle({SPANS: spans, SPAN_ATTRS: pa.record_batch({"key": [f"key {number}"]})})


def open_store(folder: Path) -> Store:
    """Opened with counters of its own."""
    return Store.open(folder, env=Environment(metrics=Metrics()))


def make_store(data: Path, topic: Topic = LOGS) -> Placed:
    """Segments 0, 1 and 2 with bundles 0 to 3, 4 to 7 and 8 to 11.

    `exporter` has acked the first two bundles and rejected the fourth; `archive` has nothing.
    """
    DataDirectory(data).create()
    placed = Placed(data, DataDirectory(data).partition(topic).folder)
    with open_store(placed.folder) as store:
        exporter = store.subscribe("exporter")
        store.register("archive")
        for first in (0, 4, 8):
            for number in range(first, first + 4):
                store.append(bundle(number))
            store.flush()
        deliveries = [exporter.next_bundle(60) for _ in range(4)]
        for delivery in deliveries[:2]:
            delivery.ack()
        deliveries[3].reject().wait()
    return placed


def delivered(placed: Placed, name: str) -> list[int]:
    """The numbers of all bundles that the subscriber still gets."""
    found = []
    with open_store(placed.folder) as store:
        subscription = store.subscribe(name)
        while delivery := subscription.next_bundle(0):
            found.append(delivery.bundle[SPANS].column("id")[0].as_py())
            delivery.ack()
    return found


def harm(path: Path, position: int) -> None:
    """Turns one bit over in a file that may be read-only."""
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


def harm_text(path: Path, text: bytes) -> int:
    """Damages the first place where the text stands; returns the place."""
    position = path.read_bytes().index(text)
    harm(path, position)
    return position


def harm_header(path: Path) -> None:
    """Damages both copies of the header of a log file."""
    harm(path, 20)
    harm(path, 2068)


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether it comes true, of what happens in the background."""
    until = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < until:
        time.sleep(0.005)
    return condition()


def owner_process(folder: Path) -> AbstractContextManager[subprocess.Popen[str]]:
    """Another process that has the store open; `work` makes it append, seal and acknowledge."""
    return other_process(_OWNER, folder)
