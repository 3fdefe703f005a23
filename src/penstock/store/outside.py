"""How far somebody has come who reads the segments' files without asking the store.

The pipeline reads sealed segments where they lie, and makes tables of them. What it has made
durable it writes down here, server or no server. Whoever has the stores open looks here, and
acknowledges in the name of the subscriber; everything else is kept for it.

    DATA/pipeline/delivered.json    {"subscriber": "lake", "through": {"/default/traces/0": 41}}
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.model.errors import Damaged
from penstock.storage.documents import decode_document, encode_document
from penstock.storage.files import LocalFiles, read_whole, write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.store.store import Store

LAKE: Final = "lake"
"""The subscriber that takes segments to the lake. A server knows it from a store's opening on."""
OWN_NAMES: Final = frozenset({LAKE, "archive"})
"""Nobody may answer in these names from the network: what they let go of is deleted."""
FILE: Final = "pipeline/delivered.json"
"""In a data directory."""
_KIND: Final = "delivered"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Delivered:
    """What a subscriber has."""

    subscriber: str
    through: Mapping[str, int]
    """The last segment that it has of each partition (`/namespace/topic/number`)."""


def write_delivered(data_dir: Path, delivered: Delivered) -> None:
    """Durable when it returns. Only what the subscriber will never need again may be named."""
    files, path = LocalFiles(), data_dir / FILE
    files.make_folder(path.parent)
    fields = {"subscriber": delivered.subscriber, "through": dict(delivered.through)}
    write_atomically(files, path, encode_document(_KIND, _VERSION, fields))


def read_delivered(data_dir: Path) -> Delivered | None:
    """None: nobody reads outside. Damaged: the file says nothing reliable."""
    try:
        fields = decode_document(_KIND, _VERSION, read_whole(LocalFiles(), data_dir / FILE))
    except FileNotFoundError:
        return None
    name, through = fields.get("subscriber"), fields.get("through")
    if not isinstance(name, str) or not isinstance(through, dict):
        raise Damaged(f"{FILE} names no subscriber")
    if not all(type(seq) is int for seq in through.values()):
        raise Damaged(f"{FILE} names no segments")
    return Delivered(name, through)


class DeliveredFile:
    """The file, read again when it has changed."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._seen: tuple[int, int] | None = None
        self._last: Delivered | None = None

    def read(self) -> Delivered | None:
        """`read_delivered`, mostly without reading."""
        try:
            found = os.stat(self._data_dir / FILE)  # noqa: PTH116 - every second
        except FileNotFoundError:
            return None
        seen = (found.st_mtime_ns, found.st_ino)
        if seen != self._seen:
            self._last = read_delivered(self._data_dir)
            self._seen = seen
        return self._last


def acknowledge(store: Store, delivered: Delivered) -> int:
    """Tells the store, as if the subscriber had; says how many bundles that settled.

    One that the store does not know is not made known: it would be too late to keep anything for.
    """
    name, through = delivered.subscriber, delivered.through.get(store.name)
    if through is None or not store.is_registered(name):
        return 0
    return store.acknowledge_through(name, through)
