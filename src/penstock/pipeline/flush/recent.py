"""The spans that a table got last, read back from its files where no window was kept.

As after an update, or on another machine than before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.manifest import ManifestContent

from penstock.lake.files import delete_index_of, live_file
from penstock.lake.identity import SPAN_IDENTITY, has_name, identities
from penstock.lake.positions import read_positions
from penstock.lake.reader import opened
from penstock.lake.target import Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.table import Table

    from penstock.lake.files import LiveFile
    from penstock.lake.hashing import Hashes
    from penstock.pipeline.flush.repeat_window import RepeatWindow

READ_ROWS: Final = 2_000_000
"""More would keep a starting pipeline waiting."""


def remember_recent(table: Table, window: RepeatWindow, most: int, now_s: float) -> None:
    """Fills the window with the newest rows of the table, as many as `most` and no more files."""
    left = min(most, READ_ROWS)
    found: list[Hashes] = []
    target = Target.of(table)
    for file in _newest_first(table):
        if left <= 0:
            break
        found.append(_keys(target, file))
        left -= file.rows
    run = window.write([*reversed(found)], read_positions(table), now_s)
    if run is not None:  # its rows are in the table
        window.keep(run)


def _keys(target: Target, file: LiveFile) -> Hashes:
    """Of the live rows with names: others are not known again after a restart."""
    with opened(target, file.path, file.deletes) as data:
        rows = data.rows(target.fields(SPAN_IDENTITY))
    return identities("spans", rows.filter(pa.array(has_name("spans", rows))))


def _newest_first(table: Table) -> Iterator[LiveFile]:
    """By the order of commits, manifest by manifest."""
    snapshot, deletes = table.current_snapshot(), delete_index_of(table)
    manifests = [] if snapshot is None else snapshot.manifests(table.io)
    data = [each for each in manifests if each.content is ManifestContent.DATA]
    for manifest in sorted(data, key=lambda each: -each.sequence_number):
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        for entry in sorted(entries, key=lambda each: -(each.sequence_number or 0)):
            file = live_file(table, entry, deletes)
            if file is not None:
                yield file
