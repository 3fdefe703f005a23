"""Claims a topic partition, and finds where its archive ends: before anything is acknowledged.

The metadata may be lost, or older than the objects, since by default they lie on the server's disk.
So the objects' own names are looked at too: offsets go on behind whatever was ever uploaded.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.archive import format as fmt
from penstock.archive.identity import establish, identity_key, marked
from penstock.archive.objects import choose, stored_objects, undescribed
from penstock.archive.sources import log_identity
from penstock.log.survey import survey_log
from penstock.model.errors import ArchiveConflict, MetadataUnavailable, ObjectsUnavailable
from penstock.storage.files import LocalFiles

if TYPE_CHECKING:
    import uuid
    from pathlib import Path
    from typing import Protocol

    from penstock.archive.catalog import Catalog
    from penstock.archive.format import Descriptor
    from penstock.archive.objects import StoredObject
    from penstock.storage.metadata import Lease, Leases

    class Archived(Protocol):
        """The newest that is known of an archive."""

        @property
        def end_offset(self) -> int: ...

        @property
        def log_id(self) -> str: ...


_LOG = logging.getLogger(__name__)
_REMEDY: Final = "put the topic's folder aside, and the topic goes on behind the archive"


@dataclass(frozen=True, slots=True)
class Claim:
    """A topic partition that nobody else may append to, until its lease is given back or lost."""

    catalog: Catalog
    lease: Lease
    end_offset: int
    """Of the archive: no offset below may be given out again."""


@dataclass(frozen=True, slots=True)
class _Disk:
    """The log on this disk."""

    log_id: uuid.UUID | None
    start_offset: int
    end_offset: int


async def claim(catalog: Catalog, leases: Leases, owner: str, log_folder: Path) -> Claim:
    """The topic for this owner, before its log is opened.

    LeaseHeld: another has it. ArchiveConflict: what is on this disk is not what the archive goes on
    with; somebody has to put it aside. ObjectsUnavailable: the archive does not answer, and nothing
    here says where it ends.
    """
    lease = await leases.acquire(catalog.lease_name, owner)
    try:
        disk = await asyncio.to_thread(_look, log_folder)
        finding = _Finding(catalog, disk, lease.epoch - 1)
        await finding.look()
        lease = await _later_than(finding.newest_epoch, lease, leases)
        await finding.check()
        await finding.introduce(lease)
    except BaseException:
        with contextlib.suppress(MetadataUnavailable):
            await lease.release()
        raise
    return Claim(catalog, lease, finding.end_offset)


async def acquire_later(catalog: Catalog, leases: Leases, owner: str) -> Lease:
    """The lease for those who have no log to open; of a later epoch than every object's."""
    lease = await leases.acquire(catalog.lease_name, owner)
    try:
        epochs = [one.epoch async for one in undescribed(catalog, await catalog.last())]
        mark = await marked(catalog)
        epochs += [mark.epoch] if mark is not None else []
        return await _later_than(max(epochs, default=0), lease, leases)
    except BaseException:
        with contextlib.suppress(MetadataUnavailable):
            await lease.release()
        raise


async def _later_than(epoch: int, lease: Lease, leases: Leases) -> Lease:
    """Epochs are in the objects' names: who comes later must never write over earlier ones.

    Metadata that were lost, or are old, would count from below again.
    """
    if epoch < lease.epoch:
        return lease
    await lease.release()
    return await leases.acquire(lease.name, lease.owner, least_epoch=epoch + 1)


