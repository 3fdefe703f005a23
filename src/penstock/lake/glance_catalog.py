"""What a table of another catalog than SQLite has right now, asked for through pyiceberg."""

from __future__ import annotations

import contextlib
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

from pyiceberg.exceptions import NoSuchTableError

from penstock.lake.catalog import open_catalog
from penstock.lake.glance import (
    NOTHING,
    ColdFile,
    Glance,
    local_path,
    only_text,
    times_between,
)
from penstock.lake.positions import decode_epochs, decode_positions
from penstock.lake.promoted import of_properties
from penstock.model.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.manifest import ManifestEntry
    from pyiceberg.table import Table

    from penstock.lake.settings import LakeSettings

_EPOCH: Final = date(1970, 1, 1)


def glance_through_catalog(settings: LakeSettings, table: str) -> Glance:
    """As `glance`. Damaged: the catalog does not answer, or has what cannot be read."""
    try:
        with contextlib.closing(open_catalog(settings)) as catalog:
            loaded = catalog.load_table((settings.namespace, table))
        known = loaded.properties
        positions, claims = decode_positions(known), frozenset(decode_epochs(known))
        promoted, identity = of_properties(known), str(loaded.metadata.table_uuid)
        return Glance(tuple(_files(loaded)), positions, promoted, claims, identity)
    except NoSuchTableError:
        return NOTHING
    except Exception as error:  # every catalog has its own
        reason = " ".join(str(error).split())[:200]
        raise Damaged(f"the table {table} cannot be read: {reason}") from error


def _files(table: Table) -> Iterator[ColdFile]:
    snapshot = table.current_snapshot()
    schema = table.schema()
    numbers = schema.find_field("time").field_id, schema.find_field("namespace").field_id
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            yield _file(entry, *numbers)


def _file(entry: ManifestEntry, time: int, namespace: int) -> ColdFile:
    file = entry.data_file
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    nulls = (file.null_value_counts or {}).get(namespace)
    day = file.partition[0] if len(file.partition) else None
    return ColdFile(
        str(local_path(file.file_path)),
        file.record_count,
        file.file_size_in_bytes,
        None if day is None else _EPOCH + timedelta(days=day),
        times_between(lower.get(time), upper.get(time)),
        only_text(lower.get(namespace), upper.get(namespace), nulls),
        entry.sequence_number or 0,
    )
