"""The files of one log: the one being written, the finished ones, and the checkpoint about them."""

from __future__ import annotations

import contextlib
import logging
import threading
from bisect import bisect_right
from typing import TYPE_CHECKING

from penstock.log import checkpoint as ckpt
from penstock.log.reader import Location
from penstock.log.retention import removable
from penstock.log.writer import FileWriter
from penstock.metrics import names
from penstock.model.errors import DiskFull
from penstock.storage.files import write_atomically

if TYPE_CHECKING:
    import uuid
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.log.inventory import LogFile
    from penstock.metrics import LogMetrics
    from penstock.model.clock import Clock
    from penstock.model.settings import LogSettings
    from penstock.storage.files import Files

_LOG = logging.getLogger(__name__)


class FileSet:
    """Writing and rotating belong to whoever has the log's turn; the rest is for any thread."""

    def __init__(
        self,
        folder: Path,
        log_id: uuid.UUID,
        sealed: Sequence[LogFile],
        next_offset: int,
        settings: LogSettings,
        files: Files,
        clock: Clock,
        metrics: LogMetrics,
    ) -> None:
        self.files = files
        self._folder = folder
        self._log_id = log_id
        self._settings = settings
        self._clock = clock
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
            writer = FileWriter.create(
                self.files, self._folder, self._log_id, self._next_offset, self._clock
            )
            with self._lock:
                self._writer = writer
        assert self._writer is not None
        return self._writer

    @property
    def has_messages(self) -> bool:
        """Whether the file being written holds any."""
        return self._writer is not None and self._writer.next_offset > self._writer.first_offset

    @property
    def unsynced_bytes(self) -> int:
        """What was written since the last sync."""
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
        sealed = self._writer.seal(self._clock.wall_ns())
        with self._lock:
            self._sealed, self._writer = (*self._sealed, sealed), None
        self._metrics.count(names.LOG_ROTATIONS)

    # --- for everybody -------------------------------------------------------------------------

    @property
    def sealed(self) -> tuple[LogFile, ...]:
        """The finished files, oldest first."""
        return self._sealed

    @property
    def next_offset(self) -> int:
        """One past the last message written, synced or not."""
        return self._next_offset

    @property
    def start_offset(self) -> int:
        """The oldest offset there is."""
        with self._lock:
            if self._sealed:
                return self._sealed[0].first_offset
            return self._writer.first_offset if self._writer is not None else self._next_offset

    @property
    def size(self) -> int:
        """Bytes on disk, without zeros written ahead."""
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
