"""`ack.log`: the events of a store, group-committed into one file that is compacted as it grows.

Compaction is an event among events: a snapshot of the whole state begins a new file, which takes
the old one's name. `ack.ckpt` is a second copy of that snapshot.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Final

from penstock.log.group_commit import GroupCommit
from penstock.log.writer import FileWriter
from penstock.model.errors import DiskFull, TooManyFiles
from penstock.model.settings import KIB, MIB, Durability, LogSettings
from penstock.storage.documents import encode_document
from penstock.storage.files import write_atomically
from penstock.store.format import SNAPSHOT, Snapshot, decode_event, encode_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from penstock.log.batch import CommitBatch
    from penstock.log.commit import Commit
    from penstock.log.pool import Pool
    from penstock.metrics import LogMetrics
    from penstock.model.clock import Clock
    from penstock.model.errors import LogPoisoned
    from penstock.storage.files import Files
    from penstock.store.format import Event

_LOG = logging.getLogger(__name__)

LOG_NAME: Final = "ack.log"
CHECKPOINT_NAME: Final = "ack.ckpt"
CHECKPOINT_KIND: Final = "ack checkpoint"
CHECKPOINT_VERSION: Final = 1
RESERVE_BYTES: Final = 256 * KIB
"""Zeroed ahead: on a full disk the answers that let segments go can still be written."""
_GATHER_S: Final = 0.005


class AckLog(GroupCommit):
    """Takes events from any thread; what their order means, the store's lock decides."""

    def __init__(
        self,
        folder: Path,
        first_event: int,
        durability: Durability,
        *,
        name: str,
        files: Files,
        clock: Clock,
        pool: Pool,
        metrics: LogMetrics,
        on_poisoned: Callable[[LogPoisoned], None] | None = None,
    ) -> None:
        """A log whose first event must be a snapshot: it makes the file."""
        settings = LogSettings(
            durability=Durability.INTERVAL if durability is Durability.BUFFER else durability,
            commit_delay_s=_GATHER_S,
            queue_bytes=128 * MIB,
            max_message_bytes=64 * MIB,
        )
        super().__init__(settings, first_event, name=name, clock=clock, pool=pool, metrics=metrics)
        self._folder = folder
        self._on_poisoned = on_poisoned
        self._files = files
        self._log_id = uuid.uuid4()
        self._writer: FileWriter | None = None
        self.snapshot_bytes = 0
        """How large the file was when its last snapshot had been written."""

    def record(self, events: Iterable[Event]) -> Commit:
        """Queues events, which become durable together."""
        return self.append_many([encode_event(event) for event in events]).durable

    @property
    def size(self) -> int:
        """Bytes of the file, without zeros written ahead."""
        return self._writer.end if self._writer is not None else 0

    @property
    def depth(self) -> int:
        """Events that a restart would replay."""
        writer = self._writer
        return writer.next_offset - writer.first_offset if writer is not None else 0

    def close(self) -> None:
        """Commits what waits; raises what kept it from the disk."""
        last = self._refuse_from_now_on()
        if last is None:
            self._over.wait()
            return
        last.settle()
        self._end_turns()
        if self._writer is not None:
            self._writer.close()
        self._over.set()
        last.wait()

    # --- within a turn (GroupCommit) -----------------------------------------------------------

    def _write(self, batch: CommitBatch) -> None:
        snapshot = _last_snapshot(batch.messages)
        if snapshot is not None:
            self._begin_file(batch, snapshot)
        elif batch.messages:
            assert self._writer is not None
            self._writer.write(batch.messages, batch.size)
        if self._writer is not None and (unsynced := self._writer.unsynced_bytes):
            if batch.must_sync or self.settings.durability is Durability.SYNC:
                self._writer.sync()
            elif unsynced:
                self._timers.start("sync", self.settings.sync_interval_s, self._ask_for_sync)

    def _begin_file(self, batch: CommitBatch, snapshot: int) -> None:
        """A new file from the snapshot on; the snapshot knows what was queued before it."""
        try:
            writer = FileWriter.create(
                self._files,
                self._folder,
                self._log_id,
                batch.first_offset + snapshot,
                self._clock,
                name=LOG_NAME,
                messages=batch.messages[snapshot:],
                reserve_bytes=RESERVE_BYTES,
            )
        except (DiskFull, TooManyFiles):
            if self._writer is None:
                raise
            self._writer.write(batch.messages, batch.size)  # where it is as good, but longer
            self.snapshot_bytes = self._writer.end
            return
        old, self._writer = self._writer, writer
        self.snapshot_bytes = writer.end
        if old is not None:
            old.close()
        self._write_checkpoint(writer.first_offset, batch.messages[snapshot])

    def _write_checkpoint(self, position: int, message: bytes) -> None:
        """Best effort: it is needed only where the file it copies is damaged."""
        event = decode_event(message)
        assert isinstance(event, Snapshot)
        fields = {"next_event": position + 1, **event.state}
        data = encode_document(CHECKPOINT_KIND, CHECKPOINT_VERSION, fields)
        try:
            write_atomically(self._files, self._folder / CHECKPOINT_NAME, data)
        except OSError as error:
            _LOG.warning("%s: no checkpoint: %s", self.name, error)

    def _poisoned_by(self, error: BaseException) -> LogPoisoned:
        poisoned = super()._poisoned_by(error)
        if self._on_poisoned is not None:
            self._on_poisoned(poisoned)
        return poisoned

    def _show(self, batch: CommitBatch) -> None:
        """Nobody reads it while it is open."""

    def _has_unsynced(self) -> bool:
        return self._writer is not None and self._writer.unsynced_bytes > 0


def _last_snapshot(messages: list[bytes]) -> int | None:
    found = None
    for number, message in enumerate(messages):
        if message[0] == SNAPSHOT:
            found = number
    return found
