"""Rules of archiving: one owner at a time, and a topic that survives its disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.archive.archiving import Archiver
from penstock.archive.settings import ArchiveSettings
from penstock.model.errors import ArchiveConflict, Fenced, LeaseHeld
from penstock.storage import DataDirectory
from penstock.storage.metadata import Metadata, open_metadata
from penstock.storage.objects import ObjectStore, open_objects
from penstock.store import Store
from tests.archive.worlds import DIRECTORY, SMALL_FILES, TOPIC, Clock, Owner, archiver_of, messages
from tests.servers.loops import in_loop


class _Machines:
    """Machines that share an object store and a metadata store, each with a disk of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.objects: ObjectStore = open_objects("memory://")
        self.metadata: Metadata = open_metadata(f"file://{folder}/metadata.db")
        self.clock = Clock()

    def archiver(self, name: str, clock: Clock | None = None) -> Archiver:
        """Of one of them, as after its start."""
        settings = ArchiveSettings(poll_s=0.01, upload_interval_s=1e9)
        options = {"settings": settings, "clock": clock or self.clock}
        return archiver_of(self.folder / name, self.objects, self.metadata, **options)

    async def owner(self, name: str, archiver: Archiver | None = None) -> Owner:
        """Of the topic, there."""
        folder = self.folder / name
        return await Owner.open(archiver or self.archiver(name), folder, log_settings=SMALL_FILES)


@in_loop
async def test_a_topic_survives_its_disk(tmp_path: Path) -> None:
    """Opened elsewhere it goes on at the next offset, with everything before it."""
    machines = _Machines(tmp_path)
    first = await machines.owner("a")
    await first.append(300)
    await first.close()
    shutil.rmtree(tmp_path / "a")
    second = await machines.owner("b")
    assert (second.log.start_offset, second.log.end_offset) == (300, 300)
    await second.append(50)
    assert await second.messages() == messages(0, 350)
    assert await second.messages(299) == messages(299, 350)
    await second.close()
    third = await machines.owner("a")
    assert await third.messages() == messages(0, 350)
    await third.close()
    await machines.metadata.close()


@in_loop
async def test_a_second_owner_is_refused(tmp_path: Path) -> None:
    """While the first lives nobody else opens the topic."""
    machines = _Machines(tmp_path)
    first = await machines.owner("a")
    with pytest.raises(LeaseHeld, match=f"owned by {DataDirectory(tmp_path / 'a').identity()}"):
        await machines.owner("b")
    await first.close()
    await (await machines.owner("b")).close()
    await machines.metadata.close()


@in_loop
async def test_a_former_owner_neither_uploads_nor_acknowledges(tmp_path: Path) -> None:
    """One that slept through the takeover is fenced before it can do either."""
    machines = _Machines(tmp_path)
    asleep = Clock()
    old = await machines.owner("a", machines.archiver("a", asleep))
    watching = machines.archiver("b")
    await old.append(10)
    await old.archiving.uploader.drain()
    await old.append(5)
    with pytest.raises(LeaseHeld):
        await machines.owner("b", watching)
    machines.clock.now += 15.0
    new = await machines.owner("b", watching)
    asleep.now += 15.0
    with pytest.raises(Fenced):
        await old.append()
    with pytest.raises(Fenced):
        await old.archiving.uploader.drain()
    assert old.archiving.failure is not None
    assert await new.messages() == messages(0, 10)
    await old.close()
    await new.close()
    await machines.metadata.close()


@in_loop
async def test_a_store_is_archived_while_it_is_open(tmp_path: Path) -> None:
    """Its messages, and the rest when it is closed."""
    machines = _Machines(tmp_path)
    partition = DataDirectory(tmp_path / "a").partition(TOPIC)
    archiver = Archiver(
        machines.objects, machines.metadata, directory=DIRECTORY, clock=machines.clock
    )
    with Store.open(partition.folder) as store:
        archiving = await archiver.attach(partition, store.log, await archiver.claim(partition))
        store.append_durable(b"\x0a\x00")
        archiving.check()
        assert archiver.failures() == []
        await archiver.close()
        with pytest.raises(Fenced):
            archiving.check()
    assert await archiver.catalog(partition).end_offset() == 1
    await machines.metadata.close()


@in_loop
async def test_a_log_that_went_its_own_way_cannot_be_claimed(tmp_path: Path) -> None:
    """It would acknowledge what the archive can never take; what it has stays where it is."""
    machines = _Machines(tmp_path)
    old = await machines.owner("a")
    await old.append(10)
    await old.close(upload=False)
    new = await machines.owner("b")
    await new.append(1)
    await new.close()
    with pytest.raises(ArchiveConflict):
        await machines.owner("a")
    with Store.open(DataDirectory(tmp_path / "a").partition(TOPIC).folder) as store:
        assert store.log.end_offset == 10
    await machines.metadata.close()


@in_loop
async def test_keys_of_0_1_are_passed_over(tmp_path: Path) -> None:
    """It wrote how far subscribers were, and nobody read it."""
    machines = _Machines(tmp_path)
    first = await machines.owner("a")
    await first.append(3)
    text = b'{"version":1,"name":"lake","offset":2,"updated_at":"2025-01-01T00:00:00+00:00"}'
    await machines.metadata.put(f"{first.archiving.catalog.path}/subscribers/lake", text)
    await first.close()
    second = await machines.owner("a")
    assert await second.messages() == messages(0, 3)
    await second.close()
    await machines.metadata.close()
