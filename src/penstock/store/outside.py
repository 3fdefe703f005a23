"""How far somebody has come who reads the segments' files without asking the store.

The pipeline reads sealed segments where they lie, and makes tables of them. What it has made
durable it writes down here, server or no server. Whoever has the stores open looks here, and
acknowledges in the name of the subscriber; everything else is kept for it.

    DATA/pipeline/delivered.json
        {"subscriber": "lake", "source": "b26c5b50-…",
         "through": {"/default/traces/0": {"segment_seq": 41, "end_offset": 3400,
                                           "sealed_at_ns": 1735689600000000000}}}

What it says holds for the directory with that identity alone, and a segment is let go of only if
its number, its offsets and the time of its sealing are covered: a directory that was restored
beneath a newer file has other messages under the same numbers. Version 1 said numbers alone, and
no identity.
"""

from __future__ import annotations

import contextlib
import os
import threading
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.model.errors import Damaged, ForeignPosition, UnsupportedVersion
from penstock.storage import DataDirectory
from penstock.storage.documents import decode_document, encode_document
from penstock.storage.files import OUT_OF_SPACE, LocalFiles, read_whole, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from penstock.store.store import Store

LAKE: Final = "lake"
"""The subscriber that takes segments to the lake. A server knows it from a store's opening on."""
OWN_NAMES: Final = frozenset({LAKE, "archive"})
"""Nobody may answer in these names from the network: what they let go of is deleted. The one list
of them; who takes data from every store is named here first."""
FILE: Final = "pipeline/delivered.json"
"""In a data directory."""
EARLIER_FILE: Final = "pipeline/delivered-before.json"
"""What was delivered under an earlier identity, or was not true any more: nothing is acknowledged
by it, but a lake that was given something is not one that was never there."""
RESERVE: Final = "pipeline/reserve"
"""Zeros, given up when the disk is full."""
_RESERVE_BYTES: Final = 256 * 1024
_KIND: Final = "delivered"
_VERSION: Final = 2
_FIRST_VERSION: Final = 1


def is_own_name(name: str) -> bool:
    """Whether it is one of them, or would be taken for one: case and width make no difference."""
    return unicodedata.normalize("NFKC", name).strip().casefold() in OWN_NAMES


