"""Rows that other engines have deleted: which rows of a data file do not count any more.

Iceberg keeps deletes in files of their own: positions in data files, values that rows are equal to,
or, from format 3 on, vectors of positions in Puffin files. Whatever its kind, a delete comes to
numbers of rows of a data file; every reader leaves those out.

Which deletes apply to a data file is decided by the specification's rules (scan planning):

    deletion vector    of that file, not older than it; then no position deletes count beside it
    position deletes   of that partition and, where it says so, of that file; not older than it
    equality deletes   of that partition, or of no partition at all; younger than the file
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import numpy as np

from penstock.model.errors import Damaged, NotHonoured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    RowNumbers = NDArray[np.int64]
    """Rising numbers of rows in a file, which begin with 0."""
    Opener = Callable[[str], Any]
    """Opens a file of the table for reading, by its path."""

PATH_ID: Final = 2147483546
POSITION_ID: Final = 2147483545
"""The numbers that Iceberg reserves for the columns of position deletes."""
_VECTOR_MAGIC: Final = b"\xd1\xd3\x39\x64"
_LENGTH: Final = struct.Struct(">I")


class Content(enum.IntEnum):
    """What is in a file that a manifest names."""

    DATA = 0
    POSITIONS = 1
    EQUALITY = 2


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A delete file of a table, or one vector of a Puffin file."""

    path: str
    content: Content
    rows: int
    bytes: int
    sequence: int
    spec_id: int
    partition: tuple[Any, ...]
    is_global: bool = False
    """Written for no partition: then equality deletes are for the whole table."""
    equality_ids: tuple[int, ...] = ()
    referenced: str | None = None
    """The only data file that it has deletes of; None where it may have those of several."""
    vector: tuple[int, int] | None = None
    """Where in a Puffin file a vector begins, and its bytes; None of other files."""


@dataclass(frozen=True, slots=True)
class Deletions:
    """The deletes that apply to one data file."""

    of: str
    """The data file as delete files name it."""
    files: tuple[DeleteFile, ...]


class DeleteIndex:
    """The delete files of a snapshot, by what they can apply to."""

    def __init__(self, files: Iterable[DeleteFile]) -> None:
        self._vectors: dict[str, list[DeleteFile]] = defaultdict(list)
        self._of_file: dict[str, list[DeleteFile]] = defaultdict(list)
        self._of_partition: dict[tuple[Any, ...], list[DeleteFile]] = defaultdict(list)
        self._global: list[DeleteFile] = []
        for file in files:
            self._add(file)

    def _add(self, file: DeleteFile) -> None:
        if file.vector is not None:
            self._vectors[file.referenced or ""].append(file)
        elif file.content is Content.EQUALITY and file.is_global:
            self._global.append(file)
        elif file.content is Content.POSITIONS and file.referenced is not None:
            self._of_file[file.referenced].append(file)
        else:
            self._of_partition[file.spec_id, file.partition].append(file)

    def of(
        self, path: str, sequence: int, spec_id: int, partition: tuple[Any, ...]
    ) -> Deletions | None:
        """Those that apply to a data file; None where there are none."""
        beside = self._of_partition.get((spec_id, partition), [])
        equal = [
            file
            for file in (*self._global, *beside)
            if file.content is Content.EQUALITY and sequence < file.sequence
        ]
        found = [file for file in self._vectors.get(path, ()) if sequence <= file.sequence]
        if not found:
            here = [*self._of_file.get(path, ()), *beside]
            found = [
                file
                for file in here
                if file.content is Content.POSITIONS and sequence <= file.sequence
            ]
        files = (*found, *equal)
        return Deletions(path, files) if files else None


def delete_file(
    fields: Mapping[str, Any],
    sequence: int,
    spec_id: int,
    partition: tuple[Any, ...],
    *,
    is_global: bool,
) -> DeleteFile:
    """Of a manifest's entry. NotHonoured: it is of a kind that nothing here reads."""
    path = plain_path(fields["file_path"])
    check_readable(fields, path)
    format_ = str(fields["file_format"]).upper()
    content = _content(fields, path)
    offset, size = fields.get("content_offset"), fields.get("content_size_in_bytes")
    vector = None
    if format_ == "PUFFIN":
        if offset is None or size is None:
            raise NotHonoured(f"{path} has deletes in Puffin, and its manifest does not say where")
        vector = (int(offset), int(size))
    return DeleteFile(
        path,
        content,
        fields["record_count"],
        fields["file_size_in_bytes"],
        sequence,
        spec_id,
        partition,
        is_global,
        tuple(sorted(fields.get("equality_ids") or ())),
        _referenced(fields),
        vector,
    )


def check_readable(fields: Mapping[str, Any], path: str) -> None:
    """NotHonoured where the file is encrypted, or not in a format that is read here."""
    if fields.get("key_metadata") is not None:
        raise NotHonoured(f"{path} is encrypted, which Penstock does not read")
    is_data = fields.get("content", 0) == Content.DATA
    format_ = str(fields["file_format"]).upper()
    if format_ != "PARQUET" and (is_data or format_ != "PUFFIN"):
        raise NotHonoured(f"{path} is a file in {format_}; Penstock reads Parquet")


def _content(fields: Mapping[str, Any], path: str) -> Content:
    try:
        return Content(fields["content"])
    except ValueError:
        number = fields["content"]
        raise NotHonoured(f"{path} has content of the unknown kind {number}") from None


def _referenced(fields: Mapping[str, Any]) -> str | None:
    """Also where its bounds say that all its deletes are of one file."""
    named = fields.get("referenced_data_file")
    if named is None and fields["content"] == Content.POSITIONS:
        lower, upper = (_bound(fields.get(f"{side}_bounds")) for side in ("lower", "upper"))
        named = lower.decode() if lower is not None and lower == upper else None
    return None if named is None else plain_path(named)


def _bound(bounds: Any) -> bytes | None:
    found = bounds if isinstance(bounds, dict) else {b["key"]: b["value"] for b in bounds or ()}
    return found.get(PATH_ID)


def plain_path(location: str) -> str:
    """A path as the local file system has it; other locations as they are."""
    parts = urlsplit(location)
    return unquote(parts.path) if parts.scheme == "file" else location


# --- vectors of positions ----------------------------------------------------------------------


def vector_rows(blob: bytes, name: str) -> RowNumbers:
    """The rows of a deletion vector. Damaged: its length, mark or checksum is not right.

    Its bytes are `length, mark, bitmap, CRC-32`, the first and the last in big endian.
    """
    from pyroaring import BitMap64

    length = _LENGTH.unpack_from(blob)[0] if len(blob) >= _LENGTH.size else 0
    body, end = blob[4 : 4 + length], blob[4 + length : 8 + length]
    if length < len(_VECTOR_MAGIC) or len(end) < _LENGTH.size or body[:4] != _VECTOR_MAGIC:
        raise Damaged(f"{name} has no deletion vector where its manifest says so")
    if zlib.crc32(body) != _LENGTH.unpack(end)[0]:
        raise Damaged(f"{name} has a deletion vector whose checksum is wrong")
    return np.array(BitMap64.deserialize(body[4:]), dtype=np.int64)
