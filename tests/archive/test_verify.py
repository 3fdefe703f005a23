"""Rules of verifying: every kind of damage is found and named, and a sound archive is sound."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.archive.catalog import Catalog, archived_partitions
from penstock.archive.contents import all_statuses
from penstock.archive.settings import ArchiveSettings
from penstock.archive.verify import verify_archive
from penstock.model.topics import Topic
from tests.archive.worlds import World, world
from tests.servers.loops import in_loop

_SMALL = ArchiveSettings(upload_bytes=64 * 1024)


async def _archived(it: World, count: int, settings: ArchiveSettings = _SMALL) -> None:
    it.append(count)
    await (await it.uploader(settings)).drain()


@pytest.mark.parametrize("compression", [False, True])
@in_loop
async def test_a_sound_archive_is_sound(tmp_path: Path, compression: bool) -> None:
    """Every object, byte and message is counted."""
    async with world(tmp_path) as it:
        await _archived(it, 4000, ArchiveSettings(upload_bytes=64 * 1024, compression=compression))
        seen: list[int] = []
        report = await verify_archive(it.catalog, seen.append)
        found = await it.catalog.all()
        assert report.sound
        assert (report.files_checked, report.messages) == (len(found), 4000)
        assert report.bytes_checked == sum(seen) == sum(one.size for one in found)
        assert report.notes == []


@pytest.mark.parametrize(
    ("damage", "kind", "lost"),
    [
        ("missing", "missing", None),
        ("short", "size", 0),
        ("flipped", "block", None),
        ("replaced", "header", 0),
        ("checksum", "checksum", 0),
        ("gap", "gap", None),
        ("descriptor", "descriptor", 0),
    ],
)
@in_loop
async def test_each_damage_is_named(
    tmp_path: Path, damage: str, kind: str, lost: int | None
) -> None:
    """With the object, and how many messages it costs."""
    async with world(tmp_path) as it:
        await _archived(it, 4000)
        first, second = (await it.catalog.all())[:2]
        key, other = (it.catalog.object_key(one.object_id) for one in (first, second))
        data = await _data(it, key)
        entry = it.catalog.descriptor_key(second.start_offset)
        match damage:
            case "missing":
                await it.objects.delete(key)
            case "short":
                await it.objects.put(key, data + b"x")
            case "flipped":
                await it.objects.put(key, data[:-1] + bytes([data[-1] ^ 1]))
            case "replaced":
                await it.objects.put(key, await _data(it, other))
            case "checksum":
                fields = json.loads(await _entry(it, first.start_offset))
                text = json.dumps({**fields, "checksum": "crc32:00000000"})
                await it.metadata.put(it.catalog.descriptor_key(first.start_offset), text.encode())
            case "gap":
                await it.metadata.delete(entry)
            case "descriptor":
                await it.metadata.put(entry, b"{}")
        report = await verify_archive(it.catalog)
        assert not report.sound
        found = next(one for one in report.damage if one.kind == kind)
        assert found.file
        if lost is None:
            assert report.messages_lost > 0
        else:
            assert found.messages_lost == lost


@in_loop
async def test_objects_without_a_descriptor_are_listed(tmp_path: Path) -> None:
    """They are no damage: the next cleaning removes them."""
    async with world(tmp_path) as it:
        await _archived(it, 10)
        await it.objects.put(it.catalog.object_key("stray"), b"")
        report = await verify_archive(it.catalog)
        assert report.sound
        (note,) = report.notes
        assert note.endswith(
            f"1 object without a descriptor, such as {it.catalog.object_key('stray')}"
        )


@in_loop
async def test_the_metadata_knows_every_partition(tmp_path: Path) -> None:
    """Topics of all namespaces and partitions, with their offsets and owners."""
    async with world(tmp_path) as it:
        await _archived(it, 100)
        for topic, number in ((Topic("a b", "Ä"), 0), (Topic("default", "traces"), 11)):
            catalog = Catalog(it.objects, it.metadata, topic, number)
            await it.metadata.put(f"{catalog.path}/subscribers/x", b"")
        assert await archived_partitions(it.metadata, "penstock") == [
            (Topic("a b", "Ä"), 0),
            (Topic("default", "traces"), 0),
            (Topic("default", "traces"), 11),
        ]
        assert await archived_partitions(it.metadata, "other") == []
        status = (await all_statuses(it.objects, it.metadata, "penstock"))[1]
        assert (status.start_offset, status.end_offset, status.messages) == (0, 100, 100)
        assert (status.owner, status.epoch, status.objects) == ("a", 1, 1)


async def _data(it: World, key: str) -> bytes:
    found = await it.objects.get(key)
    assert found is not None
    return found.data


async def _entry(it: World, offset: int) -> bytes:
    entry = await it.metadata.get(it.catalog.descriptor_key(offset))
    assert entry is not None
    return entry.data
