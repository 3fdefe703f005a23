"""Data files and the positions they come from, in one Iceberg commit: the exactly-once.

A writer claims the table, reads its positions, writes the files of the messages behind them, and
commits both. Of two writers that began at the same positions one succeeds; a writer whose claim is
not the newest never does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.lake.files import check_written, data_file
from penstock.lake.layout import batch_key, key_of
from penstock.lake.positions import (
    WRITER_EPOCH,
    check_forward,
    encode_positions,
    read_epoch,
    read_positions,
)
from penstock.lake.properties import is_crowded
from penstock.lake.transaction import commit_snapshot
from penstock.model.errors import Fenced, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.table import Table
    from pyiceberg.table.update.snapshot import _FastAppendFiles, _SnapshotProducer

    from penstock.lake.files import WrittenFile
    from penstock.lake.positions import Positions
    from penstock.lake.transaction import SnapshotTransaction


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of a commit. `repeated`: it was in the table already."""

    snapshot_id: int | None
    repeated: bool = False


def claim(table: Table) -> int:
    """Makes the caller the table's only writer; its epoch, for `commit`.

    Earlier writers are fenced from now on: their commits raise Fenced. `table` is refreshed, so
    its positions are those to go on from.
    """
    epoch = 0

    def stage(transaction: SnapshotTransaction) -> _SnapshotProducer[Any]:
        nonlocal epoch
        epoch = read_epoch(table) + 1
        transaction.set_properties({WRITER_EPOCH: str(epoch)})
        # An empty snapshot: without one the claim would not be in the way of older writers.
        with transaction.update_snapshot(_summary("claim", epoch)).fast_append() as append:
            return append

    table.refresh()
    commit_snapshot(table, stage)
    return epoch


def commit(
    table: Table, files: Sequence[WrittenFile], *, start: Positions, end: Positions, epoch: int
) -> Committed:
    """Adds the files and moves the positions from `start` to `end`, both or neither.

    `start` is what the writer read, whole; `end` has all of it, moved on where messages were read,
    also those that were set aside and are in no file. The files' names must begin with
    `batch_key(start, end, epoch)`.

    Fenced where a newer writer has claimed the table or its positions are others. The same call
    may be repeated: once the table is at `end` it changes nothing. Commits of other kinds that
    come between (a compaction, an expiry) are waited for. `table` is refreshed.
    """
    _check(files, start, end, epoch)
    table.refresh()
    _check_epoch(table, epoch)
    if read_positions(table) == end:
        return Committed(None, repeated=True)

    def stage(transaction: SnapshotTransaction) -> _SnapshotProducer[Any]:
        _check_epoch(table, epoch)
        _check_positions(table, start)
        check_written(table, files)
        transaction.set_properties(encode_positions(end))
        with _append(transaction, table, epoch) as append:
            for file in files:
                append.append_data_file(data_file(file))
            return append

    return Committed(commit_snapshot(table, stage))


def _check(files: Sequence[WrittenFile], start: Positions, end: Positions, epoch: int) -> None:
    check_forward(start, end)
    if files and start == end:
        raise InvalidArgument("files are committed together with the positions they come from")
    key = batch_key(start, end, epoch)
    # A range of positions is committed once, so its names are too: that no path is added twice
    # is known without reading the manifests of all files that are there.
    for file in files:
        if key_of(file.path) != key:
            raise InvalidArgument(f"{file.path} was written for another batch than {key}")
    if len({file.path for file in files}) < len(files):
        raise InvalidArgument("a file stands twice in one commit")


def _check_epoch(table: Table, epoch: int) -> None:
    newest = read_epoch(table)
    if newest != epoch:
        raise Fenced(f"the table {table.name()[-1]} belongs to writer {newest}, this is {epoch}")


def _check_positions(table: Table, start: Positions) -> None:
    found = read_positions(table)
    if found != start:
        name = table.name()[-1]
        raise Fenced(f"the table {name} is at {dict(found)}, the batch begins at {dict(start)}")


def _append(transaction: SnapshotTransaction, table: Table, epoch: int) -> _FastAppendFiles:
    update = transaction.update_snapshot(_summary("flush", epoch))
    snapshot = table.current_snapshot()
    manifests = snapshot.manifests(table.io) if snapshot else []
    crowded = is_crowded(table.properties, (manifest.manifest_length for manifest in manifests))
    return update.merge_append() if crowded else update.fast_append()


def _summary(operation: str, epoch: int) -> dict[str, str]:
    return {"penstock.operation": operation, "penstock.writer-epoch": str(epoch)}
