"""What a store costs a pipeline: receive, decode, encode, send; with the store between, or not.

Both ends are loopback connections. The payload is what an OTAP exporter sends: Arrow IPC with zstd
buffers. The figure is the processor time of the pipeline's process.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING

import pyarrow as pa

from harness import Row, Run, child
from penstock.log import Environment
from penstock.metrics import Metrics
from penstock.model.bundle import Bundle
from penstock.model.settings import Durability, LogSettings, StoreSettings
from penstock.store import Store
from store_workloads import MB, workload_a

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_LENGTH = struct.Struct("<I")
WITHOUT = "without a store"
ZSTD = pa.ipc.IpcWriteOptions(compression="zstd")


def cost_in_a_pipeline(run: Run) -> Iterator[Row]:
    """Processor time of a receiver-to-exporter pipeline, with and without the store."""
    bundles = int((40 if run.quick else 200) * MB / workload_a().bytes_each)
    measures: dict[str, Callable[[], float]] = {WITHOUT: lambda: _cpu_us(run, bundles, None)}
    for durability in (Durability.INTERVAL, Durability.SYNC):
        # mypy cannot infer the type of a default
        measures[durability.value] = lambda d=durability: _cpu_us(run, bundles, d)  # type: ignore[misc]
    found = run.medians(measures)
    for durability in (Durability.INTERVAL, Durability.SYNC):
        extra = found[durability.value] / found[WITHOUT] - 1
        target = 5.0 if durability is Durability.INTERVAL else None
        name = f"processor time of a store, {durability.value}"
        yield Row(name, extra * 100, "%", target=target, better="lower")
    yield Row("the pipeline without a store", found[WITHOUT], "µs/bundle")


def _cpu_us(run: Run, bundles: int, durability: Durability | None) -> float:
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        sink = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        stack.enter_context(child(_send_all, source.getsockname()[1], bundles))
        stack.enter_context(child(_take_all, sink.getsockname()[1]))
        receiver = stack.enter_context(source.accept()[0])
        exporter = stack.enter_context(sink.accept()[0])
        folder = stack.enter_context(run.folder())
        started = time.process_time()
        if durability is None:
            _directly(receiver, exporter, bundles)
        else:
            _through_store(folder, durability, receiver, exporter, bundles)
        return (time.process_time() - started) / bundles * 1e6


def _directly(receiver: socket.socket, exporter: socket.socket, bundles: int) -> None:
    """Receiver and exporter on two threads, with a short queue between."""
    between: queue.Queue[Bundle] = queue.Queue(64)

    def send() -> None:
        for _ in range(bundles):
            _send(exporter, _encode(between.get()))

    thread = threading.Thread(target=send)
    thread.start()
    for _ in range(bundles):
        between.put(_decode(_receive(receiver)))
    thread.join()


def _through_store(
    folder: Path,
    durability: Durability,
    receiver: socket.socket,
    exporter: socket.socket,
    bundles: int,
) -> None:
    settings = StoreSettings(log=LogSettings(durability=durability, retention_bytes=0))
    with Store.open(folder, settings, env=Environment(metrics=Metrics())) as store:
        subscription = store.subscribe("exporter")

        def send() -> None:
            for _ in range(bundles):
                delivery = subscription.next_bundle(timeout=60)
                assert delivery is not None
                _send(exporter, _encode(delivery.bundle))
                delivery.ack()

        thread = threading.Thread(target=send)
        thread.start()
        for _ in range(bundles):
            store.append(_decode(_receive(receiver)))
        store.flush()
        thread.join()


def _encode(bundle: Bundle) -> bytes:
    pieces = []
    for slot, batch in bundle.slots.items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=ZSTD) as writer:
            writer.write_batch(batch)
        data = sink.getvalue()
        pieces += [_LENGTH.pack(slot), _LENGTH.pack(data.size), data]
    return b"".join(pieces)


def _decode(data: bytes) -> Bundle:
    slots, at = {}, 0
    while at < len(data):
        (slot,), (size,) = _LENGTH.unpack_from(data, at), _LENGTH.unpack_from(data, at + 4)
        with pa.ipc.open_stream(pa.py_buffer(data)[at + 8 : at + 8 + size]) as reader:
            slots[slot] = reader.read_next_batch()
        at += 8 + size
    return Bundle(slots)


def _send(connection: socket.socket, data: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(data)) + data)


def _receive(connection: socket.socket) -> bytes:
    (size,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        taken = connection.recv_into(view[at:])
        if not taken:
            raise EOFError
        at += taken
    return bytes(data)


def _send_all(port: int, bundles: int) -> None:
    payloads = [_encode(bundle) for bundle in workload_a().bundles]
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for number in range(bundles):
            _send(connection, payloads[number % len(payloads)])
        connection.recv(1)


def _take_all(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection, contextlib.suppress(EOFError):
        while True:
            _receive(connection)
