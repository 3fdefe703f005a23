"""What a table of another catalog than SQLite has right now, asked for through pyiceberg."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import ManifestContent

from penstock.lake.catalog import open_catalog
from penstock.lake.deletes import check_readable
from penstock.lake.files import columns_of_table, delete_index_of, described, parts_of
from penstock.lake.glance import (
    NOTHING,
    ColdFile,
    Glance,
    field_numbers,
    local_path,
    only_text,
    times_between,
)
from penstock.lake.positions import decode_epochs, decode_positions
from penstock.lake.promoted import of_properties
from penstock.model.errors import Damaged, NotHonoured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.manifest import ManifestEntry
    from pyiceberg.table import Table

    from penstock.lake.columns import Columns
    from penstock.lake.settings import LakeSettings

_EPOCH: Final = date(1970, 1, 1)


def glance_through_catalog(settings: LakeSettings, table: str) -> Glance:
    """As `glance`. Damaged: the catalog does not answer, or has what cannot be read."""
    try:
        with contextlib.closing(open_catalog(settings)) as catalog:
            loaded = catalog.load_table((settings.namespace, table))
        known, columns = loaded.properties, columns_of_table(loaded)
        positions, claims = decode_positions(known), frozenset(decode_epochs(known))
        promoted, identity = of_properties(known), str(loaded.metadata.table_uuid)
        files = tuple(_files(loaded, columns))
        return Glance(files, positions, promoted, claims, columns, identity)
    except NoSuchTableError:
        return NOTHING
    except NotHonoured:
        raise
    except Exception as error:  # every catalog has its own
        reason = " ".join(str(error).split())[:200]
        raise Damaged(f"the table {table} cannot be read: {reason}") from error


def _files(table: Table, columns: Columns) -> Iterator[ColdFile]:
    snapshot = table.current_snapshot()
    numbers = field_numbers(columns)
    how = None if columns.is_plain else columns
    deletes = delete_index_of(table)
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        if manifest.content is not ManifestContent.DATA:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            file = _file(entry, *numbers)
            place = (manifest.partition_spec_id, parts_of(entry.data_file))
            found = deletes.of(file.path, file.sequence, *place) if deletes else None
            yield replace(file, deletes=found, columns=how)


def _file(entry: ManifestEntry, time: int, namespace: int) -> ColdFile:
    file = entry.data_file
    check_readable(described(file), file.file_path)
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    nulls = (file.null_value_counts or {}).get(namespace)
    day = file.partition[0] if len(file.partition) else None
    return ColdFile(
        str(local_path(file.file_path)),
        file.record_count,
        file.file_size_in_bytes,
        _EPOCH + timedelta(days=day) if isinstance(day, int) else None,
        times_between(lower.get(time), upper.get(time)),
        only_text(lower.get(namespace), upper.get(namespace), nulls),
        entry.sequence_number or 0,
    )
