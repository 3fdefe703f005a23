"""Reads a topic for `penstock tail` through its archive, its log files and what comes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Literal, Protocol

from penstock.cli.common import existing_data_directory, partitions_of
from penstock.cli.object_stores import archive_stores
from penstock.log.survey import survey_log
from penstock.model.errors import (
    ArchiveUnavailable,
    MetadataUnavailable,
    ObjectsUnavailable,
    OffsetUnavailable,
    PenstockError,
)
from penstock.storage import DataDirectory, LocalFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.archive import Catalog, TieredReader
    from penstock.cli.object_stores import ArchivePlace
    from penstock.log.cache import Batch
    from penstock.log.inventory import Lost
    from penstock.log.survey import Survey
    from penstock.model import Topic
    from penstock.storage import Partition
    from penstock.storage.metadata import Metadata
    from penstock.storage.objects import ObjectStore


class PartitionReader(Protocol):
    """A position in a partition."""

    @property
    def lost(self) -> Sequence[Lost]:
        """What was passed over so far."""
        ...

    def read_batch(self) -> Batch | None:
        """The next messages that are there now, or None."""
        ...


class TieredTail:
    """A partition's archive and log as one stream, for a caller without an event loop."""

    def __init__(self, runner: asyncio.Runner, partition: Partition, reader: TieredReader) -> None:
        self._runner = runner
        self._partition = partition
        self._reader = reader

    @property
    def lost(self) -> list[Lost]:
        """Of the archive and of the log."""
        return self._reader.lost

    def read_batch(self) -> Batch | None:
        """The next messages; PenstockError says which the archive has and does not give."""
        try:
            return self._runner.run(self._reader.read_batch())
        except ArchiveUnavailable as error:
            raise _without_archive(self._partition, str(error)) from error


@contextlib.contextmanager
def tiered_readers(
    data_dir: Path,
    topic: Topic,
    number: int | None,
    start: int | Literal["earliest", "latest"],
    archive: ArchivePlace,
) -> Iterator[list[tuple[Partition, PartitionReader]]]:
    """A reader for each partition that the log or the archive has."""
    from penstock.archive import Catalog, TieredReader

    root = archive.root
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        stores = archive_stores(*archive.of(data_dir))
        objects, metadata = runner.run(stack.enter_async_context(stores))
        found: list[tuple[Partition, PartitionReader]] = []
        try:
            stored = runner.run(_partitions(objects, metadata, data_dir, topic, number, root))
            for one in stored:
                catalog = Catalog(objects, metadata, topic, one.number, root=root)
                catalog, offset = runner.run(_first_offset(catalog, one, start))
                reader = TieredReader(catalog, LocalFiles(), one.log_folder, offset)
                found.append((one, TieredTail(runner, one, reader)))
            yield found
        finally:
            runner.run(stack.aclose())


async def _partitions(
    objects: ObjectStore,
    metadata: Metadata,
    data_dir: Path,
    topic: Topic,
    number: int | None,
    root: str,
) -> list[Partition]:
    """Those of the data directory and those of the archive, of which either may be missing."""
    from penstock.archive.contents import all_partitions

    numbers = {one.number for one in _local_partitions(data_dir) if one.topic == topic}
    # Reading says what is missing then.
    with contextlib.suppress(MetadataUnavailable, ObjectsUnavailable):
        known = await all_partitions(objects, metadata, root)
        numbers |= {each for name, each in known if name == topic}
    wanted = sorted(numbers if number is None else numbers & {number})
    if not wanted:
        return partitions_of(existing_data_directory(data_dir), topic, number)
    return [DataDirectory(data_dir).partition(topic, each) for each in wanted]


def _local_partitions(data_dir: Path) -> list[Partition]:
    return list(DataDirectory(data_dir).partitions()) if data_dir.is_dir() else []


async def _first_offset(
    catalog: Catalog, partition: Partition, start: int | Literal["earliest", "latest"]
) -> tuple[Catalog, int]:
    """The offset to begin with, and the archive with all that it has, if that is asked.

    OffsetUnavailable: the offset is behind all that there is.
    """
    log = survey_log(LocalFiles(), partition.log_folder)
    if isinstance(start, int) and log.files and start >= log.start_offset:
        return catalog, start  # the log says by itself whether it has it
    if start == "latest" and log.files:
        return catalog, log.end_offset
    try:
        catalog = await _whole(catalog)
        return catalog, await _archived_offset(catalog, log, start)
    except (MetadataUnavailable, ObjectsUnavailable) as error:
        missing = f"offsets from {start} on" if isinstance(start, int) else "what came earlier"
        text = f"{missing} may be in an archive that does not answer: {error}"
        raise _without_archive(partition, text) from error


async def _whole(catalog: Catalog) -> Catalog:
    """With what the metadata lack; reading its objects says which offsets a silent store has."""
    from penstock.archive.contents import whole

    try:
        return await whole(catalog)
    except ObjectsUnavailable:
        if await catalog.first() is None:
            raise
        return catalog


async def _archived_offset(
    catalog: Catalog, log: Survey, start: int | Literal["earliest", "latest"]
) -> int:
    end = max(await catalog.end_offset(), log.end_offset)
    if start == "latest":
        return end
    first = await catalog.first()
    begins = [log.start_offset] if log.files else []
    earliest = min([*begins, *([first.start_offset] if first else [])], default=0)
    if start == "earliest":
        return earliest
    if start > end:
        text = f"offset {start} is not in the topic, which has {earliest} to {end}"
        raise OffsetUnavailable(text, earliest=earliest, end=end)
    return int(start)


def _without_archive(partition: Partition, problem: str) -> PenstockError:
    log = survey_log(LocalFiles(), partition.log_folder)
    here = f"the log begins at offset {log.start_offset}" if log.files else "there is no log"
    where = f"{partition.topic} partition {partition.number}"
    return PenstockError(f"{where}: {problem}; {here}")
