"""A log, an object store and a metadata store in one place, for the tests of the archive."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from penstock.archive.archiving import Archiver, Archiving
from penstock.archive.catalog import Catalog
from penstock.archive.reader import ArchiveReader
from penstock.archive.settings import ArchiveSettings
from penstock.archive.sources import OpenLog
from penstock.archive.tiered import TieredReader
from penstock.archive.uploader import Uploader
from penstock.log import Environment, Log
from penstock.metrics import Metrics
from penstock.model.settings import LogSettings
from penstock.model.topics import Topic
from penstock.storage import DataDirectory, LocalFiles
from penstock.storage.metadata import Lease, Leases, Metadata, open_metadata
from penstock.storage.objects import ObjectStore, open_objects

TOPIC = Topic("default", "traces")
DIRECTORY = uuid.UUID("ffeeddcc-bbaa-9988-7766-554433221100")
"""The identity of the data directory."""
SMALL_FILES = LogSettings(rotate_bytes=64 * 1024, retention_bytes=0)


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def wall_ns(self) -> int:
        """Since 1970."""
        return int(1_700_000_000e9 + self.now * 1e9)


class World:
    """Everything that an archive needs; `objects` and `metadata` may be replaced by faulty ones."""

    def __init__(self, folder: Path, objects: ObjectStore, metadata: Metadata) -> None:
        self.folder = folder
        self.objects = objects
        self.metadata = metadata
        self.clock = Clock()
        self.log = self.open_log()

    def open_log(self, least_offset: int = 0) -> Log:
        """The partition's log."""
        return Log.open(
            self.folder / "log",
            SMALL_FILES,
            env=Environment(clock=self.clock, metrics=Metrics()),
            least_offset=least_offset,
        )

    @property
    def catalog(self) -> Catalog:
        """Of the partition."""
        return Catalog(self.objects, self.metadata, TOPIC)

    async def lease(self, owner: str = "a") -> Lease:
        """A new epoch."""
        return await Leases(self.metadata, clock=self.clock).acquire(self.catalog.lease_name, owner)

    async def uploader(
        self, settings: ArchiveSettings | None = None, *, owner: str = "a"
    ) -> Uploader:
        """A new one, as after a restart."""
        return Uploader(
            self.catalog,
            await self.lease(owner),
            self.folder,
            OpenLog(self.log),
            settings or ArchiveSettings(),
            directory=DIRECTORY,
            clock=self.clock,
        )

    def append(self, count: int, make: Callable[[int], bytes] | None = None) -> None:
        """Durable messages that say their offset."""
        first = self.log.end_offset
        for offset in range(first, first + count):
            self.log.append(make(offset) if make is not None else message(offset))
            if offset % 200 == 0:  # a commit goes into one file
                self.log.flush()
        self.log.flush()

    async def archived(self, offset: int = 0) -> list[tuple[int, bytes]]:
        """What the archive holds from `offset` on."""
        return await drained(ArchiveReader(self.catalog, offset))

    async def object_ids(self) -> list[str]:
        """The objects that are in the store, with or without a descriptor."""
        prefix = self.catalog.objects_prefix
        return [info.key.removeprefix(prefix) async for info in self.objects.list(prefix)]


def archiver_of(data: Path, objects: ObjectStore, metadata: Metadata, **options: Any) -> Archiver:
    """Of a data directory, which is made where there is none."""
    directory = uuid.UUID(DataDirectory(data).create())
    return Archiver(objects, metadata, directory=directory, metrics=Metrics(), **options)


class Owner:
    """Has a topic's log open and archives it, as a worker of the server does with its stores."""

    def __init__(self, log: Log, log_folder: Path, archiving: Archiving) -> None:
        self.archiving = archiving
        self.log = log
        self._log_folder = log_folder

    @classmethod
    async def open(
        cls,
        archiver: Archiver,
        data: Path,
        topic: Topic = TOPIC,
        log_settings: LogSettings | None = None,
    ) -> Owner:
        """LeaseHeld, ArchiveConflict: it may not be opened here."""
        partition = DataDirectory(data).partition(topic)
        claim = await archiver.claim(partition)
        least, env = claim.end_offset, Environment(metrics=Metrics())
        log = Log.open(partition.log_folder, log_settings, env=env, least_offset=least)
        return cls(log, partition.log_folder, await archiver.attach(partition, log, claim))

    async def append(self, count: int = 1) -> None:
        """Each is acknowledged before the next; Fenced where another has the topic."""
        for _ in range(count):
            self.archiving.check()
            await self.log.append(message(self.log.end_offset)).durable
            self.archiving.check()

    async def messages(self, start: int = 0) -> list[tuple[int, bytes]]:
        """All that the topic has, wherever it is."""
        reader = TieredReader(self.archiving.catalog, LocalFiles(), self._log_folder, start)
        found: list[tuple[int, bytes]] = []
        while (batch := await reader.read_batch()) is not None:
            found += enumerate(batch.messages, batch.first_offset)
        assert reader.lost == []
        reader.close()
        return found

    async def close(self, *, upload: bool = True) -> None:
        """Hands the topic over."""
        await self.archiving.close(upload=upload)
        await self.log.close_async()


async def archive_topics(data: Path, url: str, metadata_url: str, *topics: Topic) -> None:
    """All that the logs of these topics have."""
    objects, metadata = open_objects(url), open_metadata(metadata_url)
    for topic in topics:
        await (await Owner.open(archiver_of(data, objects, metadata), data, topic)).close()
    await objects.close()
    await metadata.close()


@asynccontextmanager
async def world(
    folder: Path, objects: ObjectStore | None = None, metadata: Metadata | None = None
) -> AsyncIterator[World]:
    """In memory and in a local file, unless told otherwise."""
    metadata = metadata or open_metadata(f"file://{folder}/metadata.db")
    made = World(folder / "partition", objects or open_objects("memory://"), metadata)
    try:
        yield made
    finally:
        made.log.close()
        await metadata.close()


def message(offset: int) -> bytes:
    """What stands at an offset."""
    return b"message %d " % offset + b"x" * (offset % 97)


def messages(first: int, end: int) -> list[tuple[int, bytes]]:
    """What stands at offsets [first, end)."""
    return [(offset, message(offset)) for offset in range(first, end)]


async def drained(reader: ArchiveReader) -> list[tuple[int, bytes]]:
    """Everything from its position on."""
    found: list[tuple[int, bytes]] = []
    while (batch := await reader.read_batch()) is not None:
        found += enumerate(batch.messages, batch.first_offset)
    return found
