"""The hot tier: what is in the log and in no segment yet.

The log has every request before it is acknowledged, so whoever asks after an acknowledgement finds
it here, whether a server runs or not. A server that runs is asked: it has most of it decoded
already. Where none does, or it does not answer, the log's files are read and decoded; the rows are
the same. What is not sealed is some seconds of telemetry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc

from penstock.client.server_file import running_server
from penstock.client.workers import NOT_OPEN, hot_messages
from penstock.lake.rows import row_batches
from penstock.log.cache import Batch
from penstock.log.follow import FolderReader
from penstock.model.errors import DataMoved, OffsetUnavailable, ServerUnreachable
from penstock.model.positions import SourcePartition
from penstock.storage import DataDirectory
from penstock.storage.files import LocalFiles
from penstock.store.decoding import RequestDecoder
from penstock.store.messages import decode_bundle

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from penstock.log.inventory import Lost
    from penstock.model.bundle import Bundle
    from penstock.model.errors import InvalidBundle
    from penstock.otel.signals import Signal
    from penstock.storage import Partition
    from penstock.tiers.findings import Findings

_REOPENED: Final = 20
"""How often the log may be shortened under a look at it."""
_DEPTH: Final = 3
"""A partition's folder is DATA/topics/<namespace>/<topic>/<partition>."""


def hot_rows(
    partition: Partition, signal: Signal, sealed: int, said: Findings
) -> list[pa.RecordBatch]:
    """The rows of every message from the offset `sealed` on that is in the log now.

    What was removed from the log meanwhile is in segments, which are looked at afterwards.
    """
    return list(hot_batches(partition, signal, sealed, said))


def hot_batches(
    partition: Partition, signal: Signal, sealed: int, said: Findings
) -> Iterator[pa.RecordBatch]:
    """The same, in the memory of one batch."""
    source = DataDirectory(partition.folder.parents[_DEPTH]).identity()
    place = SourcePartition(source, str(partition.topic), partition.number)
    hot = _Hot(partition, signal, sealed, said)
    bundles = ((bundle, place.at(at)) for at, bundle in hot.bundles())
    for batch in row_batches(bundles, signal, fault=hot.rowless):
        # A bundle may begin before: it has messages that came later too.
        yield batch.filter(pc.field("_offset") >= sealed) if hot.began_before else batch


class _Hot:
    """One look at the messages of a partition, from an offset on."""

    def __init__(self, partition: Partition, signal: Signal, sealed: int, said: Findings) -> None:
        self._partition = partition
        self._topic = str(partition.topic)
        self._decoder = RequestDecoder(signal)
        self._at = sealed
        """Everything before it was seen."""
        self.began_before = False
        """Whether a bundle has messages from before the first offset that was asked for."""
        self._end = NOT_OPEN
        """Of the log, where the server said so."""
        self._said = said

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
            reason = f"the server does not answer, its log is read instead: {error}"
            self._said.note(f"{place}: {reason}")
        if self._end == NOT_OPEN or self._at < self._end:
            yield from self._tail()

    def rowless(self, error: InvalidBundle) -> None:
        """The pipeline sets it aside when it comes to it."""
        self._said.note(f"{self._topic}/{self._partition.number}: {error}")

    # --- from the server -----------------------------------------------------------------------

    def _sent(self, batch: pa.RecordBatch) -> Iterator[tuple[int, Bundle]]:
        """A bundle stands alone; requests stand together."""
        first, count = batch["first_offset"][0].as_py(), batch["messages"][0].as_py()
        if first > self._at:
            yield from self._tail(first)  # the files say what became of what it left out
        message = batch["message"][0].as_buffer()
        if batch.num_rows == 1 and message[:2].to_pybytes() == b"\0B":
            self.began_before |= first < self._at
            yield first, decode_bundle(memoryview(message))
            self._at = first + count
        else:
            yield from self._decoded_batch(Batch(first, batch["message"].to_pylist()))

    # --- from the files of the log -------------------------------------------------------------

    def _tail(self, until: int | None = None) -> Iterator[tuple[int, Bundle]]:
        """Up to an offset, or to the end; the log may be shortened at its beginning meanwhile."""
        for _ in range(_REOPENED):
            try:
                yield from self._read(self._reader(), until)
            except OffsetUnavailable as error:
                # Invariant: only what is sealed is removed, so what is skipped is in a segment.
                self._at = max(self._at, error.earliest)
                continue
            break
        else:
            folder = self._partition.log_folder
            raise DataMoved(f"{folder}: the log was shortened {_REOPENED} times while it was read")
        self._at = max(self._at, until or 0)

    def _reader(self) -> FolderReader | None:
        """None: the log ends before what is asked for, and has nothing that is new."""
        try:
            return FolderReader(LocalFiles(), self._partition.log_folder, self._at)
        except OffsetUnavailable as error:
            if error.end <= self._at:
                return None
            raise

    def _read(self, reader: FolderReader | None, until: int | None) -> Iterator[tuple[int, Bundle]]:
        if reader is None:
            return
        try:
            for batch in reader.batches():
                wanted = batch if until is None else _before(batch, until)
                if wanted.messages:
                    yield from self._decoded_batch(wanted)
                if len(wanted.messages) < len(batch.messages):
                    return
        finally:
            reader.close()
            for lost in reader.lost:
                self._lose(lost, until)

    def _lose(self, lost: Lost, until: int | None) -> None:
        if until is not None and lost.first_offset >= until:
            return
        path = self._partition.log_folder / lost.file
        if lost.recorded:
            self._said.note(f"{path}: {lost.messages} messages are lost for good")
        elif lost.messages:
            text = f"{path}: {lost.messages} messages cannot be read: {lost.reason}"
            self._said.lack(text, lost.end_offset)
        else:
            self._said.lack(f"{path} cannot be read: {lost.reason}")

    # --- decoding ------------------------------------------------------------------------------

    def _decoded_batch(self, batch: Batch) -> Iterator[tuple[int, Bundle]]:
        for part in self._decoder.decode(batch.first_offset, batch.messages):
            if part.bundle is not None:
                yield part.first_offset, part.bundle
            else:
                self._undecodable(part.first_offset, part.problem)
        self._at = batch.first_offset + len(batch.messages)

    def _undecodable(self, offset: int, problem: str) -> None:
        """Whole, and no rows can be made of it: the store sets it aside when it comes to it."""
        self._said.note(f"message {offset} of {self._topic} cannot be decoded: {problem}")


def _before(batch: Batch, offset: int) -> Batch:
    return Batch(batch.first_offset, batch.messages[: max(0, offset - batch.first_offset)])
