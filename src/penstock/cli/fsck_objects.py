"""`penstock fsck` on object storage: an archive, a queue, or both below one URL."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from penstock.cli.fsck_archive import LOST_METADATA, ArchiveCheck, archive_objects
from penstock.cli.fsck_report import Findings, counted
from penstock.cli.object_stores import open_descriptors, open_store
from penstock.model.errors import InvalidArgument, ObjectMissing, PenstockError
from penstock.queue import QueueSettings, verify_queue
from penstock.queue.format import decode_manifest
from penstock.queue.keys import batch_id_of, identity_key
from penstock.storage.metadata import open_metadata

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.storage.metadata import Metadata
    from penstock.storage.objects import ObjectStore

_UNREPAIRED_ARCHIVE = "only objects that no descriptor describes can be brought back"
_UNREPAIRED_QUEUE = "a queue has one copy of everything, so there is nothing to repair it from"


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """What to look at."""

    url: str
    metadata_url: str | None
    root: str
    queue: QueueSettings


def fsck_objects(
    place: ObjectPlace, *, repair: bool
) -> tuple[Findings, Findings | None, str | None]:
    """What was found, what is found after a repair, and why something was not repaired."""
    return asyncio.run(_Checks(place, repair=repair).run())


class _Checks:
    """An archive's check and a queue's, each where there is one."""

    def __init__(self, place: ObjectPlace, *, repair: bool) -> None:
        self._place = place
        self._repair = repair

    async def run(self) -> tuple[Findings, Findings | None, str | None]:
        objects = open_store(self._place.url)
        metadata = self._open_metadata()
        try:
            return await self._run(objects, metadata)
        finally:
            await objects.close()
            if metadata is not None:
                await metadata.close()

    async def _run(
        self, objects: ObjectStore, metadata: Metadata | None
    ) -> tuple[Findings, Findings | None, str | None]:
        found, archive = await self._verified(objects, metadata)
        if found.is_empty:
            raise PenstockError(f"{self._place.url} holds nothing that Penstock wrote")
        if not self._repair or found.sound:
            return found, None, None
        left = await archive.repair() if archive is not None else []
        after, _ = await self._verified(objects, metadata)
        after.notes += [f"{key} was left alone" for key in left]
        return found, after, _unrepaired(after)

    async def _verified(
        self, objects: ObjectStore, metadata: Metadata | None
    ) -> tuple[Findings, ArchiveCheck | None]:
        found = Findings(self._place.url)
        archive = None
        if metadata is not None:
            archive = ArchiveCheck(self._place.url, objects, metadata, self._place.root)
        elif await archive_objects(objects, self._place.root):
            raise click.UsageError("there is an archive: --metadata says where its descriptors are")
        size = await archive.look() if archive is not None else 0
        manifest = self._place.queue.manifest_path
        has_queue = await _exists(objects, manifest, identity_key(manifest))
        size += await _waiting_bytes(objects, manifest) if has_queue else 0
        hidden = not sys.stderr.isatty()
        with click.progressbar(
            length=size, label="verifying", hidden=hidden, file=sys.stderr
        ) as bar:
            if archive is not None:
                await archive.run(found, bar.update)
            await self._check_queue(objects, found, bar.update, has_queue=has_queue)
        return found, archive

    async def _check_queue(
        self,
        objects: ObjectStore,
        found: Findings,
        progress: Callable[[int], object],
        *,
        has_queue: bool,
    ) -> None:
        settings, url = self._place.queue, self._place.url.rstrip("/")
        stored = await _batches(objects, settings.data_path_prefix)
        if not has_queue:
            if stored:
                found.queues += 1
                batches = counted(stored, "batch", "batches")
                text = f"there is no manifest and no identity, but {batches}"
                found.add_damage(f"{url}/{settings.manifest_path}", text, kind="manifest")
            return
        report = await verify_queue(objects, settings, progress=progress)
        found.queues += 1
        found.files_checked += report.objects
        found.bytes_checked += report.bytes
        found.batches += report.batches
        found.messages += report.records
        for fault in report.faults:
            kind = "batch" if batch_id_of(fault.key) else "manifest"
            found.add_damage(
                f"{url}/{fault.key}", fault.problem, kind=kind, messages_lost=fault.records_lost
            )
        unneeded = stored - report.batches
        if unneeded > 0 and not report.faults:
            text = f"{counted(unneeded, 'batch', 'batches')} consumed or not enqueued yet"
            found.notes.append(f"{settings.data_path_prefix}: {text}")

    def _open_metadata(self) -> Metadata | None:
        """Only a repair may make a store of descriptors where there is none."""
        url = self._place.metadata_url
        if url is None:
            return None
        if not self._repair:
            return open_descriptors(url)
        try:
            return open_metadata(url)
        except InvalidArgument as error:
            raise click.UsageError(str(error)) from None


def _unrepaired(after: Findings) -> str | None:
    """Why there is damage left."""
    kinds = {row["kind"] for row in after.damage} - {LOST_METADATA}
    reasons = [_UNREPAIRED_QUEUE] if kinds & {"batch", "manifest"} else []
    reasons += [_UNREPAIRED_ARCHIVE] if kinds - {"batch", "manifest"} else []
    return "; ".join(reasons) or None


async def _exists(objects: ObjectStore, *keys: str) -> bool:
    for key in keys:
        try:
            await objects.head(key)
        except ObjectMissing:
            continue
        return True
    return False


async def _waiting_bytes(objects: ObjectStore, manifest_path: str) -> int:
    """For the bar alone: 0 where that cannot be said."""
    try:
        fetched = await objects.get(manifest_path)
        manifest = decode_manifest(fetched.data) if fetched is not None else None
    except PenstockError:
        return 0
    return manifest.enqueued_bytes - manifest.dequeued_bytes if manifest is not None else 0


async def _batches(objects: ObjectStore, prefix: str) -> int:
    return len([info.key async for info in objects.list(f"{prefix}/") if batch_id_of(info.key)])
