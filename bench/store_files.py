"""The store's cases that are about much data on disk: opening it, and not keeping it in memory."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

from harness import Row, Run, child, in_child, resident_bytes
from penstock.log import Environment, Log
from penstock.metrics import Metrics
from penstock.model.bundle import Bundle
from penstock.model.settings import GIB
from penstock.store import Store
from penstock.store.messages import encode_bundle
from store_workloads import MB, MIB, workload_a

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DIED = 9


def restart(run: Run) -> Iterator[Row]:
    """Opening with much in the log and nothing sealed; and with many segments."""
    size = (128 if run.quick else 1024) * MIB
    with run.folder() as folder:
        _kill_with_unsealed_log(folder / "log", size)
        ready, sealed = [], []
        for _ in range(3):
            copy = folder / "copy"
            shutil.copytree(folder / "log", copy / "log")
            opened, done = _open_and_seal_s(copy)
            ready.append(opened)
            sealed.append(done)
            shutil.rmtree(copy)
        per_gib = GIB / size
    yield Row(
        "restart, unsealed log: open",
        sorted(ready)[1] * per_gib,
        "s/GiB",
        target=2,
        better="lower",
    )
    yield Row("the same, until all is sealed", sorted(sealed)[1] * per_gib, "s/GiB", better="lower")
    count = 300 if run.quick else 3000
    with run.folder() as folder:
        _write_small_segments(folder, count)
        found = run.medians({"open": lambda: _open_s(folder)})
    name = f"restart with {count} segments"
    yield Row(name, found["open"] * 1000 / count * 1000, "ms/1000", target=50, better="lower")


def _kill_with_unsealed_log(folder: Path, size: int) -> None:
    with child(_write_log_and_die, folder, size) as process:
        process.join()
        assert process.exitcode == DIED, "the writer did not get to its end"


def _write_log_and_die(folder: Path, size: int) -> None:
    messages = [encode_bundle(bundle) for bundle in workload_a().bundles]
    log = Log.open(folder)
    written = 0
    while written < size:
        written += sum(map(len, messages))
        log.append_many(messages)
    log.flush()
    os._exit(DIED)


def _open_and_seal_s(folder: Path) -> tuple[float, float]:
    started = time.perf_counter()
    store = Store.open(folder, env=Environment(metrics=Metrics()))
    opened = time.perf_counter() - started
    store.flush()
    done = time.perf_counter() - started
    store.close()
    return opened, done


def _write_small_segments(folder: Path, count: int) -> None:
    bundle = Bundle({40: workload_a().bundles[0][40].slice(0, 2)})
    with Store.open(folder, env=Environment(metrics=Metrics())) as store:
        store.register("somebody")
        for _ in range(count):
            store.append_durable(bundle)
            store.flush()


def _open_s(folder: Path) -> float:
    started = time.perf_counter()
    store = Store.open(folder, env=Environment(metrics=Metrics()))
    seconds = time.perf_counter() - started
    store.close()
    return seconds


def memory_with_much_on_disk(run: Run) -> Iterator[Row]:
    """A backlog that a late subscriber works off: the highest memory of the process meanwhile."""
    size = (300 if run.quick else 3000) * MB
    with run.folder() as folder:
        peak = in_child(_peak_bytes, folder, size)
    name = f"memory with {size / 1e9:.1f} GB on disk"
    yield Row(name, peak / MB, "MB", target=400, better="lower")


def _peak_bytes(folder: Path, size: int) -> int:
    workload = workload_a()
    bundles = int(size / workload.bytes_each)
    peak = 0
    with Store.open(folder, env=Environment(metrics=Metrics())) as store:
        late = store.subscribe("late")
        for number in range(bundles):
            store.append(workload.bundles[number % len(workload.bundles)])
            if number % 50 == 0:
                peak = max(peak, resident_bytes())
        store.flush()
        for number in range(bundles):
            delivery = late.next_bundle(timeout=60)
            assert delivery is not None
            delivery.ack()
            if number % 50 == 0:
                peak = max(peak, resident_bytes())
    return peak
