"""The archive, as the configuration says."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from penstock.archive import Archiver
from penstock.model.errors import InvalidSetting
from penstock.storage import DataDirectory
from penstock.storage.metadata import open_metadata
from penstock.storage.objects import open_objects

if TYPE_CHECKING:
    from penstock.metrics import Metrics
    from penstock.server.configuration.config import Config
    from penstock.storage.metadata import Metadata
    from penstock.storage.objects import ObjectStore

"""In the data directory, where no other store of descriptors is named."""


def archiver_of(config: Config, metrics: Metrics) -> Archiver:
    """For one worker; its leases are the data directory's."""
    objects, metadata = archive_stores(config)
    return Archiver(
        objects,
        metadata,
        directory=uuid.UUID(DataDirectory(config.data_dir).identity()),
        settings=config.archive,
        root=config.archive.root,
        ttl_s=config.archive.lease,
        metrics=metrics,
    )


def archive_stores(config: Config) -> tuple[ObjectStore, Metadata]:
    """Objects and descriptors. InvalidArgument: what is named cannot be one."""
    archive = config.archive
    if archive.url is None:
        raise InvalidSetting("archive.url is not set")
    metadata = archive.metadata or DataDirectory(config.data_dir).metadata_url
    return open_objects(archive.url, dict(archive.objects)), open_metadata(metadata)
