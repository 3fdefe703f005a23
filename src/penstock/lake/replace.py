"""Files for other files with the same rows: compaction, beside a running flush.

What changes no row is a `replace` in Iceberg's words: whoever follows the table as a stream passes
over it, and stops at an `overwrite`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.exceptions import ValidationException
from pyiceberg.table.snapshots import Operation

from penstock.lake.files import check_written, data_file, deletes_of
from penstock.lake.layout import key_of, replacement_key
from penstock.lake.producers import exchanging
from penstock.lake.transaction import commit_snapshot
from penstock.model.errors import FilesReplaced, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.table import Table
    from pyiceberg.table.update.snapshot import _SnapshotProducer

    from penstock.lake.files import LiveFile, WrittenFile
    from penstock.lake.transaction import SnapshotTransaction


def replace(
    table: Table,
    remove: Sequence[LiveFile],
    add: Sequence[WrittenFile],
    *,
    same_rows: bool = True,
) -> int:
    """Takes files out and puts others in, in one commit; its snapshot.

    The names of `add` begin with `replacement_key` of the paths of `remove`; they have the live
    rows of those, and `same_rows` says whether all of them. FilesReplaced, and nothing is changed,
    where one of `remove` is not in the table any more, or rows of it were deleted since: a new file
    is younger than those deletes, so that they would not apply to it. Positions and epoch stay;
    appends that come between are kept, and the commit is tried again on top of them. Not to be
    repeated after success: then it raises FilesReplaced. `table` is refreshed.
    """
    key = replacement_key(file.path for file in remove)
    for file in add:
        if key_of(file.path) != key:
            raise InvalidArgument(f"{file.path} was written to replace other files")
    kind = Operation.REPLACE if same_rows else Operation.OVERWRITE
    return take_out(table, remove, add, operation="compact", kind=kind)


def take_out(
    table: Table,
    remove: Sequence[LiveFile],
    add: Sequence[WrittenFile] = (),
    *,
    operation: str,
    kind: Operation = Operation.DELETE,
) -> int:
    """The same without a look at names; `operation` stands in the snapshot's summary."""
    if not remove:
        raise InvalidArgument("nothing to remove; rows are added by commit")

    def stage(transaction: SnapshotTransaction) -> _SnapshotProducer[Any]:
        check_written(table, add)
        if add:
            _check_deletes(table, remove)
        return stage_exchange(transaction, remove, add, operation=operation, kind=kind)

    table.refresh()
    return commit_snapshot(table, stage)


def stage_exchange(
    transaction: SnapshotTransaction,
    remove: Sequence[LiveFile],
    add: Sequence[WrittenFile],
    *,
    operation: str,
    kind: Operation = Operation.OVERWRITE,
) -> _SnapshotProducer[Any]:
    """Files for others, as one snapshot of a transaction. FilesReplaced: one is not there."""
    summary = {"penstock.operation": operation}
    try:
        exchange = exchanging(transaction, summary, kind)
        with exchange:
            for file in remove:
                exchange.delete_data_file(data_file(file))
            for file in add:
                exchange.append_data_file(data_file(file))
    except ValidationException as error:
        raise FilesReplaced(str(error)) from None
    return exchange


def _check_deletes(table: Table, remove: Sequence[LiveFile]) -> None:
    """FilesReplaced where rows were deleted since the files were read.

    Invariant: what a new file has was live when it was read, and is live when it is committed.
    """
    now = deletes_of(table, remove)
    for file in remove:
        if now[file.path] != file.deletes:
            raise FilesReplaced(f"rows of {file.path} were deleted while it was rewritten")