class _Finding:
    """What both halves of an archive say, and the disk."""

    def __init__(self, catalog: Catalog, disk: _Disk | None, known_epoch: int) -> None:
        self._catalog = catalog
        self._disk = disk
        self._known_epoch = known_epoch  # of the metadata, before the claim
        self._last: Descriptor | None = None
        self._is_known = False
        self._has_answered = True
        self._has_objects = False
        self._has_successor = False
        self._chain: list[StoredObject] = []
        self.newest_epoch = 0

    @property
    def end_offset(self) -> int:
        """One past the newest offset that the archive has, whoever says so."""
        described = self._last.end_offset if self._last is not None else 0
        if self._chain and (self._disk is None or not self._is_known):
            return max(described, self._chain[-1].end_offset)
        return described

    async def look(self) -> None:
        """At the metadata, then at the objects' names."""
        known = await self._catalog.metadata.get(identity_key(self._catalog))
        self._is_known = known is not None
        self._last = await self._catalog.last()
        try:
            stored = [one async for one in undescribed(self._catalog, self._last)]
        except ObjectsUnavailable as error:
            # A log that is there says itself which offsets were given out, and its archive was
            # looked at when it was begun. Without one, 0, 1, … would be given out a second time.
            if self._disk is None or not self._is_known:
                raise
            _LOG.warning("%s is opened without its archive: %s", self._catalog.topic, error)
            self._has_answered = False
            return
        self._has_objects = bool(stored)
        mark = await marked(self._catalog)
        epochs = [one.epoch for one in stored] + ([mark.epoch] if mark is not None else [])
        self.newest_epoch = max(epochs, default=0)
        if known is not None and mark is not None:
            self._has_successor = mark.identity != known.data.decode(errors="replace")
        self._chain = choose(stored, self._last.end_offset if self._last is not None else 0)

    async def check(self) -> None:
        """ArchiveConflict where the log on this disk cannot go on."""
        disk = self._disk
        if disk is None:
            return
        check_belongs(self._last, disk.log_id, disk.start_offset, disk.end_offset)
        if self._has_successor:
            # Its log goes on by itself: what it acknowledges stays in it, and none of its objects
            # is ever taken for the successor's. The uploader says so on /healthz.
            text = "%s is opened without its archive: another server went on with that"
            _LOG.warning(text, self._catalog.topic)
            return
        suspects = [one for one in self._chain if self._is_suspect(one, disk)]
        if not suspects:
            return
        newest = suspects[-1]
        archived = await _newest(self._catalog, newest)
        is_other = archived.log_id != str(disk.log_id)
        if self._is_known and newest.epoch <= self._known_epoch and is_other:
            return  # of an owner that was fenced before it could say so: never acknowledged
        check_belongs(archived, disk.log_id, disk.start_offset, disk.end_offset)

    def _is_suspect(self, one: StoredObject, disk: _Disk) -> bool:
        """Not just an upload of this very log that was interrupted before it was described."""
        is_later = one.end_offset > disk.end_offset or one.epoch > self._known_epoch
        return is_later or not self._is_known

    async def introduce(self, lease: Lease) -> None:
        """Both stores get the id with the first claim, so that the next one knows the archive.

        Not where the metadata lack what the objects have: the uploader describes those first. That
        the halves do not match is the uploader's to say; no offset repeats by it.
        """
        if self._has_answered and (self._is_known or not self._has_objects):
            with contextlib.suppress(ArchiveConflict):
                await establish(self._catalog, lease)


@dataclass(frozen=True, slots=True)
class _Newest:
    end_offset: int
    log_id: str


async def newest_stored(catalog: Catalog) -> Archived | None:
    """The end of the archive as the objects alone say it."""
    chain = choose([one async for one in stored_objects(catalog)])
    return await _newest(catalog, chain[-1]) if chain else None


async def _newest(catalog: Catalog, one: StoredObject) -> _Newest:
    data = await catalog.objects.get_range(one.info.key, 0, fmt.MOST_HEADER_BYTES)
    return _Newest(one.end_offset, str(fmt.decode_header(data).log_id))


def _look(log_folder: Path) -> _Disk | None:
    files = LocalFiles()
    survey = survey_log(files, log_folder)
    if not survey.files:
        return None
    return _Disk(log_identity(files, log_folder), survey.start_offset, survey.end_offset)


def check_belongs(
    last: Archived | None, log_id: uuid.UUID | None, first_offset: int, end_offset: int
) -> None:
    """ArchiveConflict where the log cannot be the one that the archive continues with.

    It is the log that made the newest object, or one that begins where the archive ends.
    """
    if last is None or log_id is None:
        return
    if str(log_id) != last.log_id and first_offset < last.end_offset:
        text = f"the archive holds offsets to {last.end_offset} of log {last.log_id}"
        text = f"{text}, and log {log_id} begins at {first_offset} with others"
        raise ArchiveConflict(f"{text}: {_REMEDY}")
    if end_offset < last.end_offset:
        text = f"the log ends at offset {end_offset}, its archive at {last.end_offset}"
        text = f"{text}: the log would give out offsets a second time"
        raise ArchiveConflict(f"{text}; {_REMEDY}")
