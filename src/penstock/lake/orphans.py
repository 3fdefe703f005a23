"""Files that nothing refers to: of batches that were never committed, of forgotten snapshots.

A file goes when nothing that was the table's newest state within the last `grace_s` refers to it,
when it is older than that itself, and when no batch that is still to be committed may have written
it. So a reader has `grace_s` from the moment that it has loaded the table, however many snapshots
were made and forgotten meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pyiceberg.manifest import read_manifest_list

from penstock.lake.deletes import plain_path
from penstock.lake.layout import data_folder, key_of, may_be_in_flight, metadata_folder
from penstock.lake.listing import stored_files
from penstock.lake.positions import read_epochs, read_positions
from penstock.lake.settings import ORPHAN_GRACE_S
from penstock.model.clock import SystemClock
from penstock.model.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table

    from penstock.lake.listing import StoredFile
    from penstock.model.clock import Clock

_OURS: Final = (".parquet", ".avro", ".metadata.json", ".puffin", ".tmp")
"""Files of other kinds are left alone."""


@dataclass(frozen=True, slots=True)
class Removed:
    """What was deleted."""

    files: int = 0
    bytes: int = 0


def remove_orphans(
    table: Table, grace_s: float = ORPHAN_GRACE_S, clock: Clock | None = None
) -> Removed:
    """Deletes what nothing refers to; doing it again finds nothing.

    Safe beside flush, compaction, expiry and readers. Damaged, and nothing is deleted, where a
    file of the table is missing: then the table and the disk do not speak of the same files.
    """
    # Listed before the table is loaded: what is committed in between is then referred to.
    found = _stored(table)
    table.refresh()
    oldest_s = (clock or SystemClock()).wall_ns() / 1e9 - grace_s
    live = _Live(table.io)
    live.add_table(table)
    _check_present(table.io, live.paths, found)
    live.add_forgotten(_recent_lists(found, oldest_s))
    orphans = [file for file in _old(found, oldest_s) if _is_orphan(table, file, live.paths)]
    return _delete(table.io, orphans)


class _Live:
    """Every file that a state of the table refers to."""

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._seen: set[str] = set()
        self.paths: set[str] = set()
        """As a listing has them: other engines name local files by `file:` too."""

    def add_table(self, table: Table) -> None:
        """All snapshots that the table remembers."""
        metadata = table.metadata
        named = [table.metadata_location]
        named += [entry.metadata_file for entry in metadata.metadata_log]
        named += [file.statistics_path for file in metadata.statistics]
        named += [file.statistics_path for file in metadata.partition_statistics]
        self.paths.update(map(plain_path, named))
        for snapshot in metadata.snapshots:
            self.add_list(snapshot.manifest_list)

    def add_forgotten(self, lists: Iterable[str]) -> None:
        """Snapshots that the table has forgotten, as far as they can still be read."""
        for path in lists:
            try:
                self.add_list(path)
            except (OSError, ValueError):
                continue

    def add_list(self, path: str) -> None:
        """A snapshot, by its list of manifests."""
        if plain_path(path) in self.paths:
            return
        self.paths.add(plain_path(path))
        for manifest in read_manifest_list(self._io.new_input(path)):
            self._add_manifest(manifest)

    def _add_manifest(self, manifest: ManifestFile) -> None:
        if manifest.manifest_path in self._seen:
            return
        self._seen.add(manifest.manifest_path)
        self.paths.add(plain_path(manifest.manifest_path))
        for entry in manifest.fetch_manifest_entry(self._io, discard_deleted=True):
            self.paths.add(plain_path(entry.data_file.file_path))


def _stored(table: Table) -> list[StoredFile]:
    folders = (data_folder(table.location()), metadata_folder(table.location()))
    return [file for folder in folders for file in stored_files(table.io, folder)]


def _check_present(io: FileIO, live: set[str], found: list[StoredFile]) -> None:
    for path in sorted(live - {plain_path(file.path) for file in found}):
        if not io.new_input(path).exists():  # otherwise written since the listing, or elsewhere
            raise Damaged(f"{path} is missing from the table; no file was removed")


def _recent_lists(found: list[StoredFile], oldest_s: float) -> list[str]:
    """Manifest lists that were the newest at some time since then, by when the next one came."""
    lists = [file for file in found if _is_list(file.path.rpartition("/")[2])]
    next_s = dict(pairwise(sorted({file.modified_s for file in lists})))
    return [file.path for file in lists if next_s.get(file.modified_s, oldest_s) >= oldest_s]


def _is_list(name: str) -> bool:
    return name.startswith("snap-") and name.endswith(".avro")


def _old(found: list[StoredFile], oldest_s: float) -> list[StoredFile]:
    """Files older than that; those of one batch or replacement go by the newest of them."""
    groups: dict[str, list[StoredFile]] = defaultdict(list)
    for file in found:
        groups[key_of(file.path) or file.path].append(file)
    return [
        file
        for group in groups.values()
        if max(each.modified_s for each in group) < oldest_s
        for file in group
    ]


def _is_orphan(table: Table, file: StoredFile, live: set[str]) -> bool:
    if plain_path(file.path) in live or not file.path.endswith(_OURS):
        return False
    return not may_be_in_flight(file.path, read_positions(table), read_epochs(table))


def _delete(io: FileIO, orphans: list[StoredFile]) -> Removed:
    files = size = 0
    for file in orphans:
        try:
            io.delete(file.path)
        except FileNotFoundError:
            continue  # somebody else removes them too
        files, size = files + 1, size + file.bytes
    return Removed(files, size)
