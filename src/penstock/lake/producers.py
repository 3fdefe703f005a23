"""Snapshots of pyiceberg's making, of files of more than one partition spec.

pyiceberg writes all new files into one manifest, of the table's default spec, whatever their own
is. A manifest is of one spec, and readers take each file's partition by it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import (
    _FastAppendFiles,
    _MergeAppendFiles,
    _OverwriteFiles,
    _SnapshotProducer,
)

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestFile

    from penstock.lake.transaction import SnapshotTransaction

_NOTHING: Final[dict[str, str]] = {}


class _EachSpec(_SnapshotProducer[Any]):
    """Has a manifest for the new files of each spec."""

    def _manifests(self) -> list[ManifestFile]:
        every, default = self._added_data_files, self._transaction.table_metadata.default_spec_id
        others: dict[int, list[DataFile]] = defaultdict(list)
        for file in every:
            if file.spec_id != default:
                others[file.spec_id].append(file)
        self._added_data_files = [file for file in every if file.spec_id == default]
        try:
            found = super()._manifests()
        finally:
            self._added_data_files = every  # the summary counts all of them
        return [*(self._added(spec_id, files) for spec_id, files in others.items()), *found]

    def _added(self, spec_id: int, files: list[DataFile]) -> ManifestFile:
        with self.new_manifest_writer(self.spec(spec_id)) as writer:
            for file in files:
                writer.add(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED,
                        snapshot_id=self._snapshot_id,
                        sequence_number=None,
                        file_sequence_number=None,
                        data_file=file,
                    )
                )
        return writer.to_manifest_file()


class FastAppend(_EachSpec, _FastAppendFiles):
    """New files, in manifests of their own."""


class MergeAppend(_EachSpec, _MergeAppendFiles):
    """The same, and manifests that are there are merged."""


class Exchange(_EachSpec, _OverwriteFiles):
    """Files for others; pyiceberg knows how to sum up every kind of snapshot but `replace`."""

    def _summary(self, snapshot_properties: dict[str, str] = _NOTHING) -> Summary:
        kind = self._operation
        self._operation = Operation.OVERWRITE
        try:
            summary = super()._summary(snapshot_properties)
        finally:
            self._operation = kind
        return Summary(kind, **summary.additional_properties)


def appending(
    transaction: SnapshotTransaction, summary: dict[str, str], *, merging: bool
) -> FastAppend | MergeAppend:
    """A snapshot of new files."""
    kind = MergeAppend if merging else FastAppend
    return kind(Operation.APPEND, transaction, transaction.io, snapshot_properties=summary)


def exchanging(
    transaction: SnapshotTransaction, summary: dict[str, str], kind: Operation
) -> Exchange:
    """A snapshot of files for others."""
    return Exchange(kind, transaction, transaction.io, snapshot_properties=summary)
