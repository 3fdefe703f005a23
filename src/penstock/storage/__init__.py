"""Where bytes rest: local files and the data directory's layout."""

from penstock.storage.directory import DataDirectory, Partition
from penstock.storage.files import File, Files, LocalFiles

__all__ = ["DataDirectory", "File", "Files", "LocalFiles", "Partition"]
