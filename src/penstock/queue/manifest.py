"""The manifest as an object: created once, read when it changed, replaced by compare-and-swap."""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from penstock.model.errors import (
    Damaged,
    InvalidSetting,
    ManifestLost,
    ObjectExists,
    ObjectMissing,
)
from penstock.queue.fetch import fetch_whole
from penstock.queue.format import Manifest, decode_manifest, encode_manifest
from penstock.queue.keys import batch_id_of, identity_key, owner_key
from penstock.storage.documents import decode_document, encode_document

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.queue.settings import QueueSettings
    from penstock.storage.objects import Fetched, ObjectStore, Version

_LOG = logging.getLogger(__name__)
_IDENTITY: Final = "queue"
_OWNER: Final = "queue-owner"
_WITNESS_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Loaded:
    """A manifest, and the version of the object that said so."""

    manifest: Manifest
    version: Version


class ManifestObject:
    """The manifest of one queue. Calls of one object wait for each other; processes do not.

    Never empties a queue: where the identity says that there was a manifest and there is none, or
    where it is cut off, altered or older than the one seen before, every call raises ManifestLost
    or Damaged.
    """

    def __init__(self, objects: ObjectStore, settings: QueueSettings) -> None:
        self._objects = objects
        self._settings = settings
        self.path = settings.manifest_path
        self._turn = asyncio.Lock()
        self._last: Loaded | None = None

    async def open(self, *, create: bool = True) -> Loaded:
        """Reads the manifest, making the queue where there is none.

        Invariant: the identity exists before anybody acknowledges anything, so that a manifest
        that is missing afterwards is known to be lost.
        """
        try:
            loaded = await self.load()
        except ObjectMissing:
            if not create:
                raise ObjectMissing(f"there is no queue with the manifest {self.path}") from None
            loaded = await self._create()
        await self._check_identity(loaded.manifest, create=create)
        return loaded

    async def load(self) -> Loaded:
        """The manifest as it is now. Costs little when it has not changed."""
        async with self._turn:
            return await self._load()

    async def known(self) -> Loaded:
        """The manifest as it was when last seen: good enough to try a swap."""
        async with self._turn:
            return self._last or await self._load()

    async def swap(self, before: Loaded, after: Manifest) -> Loaded:
        """Replaces the manifest if it is still `before`; ObjectChanged otherwise."""
        async with self._turn:
            data = encode_manifest(after)
            version = await self._objects.replace(self.path, data, before.version)
            self._last = Loaded(after, version)
            return self._last

    async def _load(self) -> Loaded:
        last = self._last
        found = await self._fetched(last.version if last else None)
        if found is None:
            assert last is not None
            return last
        manifest = self._decoded(found.data)
        if last is not None:
            self._check_that_time_goes_on(last.manifest, manifest)
        self._last = Loaded(manifest, found.info.version)
        return self._last

    async def _fetched(self, unless: Version | None) -> Fetched | None:
        """The object; ObjectMissing where there never was one, ManifestLost where there was."""
        try:
            return await fetch_whole(self._objects, self.path, unless=unless)
        except ObjectMissing:
            identity = await self._witness(_IDENTITY, identity_key(self.path), None)
            if unless is None and identity is None:
                raise
        try:  # somebody may have made the queue between the two looks
            return await fetch_whole(self._objects, self.path, unless=unless)
        except ObjectMissing:
            raise ManifestLost(f"the manifest {self.path} is gone") from None

    def _decoded(self, data: bytes) -> Manifest:
        try:
            return decode_manifest(data)
        except Damaged as error:
            raise Damaged(f"the manifest {self.path}: {error}") from None

    def _check_that_time_goes_on(self, before: Manifest, after: Manifest) -> None:
        if after.queue_id != before.queue_id:
            raise ManifestLost(f"the manifest {self.path} was replaced by another queue's")
        fields: tuple[Callable[[Manifest], Any], ...] = (
            lambda manifest: manifest.next_sequence,
            lambda manifest: manifest.first_sequence,
            lambda manifest: manifest.epoch,
            lambda manifest: manifest.floor,
        )
        if any(field(after) < field(before) for field in fields):
            raise ManifestLost(f"the manifest {self.path} was replaced by an older one")

    # --- creation and identity -----------------------------------------------------------------

    async def _create(self) -> Loaded:
        if await self._has_batches():
            return await self._made_by_others()
        manifest = Manifest(
            version=self._settings.manifest_version, epoch=0, next_sequence=0, first_sequence=0
        )
        if manifest.version != 1:
            manifest = replace(manifest, queue_id=uuid.uuid4().bytes)
        try:
            await self._objects.create(self.path, encode_manifest(manifest))
        except ObjectExists:
            _LOG.debug("another process made the queue %s at the same time", self.path)
        return await self.load()

    async def _has_batches(self) -> bool:
        async for info in self._objects.list(f"{self._settings.data_path_prefix}/"):
            if batch_id_of(info.key) is not None:
                return True
        return False

    async def _made_by_others(self) -> Loaded:
        """The manifest to the batches that are there; ManifestLost where there is none."""
        try:
            return await self.load()
        except ObjectMissing:
            prefix = self._settings.data_path_prefix
            text = f"there are batches below {prefix}, but no manifest {self.path}"
            raise ManifestLost(text) from None

    async def _check_identity(self, manifest: Manifest, *, create: bool) -> None:
        fields = {"queue_id": manifest.queue_id.hex(), "manifest_version": manifest.version}
        found = await self._witness(_IDENTITY, identity_key(self.path), fields if create else None)
        if found is not None and found.get("queue_id") != fields["queue_id"]:
            raise ManifestLost(f"the manifest {self.path} is not that of the queue that was here")
        prefix = self._settings.data_path_prefix
        mine = {"manifest_path": self.path}
        owner = await self._witness(_OWNER, owner_key(prefix), mine if create else None)
        if owner is not None and owner != mine:
            # Its garbage collector would delete what it does not know.
            other = owner.get("manifest_path")
            raise InvalidSetting(f"data_path_prefix {prefix} is that of the queue {other}")

    async def _witness(
        self, kind: str, key: str, fields: dict[str, Any] | None
    ) -> dict[str, Any] | None:
        """What a document says, written with `fields` where there is none; None: there is none."""
        try:
            found = await fetch_whole(self._objects, key)
        except ObjectMissing:
            if fields is None:
                return None
        else:
            assert found is not None
            try:
                return decode_document(kind, _WITNESS_VERSION, found.data)
            except Damaged as error:
                raise Damaged(f"{key}: {error}") from None
        try:
            await self._objects.create(key, encode_document(kind, _WITNESS_VERSION, fields))
        except ObjectExists:
            return await self._witness(kind, key, None)
        return fields
