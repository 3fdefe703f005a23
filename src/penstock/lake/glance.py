"""What a table has right now, read in milliseconds: its files and its positions.

Whatever catalog has the table: `metadata` says how they are come by.
"""

from __future__ import annotations

import contextlib
import os
import struct
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeVar

from cachetools import LRUCache, cached

from penstock.lake.columns import columns_document, columns_of, number_of, recorded
from penstock.lake.deletes import check_readable
from penstock.lake.layout import data_folder
from penstock.lake.manifests import (
    DELETED,
    DELETES,
    delete_index,
    global_specs,
    partition_of,
    sequence_of,
)
from penstock.lake.metadata import CATALOG, find_table, local_path
from penstock.lake.noted import Noted
from penstock.lake.positions import decode_epochs, decode_positions
from penstock.lake.promoted import of_properties, with_columns
from penstock.lake.schemas import TABLES
from penstock.model.errors import Damaged, PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from penstock.lake.columns import Columns
    from penstock.lake.deletes import DeleteIndex, Deletions
    from penstock.lake.metadata import TableMetadata
    from penstock.lake.promoted import Promoted
    from penstock.lake.settings import LakeSettings
    from penstock.model.positions import Positions

MANIFESTS_KEPT: Final = 256
INDEXES_KEPT: Final = 16
Found = TypeVar("Found")
_LOOKS: Final = 5
_CUT_BYTES: Final = 16
"""Bounds of texts are cut there."""
_MICROSECONDS: Final = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class ColdFile:
    """A data file of a table."""

    path: str
    rows: int
    bytes: int
    day: date | None
    times_us: tuple[int, int] | None
    """The first and the last `time` in it; None where that is not known."""
    namespace: str | None = None
    """Of all its rows; None where they may have several."""
    sequence: int = 0
    """Of the commit that brought it: later ones have higher numbers."""
    deletes: Deletions | None = None
    """What was deleted of it; None: nothing."""
    columns: Columns | None = field(default=None, compare=False, repr=False)
    """How its columns are found. None: by their names, all of them."""


@dataclass(frozen=True, slots=True)
class Glance:
    """A table at one moment."""

    files: tuple[ColdFile, ...]
    positions: Positions
    """What of the topics is in it."""
    promoted: tuple[Promoted, ...] = ()
    """Attributes with columns of their own."""
    claims: frozenset[str] = frozenset()
    """The sources that have a writer."""
    columns: Columns | None = None
    """Those of the table; None where there is no table."""
    identity: str = ""
    """Of the table: one that is made anew in the same place is another. Empty: there is none."""

    @property
    def is_there(self) -> bool:
        """Whether the table exists."""
        return bool(self.identity)


NOTHING: Final = Glance((), {})


def glance(settings: LakeSettings, table: str) -> Glance:
    """The table as the last commit left it; nothing where it never existed.

    Damaged: its metadata cannot be read, or its files are there and the catalog does not have it.
    Nothing is made or changed.
    """
    return _look(settings, table, _glance)


def glance_at_positions(settings: LakeSettings, table: str) -> Positions:
    """The positions alone, at a fraction of the cost; none where they are not to be had so."""
    return {} if settings.catalog else _look(settings, table, _positions)


def _look(settings: LakeSettings, table: str, read: Callable[[LakeSettings, str], Found]) -> Found:
    for _ in range(_LOOKS - 1):
        with contextlib.suppress(FileNotFoundError):  # tidied up since the catalog was read
            return read(settings, table)
    try:
        return read(settings, table)
    except FileNotFoundError as error:
        raise Damaged(f"the metadata of the table {table} cannot be read: {error}") from error


def _positions(settings: LakeSettings, table: str) -> Positions:
    with _readable(settings, table):
        metadata = _find(settings, table)
        return {} if metadata is None else decode_positions(metadata.properties)


def _glance(settings: LakeSettings, table: str) -> Glance:
    with _readable(settings, table):
        metadata = _find(settings, table)
        if metadata is None:
            return NOTHING
        properties, document = metadata.properties, metadata.document
        promoted = of_properties(properties)
        columns = table_columns(
            table, promoted, properties, document["schemas"], document["current-schema-id"]
        )
        moved = _moved(settings, table, document)
        noted = Noted(settings, table, metadata.identity, field_numbers(columns))
        files = (_moved_file(file, moved) for file in _files(metadata, columns, noted))
        positions, claims = decode_positions(properties), frozenset(decode_epochs(properties))
        return Glance(tuple(files), positions, promoted, claims, columns, metadata.identity)


