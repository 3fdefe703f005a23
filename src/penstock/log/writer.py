"""The file that takes new frames. One thread at a time uses it: whoever has the log's turn."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from penstock.log import format as fmt
from penstock.log.inventory import LogFile, file_name
from penstock.model.errors import DiskFull
from penstock.storage.files import OUT_OF_SPACE

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.model.clock import Clock
    from penstock.storage.files import File, Files

MIN_ZEROED_BYTES = 64 * 1024
MAX_ZEROED_BYTES = 1024 * 1024
"""Zeros are written ahead, so that most commits change neither the size nor the extents of the file
and their fdatasync writes data alone. A file begins with little and gets more as it grows."""
WRITE_BYTES = 4 * 1024 * 1024
"""A large commit is encoded and written in pieces of about this size."""


class FileWriter:
    """Appends frames to one file.

    Invariant: behind `end` the file holds zeros or what an interrupted write left; all of it is
    overwritten, truncated or, after a crash, dropped as torn.
    """

    def __init__(self, path: Path, file: File, header: fmt.Header, zeroed_to: int, now: float):
        self.path = path
        self.first_offset = header.first_offset
        self.next_offset = header.first_offset
        self.end = fmt.HEADER_BYTES
        self.index: list[tuple[int, int]] = []
        self.opened_at = now
        self.unsynced_bytes = 0
        self._file = file
        self._seed = header.seed
        self._zeroed_to = zeroed_to

    @classmethod
    def create(
        cls, files: Files, folder: Path, log_id: uuid.UUID, first_offset: int, clock: Clock
    ) -> FileWriter:
        """A new file, durable with its header before it gets its name; DiskFull leaves nothing."""
        header = fmt.new_header(log_id, first_offset, clock.wall_ns(), os.urandom(8))
        path = folder / file_name(first_offset)
        scratch = path.with_name(path.name + ".tmp")
        block = fmt.encode_header(header) + bytes(MIN_ZEROED_BYTES)
        with _full_disk_is_retryable():
            file = files.create(scratch)
            try:
                file.pwrite(block, 0)
                file.sync()
                files.rename(scratch, path)
                files.sync_folder(folder)  # so that the name survives
            except BaseException:
                file.close()
                with contextlib.suppress(OSError):
                    files.remove(scratch)
                raise
        return cls(path, file, header, len(block), clock.monotonic())

    def write(self, messages: Sequence[bytes], size: int) -> None:
        """Writes one frame a message behind the last; `size` is that of all frames together.

        DiskFull: the file is as it was before. Any other OSError: nobody knows what it holds.
        """
        indexed = len(self.index)
        try:
            with _full_disk_is_retryable():
                position = self.end
                for piece in self._pieces(messages, size):
                    self._file.pwrite(piece, position)
                    position += len(piece)
        except DiskFull:
            del self.index[indexed:]
            self._file.truncate(self.end)
            self._zeroed_to = self.end
            raise
        self.end += size
        self._zeroed_to = max(self._zeroed_to, position)
        self.next_offset += len(messages)
        self.unsynced_bytes += size

    def sync(self) -> None:
        """Makes everything written durable. After an OSError the file must not be used again."""
        self._file.sync()
        self.unsynced_bytes = 0

    def seal(self, sealed_at_ns: int) -> LogFile:
        """Ends the file: its index and trailer behind the frames, nothing after, all synced."""
        messages = self.next_offset - self.first_offset
        seal = fmt.Seal(self.next_offset, sealed_at_ns, messages, index=tuple(self.index))
        data = fmt.encode_seal(seal, self.end, self._seed)
        size = self.end + len(data)
        try:
            with _full_disk_is_retryable():
                self._file.pwrite(data, self.end)
        except DiskFull:
            self._file.truncate(self.end)
            self._zeroed_to = self.end
            raise
        self._file.truncate(size)
        self.sync()
        self._file.close()
        return LogFile(self.path, self.first_offset, self.next_offset, size, sealed_at_ns)

    def close(self) -> None:
        """Gives up the file as it is; recovery will find what it holds."""
        self._file.close()

    def _pieces(self, messages: Sequence[bytes], size: int) -> Iterator[bytes]:
        """The frames in writes of about WRITE_BYTES, the last with zeros behind it."""
        step = max(1, fmt.INDEX_STEP_BYTES * len(messages) // size)
        position, waiting, waiting_bytes = self.end, list[bytes](), 0
        for start in range(0, len(messages), step):
            offset = self.next_offset + start
            if position - self._last_indexed() >= fmt.INDEX_STEP_BYTES:
                self.index.append((offset, position))
            frames = fmt.encode_frames(messages[start : start + step], offset, self._seed)
            position += len(frames)
            waiting.append(frames)
            waiting_bytes += len(frames)
            if waiting_bytes >= WRITE_BYTES:
                yield b"".join(waiting)
                waiting, waiting_bytes = [], 0
        waiting.append(self._zeros_behind(position, size))
        yield waiting[0] + waiting[1] if len(waiting) == 2 else b"".join(waiting)

    def _last_indexed(self) -> int:
        return self.index[-1][1] if self.index else fmt.HEADER_BYTES

    def _zeros_behind(self, position: int, size: int) -> bytes:
        ahead = min(max(position, MIN_ZEROED_BYTES), MAX_ZEROED_BYTES)
        if position <= self._zeroed_to or size >= ahead:
            return b""
        return bytes(ahead - position % 4096)


@contextlib.contextmanager
def _full_disk_is_retryable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in OUT_OF_SPACE:
            raise
        raise DiskFull("no space left on the log's disk", retry_after_s=1.0) from error
