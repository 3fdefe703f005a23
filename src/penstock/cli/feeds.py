"""What the pipeline reads, as a command line names it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from penstock.cli.common import existing_data_directory
from penstock.model.errors import PenstockError
from penstock.storage import DataDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.pipeline.feeds import Feed
    from penstock.queue.settings import QueueSettings
    from penstock.server.configuration.config import Config


@contextlib.contextmanager
def installed(extra: str = "spark") -> Iterator[None]:
    """One sentence where an import finds nothing."""
    try:
        yield
    except ImportError as error:
        name = (error.name or str(error)).partition(".")[0]
        raise PenstockError(f"{name} is missing: pip install 'penstock[{extra}]'") from None


def directory_feeds(configs: Sequence[Config], old_positions: str) -> list[Feed]:
    """The data directories. No two may be taken for one: each would fence the other."""
    with installed():
        from penstock.pipeline.feeds import DirectoryFeed
        from penstock.tiers.adoption import OldPositions
    known: dict[str, Path] = {}
    for config in configs:
        root = config.data_dir.absolute()
        identity = existing_data_directory(root).identity()
        if identity in known:
            raise PenstockError(
                f"{root} and {known[identity]} have one identity: one is a copy of the other; "
                f"`penstock identity --new --data-dir {root}` makes it a directory of its own"
            )
        known[identity] = root
    return [DirectoryFeed(root, OldPositions(old_positions)) for root in known.values()]


def queue_feed(config: Config, url: str, settings: QueueSettings, *, consumes: bool = True) -> Feed:
    """The queue at a URL; `buffer.objects` says how to reach it."""
    with installed("objects"):
        from penstock.pipeline.feeds import QueueFeed
    return QueueFeed(
        config.data_dir.absolute(),
        url,
        dict(config.buffer.objects),
        manifest_path=settings.manifest_path,
        data_path_prefix=settings.data_path_prefix,
        consumes=consumes,
    )


def archive_feed(config: Config, url: str, metadata: str | None, root: str) -> Feed:
    """The archive whose objects and descriptors are at these URLs."""
    with installed("objects"):
        from penstock.pipeline.feeds import ArchiveFeed
    own = config.archive.metadata or DataDirectory(config.data_dir).metadata_url
    keys = dict(config.archive.objects)
    return ArchiveFeed(config.data_dir.absolute(), url, metadata or own, keys, root=root)
