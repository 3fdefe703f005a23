"""Iceberg's manifests, as far as pyiceberg does not read them: which deletes a snapshot has."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any, Final

from penstock.lake.deletes import DeleteIndex, delete_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import BinaryIO

    from penstock.lake.deletes import DeleteFile, Opener

DELETED: Final = 2
"""The status of an entry whose file is not in the table any more."""
DELETES: Final = 1
"""The content of a manifest of delete files."""
_EPOCH: Final = date(1970, 1, 1)


def records(stream: BinaryIO) -> Iterator[dict[str, Any]]:
    """Of a manifest, or of a list of them."""
    import fastavro

    yield from fastavro.reader(stream)  # type: ignore[misc]  # records are dicts here


def partition_of(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    """The partition of a file; days as pyiceberg has them, as numbers."""
    values = fields["partition"].values()
    return tuple((each - _EPOCH).days if type(each) is date else each for each in values)


def sequence_of(entry: Mapping[str, Any], manifest: int) -> int:
    """When a file came: an entry that does not say has its manifest's."""
    own = entry.get("sequence_number")
    return manifest if own is None else int(own)


def global_specs(specs: Iterable[Mapping[str, Any]]) -> frozenset[int]:
    """Those that do not part a table."""
    return frozenset(
        spec["spec-id"]
        for spec in specs
        if all(field["transform"] == "void" for field in spec["fields"])
    )


def delete_files(
    opener: Opener, manifest: str, sequence: int, spec_id: int, *, is_global: bool
) -> tuple[DeleteFile, ...]:
    """Those of one manifest of delete files. NotHonoured: one is of an unknown kind."""
    with opener(manifest) as stream:
        return tuple(
            delete_file(
                entry["data_file"],
                sequence_of(entry, sequence),
                spec_id,
                partition_of(entry["data_file"]),
                is_global=is_global,
            )
            for entry in records(stream)
            if entry["status"] != DELETED
        )


def delete_index(
    opener: Opener, manifests: Sequence[tuple[str, int, int]], whole: frozenset[int]
) -> DeleteIndex | None:
    """The deletes of some manifests, by path, sequence number and spec; None where there are none.

    `whole` are the specs that do not part the table.
    """
    found = [
        file
        for path, sequence, spec_id in manifests
        for file in delete_files(opener, path, sequence, spec_id, is_global=spec_id in whole)
    ]
    return DeleteIndex(found) if found else None
