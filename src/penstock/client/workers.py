"""What a worker of the running server has of a partition beyond its segments, over Arrow Flight.

Each worker listens on a socket in the data directory. What it sends is a stream of messages as the
log has them: those that are decoded already as bundles, and the others as they came. Rows are made
by whoever asks.

    ticket := {"hot": topic, "partition": number, "from": offset}
    stream := { first_offset: u64, messages: u32, message: large_binary }
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from cachetools import LRUCache

from penstock.client.server_file import SOCKETS
from penstock.model.errors import ServerUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow.flight as pf

    from penstock.client.server_file import RunningServer
    from penstock.storage import Partition

SCHEMA: Final = pa.schema(
    [
        pa.field("first_offset", pa.uint64(), nullable=False),
        pa.field("messages", pa.uint32(), nullable=False),
        pa.field("message", pa.large_binary(), nullable=False),
    ]
)
END: Final = b"penstock.end_offset"
"""In the stream's metadata: where the log ended when it was asked."""
NOT_OPEN: Final = -1
ANSWER_S: Final = 10.0
_REPORT_S: Final = 5.0
_MOST_KEPT: Final = 16


def socket_name(worker: int) -> str:
    """Of a worker, in the folder of the sockets."""
    return f"{worker}.sock"


class _Connection:
    """To one worker. A socket's path may have about 100 bytes, so the folder goes by a handle."""

    def __init__(self, folder: Path, worker: int) -> None:
        import pyarrow.flight as pf

        self._handle = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        self._closing = weakref.finalize(self, os.close, self._handle)
        path = f"/proc/self/fd/{self._handle}/{socket_name(worker)}"
        self.client = pf.connect(f"grpc+unix://{path}")


_lock: Final = threading.Lock()
_kept: Final[LRUCache[tuple[int, Path, int], _Connection]] = LRUCache(_MOST_KEPT)
"""Connections of this process: making one takes longer than most answers."""


@contextlib.contextmanager
def worker_client(data_dir: Path, worker: int) -> Iterator[pf.FlightClient]:
    """ServerUnreachable, now or within, where nobody answers there."""
    import pyarrow.flight as pf

    folder = data_dir / SOCKETS
    key = (os.getpid(), folder, worker)  # a connection does not survive a fork
    try:
        with _lock:
            connection = _kept[key] = _kept.get(key) or _Connection(folder, worker)
        yield connection.client
    except (pf.FlightError, pa.ArrowException, OSError) as error:
        with _lock:
            _kept.pop(key, None)
        raise ServerUnreachable(_reason(error)) from error


def hot_messages(
    data_dir: Path, server: RunningServer, partition: Partition, start: int
) -> Iterator[tuple[int, pa.RecordBatch | None]]:
    """Batches of SCHEMA in the order of offsets, each with the end offset of the log.

    The first comes without a batch. An end of NOT_OPEN: the worker does not have the partition.
    ServerUnreachable: there are no more, though there may be in the log.
    """
    import pyarrow.flight as pf

    asked = {"hot": str(partition.topic), "partition": partition.number, "from": start}
    with worker_client(data_dir, partition.number % server.workers) as client:
        options = pf.FlightCallOptions(timeout=ANSWER_S)
        reader = client.do_get(pf.Ticket(json.dumps(asked).encode()), options)
        end = int(_metadata(reader.schema).get(END, NOT_OPEN))
        yield end, None
        try:
            for chunk in reader:
                yield end, chunk.data
        finally:
            reader.cancel()  # of no effect at its end


def reports_of(data_dir: Path, server: RunningServer) -> tuple[list[dict[str, Any]], list[str]]:
    """How each worker is, and who does not say. Its sockets are its owner's: no token is needed."""
    import pyarrow.flight as pf

    reports, problems = list[dict[str, Any]](), list[str]()
    for number in range(server.workers):
        try:
            with worker_client(data_dir, number) as client:
                options = pf.FlightCallOptions(timeout=_REPORT_S)
                [answer] = client.do_action(pf.Action("report", b"{}"), options)
                reports.append(json.loads(answer.body.to_pybytes()))
        except ServerUnreachable as error:
            problems.append(f"worker {number} does not answer: {error}")
    return reports, problems


def _metadata(schema: pa.Schema) -> dict[bytes, bytes]:
    found: Any = schema.metadata
    return found or {}


def _reason(error: Exception) -> str:
    """Its first sentence, without where in the library it arose."""
    return " ".join(str(error).split(". Detail:")[0].split("gRPC client debug context")[0].split())
