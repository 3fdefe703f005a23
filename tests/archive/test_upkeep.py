"""Rules of retention and cleaning: what the archive forgets, and what it never does."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.archive.reader import ArchiveReader
from penstock.archive.settings import ArchiveSettings
from penstock.model.errors import Fenced, MetadataUnavailable, OffsetUnavailable
from tests.archive.faults import FaultyMetadata
from tests.archive.worlds import drained, messages, world
from tests.servers.loops import in_loop
from tests.simulation.objects import Script

if TYPE_CHECKING:
    from penstock.storage.metadata import Metadata

_SMALL = ArchiveSettings(upload_bytes=64 * 1024)


@in_loop
async def test_old_objects_go(tmp_path: Path) -> None:
    """By the time they were written; the newest stays, since it says where the archive ends."""
    async with world(tmp_path) as it:
        settings = replace(_SMALL, retention_s=100.0)
        it.append(1000)
        await (await it.uploader(settings)).drain()
        it.clock.now += 60
        it.append(1000)
        uploader = await it.uploader(settings)
        await uploader.drain()
        await uploader.tidy()
        assert (await it.catalog.all())[0].start_offset == 0
        it.clock.now += 60
        uploader = await it.uploader(settings)
        await uploader.tidy()
        assert (await it.catalog.all())[0].start_offset == 1000
        it.clock.now += 1000
        uploader = await it.uploader(settings)
        await uploader.tidy()
        (last,) = await it.catalog.all()
        assert last.end_offset == 2000
        assert await it.object_ids() == [last.object_id]
        assert await drained(ArchiveReader(it.catalog, last.start_offset)) == messages(
            last.start_offset, 2000
        )
        with pytest.raises(OffsetUnavailable):
            await ArchiveReader(it.catalog, 0).read_batch()


@in_loop
async def test_objects_over_the_bytes_go(tmp_path: Path) -> None:
    """The oldest first, until the rest fits."""
    async with world(tmp_path) as it:
        it.append(4000)
        await (await it.uploader(_SMALL)).drain()
        sizes = [one.size for one in await it.catalog.all()]
        assert len(sizes) > 2
        uploader = await it.uploader(replace(_SMALL, retention_bytes=sum(sizes[-2:])))
        await uploader.tidy()
        assert [one.size for one in await it.catalog.all()] == sizes[-2:]
        assert len(await it.object_ids()) == 2


@in_loop
async def test_offsets_go_on_after_retention(tmp_path: Path) -> None:
    """Nothing is uploaded again, and no offset is skipped."""
    async with world(tmp_path) as it:
        it.append(1000)
        settings = replace(_SMALL, retention_bytes=0)
        uploader = await it.uploader(settings)
        await uploader.drain()
        await uploader.tidy()
        it.append(10)
        again = await it.uploader(settings)
        await again.drain()
        assert (await it.catalog.all())[-1].end_offset == 1010
        assert (await it.catalog.all())[-1].start_offset == 1000


@in_loop
async def test_a_fenced_owner_removes_nothing(tmp_path: Path) -> None:
    """Neither by retention nor by cleaning."""
    async with world(tmp_path) as it:
        it.append(4000)
        first = await it.uploader(replace(_SMALL, retention_bytes=0))
        await first.drain()
        await it.lease("a")
        with pytest.raises(Fenced):
            await first.tidy()
        assert await it.archived() == messages(0, 4000)


@in_loop
async def test_a_descriptor_may_come_late(tmp_path: Path) -> None:
    """An object whose descriptor was sent and not answered is not removed: it may yet be there."""
    async with world(tmp_path) as it:
        it.append(100)
        late = _LateCommits(it.metadata)
        inner, it.metadata = it.metadata, late
        uploader = await it.uploader()
        late.key = it.catalog.descriptor_key(0)
        with pytest.raises(MetadataUnavailable):
            await uploader.upload_once()
        await uploader.tidy()
        await late.arrive()
        it.metadata = inner
        assert await it.archived() == messages(0, 100)


class _LateCommits(FaultyMetadata):
    """Holds a commit of one key back until it is let go, and says that nobody answered."""

    def __init__(self, inner: Metadata) -> None:
        super().__init__(inner, Script())
        self.key = ""
        self._held: list[Callable[[], Awaitable[int]]] = []

    async def commit(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        conditions: Mapping[str, int | None] | None = None,
    ) -> int:
        """Later, for that key."""
        call = functools.partial(super().commit, dict(puts), deletes=deletes, conditions=conditions)
        if self.key not in puts:
            return await call()
        self._held.append(call)
        raise MetadataUnavailable("no answer")

    async def arrive(self) -> None:
        """What was held back is carried out."""
        for call in self._held:
            await call()


@in_loop
async def test_strange_names_are_left_alone(tmp_path: Path) -> None:
    """Cleaning removes what uploaders make, and nothing else."""
    async with world(tmp_path) as it:
        it.append(10)
        uploader = await it.uploader()
        await uploader.drain()
        later = it.catalog.object_key(
            "e0000000009/data-00000000000000000000-00000000000000000005.frames"
        )
        mine = it.catalog.object_key("notes.txt")
        stray = later.replace("e0000000009", "e0000000001")
        for key in (later, mine, stray):
            await it.objects.put(key, b"")
        await uploader.tidy()
        left = [it.catalog.object_key(name) for name in await it.object_ids()]
        assert later in left
        assert mine in left
        assert stray not in left


@in_loop
async def test_who_is_fenced_uploads_nothing_that_nobody_may_remove(tmp_path: Path) -> None:
    """The archive's id is of a later epoch: an object of an earlier one would stay for ever."""
    async with world(tmp_path) as it:
        it.append(100)
        former, present = await it.uploader(_SMALL), await it.uploader(_SMALL)
        await present.tidy()  # gives the archive its id
        with pytest.raises(Fenced, match="epoch 1 of a is over"):
            await former.upload_once()
        assert await it.object_ids() == []
        await present.drain()
        assert len(await it.object_ids()) == 1
