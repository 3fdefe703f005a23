"""The log's continuation in object storage: replay from any offset, without end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy import lazily

if TYPE_CHECKING:
    from penstock.archive.archiving import Archiver, Archiving
    from penstock.archive.catalog import Catalog, archived_partitions, catalogs
    from penstock.archive.format import Descriptor
    from penstock.archive.reader import ArchiveReader, read_object
    from penstock.archive.settings import DEFAULT_ROOT, ArchiveSettings
    from penstock.archive.sources import OpenLog, SealedFiles
    from penstock.archive.status import ArchiveStatus, archive_status
    from penstock.archive.tiered import LiveLog, LogFolder, TieredReader, earliest_offset
    from penstock.archive.topics import ArchivedTopic, Topics, TopicSubscriber
    from penstock.archive.uploader import Uploader
    from penstock.archive.verify import verify_archive
else:
    __getattr__ = lazily(
        __name__,
        {
            "archiving": "Archiver Archiving",
            "catalog": "Catalog archived_partitions catalogs",
            "format": "Descriptor",
            "reader": "ArchiveReader read_object",
            "settings": "DEFAULT_ROOT ArchiveSettings",
            "sources": "OpenLog SealedFiles",
            "status": "ArchiveStatus archive_status",
            "tiered": "LiveLog LogFolder TieredReader earliest_offset",
            "topics": "ArchivedTopic Topics TopicSubscriber",
            "uploader": "Uploader",
            "verify": "verify_archive",
        },
    )

__all__ = [
    "DEFAULT_ROOT",
    "ArchiveReader",
    "ArchiveSettings",
    "ArchiveStatus",
    "ArchivedTopic",
    "Archiver",
    "Archiving",
    "Catalog",
    "Descriptor",
    "LiveLog",
    "LogFolder",
    "OpenLog",
    "SealedFiles",
    "TieredReader",
    "TopicSubscriber",
    "Topics",
    "Uploader",
    "archive_status",
    "archived_partitions",
    "catalogs",
    "earliest_offset",
    "read_object",
    "verify_archive",
]
