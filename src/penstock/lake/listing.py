"""What is on disk, or in the bucket, whatever the tables say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyarrow.fs import FileSelector, FileType
from pyiceberg.io.pyarrow import PyArrowFileIO

from penstock.model.errors import InvalidSetting

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyiceberg.io import FileIO


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file, by the path that manifests would have for it."""

    path: str
    bytes: int
    modified_s: float
    """Seconds since 1970."""


def stored_files(io: FileIO, folder: str) -> list[StoredFile]:
    """Every file below the folder; none where there is no folder."""
    system, root = _reach(io, folder)
    found = system.get_file_info(FileSelector(root, allow_not_found=True, recursive=True))
    return [
        StoredFile(folder + info.path[len(root) :], info.size, info.mtime_ns / 1e9)
        for info in found
        if info.type is FileType.File
    ]


def modified_s(io: FileIO, path: str) -> float:
    """When the file was written, in seconds since 1970; FileNotFoundError where there is none."""
    system, name = _reach(io, path)
    info = system.get_file_info(name)
    if info.type is FileType.NotFound:
        raise FileNotFoundError(path)
    return float(info.mtime_ns / 1e9)


def _reach(io: FileIO, location: str) -> tuple[FileSystem, str]:
    if not isinstance(io, PyArrowFileIO):
        raise InvalidSetting("files of the lake are listed through pyarrow; unset py-io-impl")
    scheme, netloc, path = io.parse_location(location, io.properties)
    return io.fs_by_scheme(scheme, netloc), path
