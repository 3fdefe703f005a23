"""Where bytes rest: local files and the data directory's layout."""

from penstock.storage.directory import DEFAULT_DATA_DIR, DataDirectory, Partition
from penstock.storage.files import File, Files, LocalFiles

__all__ = ["DEFAULT_DATA_DIR", "DataDirectory", "File", "Files", "LocalFiles", "Partition"]
