"""The log's continuation in object storage: replay from any offset, without end."""

from penstock.archive.archiving import Archiver, Archiving
from penstock.archive.catalog import DEFAULT_ROOT, Catalog, archived_partitions, catalogs
from penstock.archive.format import Descriptor
from penstock.archive.reader import ArchiveReader, read_object
from penstock.archive.settings import ArchiveSettings
from penstock.archive.sources import OpenLog, SealedFiles
from penstock.archive.status import ArchiveStatus, archive_status
from penstock.archive.tiered import LiveLog, LogFolder, TieredReader, earliest_offset
from penstock.archive.topics import ArchivedTopic, Topics, TopicSubscriber
from penstock.archive.uploader import Uploader
from penstock.archive.verify import verify_archive

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
