"""Where an archive and a queue are, as a command line names them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

import click

from penstock.archive.settings import DEFAULT_ROOT
from penstock.cli.common import grouped, settings_options
from penstock.model.errors import InvalidArgument, PenstockError
from penstock.queue.settings import QueueSettings
from penstock.storage import DataDirectory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from penstock.storage.metadata import Metadata
    from penstock.storage.objects import ObjectStore


class ArchivePlace(NamedTuple):
    """Where the halves of an archive are, and what its keys begin with."""

    objects_url: str | None
    metadata_url: str | None
    root: str

    def of(self, data_dir: Path) -> tuple[str, str]:
        """Objects and descriptors; without a URL the data directory keeps the latter."""
        assert self.objects_url is not None
        return self.objects_url, self.metadata_url or DataDirectory(data_dir).metadata_url


root_option = click.option(
    "--root", default=DEFAULT_ROOT, show_default=True, help="What the archive's keys begin with."
)


def metadata_option(default: str = "") -> Callable[[Any], Any]:
    """`--metadata`, whose help ends with what is taken where it is not given."""
    where = "The archive's descriptors: etcd://host:2379/prefix or file:///path."
    return click.option(
        "--metadata",
        "metadata_url",
        metavar="URL",
        envvar="PENSTOCK_ARCHIVE_METADATA",
        show_envvar=True,
        help=f"{where}  [default: {default}]" if default else where,
    )


def archive_options(*, required: bool = False) -> Callable[[Any], Any]:
    """The archive of a data directory, as `archive`."""
    objects = click.option(
        "--objects",
        "objects_url",
        metavar="URL",
        required=required,
        # The server's `archive.url`; its `archive.objects` are keys, and 0.1 used that name here.
        envvar=["PENSTOCK_ARCHIVE_URL", "PENSTOCK_ARCHIVE_OBJECTS"],
        show_envvar=True,
        help="The archive's objects: s3://bucket/prefix, gs://…, az://… or file:///folder.",
    )
    metadata = metadata_option("metadata.db in the data directory")
    return grouped("archive", ArchivePlace, objects, metadata, root_option)


queue_options = settings_options(QueueSettings, "manifest_path", "data_path_prefix")
"""Where the objects of a queue are, as `settings`."""


def is_url(place: str) -> bool:
    """Whether a place is given by URL rather than by path."""
    return "://" in place


def local_folder(url: str) -> Path | None:
    """The path that a `file://` URL names; None of any other."""
    parts = urlsplit(url)
    is_local = parts.scheme == "file" and parts.netloc in ("", "localhost")
    return Path(unquote(parts.path)) if is_local else None


def open_store(url: str, *, create: bool = False) -> ObjectStore:
    """The object store at a URL; a usage error where nothing can be made of it.

    PenstockError: it is a folder that does not exist, and nobody said that it may be made.
    """
    from penstock.storage.objects import open_objects

    folder = local_folder(url)
    if not create and folder is not None and not folder.is_dir():
        raise PenstockError(f"there is nothing at {url}")
    try:
        return open_objects(url)
    except InvalidArgument as error:
        raise click.UsageError(str(error)) from None


def open_descriptors(url: str, *, create: bool = False) -> Metadata:
    """The metadata store at a URL; as `open_store`."""
    file = local_folder(url)
    if not create and file is not None and not file.is_file():
        raise PenstockError(f"there are no descriptors at {url}")
    return _metadata(url, create=create)


def _metadata(url: str, *, create: bool) -> Metadata:
    from penstock.storage.metadata import open_metadata

    try:
        return open_metadata(url, create=create)
    except InvalidArgument as error:
        raise click.UsageError(str(error)) from None


@contextlib.asynccontextmanager
async def archive_stores(
    objects_url: str, metadata_url: str, *, create: bool = False, lenient: bool = False
) -> AsyncIterator[tuple[ObjectStore, Metadata]]:
    """Both halves of an archive, closed in the end; with `create` made where there are none.

    With `lenient` a half that is not there is an empty one, and is not made either.
    """
    objects = open_store(objects_url, create=create or lenient)
    try:
        opened = _metadata if lenient else open_descriptors
        metadata = opened(metadata_url, create=create)
        try:
            yield objects, metadata
        finally:
            await metadata.close()
    finally:
        await objects.close()
