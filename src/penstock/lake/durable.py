"""Files of the lake that are whole and on disk before anybody is told of them.

pyiceberg leaves what it writes to the operating system: after a power loss the catalog, which does
sync, would name metadata that are empty. `DurableFileIO` has every local file written under a
temporary name, synced, given its name, and the folder synced. Elsewhere (S3, …) it is pyiceberg's
own: an object store keeps what it has acknowledged.
"""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from penstock.storage.files import LocalFiles

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from penstock.storage.files import Files

FILE_IO: Final = f"{__name__}.DurableFileIO"
"""For the catalog property `py-io-impl`."""
FILES: Files = LocalFiles()
_BUFFER_BYTES: Final = 1024 * 1024


class DurableFile:
    """A new local file, which has its name when `close` returns and would survive a power loss.

    `close` raises FileExistsError where the name is taken and may not be replaced; what stood
    there is untouched. Leaving its `with` block by an exception leaves nothing behind.
    """

    def __init__(self, path: Path, *, replace: bool, files: Files | None = None) -> None:
        self._files = files or FILES
        self._path = path
        self._replace = replace
        self._files.make_folder(path.parent)
        # Tasks on several machines may write the same part at once.
        self._scratch = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.tmp")
        self._file = self._files.create(self._scratch)
        self._waiting = bytearray()
        self._written = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        """Takes all of it, and keeps it until there is enough to write."""
        if self.closed:  # the number of its handle may be another file's by now
            raise ValueError(f"{self._path} is closed")
        view = memoryview(data).cast("B")
        self._waiting += view
        if len(self._waiting) >= _BUFFER_BYTES:
            self.flush()
        return len(view)

    def flush(self) -> None:
        """Hands what waits to the operating system."""
        if self.closed:
            return
        self._file.pwrite([bytes(self._waiting)], self._written)
        self._written += len(self._waiting)
        self._waiting.clear()

    def tell(self) -> int:
        """How many bytes were taken."""
        return self._written + len(self._waiting)

    def close(self) -> None:
        """Syncs the file, gives it its name and syncs the folder. Again: nothing."""
        if self.closed:
            return
        try:
            self.flush()
            self._file.sync()
            self._publish()
        finally:
            self.discard()
        self._files.sync_folder(self._path.parent)  # so that the name survives

    def discard(self) -> None:
        """Gives up: removes what was written unless it has its name."""
        if self.closed:
            return
        self.closed = True
        self._file.close()
        with contextlib.suppress(FileNotFoundError):
            self._files.remove(self._scratch)

    def _publish(self) -> None:
        if self._replace:
            self._files.rename(self._scratch, self._path)
        else:
            self._files.link(self._scratch, self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes after success, discards after an exception."""
        if kind is None:
            self.close()
        else:
            self.discard()


class _LocalFile(PyArrowFile):
    """Written durably, read as pyiceberg does."""

    def create(self, overwrite: bool = False) -> DurableFile:
        """A file that appears, whole, when it is closed."""
        return DurableFile(Path(self._path), replace=overwrite)


class DurableFileIO(PyArrowFileIO):
    """pyiceberg's access to files, with local ones made durable."""

    def new_output(self, location: str) -> PyArrowFile:
        """A file to be written at `location`."""
        scheme, netloc, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
        return _LocalFile(location, path, self.fs_by_scheme(scheme, netloc))
