"""Keeps an archive's two halves together: objects in one store, descriptors in another.

Both hold the same id before the first object is uploaded. Objects without an id in the metadata
mean that the metadata is not the one that belongs to them; taken for an empty archive, it would let
offsets repeat and every object look abandoned.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

from penstock.model.errors import ArchiveConflict, ObjectExists, ObjectMissing, ObjectsUnavailable

if TYPE_CHECKING:
    from penstock.archive.catalog import Catalog
    from penstock.storage.metadata import Lease


async def establish(catalog: Catalog, lease: Lease) -> str:
    """The id of the archive, made where there is none. ArchiveConflict: the halves do not match.

    Safe to repeat, also after a crash at any point.
    """
    key = identity_key(catalog)
    entry = await catalog.metadata.get(key)
    marked = await marked_id(catalog)
    if entry is None:
        if marked is not None and await _has_objects(catalog):
            text = f"{catalog.path} has objects, and the metadata knows nothing of them"
            raise ArchiveConflict(f"{text}: is it the right store? `archive rebuild` makes it one")
        identity = marked or await _mark(catalog)
        await lease.commit({key: identity.encode()})
        return identity
    if marked != entry.data.decode():
        text = f"{catalog.path}: the metadata is of archive {entry.data.decode()}"
        raise ArchiveConflict(f"{text}, the objects are of {marked or 'none'}")
    return marked


def identity_key(catalog: Catalog) -> str:
    """The key of the id, the same in both stores."""
    return f"{catalog.path}/archive"


async def marked_id(catalog: Catalog) -> str | None:
    """The id that the objects carry; None where there are none."""
    try:
        found = await catalog.objects.get(identity_key(catalog))
    except ObjectMissing:
        return None
    assert found is not None
    if len(found.data) != found.info.size:
        raise ObjectsUnavailable(f"{identity_key(catalog)} did not come whole")
    try:
        return str(json.loads(found.data)["id"])
    except (ValueError, KeyError, TypeError):
        raise ArchiveConflict(
            f"{identity_key(catalog)} does not hold the id of an archive"
        ) from None


async def _mark(catalog: Catalog) -> str:
    identity = str(uuid.uuid4())
    document = {"penstock": "archive", "version": 1, "id": identity}
    try:
        await catalog.objects.create(identity_key(catalog), json.dumps(document).encode())
    except ObjectExists:
        marked = await marked_id(catalog)
        assert marked is not None
        return marked
    return identity


async def _has_objects(catalog: Catalog) -> bool:
    async for _ in catalog.objects.list(catalog.objects_prefix):
        return True
    return False
