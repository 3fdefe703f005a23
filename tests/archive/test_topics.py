"""Rules of the factory: one owner at a time, and a topic that survives its disk."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from pathlib import Path

import pytest

from penstock.archive.archiving import Archiver
from penstock.archive.progress import decode_progress, encode_progress, store_offsets
from penstock.archive.settings import ArchiveSettings
from penstock.archive.topics import ArchivedTopic, Topics
from penstock.model.errors import ArchiveConflict, Damaged, Fenced, LeaseHeld, LogLocked
from penstock.storage import DataDirectory
from penstock.storage.metadata import Metadata, open_metadata
from penstock.storage.objects import ObjectStore, open_objects
from penstock.store import Store
from tests.archive.worlds import DIRECTORY, SMALL_FILES, TOPIC, Clock, message, messages
from tests.patience import PATIENCE_S
from tests.servers.loops import in_loop


class _Machines:
    """Machines that share an object store and a metadata store, each with a disk of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.objects: ObjectStore = open_objects("memory://")
        self.metadata: Metadata = open_metadata(f"file://{folder}/metadata.db")
        self.clock = Clock()

    def topics(self, name: str, clock: Clock | None = None) -> Topics:
        """Those of a machine, as after its start."""
        return Topics(
            DataDirectory(self.folder / name),
            self.objects,
            self.metadata,
            owner=name,
            log_settings=SMALL_FILES,
            archive_settings=ArchiveSettings(poll_s=0.01, upload_interval_s=1e9),
            progress_interval_s=1e9,
            clock=clock or self.clock,
        )


async def _append(topic: ArchivedTopic, count: int) -> None:
    for _ in range(count):
        offset = await topic.append(message(topic.log.end_offset))
        assert topic.log.end_offset == offset + 1


async def _all(topic: ArchivedTopic, start: int = 0) -> list[tuple[int, bytes]]:
    reader, found = topic.read(start), []
    while (batch := await reader.read_batch()) is not None:
        found += list(enumerate(batch.messages, batch.first_offset))
    reader.close()
    return found


@in_loop
async def test_a_topic_survives_its_disk(tmp_path: Path) -> None:
    """Opened elsewhere it goes on at the next offset, with everything before it."""
    machines = _Machines(tmp_path)
    first = machines.topics("a")
    await _append(await first.open(TOPIC), 300)
    await first.close()
    shutil.rmtree(tmp_path / "a")
    second = machines.topics("b")
    topic = await second.open(TOPIC)
    assert (topic.log.start_offset, topic.log.end_offset) == (300, 300)
    await _append(topic, 50)
    assert await _all(topic) == messages(0, 350)
    assert await _all(topic, 299) == messages(299, 350)
    await second.close()
    third = machines.topics("a")
    assert await _all(await third.open(TOPIC)) == messages(0, 350)
    await third.close()
    await machines.metadata.close()


@in_loop
async def test_a_topic_is_opened_once(tmp_path: Path) -> None:
    """Everybody who asks gets the same one; another topic is another."""
    machines = _Machines(tmp_path)
    topics = machines.topics("a")
    one, same = await asyncio.gather(topics.open(TOPIC), topics.open(TOPIC))
    assert one is same
    assert await topics.open(TOPIC, 1) is not one
    await topics.close()
    await machines.metadata.close()


@in_loop
async def test_a_second_owner_is_refused(tmp_path: Path) -> None:
    """While the first lives nobody else opens the topic."""
    machines = _Machines(tmp_path)
    first, second = machines.topics("a"), machines.topics("b")
    await first.open(TOPIC)
    with pytest.raises(LeaseHeld, match="owned by a"):
        await second.open(TOPIC)
    await first.close()
    await second.open(TOPIC)
    await second.close()
    await machines.metadata.close()


@in_loop
async def test_a_former_owner_neither_uploads_nor_acknowledges(tmp_path: Path) -> None:
    """One that slept through the takeover is fenced before it can do either."""
    machines = _Machines(tmp_path)
    asleep = Clock()
    first, second = machines.topics("a", asleep), machines.topics("b")
    old = await first.open(TOPIC)
    await _append(old, 10)
    await old.uploader.drain()
    await _append(old, 5)
    with pytest.raises(LeaseHeld):
        await second.open(TOPIC)
    machines.clock.now += 15.0
    new = await second.open(TOPIC)
    asleep.now += 15.0
    with pytest.raises(Fenced):
        await old.append(b"late")
    with pytest.raises(Fenced):
        await old.uploader.drain()
    assert old.failure is not None
    assert await _all(new) == messages(0, 10)
    await first.close()
    await second.close()
    await machines.metadata.close()


@in_loop
async def test_a_log_that_went_its_own_way_is_set_aside(tmp_path: Path) -> None:
    """What a former owner never archived is kept on its disk, and not served as the topic's."""
    machines = _Machines(tmp_path)
    first = machines.topics("a")
    old = await first.open(TOPIC)
    await _append(old, 10)
    await old.close(upload=False)
    second = machines.topics("b")
    new = await second.open(TOPIC)
    await new.append(b"another first message")
    await second.close()
    third = machines.topics("a")
    again = await third.open(TOPIC)
    assert await _all(again) == [(0, b"another first message")]
    partition = DataDirectory(tmp_path / "a").partition(TOPIC)
    assert (partition.folder / "log.aside-1").is_dir()
    await third.close()
    await machines.metadata.close()


