"""The manifest as an object: created once, read when it changed, replaced by compare-and-swap."""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from penstock.model.errors import Damaged, ManifestLost, ObjectExists, ObjectMissing
from penstock.queue.fetch import fetch_whole
from penstock.queue.format import Manifest, decode_manifest, encode_manifest
from penstock.queue.keys import batch_id_of, identity_key
from penstock.storage.documents import decode_document, encode_document

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.queue.settings import QueueSettings
    from penstock.storage.objects import ObjectStore, Version

_LOG = logging.getLogger(__name__)
_IDENTITY: Final = "queue"
_IDENTITY_VERSION: Final = 1


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
        try:
            found = await fetch_whole(
                self._objects, self.path, unless=last.version if last else None
            )
        except ObjectMissing:
            if last is None and not await self._identity():
                raise
            raise ManifestLost(f"the manifest {self.path} is gone") from None
        if found is None:
            assert last is not None
            return last
        manifest = self._decoded(found.data)
        if last is not None:
            self._check_that_time_goes_on(last.manifest, manifest)
        self._last = Loaded(manifest, found.info.version)
        return self._last

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
        prefix = self._settings.data_path_prefix
        async for info in self._objects.list(f"{prefix}/"):
            if batch_id_of(info.key) is not None:
                raise ManifestLost(f"there are batches below {prefix}, but no manifest {self.path}")
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

    async def _check_identity(self, manifest: Manifest, *, create: bool) -> None:
        identity = await self._identity()
        if identity is None and create:
            fields = {"queue_id": manifest.queue_id.hex(), "manifest_version": manifest.version}
            document = encode_document(_IDENTITY, _IDENTITY_VERSION, fields)
            try:
                await self._objects.create(identity_key(self.path), document)
            except ObjectExists:
                identity = await self._identity()
        if identity is not None and identity.get("queue_id") != manifest.queue_id.hex():
            raise ManifestLost(f"the manifest {self.path} is not that of the queue that was here")

    async def _identity(self) -> dict[str, Any] | None:
        """What the identity says; None where there is none."""
        try:
            found = await fetch_whole(self._objects, identity_key(self.path))
        except ObjectMissing:
            return None
        assert found is not None
        return decode_document(_IDENTITY, _IDENTITY_VERSION, found.data)
