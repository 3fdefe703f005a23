"""Where an archive and a queue are, as a command line names them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import click

from penstock.model.errors import InvalidArgument, PenstockError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from penstock.storage.metadata import Metadata
    from penstock.storage.objects import ObjectStore

root_option = click.option(
    "--root", default="penstock", show_default=True, help="The first part of the archive's keys."
)


def objects_option(*, required: bool = False) -> Callable[[Any], Any]:
    """`--objects`."""
    return click.option(
        "--objects",
        "objects_url",
        metavar="URL",
        required=required,
        envvar="PENSTOCK_ARCHIVE_OBJECTS",
        show_envvar=True,
        help="The archive's objects: s3://bucket/prefix, gs://…, az://… or file:///folder.",
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


def is_url(place: str) -> bool:
    """Whether a place is given by URL rather than by path."""
    return "://" in place


def local_folder(url: str) -> Path | None:
    """The path that a `file://` URL names; None of any other."""
    parts = urlsplit(url)
    is_local = parts.scheme == "file" and parts.netloc in ("", "localhost")
    return Path(unquote(parts.path)) if is_local else None


def open_store(url: str) -> ObjectStore:
    """The object store at a URL; a usage error where nothing can be made of it.

    PenstockError: it is a folder that does not exist, which would be made otherwise.
    """
    from penstock.storage.objects import open_objects

    folder = local_folder(url)
    if folder is not None and not folder.is_dir():
        raise PenstockError(f"there is nothing at {url}")
    try:
        return open_objects(url)
    except InvalidArgument as error:
        raise click.UsageError(str(error)) from None


def open_descriptors(url: str) -> Metadata:
    """The metadata store at a URL, for looking; as `open_store`."""
    from penstock.storage.metadata import open_metadata

    file = local_folder(url)
    if file is not None and not file.is_file():
        raise PenstockError(f"there are no descriptors at {url}")
    try:
        return open_metadata(url)
    except InvalidArgument as error:
        raise click.UsageError(str(error)) from None


@contextlib.asynccontextmanager
async def archive_stores(
    objects_url: str, metadata_url: str
) -> AsyncIterator[tuple[ObjectStore, Metadata]]:
    """Both halves of an archive, closed in the end."""
    objects = open_store(objects_url)
    try:
        metadata = open_descriptors(metadata_url)
        try:
            yield objects, metadata
        finally:
            await metadata.close()
    finally:
        await objects.close()
