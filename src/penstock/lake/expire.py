"""Rows and snapshots that have become too old. Files are deleted by `orphans`, later."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyiceberg.table.update.snapshot import ExpireSnapshots

from penstock.lake.files import files_before
from penstock.lake.listing import modified_s
from penstock.lake.replace import take_out
from penstock.lake.transaction import SnapshotTransaction, check_format
from penstock.model.errors import CommitContended, FilesReplaced

if TYPE_CHECKING:
    from datetime import date

    from pyiceberg.table import Table

    from penstock.lake.files import LiveFile

_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Expired:
    """What was taken out of a table."""

    files: int = 0
    rows: int = 0
    bytes: int = 0


def expire_rows(table: Table, before: date) -> Expired:
    """Takes out all rows of days before `before`, in one commit.

    Whole days only: their files leave the table, none is read or written. Rows of far-off days
    leave by the day on which they came: their own times say nothing of their age. Rows without a
    time have no day; theirs leave when the file was written before `before`. Doing it again finds
    nothing. Beside a flush that brings late rows, those stay until the next time; beside a
    compaction it plans again. `table` is refreshed.
    """
    for _ in range(_ATTEMPTS):
        table.refresh()
        old = old_files(table, before)
        if not old:
            return Expired()
        try:
            take_out(table, old, operation="expire")
        except FilesReplaced:
            continue
        return Expired(len(old), sum(file.rows for file in old), sum(file.bytes for file in old))
    raise CommitContended(f"old files of {table.name()[-1]} were replaced {_ATTEMPTS} times")


def expire_snapshots(table: Table, before: datetime) -> int:
    """Has the table forget its snapshots from before then, but the newest one; how many.

    Branches and tags keep theirs. Doing it again finds nothing. `table` is refreshed.
    """
    for _ in range(_ATTEMPTS):
        table.refresh()
        old = _snapshots(table, before)
        if not old:
            return 0
        check_format(table)
        base = table.metadata_location
        transaction = SnapshotTransaction(table)
        ExpireSnapshots(transaction).by_ids(old).commit()
        try:
            transaction.commit_transaction()
        except Exception:
            table.refresh()
            if table.metadata_location == base:
                raise  # nobody was faster, so this is no conflict
        else:
            return len(old)
    raise CommitContended(f"the table {table.name()[-1]} was changed {_ATTEMPTS} times")


def old_files(table: Table, before: date) -> list[LiveFile]:
    """The files of the table, as it was last loaded, that `expire_rows` takes out."""
    return [file for file in files_before(table, before) if _is_old(table, file, before)]


def _is_old(table: Table, file: LiveFile, before: date) -> bool:
    if file.day is not None:
        return True
    return datetime.fromtimestamp(modified_s(table.io, file.path), UTC).date() < before


def _snapshots(table: Table, before: datetime) -> list[int]:
    protected = {ref.snapshot_id for ref in table.metadata.refs.values()}
    limit_ms = before.timestamp() * 1000
    return [
        snapshot.snapshot_id
        for snapshot in table.metadata.snapshots
        if snapshot.timestamp_ms < limit_ms and snapshot.snapshot_id not in protected
    ]