@in_loop
async def test_a_second_start_does_not_fence_the_first(tmp_path: Path) -> None:
    """A data directory that is in use is refused before the lease is touched."""
    machines = _Machines(tmp_path)
    running, mistaken = machines.topics("a"), machines.topics("a")
    topic = await running.open(TOPIC)
    with pytest.raises(LogLocked):
        await mistaken.open(TOPIC)
    await _append(topic, 1)
    await topic.lease.renew()
    await running.close()
    await machines.metadata.close()


@in_loop
async def test_subscribers_resume_elsewhere(tmp_path: Path) -> None:
    """At least once: from the last saved offset, also on another machine."""
    machines = _Machines(tmp_path)
    first = machines.topics("a")
    topic = await first.open(TOPIC)
    await _append(topic, 100)
    subscriber = await topic.subscribe("lake")
    assert await subscriber.next_batch() is not None
    subscriber.ack(40)
    assert await topic.progress.save() == 1
    subscriber.ack(60)
    await topic.uploader.drain()
    await topic.close(upload=False)
    second = machines.topics("b")
    elsewhere = await (await second.open(TOPIC)).subscribe("lake", "latest")
    batch = await elsewhere.read_batch()
    assert batch is not None
    assert batch.first_offset == 40
    elsewhere.close()
    await second.close()
    await machines.metadata.close()


@in_loop
async def test_a_forgotten_subscriber_begins_anew(tmp_path: Path) -> None:
    """Its offset is removed, here and in the metadata."""
    machines = _Machines(tmp_path)
    topics = machines.topics("a")
    topic = await topics.open(TOPIC)
    (await topic.subscribe("lake", 0)).ack(7)
    await topic.progress.save()
    await topic.progress.forget("lake")
    assert await topic.progress.load() == {}
    await topics.close()
    await machines.metadata.close()


def test_a_store_says_how_far_its_subscribers_are(tmp_path: Path) -> None:
    """The first offset of the segment that a subscriber has not finished, or less."""
    with Store.open(tmp_path / "store") as store:
        subscription = store.subscribe("lake")
        for _ in range(2):
            store.append_durable(b"\x0a\x00")
            store.flush()
        assert store_offsets(store) == {"lake": 0}
        bundle = subscription.next_bundle(timeout=PATIENCE_S)
        assert bundle is not None
        bundle.ack()
        assert store_offsets(store)["lake"] in (0, 1)


@in_loop
async def test_a_store_is_archived_while_it_is_open(tmp_path: Path) -> None:
    """Its messages and its subscribers' progress, and the rest when it is closed."""
    machines = _Machines(tmp_path)
    partition = DataDirectory(tmp_path / "a").partition(TOPIC)
    archiver = Archiver(
        machines.objects, machines.metadata, directory=DIRECTORY, clock=machines.clock
    )
    with Store.open(partition.folder) as store:
        store.register("lake")
        archiving = await archiver.attach(partition, store, await archiver.claim(partition))
        store.append_durable(b"\x0a\x00")
        archiving.check()
        assert archiver.failures() == []
        await archiver.close()
        with pytest.raises(Fenced):
            archiving.check()
    catalog = archiver.catalog(partition)
    assert await catalog.end_offset() == 1
    entries = await machines.metadata.range(f"{catalog.path}/subscribers/")
    assert [decode_progress(entry.data) for entry in entries] == [("lake", 0)]
    await machines.metadata.close()


@in_loop
async def test_a_store_that_does_not_belong_cannot_be_claimed(tmp_path: Path) -> None:
    """It would acknowledge what the archive can never take."""
    machines = _Machines(tmp_path)
    for name in ("a", "b"):
        partition = DataDirectory(tmp_path / name).partition(TOPIC)
        identity = uuid.UUID(DataDirectory(tmp_path / name).create())
        archiver = Archiver(machines.objects, machines.metadata, directory=identity)
        if name == "b":
            with Store.open(partition.folder) as store:
                store.append_durable(b"\x0a\x00")
            with pytest.raises(ArchiveConflict):
                await archiver.claim(partition)
            break
        claim = await archiver.claim(partition)
        with Store.open(partition.folder) as store:
            store.append_durable(b"\x0a\x00")
            await archiver.attach(partition, store, claim)
            await archiver.close()
    await machines.metadata.close()


def test_progress_is_json() -> None:
    """As documented, and back."""
    text = b'{"version":1,"name":"lake","offset":7,"updated_at":"2025-01-01T00:00:00+00:00"}'
    assert encode_progress("lake", 7, "2025-01-01T00:00:00+00:00") == text
    assert decode_progress(text) == ("lake", 7)
    with pytest.raises(Damaged):
        decode_progress(b"{}")