class Taken(NamedTuple):
    """The last segment that a subscriber has of a partition."""

    segment_seq: int
    end_offset: int | None
    """How far by offset; None in version 1, which did not say."""
    sealed_at_ns: int = 0
    """Of the last that was sealed of all that it has."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """What a subscriber has."""

    subscriber: str
    through: Mapping[str, Taken]
    """By partition (`/namespace/topic/number`)."""
    source: str | None
    """The identity of the data directory; None in version 1."""


def write_delivered(data_dir: Path, delivered: Delivered) -> None:
    """Durable when it returns. Only what the subscriber will never need again may be named.

    On a full disk it takes the reserve: what is written here is what makes room.
    """
    try:
        _write(data_dir / FILE, delivered)
    except OSError as error:
        if error.errno not in OUT_OF_SPACE:
            raise
        (data_dir / RESERVE).unlink(missing_ok=True)
        _write(data_dir / FILE, delivered)
    keep_reserve(data_dir)


def keep_reserve(data_dir: Path) -> None:
    """Makes the reserve, where there is room and none yet."""
    path, files = data_dir / RESERVE, LocalFiles()
    if path.exists():
        return
    with contextlib.suppress(OSError):  # then there is none, until there is room
        files.make_folder(path.parent)
        write_atomically(files, path, bytes(_RESERVE_BYTES))


def _write(path: Path, delivered: Delivered) -> None:
    files = LocalFiles()
    files.make_folder(path.parent)
    through = {key: taken._asdict() for key, taken in delivered.through.items()}
    fields = {"subscriber": delivered.subscriber, "source": delivered.source, "through": through}
    write_atomically(files, path, encode_document(_KIND, _VERSION, fields))


def read_delivered(data_dir: Path) -> Delivered | None:
    """None: nobody reads outside. Damaged: the file says nothing reliable."""
    return _read(data_dir / FILE)


def read_given(data_dir: Path) -> frozenset[str]:
    """The partitions of which a lake was ever given anything; Damaged: nobody knows."""
    found = (read_delivered(data_dir), _read(data_dir / EARLIER_FILE))
    return frozenset(name for each in found if each is not None for name in each.through)


def put_behind(data_dir: Path) -> None:
    """Nothing is acknowledged any more by what was delivered; that it was remains known."""
    path, earlier = data_dir / FILE, data_dir / EARLIER_FILE
    try:
        last = _read(path)
    except Damaged:
        path.replace(earlier)  # which partitions is lost, and the damage says so to whoever asks
        return
    if last is None:
        return
    try:
        before = _read(earlier)
    except Damaged:
        path.unlink(missing_ok=True)  # what is damaged goes on saying that nobody knows
        return
    names = {*last.through, *(() if before is None else before.through)}
    nothing = dict.fromkeys(sorted(names), Taken(0, 0, 0))
    # First it is known there, then no longer here: in between nobody can take it for new.
    _write(earlier, Delivered(last.subscriber, nothing, last.source or ""))
    path.unlink(missing_ok=True)


def _read(path: Path) -> Delivered | None:
    try:
        data = read_whole(LocalFiles(), path)
    except FileNotFoundError:
        return None
    try:
        fields = decode_document(_KIND, _VERSION, data)
    except UnsupportedVersion:
        fields = {**decode_document(_KIND, _FIRST_VERSION, data), "source": None}
    name, through, source = (fields.get(each) for each in ("subscriber", "through", "source"))
    if not isinstance(name, str) or not isinstance(through, dict):
        raise Damaged(f"{FILE} names no subscriber")
    if not isinstance(source, str | None):
        raise Damaged(f"{FILE} names no source")
    return Delivered(name, {key: _taken(each, source) for key, each in through.items()}, source)


def _taken(fields: Any, source: str | None) -> Taken:
    if source is None:
        fields = {"segment_seq": fields, "end_offset": 0, "sealed_at_ns": 0}
    try:
        taken = Taken(*(fields[name] for name in Taken._fields))
    except (KeyError, TypeError):
        raise Damaged(f"{FILE} names no segments") from None
    if not all(type(number) is int for number in taken):
        raise Damaged(f"{FILE} names no segments")
    return taken if source is not None else taken._replace(end_offset=None)


class DeliveredFile:
    """The file, read again when it has changed."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._seen: tuple[int, int] | None = None
        self._last: Delivered | None = None
        self._lock = threading.Lock()

    def read(self) -> Delivered | None:
        """`read_delivered`, mostly without reading."""
        try:
            found = os.stat(self._data_dir / FILE)  # noqa: PTH116 - every second
        except FileNotFoundError:
            return None
        seen = (found.st_mtime_ns, found.st_ino)
        with self._lock:
            if seen != self._seen:
                self._last, self._seen = None, seen
                self._last = read_delivered(self._data_dir)
            return self._last

    def tell(self, stores: Iterable[Store]) -> None:
        """Acknowledges in every store what it says.

        ForeignPosition: it is of another directory, or of another time of this one. Then nothing is
        acknowledged, and the file is removed, or it would seem true as soon as the log has grown.
        The pipeline writes it again, if the lake agrees.
        """
        delivered = self.read()
        if delivered is None:
            return
        try:
            check_delivered(delivered, DataDirectory(self._data_dir).identity(), stores)
        except ForeignPosition:
            self._last = None
            put_behind(self._data_dir)
            raise
        for store in stores:
            acknowledge(store, delivered)


def check_delivered(delivered: Delivered, identity: str, stores: Iterable[Store]) -> None:
    """ForeignPosition unless it can be true of the directory of that identity."""
    if delivered.source not in (None, identity):
        raise ForeignPosition(f"{FILE} is of the data directory {delivered.source}, not {identity}")
    for store in stores:
        taken, end = delivered.through.get(store.name), store.log.end_offset
        if taken is not None and (taken.end_offset or 0) > end:
            text = f"{FILE} says that {delivered.subscriber} has {store.name}"
            raise ForeignPosition(f"{text} up to {taken.end_offset}, and its log ends at {end}")


def acknowledge(store: Store, delivered: Delivered) -> int:
    """Tells the store, as if the subscriber had; says how many bundles that settled.

    One that the store does not know is not made known: it would be too late to keep anything for.
    What version 1 says is not enough to delete anything: its pipeline, started again, says more.
    """
    name, taken = delivered.subscriber, delivered.through.get(store.name)
    if taken is None or taken.end_offset is None or not store.is_registered(name):
        return 0
    # What is acknowledged may be deleted at once: only segments that the subscriber has whole, by
    # their number, by their offsets, and by when they were sealed.
    return store.acknowledge_through(name, *taken)
