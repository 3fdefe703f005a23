"""Files for other files with the same rows: compaction, beside a running flush."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.exceptions import ValidationException

from penstock.lake.files import check_written, data_file
from penstock.lake.layout import key_of, replacement_key
from penstock.lake.transaction import commit_snapshot
from penstock.model.errors import FilesReplaced, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.table import Table
    from pyiceberg.table.update.snapshot import _SnapshotProducer

    from penstock.lake.files import LiveFile, WrittenFile
    from penstock.lake.transaction import SnapshotTransaction


def replace(table: Table, remove: Sequence[LiveFile], add: Sequence[WrittenFile]) -> int:
    """Takes files out and puts others in, in one commit; its snapshot.

    The names of `add` begin with `replacement_key` of the paths of `remove`. FilesReplaced, and
    nothing is changed, where one of `remove` is not in the table any more. Positions and epoch
    stay; appends that come between are kept, and the commit is tried again on top of them. Not to
    be repeated after success: then it raises FilesReplaced. `table` is refreshed.
    """
    key = replacement_key(file.path for file in remove)
    for file in add:
        if key_of(file.path) != key:
            raise InvalidArgument(f"{file.path} was written to replace other files")
    return take_out(table, remove, add, operation="compact")


def take_out(
    table: Table, remove: Sequence[LiveFile], add: Sequence[WrittenFile] = (), *, operation: str
) -> int:
    """The same without a look at names; `operation` stands in the snapshot's summary."""
    if not remove:
        raise InvalidArgument("nothing to remove; rows are added by commit")

    def stage(transaction: SnapshotTransaction) -> _SnapshotProducer[Any]:
        check_written(table, add)
        summary = {"penstock.operation": operation}
        try:
            with transaction.update_snapshot(summary).overwrite() as overwrite:
                for file in remove:
                    overwrite.delete_data_file(data_file(file))
                for file in add:
                    overwrite.append_data_file(data_file(file))
                return overwrite
        except ValidationException as error:
            raise FilesReplaced(str(error)) from None

    table.refresh()
    return commit_snapshot(table, stage)
