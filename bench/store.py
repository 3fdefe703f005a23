"""The benchmark of the store: bundles in, sealed, delivered, acknowledged."""

from __future__ import annotations

import functools
import os
import threading
import time
import uuid
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa

import harness
from harness import Row, Run
from penstock.log import Environment
from penstock.metrics import Metrics
from penstock.model.settings import LogSettings, SegmentSettings, StoreSettings
from penstock.model.slots import OTAP
from penstock.segment import OpenSegment, SegmentReader, segment_name, write_segment
from penstock.storage import LocalFiles
from penstock.store import Store
from store_files import memory_with_much_on_disk, restart
from store_pipeline import cost_in_a_pipeline
from store_workloads import MB, MIB, Workload, workload_a, workload_b

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.store import Subscription

BARE = "bare pyarrow.ipc"
FILES = LocalFiles()
SEGMENT = SegmentSettings()
ID = uuid.UUID(int=0)


def whole_path(run: Run) -> Iterator[Row]:
    """Append, durable, sealed, and acknowledged by every subscriber."""
    for workload in (workload_a(), workload_b()):
        bundles = int((100 if run.quick else 600) * MB / workload.bytes_each)
        for subscribers in (1, 3):
            measure = functools.partial(_path_rate, run, workload, bundles, subscribers)
            rate = run.medians({"path": measure})["path"]
            name = f"workload {workload.name} to {subscribers} subscriber"
            name += "s" if subscribers > 1 else ""
            yield Row(name, rate * workload.bytes_each / MB, "MB/s")
            yield Row(name, rate, "bundles/s")


def _path_rate(run: Run, workload: Workload, bundles: int, subscribers: int) -> float:
    settings = StoreSettings(log=LogSettings(retention_bytes=0))
    with (
        run.folder() as folder,
        Store.open(folder, settings, env=Environment(metrics=Metrics())) as store,
    ):
        names = [f"subscriber {number}" for number in range(subscribers)]
        threads = [
            threading.Thread(target=_acknowledge, args=(store.subscribe(name), bundles))
            for name in names
        ]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for number in range(bundles):
            append = store.append(workload.bundles[number % len(workload.bundles)])
        append.durable.wait()
        store.flush()
        for thread in threads:
            thread.join()
        return bundles / (time.perf_counter() - started)


def _acknowledge(subscription: Subscription, bundles: int) -> None:
    for _ in range(bundles):
        delivery = subscription.next_bundle(timeout=60)
        assert delivery is not None
        delivery.ack()


def sealing(run: Run) -> Iterator[Row]:
    """One segment of 32 MiB against the same batches as bare files; both are synced."""
    for workload in (workload_a(), workload_b()):
        with run.folder() as folder:
            segment = _open_segment(workload, SEGMENT.target_bytes)
            found = run.medians(
                {
                    "segment": functools.partial(_seal_rate, folder, segment),
                    BARE: functools.partial(_bare_write_rate, folder, segment),
                }
            )
        name = f"seal, workload {workload.name}"
        yield Row(name, found["segment"], "MB/s", BARE, found[BARE], target=0.6)


def reading(run: Run) -> Iterator[Row]:
    """Opening a mapped segment and reading every bundle, against the same of bare files."""
    for workload in (workload_a(), workload_b()):
        with run.folder() as folder:
            segment = _open_segment(workload, SEGMENT.target_bytes)
            path = _seal(folder, segment)
            bare = _write_bare(folder, segment)
            found = run.medians(
                {
                    "segment": functools.partial(_read_rate, path),
                    BARE: functools.partial(_bare_read_rate, bare, segment.bundles),
                }
            )
        name = f"read all bundles, workload {workload.name}"
        yield Row(name, found["segment"], "bundles/s", BARE, found[BARE], target=0.7)


def random_access(run: Run) -> Iterator[Row]:
    """One bundle out of a large segment against one out of a small one."""
    workload = workload_a()
    with run.folder() as folder:
        small = _seal(folder, _open_segment(workload, 32 * MIB), 1)
        large = _seal(folder, _open_segment(workload, (128 if run.quick else 512) * MIB), 2)
        found = run.medians(
            {"small": lambda: _random_us(small), "large": lambda: _random_us(large)}
        )
    yield Row(
        f"any bundle of {128 if run.quick else 512} MiB",
        found["large"],
        "µs",
        "of a segment of 32 MiB",
        found["small"],
        target=1.5,
        better="lower",
    )


def _open_segment(workload: Workload, size: int) -> OpenSegment:
    settings = SegmentSettings(target_bytes=size)
    segment = OpenSegment(settings, OTAP)
    while not segment.is_full():
        number = segment.bundles
        bundle = workload.bundles[number % len(workload.bundles)]
        segment.add(bundle, first_offset=number, messages=1, ingested_at_ns=number)
    return segment


def _seal(folder: Path, segment: OpenSegment, seq: int = 0) -> Path:
    write_segment(FILES, folder, seq, ID, segment, sealed_at_ns=0, settings=SEGMENT, slots=OTAP)
    return folder / segment_name(seq)


def _seal_rate(folder: Path, segment: OpenSegment) -> float:
    started = time.perf_counter()
    _seal(folder, segment)
    return segment.nbytes / MB / (time.perf_counter() - started)


def _bare_write_rate(folder: Path, segment: OpenSegment) -> float:
    started = time.perf_counter()
    _write_bare(folder, segment)
    return segment.nbytes / MB / (time.perf_counter() - started)


def _write_bare(folder: Path, segment: OpenSegment) -> list[Path]:
    """A file for each slot, as one would without segments."""
    slots: dict[int, list[pa.RecordBatch]] = {}
    for stored in segment:
        for slot, batch in stored.bundle.slots.items():
            slots.setdefault(slot, []).append(batch)
    paths = []
    for slot, batches in slots.items():
        path = folder / f"{slot}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
        paths.append(path)
    return paths


def _read_rate(path: Path) -> float:
    started = time.perf_counter()
    reader = SegmentReader.open(FILES, path)
    for index in range(len(reader)):
        reader.bundle(index)
    return len(reader) / (time.perf_counter() - started)


def _bare_read_rate(paths: list[Path], bundles: int) -> float:
    """Batches alone: nobody puts them together or checks them."""
    started = time.perf_counter()
    for path in paths:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        for index in range(reader.num_record_batches):
            reader.get_batch(index)
    return bundles / (time.perf_counter() - started)


def _random_us(path: Path) -> float:
    """The mean of the first look at 30 bundles, of a reader that has seen none."""
    random, total = Random(7), 0.0
    for _ in range(30):
        reader = SegmentReader.open(FILES, path)
        index = random.randrange(len(reader))
        reader.bundle(random.randrange(len(reader)))
        started = time.perf_counter()
        reader.bundle(index)
        total += time.perf_counter() - started
    return total / 30 * 1e6


CASES = [
    whole_path,
    sealing,
    reading,
    random_access,
    restart,
    memory_with_much_on_disk,
    cost_in_a_pipeline,
]

if __name__ == "__main__":
    harness.main("store", CASES)
