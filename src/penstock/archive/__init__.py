"""The log's continuation in object storage: replay from any offset, without end.

In come the messages of an open log, once they are durable; out go objects of compressed frames, and
a descriptor of each in the metadata store, by which it is found.

    format                    the object, its descriptor, the uploader's checkpoint
    catalog, objects          where the parts of an archive are; what the objects' names say
    identity, claim           both halves belong together, and to one owner at a time
    contents                  what is there, described or not: for all who read or count
    sources, encoder, carrier    a range of the log, on its way to an object
    uploader, upkeep          one object after the other; what may go
    archiving                 all of that for the stores of a server
    reader, tiered            messages again: from objects alone, or with the log behind them
    rebuild, verify           descriptors made again, damage found
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy import lazily

if TYPE_CHECKING:
    from penstock.archive.archiving import Archiver, Archiving
    from penstock.archive.catalog import Catalog, archived_partitions
    from penstock.archive.format import Descriptor
    from penstock.archive.reader import ArchiveReader, read_object
    from penstock.archive.settings import DEFAULT_ROOT, ArchiveSettings
    from penstock.archive.sources import SealedFiles
    from penstock.archive.tiered import TieredReader
    from penstock.archive.uploader import Uploader
    from penstock.archive.verify import verify_archive
else:
    __getattr__ = lazily(
        __name__,
        {
            "archiving": "Archiver Archiving",
            "catalog": "Catalog archived_partitions",
            "format": "Descriptor",
            "reader": "ArchiveReader read_object",
            "settings": "DEFAULT_ROOT ArchiveSettings",
            "sources": "SealedFiles",
            "tiered": "TieredReader",
            "uploader": "Uploader",
            "verify": "verify_archive",
        },
    )

__all__ = [
    "DEFAULT_ROOT",
    "ArchiveReader",
    "ArchiveSettings",
    "Archiver",
    "Archiving",
    "Catalog",
    "Descriptor",
    "SealedFiles",
    "TieredReader",
    "Uploader",
    "archived_partitions",
    "read_object",
    "verify_archive",
]
