"""Keeps an archive's two halves together: objects in one store, descriptors in another.

Both hold the same id before the first object is uploaded. Objects without an id in the metadata
mean that the metadata is not the one that belongs to them; taken for an empty archive, it would let
offsets repeat and every object look abandoned.

Metadata that were lost cannot say whether their owner lives elsewhere. Whoever goes on with others'
objects gives them a new id, with its epoch: the former owner, if there is one, finds that the id is
not its own and uploads nothing more; and what it uploaded is never taken for abandoned.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.archive.objects import check_empty
from penstock.model.errors import (
    ArchiveConflict,
    Fenced,
    ObjectConflict,
    ObjectMissing,
    ObjectsUnavailable,
)

if TYPE_CHECKING:
    from penstock.archive.catalog import Catalog
    from penstock.storage.metadata import Lease
    from penstock.storage.objects import Version


@dataclass(frozen=True, slots=True)
class Mark:
    """What the objects say of their archive."""

    identity: str
    epoch: int
    """Of who gave the id; 0 where 0.1 did. Owners of earlier epochs may not know of it."""
    version: Version


async def establish(catalog: Catalog, lease: Lease) -> Mark:
    """The archive's mark, made where there is none. ArchiveConflict: the halves do not match.

    Fenced: it is of a later epoch; what one of an earlier one uploads would never be cleaned up.

    Safe to repeat, also after a crash at any point.
    """
    entry = await catalog.metadata.get(identity_key(catalog))
    if entry is None:
        await check_empty(catalog.objects, catalog.objects_prefix, catalog.path, "the metadata")
        mark = await take_over(catalog, lease)
        await lease.commit({identity_key(catalog): mark.identity.encode()})
        return mark
    found = check_halves(catalog, entry.data, await marked(catalog))
    _check_not_later(found, catalog, lease)
    return found


def check_halves(catalog: Catalog, known: bytes, found: Mark | None) -> Mark:
    """What the objects say, where it is what the metadata know; else ArchiveConflict."""
    text = f"{catalog.path}: the metadata is of archive {known.decode(errors='replace')}"
    if found is None:
        raise ArchiveConflict(f"{text}, the objects are of none: is it the right store?")
    if found.identity != known.decode(errors="replace"):
        text = f"{text}, the objects are of {found.identity}: another server went on with it"
        raise ArchiveConflict(f"{text}, and its metadata say what is there")
    return found


def identity_key(catalog: Catalog) -> str:
    """The key of the id, the same in both stores."""
    return f"{catalog.path}/archive"


async def marked(catalog: Catalog) -> Mark | None:
    """What the objects carry; None where there is nothing."""
    key = identity_key(catalog)
    try:
        found = await catalog.objects.get(key)
    except ObjectMissing:
        return None
    assert found is not None
    if len(found.data) != found.info.size:
        raise ObjectsUnavailable(f"{key} did not come whole")
    try:
        document = json.loads(found.data)
        return Mark(str(document["id"]), int(document.get("epoch", 0)), found.info.version)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ArchiveConflict(f"{key} does not hold the id of an archive") from None


async def take_over(catalog: Catalog, lease: Lease) -> Mark:
    """Gives the objects a new id, of this epoch. ArchiveConflict: another did the same just now.

    Fenced: another did, in a later epoch.

    An answer that was lost leaves an id that nobody knows, and the next call gives another.
    """
    identity, key = str(uuid.uuid4()), identity_key(catalog)
    document = {"penstock": "archive", "version": 1, "id": identity, "epoch": lease.epoch}
    data = json.dumps(document).encode()
    before = await marked(catalog)
    _check_not_later(before, catalog, lease)
    try:
        if before is None:
            version = await catalog.objects.create(key, data)
        else:
            version = await catalog.objects.replace(key, data, before.version)
    except ObjectConflict as error:
        raise ArchiveConflict(f"{key} was just changed by another server") from error
    return Mark(identity, lease.epoch, version)


def _check_not_later(mark: Mark | None, catalog: Catalog, lease: Lease) -> None:
    if mark is not None and mark.epoch > lease.epoch:
        text = f"{catalog.path}: the archive is of epoch {mark.epoch}"
        raise Fenced(f"{text}, and epoch {lease.epoch} of {lease.owner} is over")
