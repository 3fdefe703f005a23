"""The hot tier: what is in the log and in no segment yet.

The log has every request before it is acknowledged, so whoever asks after an acknowledgement finds
it here, whether a server runs or not. A server that runs is asked: it has most of it decoded
already. Where none does, or it does not answer, the log's files are read and decoded; the rows are
the same. What is not sealed is some seconds of telemetry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc

from penstock.lake.rows import Origin, row_batches
from penstock.log.cache import Batch
from penstock.log.follow import FolderReader
from penstock.model.errors import OffsetUnavailable, PenstockError, ServerUnreachable
from penstock.otel import decode_requests
from penstock.query.flight import NOT_OPEN, hot_messages
from penstock.query.server_file import running_server
from penstock.storage import DataDirectory
from penstock.storage.files import LocalFiles
from penstock.store.messages import decode_bundle, decode_raw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from penstock.model.bundle import Bundle
    from penstock.otel.signals import Signal
    from penstock.storage import Partition

_DEPTH: Final = 3
"""A partition's folder is DATA/topics/<namespace>/<topic>/<partition>."""


def hot_rows(
    partition: Partition, signal: Signal, sealed: int, warn: Callable[[str], None]
) -> list[pa.RecordBatch]:
    """The rows of every message from the offset `sealed` on that is in the log now."""
    return list(hot_batches(partition, signal, sealed, warn))


def hot_batches(
    partition: Partition, signal: Signal, sealed: int, warn: Callable[[str], None]
) -> Iterator[pa.RecordBatch]:
    """The same, in the memory of one batch."""
    source = DataDirectory(partition.folder.parents[_DEPTH]).identity()
    topic = partition.topic
    place = Origin(source, str(topic), topic.namespace, partition.number, 0)
    hot = _Hot(partition, signal, sealed, warn)
    bundles = ((bundle, place.after(at)) for at, bundle in hot.bundles())
    for batch in row_batches(bundles, signal):
        # A bundle may begin before: it has messages that came later too.
        yield batch.filter(pc.field("_offset") >= sealed) if hot.began_before else batch


class _Hot:
    """One look at the messages of a partition, from an offset on."""

    def __init__(
        self, partition: Partition, signal: Signal, sealed: int, warn: Callable[[str], None]
    ) -> None:
        self._partition = partition
        self._topic = str(partition.topic)
        self._signal = signal
        self._at = sealed
        """Everything before it was seen."""
        self.began_before = False
        """Whether a bundle has messages from before the first offset that was asked for."""
        self._end = NOT_OPEN
        """Of the log, where the server said so."""
        self._is_under_way = False
        self._warn = warn

    def bundles(self) -> Iterator[tuple[int, Bundle]]:
        """With the offset of each; from the server as far as it answers, the rest from files."""
        data_dir = self._partition.folder.parents[_DEPTH]
        server = running_server(data_dir)
        try:
            if server is not None:
                for end, batch in hot_messages(data_dir, server, self._partition, self._at):
                    self._end = end
                    yield from self._sent(batch) if batch is not None else ()
        except ServerUnreachable as error:
            place = f"{self._topic}/{self._partition.number}"
            self._warn(f"{place}: the server does not answer, its log is read instead: {error}")
        if self._end == NOT_OPEN or self._at < self._end:
            yield from self._tail()

    # --- from the server -----------------------------------------------------------------------

    def _sent(self, batch: pa.RecordBatch) -> Iterator[tuple[int, Bundle]]:
        """A bundle stands alone; requests stand together."""
        first, count = batch["first_offset"][0].as_py(), batch["messages"][0].as_py()
        if self._is_under_way and first > self._at:
            self._warn(f"{first - self._at} messages of {self._topic} cannot be read")
        self._is_under_way = True  # before, what is missing was removed, as it is sealed
        message = batch["message"][0].as_buffer()
        if batch.num_rows == 1 and message[:2].to_pybytes() == b"\0B":
            self.began_before |= first < self._at
            yield first, decode_bundle(memoryview(message))
            self._at = first + count
        else:
            yield from self._decoded_batch(Batch(first, batch["message"].to_pylist()))

    # --- from the files of the log -------------------------------------------------------------

    def _tail(self) -> Iterator[tuple[int, Bundle]]:
        files, folder = LocalFiles(), self._partition.log_folder
        try:
            reader = FolderReader(files, folder, self._at)
        except OffsetUnavailable as error:
            # Removed since, as it is sealed; or the log ends before, and has nothing that is new.
            if error.end <= self._at:
                return
            reader = FolderReader(files, folder, "earliest")
        try:
            for batch in reader.batches():
                yield from self._decoded_batch(batch)
        finally:
            reader.close()
            for lost in reader.lost:
                self._warn(f"{folder / lost.file}: {lost.messages} messages cannot be read")

    # --- decoding ------------------------------------------------------------------------------

    def _decoded_batch(self, batch: Batch) -> Iterator[tuple[int, Bundle]]:
        """Requests that stand together are decoded together."""
        offset, requests = batch.first_offset, list[bytes]()
        for number, message in enumerate(batch.messages):
            raw = decode_raw(message)
            if raw is not None:
                requests.append(raw)
                continue
            yield from self._decoded(offset, requests)
            here = batch.first_offset + number
            try:
                yield here, decode_bundle(message)
            except PenstockError as error:
                self._warn(f"message {here} of {self._topic} cannot be decoded: {error}")
            offset, requests = here + 1, []
        yield from self._decoded(offset, requests)
        self._at = batch.first_offset + len(batch.messages)

    def _decoded(self, offset: int, requests: list[bytes]) -> Iterator[tuple[int, Bundle]]:
        for part in decode_requests(self._signal, requests) if requests else ():
            if part.bundle is not None:
                yield offset, part.bundle
            else:
                self._warn(f"message {offset} of {self._topic} cannot be decoded: {part.problem}")
            offset += part.count
