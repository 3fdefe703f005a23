"""The file that takes new frames. One thread at a time uses it: whoever has the log's turn."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from penstock.log import format as fmt
from penstock.log.inventory import LogFile, file_name
from penstock.model.errors import DiskFull, TooManyFiles
from penstock.storage.files import OUT_OF_FILES, OUT_OF_SPACE

if TYPE_CHECKING:
    import uuid
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.model.clock import Clock
    from penstock.storage.files import File, Files

MIN_ZEROED_BYTES = 64 * 1024
MAX_ZEROED_BYTES = 1024 * 1024
"""Zeros are written ahead, so that most commits change neither the size nor the extents of the file
and their fdatasync writes data alone. A file begins with little and gets more as it grows."""
ZEROED_COMMIT_BYTES = 256 * 1024
"""Larger commits extend the file as they go: writing their bytes twice would cost more."""
WRITE_BYTES = 1024 * 1024
WRITE_MESSAGES = 512
"""A large commit is encoded and written in pieces of at most about this size."""
JOINED_BYTES = 128 * 1024
"""Up to here a copy costs less than handing many pieces to the system."""
_ZEROS = memoryview(bytes(MAX_ZEROED_BYTES))


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
        self._indexed_to = self.end
        self._file = file
        self._seed = header.seed
        self._zeroed_to = zeroed_to
        self._reserve_bytes = 0

    @classmethod
    def create(
        cls,
        files: Files,
        folder: Path,
        log_id: uuid.UUID,
        first_offset: int,
        clock: Clock,
        *,
        name: str | None = None,
        messages: Sequence[bytes] = (),
        reserve_bytes: int = 0,
    ) -> FileWriter:
        """A new file, durable with its header before it gets its name.

        DiskFull, TooManyFiles: there is none, and what was there before is as it was.
        With `messages` it begins with them. `reserve_bytes` are always kept zeroed ahead, so that
        some frames can still be written when the disk is full.
        """
        header = fmt.new_header(log_id, first_offset, clock.wall_ns(), os.urandom(8))
        path = folder / (name or file_name(first_offset))
        scratch = path.with_name(path.name + ".tmp")
        head = fmt.encode_header(header)
        frames = b"".join(fmt.encode_frames(messages, first_offset, header.seed))
        block = head + frames + bytes(max(MIN_ZEROED_BYTES, reserve_bytes))
        file: File | None = None
        replaced = False
        try:
            file = files.create(scratch)
            file.pwrite([block], 0)
            file.sync()
            files.rename(scratch, path)
            replaced = name is not None
            files.sync_folder(path.parent)  # so that the name survives
        except OSError as error:
            if file is not None:
                file.close()
            with contextlib.suppress(OSError):
                files.remove(scratch)
            if error.errno in OUT_OF_SPACE and not replaced:  # else the old file is gone
                raise _disk_full() from error
            if error.errno in OUT_OF_FILES and not replaced:
                text = f"no descriptor left for the log's next file: {error.strerror}"
                raise TooManyFiles(text, retry_after_s=1.0) from error
            raise
        writer = cls(path, file, header, len(block), clock.monotonic())
        writer.end += len(frames)
        writer.next_offset += len(messages)
        writer._reserve_bytes = reserve_bytes
        return writer

    def write(self, messages: Sequence[bytes], size: int) -> None:
        """Writes one frame a message behind the last; `size` is that of all frames together.

        DiskFull: the file is as it was before. Any other OSError: nobody knows what it holds.
        """
        indexed = (len(self.index), self._indexed_to)
        try:
            self._write_frames(messages, size)
            self._write_zeros(size)
        except OSError as error:
            del self.index[indexed[0] :]
            self._indexed_to = indexed[1]
            self._undo_if_disk_full(error)
            raise
        self.end += size
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
            self._file.pwrite([data], self.end)
        except OSError as error:
            self._undo_if_disk_full(error)
            raise
        self._file.truncate(size)
        self.sync()
        self._file.close()
        return LogFile(self.path, self.first_offset, self.next_offset, size, sealed_at_ns)

    def close(self) -> None:
        """Gives up the file as it is; recovery will find what it holds."""
        self._file.close()

    def _write_frames(self, messages: Sequence[bytes], size: int) -> None:
        position = self.end
        step = max(1, min(WRITE_MESSAGES, WRITE_BYTES * len(messages) // size))
        for start in range(0, len(messages), step):
            some = messages[start : start + step] if len(messages) > step else messages
            offset = self.next_offset + start
            if position - self._indexed_to >= fmt.INDEX_STEP_BYTES:
                self.index.append((offset, position))
                self._indexed_to = position
            frames = fmt.encode_frames(some, offset, self._seed)
            self._file.pwrite(frames if size > JOINED_BYTES else [b"".join(frames)], position)
            position += sum(map(len, some)) + fmt.FRAME_BYTES * len(some)

    def _write_zeros(self, size: int) -> None:
        """Zeros for the commits to come, where this one leaves none."""
        position = self.end + size
        if position + self._reserve_bytes <= self._zeroed_to:
            return
        start = max(position, self._zeroed_to)
        self._zeroed_to = start
        if size < ZEROED_COMMIT_BYTES:
            ahead = min(max(start, MIN_ZEROED_BYTES), MAX_ZEROED_BYTES) - start % 4096
            try:
                self._file.pwrite([_ZEROS[:ahead]], start)
            except OSError as error:
                if error.errno not in OUT_OF_SPACE:
                    raise
            else:  # a full disk has no room for zeros, but the frames are written
                self._zeroed_to = start + ahead

    def _undo_if_disk_full(self, error: OSError) -> None:
        """Cuts off what was half written and raises DiskFull, if that is what went wrong."""
        if error.errno in OUT_OF_SPACE:
            self._file.truncate(self.end)
            self._zeroed_to = self.end
            self.sync()  # what was refused must not come back, and what was taken must not wait
            raise _disk_full() from error


def _disk_full() -> DiskFull:
    return DiskFull("no space left on the log's disk", retry_after_s=1.0)
