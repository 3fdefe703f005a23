"""The hot tier: what is in the log and in no segment yet, decoded from the log's files.

The log has every request before it is acknowledged, so whoever asks after an acknowledgement finds
it here, whether a server runs or not. What is not sealed is some seconds of telemetry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lake.rows import Origin, row_batches
from penstock.log.follow import FolderReader
from penstock.model.errors import OffsetUnavailable, PenstockError
from penstock.otel import decode_requests
from penstock.storage.files import LocalFiles
from penstock.store.messages import decode_bundle, decode_raw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from penstock.log.cache import Batch
    from penstock.model.bundle import Bundle
    from penstock.otel.signals import Signal
    from penstock.storage import Partition


def hot_rows(
    partition: Partition, signal: Signal, sealed: int, warn: Callable[[str], None]
) -> list[pa.RecordBatch]:
    """The rows of every message from the offset `sealed` on that is in the log now."""
    place = Origin(str(partition.topic), partition.topic.namespace, partition.number, 0)
    bundles = [
        (bundle, place.after(offset))
        for batch in _messages(partition, sealed, warn)
        for offset, bundle in _bundles(batch, signal, str(partition.topic), warn)
    ]
    return list(row_batches(bundles, signal))


def _messages(partition: Partition, start: int, warn: Callable[[str], None]) -> Iterator[Batch]:
    files = LocalFiles()
    try:
        reader = FolderReader(files, partition.log_folder, start)
    except OffsetUnavailable as error:
        # Removed since, as it is sealed; or the log ends before, and has nothing that is new.
        if error.end > start:
            reader = FolderReader(files, partition.log_folder, "earliest")
        else:
            return
    try:
        while (batch := reader.read_batch()) is not None:
            yield batch
    finally:
        reader.close()
        for lost in reader.lost:
            warn(f"{partition.log_folder / lost.file}: {lost.messages} messages cannot be read")


def _bundles(
    batch: Batch, signal: Signal, topic: str, warn: Callable[[str], None]
) -> Iterator[tuple[int, Bundle]]:
    """Requests that stand together are decoded together."""
    offset, requests = batch.first_offset, list[bytes]()
    for number, message in enumerate(batch.messages):
        raw = decode_raw(message)
        if raw is not None:
            requests.append(raw)
            continue
        yield from _decoded(offset, requests, signal, topic, warn)
        here = batch.first_offset + number
        try:
            yield here, decode_bundle(message)
        except PenstockError as error:
            warn(f"message {here} of {topic} cannot be decoded: {error}")
        offset, requests = here + 1, []
    yield from _decoded(offset, requests, signal, topic, warn)


def _decoded(
    offset: int, requests: list[bytes], signal: Signal, topic: str, warn: Callable[[str], None]
) -> Iterator[tuple[int, Bundle]]:
    for part in decode_requests(signal, requests) if requests else ():
        if part.bundle is not None:
            yield offset, part.bundle
        else:
            warn(f"message {offset} of {topic} cannot be decoded: {part.problem}")
        offset += part.count
