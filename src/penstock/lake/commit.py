"""Data files and the positions they come from, in one Iceberg commit: the exactly-once.

A writer claims some sources, reads their positions, writes the files of the messages behind them,
and commits both. Of two writers that began at the same positions one succeeds; a writer of a source
whose claim is not the newest never does. Writers of different sources share a table and do not
fence each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from penstock.lake.files import check_written, data_file
from penstock.lake.layout import batch_key, key_of
from penstock.lake.positions import (
    encode_epochs,
    encode_positions,
    position_name,
    read_epochs,
    read_positions,
)
from penstock.lake.producers import appending
from penstock.lake.properties import is_crowded
from penstock.lake.transaction import commit_snapshot
from penstock.model.errors import Fenced, InvalidArgument
from penstock.model.positions import check_forward, of_sources, sources_in

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pyiceberg.table import Table
    from pyiceberg.table.update.snapshot import _SnapshotProducer

    from penstock.lake.files import WrittenFile
    from penstock.lake.producers import FastAppend, MergeAppend
    from penstock.lake.transaction import SnapshotTransaction
    from penstock.model.positions import Positions, SourcePartition


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of a commit. `repeated`: it was in the table already."""

    snapshot_id: int | None
    repeated: bool = False


class Adoption(Protocol):
    """A source whose first claim takes over positions that are nobody's."""

    @property
    def source(self) -> str:
        """The claimant."""
        ...

    def __call__(self, positions: Positions) -> Mapping[SourcePartition, SourcePartition]:
        """Which of a table's positions become those of which partition of it."""
        ...


def claim(table: Table, sources: Collection[str], adopt: Adoption | None = None) -> int:
    """Makes the caller the only writer of these sources; its epoch, for `commit`.

    Their earlier writers are fenced from now on: their commits raise Fenced. `table` is refreshed,
    so its positions are those to go on from. A source's first claim takes over the positions that
    `adopt` gives it, in the same commit; what `adopt` raises claims nothing.
    """
    epoch = 0

    def stage(transaction: SnapshotTransaction) -> _SnapshotProducer[Any]:
        nonlocal epoch
        epochs, found = read_epochs(table), read_positions(table)
        # Above all others, so that an epoch says which sources were claimed together, and no two
        # writers give a file the same name.
        epoch = max(epochs.values(), default=0) + 1
        transaction.set_properties(encode_epochs(sources, epoch))
        taken = {} if adopt is None or adopt.source in epochs else adopt(found)
        if taken:
            transaction.remove_properties(*map(position_name, taken))
            transaction.set_properties(
                encode_positions({new: found[old] for old, new in taken.items()})
            )
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

    `start` is what the writer read of its sources, whole; `end` has all of it, moved on where
    messages were read, also those that were set aside and are in no file. The files' names must
    begin with `batch_key(start, end, epoch)`.

    Fenced where a newer writer has claimed one of the sources or their positions are others. The
    same call may be repeated: once the table is at `end` it changes nothing. Commits of others that
    come between (another source's, a compaction, an expiry) are waited for. `table` is refreshed.
    """
    _check(files, start, end, epoch)
    sources = sources_in(end)
    table.refresh()
    _check_epochs(table, sources, epoch)
    if of_sources(read_positions(table), sources) == end:
        return Committed(None, repeated=True)

    def stage(transaction: SnapshotTransaction) -> _SnapshotProducer[Any]:
        _check_epochs(table, sources, epoch)
        _check_positions(table, start, sources)
        check_written(table, files)
        transaction.set_properties(encode_positions(end))
        append = _append(transaction, table, epoch)
        with append:
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


def _check_epochs(table: Table, sources: Collection[str], epoch: int) -> None:
    epochs = read_epochs(table)
    for source in sources:
        newest = epochs.get(source, 0)
        if newest != epoch:
            name = table.name()[-1]
            text = f"the table {name} belongs to writer {newest}, this is {epoch}"
            raise Fenced(f"{text}, of the source {source}")


def _check_positions(table: Table, start: Positions, sources: Collection[str]) -> None:
    """Of its own sources alone: others move whenever their writers commit."""
    found = of_sources(read_positions(table), sources)
    if found != start:
        name = table.name()[-1]
        raise Fenced(f"the table {name} is at {dict(found)}, the batch begins at {dict(start)}")


def _append(transaction: SnapshotTransaction, table: Table, epoch: int) -> FastAppend | MergeAppend:
    snapshot = table.current_snapshot()
    manifests = snapshot.manifests(table.io) if snapshot else []
    crowded = is_crowded(table.properties, (manifest.manifest_length for manifest in manifests))
    return appending(transaction, _summary("flush", epoch), merging=crowded)


def _summary(operation: str, epoch: int) -> dict[str, str]:
    return {"penstock.operation": operation, "penstock.writer-epoch": str(epoch)}
