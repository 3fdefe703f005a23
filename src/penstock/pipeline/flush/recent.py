"""The spans that a table got last, read back from its files where no window was kept.

As after an update, or on another machine than before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFileContent

from penstock.lake.positions import read_positions
from penstock.pipeline.flush.identity import SPAN_IDENTITY, has_name, identities

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from penstock.pipeline.flush.hashing import Hashes
    from penstock.pipeline.flush.repeat_window import RepeatWindow

READ_ROWS: Final = 2_000_000
"""More would keep a starting pipeline waiting."""


def remember_recent(table: Table, window: RepeatWindow, most: int, now_s: float) -> None:
    """Fills the window with the newest rows of the table, as many as `most` and no more files."""
    left = min(most, READ_ROWS)
    found: list[Hashes] = []
    for file in _newest_first(table):
        if left <= 0:
            break
        found.append(_keys(table, file))
        left -= file.record_count
    run = window.write([*reversed(found)], read_positions(table), now_s)
    if run is not None:  # its rows are in the table
        window.keep(run)


def _keys(table: Table, file: DataFile) -> Hashes:
    """Of the rows with names: others are not known again after a restart."""
    with table.io.new_input(file.file_path).open() as opened:
        rows = pq.read_table(opened, columns=list(SPAN_IDENTITY))
    return identities("spans", rows.filter(pa.array(has_name("spans", rows))))


def _newest_first(table: Table) -> Iterator[DataFile]:
    """By the order of commits, manifest by manifest."""
    snapshot = table.current_snapshot()
    manifests = [] if snapshot is None else snapshot.manifests(table.io)
    for manifest in sorted(manifests, key=lambda each: -each.sequence_number):
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        for entry in sorted(entries, key=lambda each: -(each.sequence_number or 0)):
            if entry.data_file.content == DataFileContent.DATA:
                yield entry.data_file
