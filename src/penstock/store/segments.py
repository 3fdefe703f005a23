"""The folder of sealed segments: a few of them open for reading, all of them removable."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from penstock.model.errors import Damaged
from penstock.segment import SegmentReader, segment_name

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.segment import SegmentInfo, StoredBundle
    from penstock.storage.files import Files

OPEN_READERS: Final = 4
"""Each maps its file; pages that were read count as memory until it is closed."""


class SegmentFolder:
    """Reads and removes by segment_seq; safe from any thread."""

    def __init__(self, files: Files, folder: Path) -> None:
        self.files = files
        self.folder = folder
        self._lock = threading.Lock()
        self._open: OrderedDict[int, SegmentReader] = OrderedDict()

    def path(self, segment_seq: int) -> Path:
        """Where a segment is."""
        return self.folder / segment_name(segment_seq)

    def reader(self, info: SegmentInfo) -> SegmentReader:
        """An open segment. FileNotFoundError; Damaged also where it is not the one meant."""
        segment_seq = info.segment_seq
        with self._lock:
            reader = self._open.get(segment_seq)
            if reader is not None:
                self._open.move_to_end(segment_seq)
                return reader
        reader = SegmentReader.open(self.files, self.path(segment_seq))
        if reader.info != info:  # its bundles must not pass for others
            raise Damaged(f"{reader.name} is another segment than the one that was sealed")
        with self._lock:
            self._open[segment_seq] = reader
            while len(self._open) > OPEN_READERS:
                self._open.popitem(last=False)
        return reader

    def bundle(self, info: SegmentInfo, index: int) -> StoredBundle:
        """One bundle, mapped."""
        return self.reader(info).bundle(index)

    def remove(self, segment_seq: int) -> None:
        """Unlinks the file; whoever reads it reads on. Durable after `sync`."""
        self.forget(segment_seq)
        with contextlib.suppress(FileNotFoundError):
            self.files.remove(self.path(segment_seq))

    def keep_aside(self, segment_seq: int) -> None:
        """Gives a damaged file a second name, which nothing reads and nobody removes."""
        path = self.path(segment_seq)
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            self.files.link(path, path.with_name(path.name + ".damaged"))

    def sync(self) -> None:
        """Makes removals durable."""
        self.files.sync_folder(self.folder)

    def forget(self, segment_seq: int | None = None) -> None:
        """Closes a reader, or all of them; bundles that were read stay readable."""
        with self._lock:
            if segment_seq is None:
                self._open.clear()
            else:
                self._open.pop(segment_seq, None)
