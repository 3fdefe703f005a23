"""The files of one log: the one that takes new frames, the finished ones, and the checkpoint.

An append ends here: `FileWriter` puts its frame behind the last one and syncs the file, `FileSet`
begins the next file when one is full and removes those that may go.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from bisect import bisect_right
from typing import TYPE_CHECKING

from penstock.log import checkpoint as ckpt
from penstock.log import format as fmt
from penstock.log.inventory import LogFile, file_name
from penstock.log.reader import Location
from penstock.metrics import names
from penstock.model.errors import DiskFull, TooManyFiles
from penstock.storage.files import OUT_OF_FILES, OUT_OF_SPACE, write_atomically

if TYPE_CHECKING:
    import uuid
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.log.environment import Environment
    from penstock.metrics import LogMetrics
    from penstock.model.settings import LogSettings
    from penstock.storage.files import File

_LOG = logging.getLogger(__name__)
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
        env: Environment,
        folder: Path,
        log_id: uuid.UUID,
        first_offset: int,
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
        files, now_ns = env.files, env.clock.wall_ns()
        header = fmt.new_header(log_id, first_offset, now_ns, os.urandom(8))
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
            # Whoever finds the name relies on a whole header behind it, and on the frames it begins
            # with: they are synced.
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
        writer = cls(path, file, header, len(block), env.clock.monotonic())
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


class FileSet:
    """Writing and rotating belong to whoever has the log's turn; the rest is for any thread."""

    def __init__(
        self,
        folder: Path,
        log_id: uuid.UUID,
        sealed: Sequence[LogFile],
        next_offset: int,
        settings: LogSettings,
        env: Environment,
        metrics: LogMetrics,
    ) -> None:
        self.files = env.files
        self._env = env
        self._folder = folder
        self._log_id = log_id
        self._settings = settings
        self._clock = env.clock
        self._metrics = metrics
        self._next_offset = next_offset
        self._floors: dict[str, int] = {}
        self._closed = False
        # _lock guards _sealed and _writer as a pair and is never held during I/O;
        # _upkeep serialises removals and checkpoints.
        self._lock = threading.Lock()
        self._upkeep = threading.Lock()
        self._sealed = tuple(sealed)
        self._writer: FileWriter | None = None

    # --- for whoever has the turn --------------------------------------------------------------

    def write(self, messages: Sequence[bytes], size: int) -> None:
        """Writes a commit into one file, rotating first where it would not fit. Syncs nothing.

        DiskFull: nothing of it was written. Any other OSError: the file is not to be trusted.
        """
        writer = self._writer
        if writer is None or writer.end + size > self._settings.rotate_bytes:
            writer = self.rotate()
        writer.write(messages, size)
        self._next_offset = writer.next_offset

    def sync(self) -> None:
        """Makes everything written durable. After an OSError the file must not be used again."""
        if self._writer is not None:
            self._writer.sync()

    def rotate(self) -> FileWriter:
        """Finishes the file, if it holds anything, and begins the next one."""
        if self._writer is not None and self.has_messages:
            self._finish()
        if self._writer is None:
            writer = FileWriter.create(self._env, self._folder, self._log_id, self._next_offset)
            with self._lock:
                self._writer = writer
        assert self._writer is not None
        return self._writer

    @property
    def has_messages(self) -> bool:
        return self._writer is not None and self._writer.next_offset > self._writer.first_offset

    @property
    def unsynced_bytes(self) -> int:
        return self._writer.unsynced_bytes if self._writer is not None else 0

    @property
    def age_s(self) -> float:
        """How long the file being written has been."""
        writer = self._writer
        return self._clock.monotonic() - writer.opened_at if writer is not None else 0.0

    def close(self, *, poisoned: bool) -> None:
        """Finishes the last file and leaves a checkpoint; a poisoned file is left to recovery."""
        if self.has_messages and not poisoned:
            try:
                self._finish()
            except (DiskFull, OSError) as error:
                # Every message in it is synced already; the next opening finishes the file.
                _LOG.warning("%s: the last file is left unfinished: %s", self._folder, error)
        if self._writer is not None:
            self._writer.close()
        if not poisoned:
            self.keep_up(last=True)
        with self._upkeep:  # a removal under way ends first; none begins after
            self._closed = True

    def _finish(self) -> None:
        assert self._writer is not None
        # Everything in it is synced, its seal included, before another file begins: recovery takes
        # a file that another follows at its word.
        sealed = self._writer.seal(self._clock.wall_ns())
        with self._lock:
            self._sealed, self._writer = (*self._sealed, sealed), None
        self._metrics.count(names.LOG_ROTATIONS)

    # --- for everybody -------------------------------------------------------------------------

    @property
    def sealed(self) -> tuple[LogFile, ...]:
        return self._sealed

    @property
    def next_offset(self) -> int:
        """One past the last message written, synced or not."""
        return self._next_offset

    @property
    def start_offset(self) -> int:
        with self._lock:
            if self._sealed:
                return self._sealed[0].first_offset
            return self._writer.first_offset if self._writer is not None else self._next_offset

    @property
    def size(self) -> int:
        with self._lock:
            written = self._writer.end if self._writer is not None else 0
            return written + sum(file.size for file in self._sealed)

    def locate(self, offset: int, end_offset: int) -> Location | None:
        """The first file with anything at or behind the offset, below `end_offset`.

        It begins behind the offset where a whole file was lost; None where nothing follows.
        """
        with self._lock:
            at = bisect_right(self._sealed, offset, key=lambda file: file.end_offset)
            if at < len(self._sealed):
                file = self._sealed[at]
                return Location(file.path, file.first_offset, file.end_offset, None)
            writer = self._writer
            if writer is None or writer.first_offset >= end_offset:
                return None
            return Location(writer.path, writer.first_offset, end_offset, writer.index)

    def keep_for(self, party: str) -> None:
        """Removes nothing that this party has not raised its floor above."""
        with self._lock:
            self._floors.setdefault(party, 0)

    def raise_floor(self, offset: int, party: str) -> None:
        """Lets retention remove what is below the lowest floor; none ever goes back."""
        with self._lock:
            self._floors[party] = max(self._floors.get(party, 0), offset)

    def keep_up(self, *, last: bool = False) -> int:
        """Removes the files that may go and writes the checkpoint; returns how many went."""
        with self._upkeep:
            if self._closed:
                return 0
            gone = () if last else self._forget()
            for number, file in enumerate(gone):
                try:
                    self._remove(file)
                except OSError:
                    with self._lock:  # they are tried again, and until then they are there
                        self._sealed = (*gone[number:], *self._sealed)
                    raise
            self._write_checkpoint()
        return len(gone)

    def _remove(self, file: LogFile) -> None:
        # Every party's floor is above it: its messages are in sealed segments, and in the archive
        # where there is one.
        with contextlib.suppress(FileNotFoundError):
            self.files.remove(file.path)
        self.files.sync_folder(self._folder)  # in order, or a power loss leaves a hole
        self._metrics.count(names.LOG_REMOVED_FILES)

    def _forget(self) -> tuple[LogFile, ...]:
        """Takes the files that may go off the list, so that no new reader finds them."""
        size = self.size
        with self._lock:
            now = self._clock.wall_ns()
            floor = min(self._floors.values(), default=0)
            count = removable(self._sealed, floor, size, now, self._settings)
            if self._writer is None and count == len(self._sealed):
                # Invariant: some file's name carries the next offset, checkpoint or not.
                count = max(0, count - 1)
            gone, self._sealed = self._sealed[:count], self._sealed[count:]
        return gone

    def _write_checkpoint(self) -> None:
        """Best effort: a missing or old checkpoint costs time at the next opening, never data."""
        with self._lock:
            # Below the file being written everything is synced, whatever the durability.
            sealed, writer = self._sealed, self._writer
            synced = writer.first_offset if writer is not None else self._next_offset
        data = ckpt.encode_checkpoint(self._log_id, synced, sealed, self._clock.wall_ns())
        try:
            write_atomically(self.files, self._folder / ckpt.NAME, data)
        except OSError as error:
            self._metrics.count(names.LOG_CHECKPOINT_FAILURES)
            _LOG.warning("%s: no checkpoint: %s", self._folder, error)


def removable(
    files: Sequence[LogFile], floor: int, total_bytes: int, now_ns: int, settings: LogSettings
) -> int:
    """How many of the oldest files go.

    A file goes if all its offsets lie below `floor` *and* it is older than `retention_s` or the
    log (`total_bytes`, the file being written included) is over `retention_bytes`. Files go from
    the oldest on and never past one that stays. A clock that went back only keeps files longer.
    """
    count = 0
    for file in files:
        too_old = settings.retention_s is not None and (
            now_ns - file.sealed_at_ns > settings.retention_s * 1e9
        )
        too_much = settings.retention_bytes is not None and total_bytes > settings.retention_bytes
        if file.end_offset > floor or not (too_old or too_much):
            break
        total_bytes -= file.size
        count += 1
    return count