@contextlib.contextmanager
def _readable(settings: LakeSettings, table: str) -> Iterator[None]:
    """Damaged where it is not; errors that say so already, and files that are gone, pass."""
    try:
        yield
    except (FileNotFoundError, PenstockError):
        raise
    except Exception as error:
        known = (OSError, ValueError, KeyError, StopIteration, EOFError, TypeError)
        if not settings.catalog and not isinstance(error, known):
            raise
        reason = " ".join(str(error).split())[:200]  # every catalog has its own errors
        raise Damaged(f"the metadata of the table {table} cannot be read: {reason}") from error


def table_columns(
    table: str,
    promoted: Iterable[Promoted],
    properties: Mapping[str, str],
    schemas: list[dict[str, Any]],
    current_id: int,
) -> Columns:
    """The columns of a table, of its metadata."""
    ours = with_columns(TABLES[table], promoted).names if table in TABLES else ()
    names = dict.fromkeys([*ours, *recorded(properties)])
    return columns_of(columns_document(names, properties, schemas, current_id))


def _moved(settings: LakeSettings, table: str, document: Mapping[str, Any]) -> tuple[str, str]:
    """The folder that the table had when it was made, and the one that it has now."""
    place = str(local_path(document.get("location", "")))
    if settings.catalog:  # which knows where its tables are
        return place, place
    return place, str(Path(settings.warehouse) / table)


def _moved_path(path: str, moved: tuple[str, str]) -> str:
    place, here = moved
    return here + path[len(place) :] if place != here and path.startswith(f"{place}/") else path


def _moved_file(file: ColdFile, moved: tuple[str, str]) -> ColdFile:
    """By the paths that the warehouse has now: it may have had another name."""
    if moved[0] == moved[1]:
        return file
    deletes = file.deletes
    if deletes is not None:
        files = (replace(each, path=_moved_path(each.path, moved)) for each in deletes.files)
        deletes = replace(deletes, files=tuple(files))
    return replace(file, path=_moved_path(file.path, moved), deletes=deletes)


def forget() -> None:
    """Reads every manifest again: for a lake whose files are changed by hand."""
    _files_of.cache_clear()


def _find(settings: LakeSettings, table: str) -> TableMetadata | None:
    found = find_table(settings, table)
    if found is None and not settings.catalog:
        _check_never_there(settings, table)
    return found


def _check_never_there(settings: LakeSettings, table: str) -> None:
    """Damaged where the table has data files: they are written when it exists, not before."""
    folder = Path(data_folder(str(Path(settings.warehouse) / table)))
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        if any(True for _ in entries):
            path = Path(settings.warehouse) / CATALOG
            problem = f"{path} has no table {table}" if path.exists() else f"{path} is gone"
            raise Damaged(f"{problem}, though {folder} has files of it")


def _files(metadata: TableMetadata, columns: Columns, noted: Noted) -> Iterator[ColdFile]:
    snapshot = metadata.current_snapshot()
    if snapshot is None:
        return
    numbers = field_numbers(columns)
    how = None if columns.is_plain else columns
    manifests = list(metadata.records(snapshot["manifest-list"]))
    deletes = _deletes(metadata, manifests)
    noted.expect(sum(map(_count, manifests)))
    for manifest in manifests:
        if manifest.get("content", 0) != DELETES:
            sequence, spec_id = manifest.get("sequence_number", 0), manifest["partition_spec_id"]
            listed = _listed(metadata, manifest["manifest_path"], sequence, numbers, noted)
            if deletes is None and how is None:
                yield from (file for file, _ in listed)
            else:
                yield from (_with(file, part, spec_id, deletes, how) for file, part in listed)
    noted.end()


def _count(manifest: Mapping[str, Any]) -> int:
    """Files of a manifest; a table of format 1 may not say."""
    names = ("added_files_count", "existing_files_count")
    return sum(manifest.get(name) or 0 for name in names)


