"""What `penstock inspect` says of a URL or a folder: objects, queues, archives, metadata stores."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from penstock.archive import DEFAULT_ROOT
from penstock.archive.format import decode_descriptor
from penstock.archive.objects import archive_objects
from penstock.cli.common import size_of
from penstock.cli.object_stores import open_descriptors, open_store
from penstock.model.errors import ObjectMissing, PenstockError
from penstock.queue import Inspector
from penstock.storage.directory import IDENTITY
from penstock.storage.scratch import Scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from penstock.storage.metadata import Entry
    from penstock.storage.objects import ObjectInfo, ObjectStore

_DESCRIPTOR: Final = re.compile(r"(?P<path>.+)/objects/[0-9]{20}")


def explain_url(url: str, explain: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """The object at the URL, by what `explain` says of its bytes; or the place of many objects."""
    if url.startswith("etcd"):
        return {"path": url, **_metadata(url)}
    return asyncio.run(_explain_url(url.rstrip("/"), explain))


async def _explain_url(url: str, explain: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    parent, _, name = url.rpartition("/")
    if not parent.endswith("/"):
        with Scratch("inspect") as folder:
            copy = folder.path / unquote(name)
            if await _copied(parent, copy):
                return _said(url, copy, explain)
    return await _place(url)


async def _copied(parent: str, copy: Path) -> bool:
    """Whether the object is there; it is copied in pieces, so it may be of any size."""
    objects = open_store(parent)
    try:
        with copy.open("wb") as file:
            async for piece in objects.stream(copy.name):
                file.write(piece)
    except ObjectMissing:
        return False
    finally:
        await objects.close()
    return True


def _said(url: str, copy: Path, explain: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    try:
        return {**explain(copy), "path": url}
    except PenstockError as error:
        raise PenstockError(str(error).replace(str(copy), url)) from None


# --- places ------------------------------------------------------------------------------------


def place(folder: Path) -> dict[str, Any]:
    """A folder of objects, or any other one of a data directory."""
    try:
        return asyncio.run(_place(folder.absolute().as_uri()))
    except PenstockError:
        within = [each for each in folder.absolute().parents if (each / IDENTITY).exists()]
        if not within:
            raise
    files = [each for each in folder.rglob("*") if each.is_file()]
    known = {"path": "", "kind": "folder of a data directory", "data_directory": str(within[0])}
    return {**known, "files": len(files), "bytes": size_of(files)}


async def _place(url: str) -> dict[str, Any]:
    """What is below a URL: a queue, an archive, or both."""
    objects = open_store(url)
    try:
        found = {**await _queue(objects), **await _archive(objects)}
    finally:
        await objects.close()
    if not found:
        raise PenstockError(f"{url} holds nothing that Penstock wrote")
    kinds = {"waiting": "queue", "archive": "archive"}
    known = [kind for key, kind in kinds.items() if key in found]
    return {"path": url, "kind": " and ".join(known), **found}


async def _queue(objects: ObjectStore) -> dict[str, Any]:
    try:
        status = await Inspector(objects).status()
    except ObjectMissing:
        return {}
    return asdict(status)


async def _archive(objects: ObjectStore) -> dict[str, Any]:
    stored = await archive_objects(objects, DEFAULT_ROOT)
    rows = [
        {"topic": str(topic), "partition": partition, **_of_objects(infos)}
        for (topic, partition), infos in sorted(stored.items())
    ]
    return {"archive": rows} if rows else {}


def _of_objects(infos: Iterable[ObjectInfo]) -> dict[str, Any]:
    sizes = [info.size for info in infos]
    return {"objects": len(sizes), "bytes": sum(sizes)}


# --- the metadata store ------------------------------------------------------------------------


def metadata_file(path: Path, _: int) -> dict[str, Any]:
    """A metadata store that is a file."""
    return _metadata(path.absolute().as_uri())


def _metadata(url: str) -> dict[str, Any]:
    """The archives that a metadata store describes."""
    entries = asyncio.run(_entries(url))
    descriptors = [(match["path"], entry) for entry in entries if (match := _match(entry))]
    counts = Counter(path for path, _ in descriptors)
    return {
        "kind": "metadata store",
        "keys": len(entries),
        "archives": [_archive_row(path, descriptors) for path in sorted(counts)],
    }


async def _entries(url: str) -> list[Entry]:
    metadata = open_descriptors(url)
    try:
        return await metadata.range("")
    finally:
        await metadata.close()


def _match(entry: Entry) -> re.Match[str] | None:
    return _DESCRIPTOR.fullmatch(entry.key)


def _archive_row(path: str, descriptors: list[tuple[str, Entry]]) -> dict[str, Any]:
    mine = [decode_descriptor(entry.data) for place, entry in descriptors if place == path]
    return {
        "archive": path,
        "descriptors": len(mine),
        "start_offset": mine[0].start_offset,
        "end_offset": mine[-1].end_offset,
        "messages": sum(one.messages for one in mine),
        "bytes": sum(one.size for one in mine),
    }
