"""One snapshot, committed as long as the table stays as the caller expects it.

Everything that changes the contents of a table, its positions or its epoch makes a snapshot, a
claim on the table too. "The newest snapshot is still N", which every Iceberg catalog checks, is
then the compare-and-swap that all of them share.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.update import update_table_metadata
from pyiceberg.table.update.snapshot import ExpireSnapshots

from penstock.lake.properties import WRITTEN_FORMAT, snapshots_kept
from penstock.model.backoff import Backoff
from penstock.model.errors import CommitContended, NotHonoured

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.io import FileIO
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update.snapshot import _SnapshotProducer

_ATTEMPTS: Final = 12
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 2.0


class SnapshotTransaction(Transaction):
    """pyiceberg's, without a deep copy of all metadata at each look.

    It looks about twenty times in a commit; a table with 300 snapshots took 200 ms so.
    """

    _copy: tuple[TableMetadata, tuple[Any, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata with what is staged. Not to be changed."""
        base, updates = self._table.metadata, self._updates
        if self._copy is None or self._copy[0] is not base or self._copy[1] is not updates:
            self._copy = (base, updates, update_table_metadata(base, updates))
        return self._copy[2]

    @property
    def io(self) -> FileIO:
        """Access to the table's files."""
        return self._table.io

    def commit_transaction(self) -> Table:
        """Tries it once: pyiceberg would repeat a conflicting commit, a fenced one too.

        As if the table said so, which it must not: it would say so to every other engine.
        """
        base = self._table.metadata
        properties = {**base.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
        self._table.metadata = base.model_copy(update={"properties": properties})
        try:
            return super().commit_transaction()
        except BaseException:
            self._table.metadata = base
            raise


def commit_snapshot(
    table: Table, stage: Callable[[SnapshotTransaction], _SnapshotProducer[Any]]
) -> int:
    """Has `stage` prepare a snapshot of the table as it was last loaded, and commits it; its id.

    When another commit came first the table is loaded again and `stage` runs on what that left,
    after a pause with jitter; whatever it raises ends the work, and nothing was committed. A
    commit whose answer was lost is recognised by its snapshot and is not repeated. CommitContended
    after many attempts; NotHonoured where the table is of a format that is only read here.
    """
    backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
    for _ in range(_ATTEMPTS):
        check_format(table)
        base = table.metadata_location
        transaction = SnapshotTransaction(table)
        snapshot_id = stage(transaction).snapshot_id
        forget_snapshots(transaction)
        try:
            transaction.commit_transaction()
        except Exception:
            time.sleep(backoff.next_s())
            table.refresh()
            if table.snapshot_by_id(snapshot_id) is not None:
                return snapshot_id
            if table.metadata_location == base:
                raise  # nobody was faster, so this is no conflict
        else:
            return snapshot_id
    raise CommitContended(f"the table {table.name()[-1]} was changed by others {_ATTEMPTS} times")


def check_format(table: Table) -> None:
    """NotHonoured where nothing here can write to the table."""
    if table.format_version > WRITTEN_FORMAT:
        raise NotHonoured(
            f"the table {table.name()[-1]} is of Iceberg's format {table.format_version}, which"
            f" Penstock reads and does not write; it writes format {WRITTEN_FORMAT}"
        )


def forget_snapshots(transaction: SnapshotTransaction) -> None:
    """Stages the removal of the oldest snapshots, beyond those that the table shall keep.

    Each one costs every later commit. Branches and tags keep theirs; no file is deleted.
    """
    metadata = transaction.table_metadata
    kept = snapshots_kept(metadata.properties)
    protected = {ref.snapshot_id for ref in metadata.refs.values()}
    oldest_first = sorted(metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
    forgotten = [s.snapshot_id for s in oldest_first[:-kept] if s.snapshot_id not in protected]
    if forgotten:
        ExpireSnapshots(transaction).by_ids(forgotten).commit()