def _listed(
    metadata: TableMetadata, manifest: str, sequence: int, numbers: tuple[int, int], noted: Noted
) -> Iterable[tuple[ColdFile, tuple[Any, ...]]]:
    if not noted.is_on:
        return _files_of(metadata, manifest, sequence, numbers)

    def read() -> list[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        listed = _files_of(metadata, manifest, sequence, numbers)
        return [(_fields(file), part) for file, part in listed]

    return [(ColdFile(*fields), part) for fields, part in noted.files(manifest, read)]


def _fields(file: ColdFile) -> tuple[Any, ...]:
    """What a manifest says of it."""
    known = (file.path, file.rows, file.bytes, file.day, file.times_us, file.namespace)
    return (*known, file.sequence)


def _with(
    file: ColdFile,
    partition: tuple[Any, ...],
    spec_id: int,
    deletes: DeleteIndex | None,
    columns: Columns | None,
) -> ColdFile:
    found = deletes.of(file.path, file.sequence, spec_id, partition) if deletes else None
    return replace(file, deletes=found, columns=columns)


def _deletes(metadata: TableMetadata, manifests: list[dict[str, Any]]) -> DeleteIndex | None:
    named = tuple(
        (each["manifest_path"], each["sequence_number"], each["partition_spec_id"])
        for each in manifests
        if each.get("content", 0) == DELETES
    )
    whole = global_specs(metadata.document["partition-specs"])
    return _index_of(metadata, named, whole) if named else None


# Manifests never change, so those that were read are remembered, by whichever way they were opened.


@cached(LRUCache(INDEXES_KEPT), key=lambda _, *manifests: manifests, lock=Lock())
def _index_of(
    metadata: TableMetadata, manifests: tuple[tuple[str, int, int], ...], whole: frozenset[int]
) -> DeleteIndex | None:
    return delete_index(metadata.opener, manifests, whole)


@cached(LRUCache(MANIFESTS_KEPT), key=lambda _, *manifest: manifest, lock=Lock())
def _files_of(
    metadata: TableMetadata, manifest: str, sequence: int, numbers: tuple[int, int]
) -> tuple[tuple[ColdFile, tuple[Any, ...]], ...]:
    """With their partitions."""
    return tuple(
        (
            _file(entry["data_file"], sequence_of(entry, sequence), *numbers),
            partition_of(entry["data_file"]),
        )
        for entry in metadata.records(manifest)
        if entry["status"] != DELETED
    )


def _file(fields: Mapping[str, Any], sequence: int, time: int, namespace: int) -> ColdFile:
    path = str(local_path(fields["file_path"]))
    check_readable(fields, path)
    lower, upper = (fields.get(name) for name in ("lower_bounds", "upper_bounds"))
    nulls = _bound(fields.get("null_value_counts"), namespace)
    day = next(iter(fields["partition"].values()), None)
    return ColdFile(
        path,
        fields["record_count"],
        fields["file_size_in_bytes"],
        day if type(day) is date else None,
        times_between(_bound(lower, time), _bound(upper, time)),
        only_text(_bound(lower, namespace), _bound(upper, namespace), nulls),
        sequence,
    )


def times_between(first: bytes | None, last: bytes | None) -> tuple[int, int] | None:
    """Microseconds, from the bounds of a manifest; None where it has none."""
    if first is None or last is None:
        return None
    return _MICROSECONDS.unpack(first)[0], _MICROSECONDS.unpack(last)[0]


def only_text(lowest: bytes | None, highest: bytes | None, nulls: int | None) -> str | None:
    """The value that a column has in every row; None where that is not certain."""
    if lowest is None or lowest != highest or nulls != 0 or len(lowest) >= _CUT_BYTES:
        return None
    return lowest.decode()


def _bound(values: list[dict[str, Any]] | None, number: int) -> Any:
    return next((each["value"] for each in values or () if each["key"] == number), None)


def field_numbers(columns: Columns) -> tuple[int, int]:
    """Those of `time` and `namespace`; -1 where the table has no such column."""
    found = {each.name: number_of(each) for each in columns.schema}
    return found.get("time") or -1, found.get("namespace") or -1
