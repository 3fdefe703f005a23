"""`ack.log`: the events of a store, group-committed into one file that is compacted as it grows.

The `Journal` keeps the store's state in step with it. Compaction is an event among events: a
snapshot of the whole state begins a new file, which takes the old one's name. `ack.ckpt` is a
second copy of that snapshot.
"""

from __future__ import annotations

import logging
import threading
import uuid
from typing import TYPE_CHECKING, Final

from penstock.log.commit import ALREADY
from penstock.log.fileset import FileWriter
from penstock.log.group_commit import GroupCommit
from penstock.log.pool import Timers
from penstock.model.errors import DiskFull, TooManyFiles
from penstock.model.settings import KIB, MIB, Durability, LogSettings
from penstock.storage.documents import encode_document
from penstock.storage.files import write_atomically
from penstock.store.format import SNAPSHOT, Snapshot, decode_event, encode_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from penstock.log.commit import Commit
    from penstock.log.environment import Environment
    from penstock.log.group_commit import CommitBatch
    from penstock.model.errors import LogPoisoned, LogUnavailable
    from penstock.store.format import Event
    from penstock.store.state import StoreState

_LOG = logging.getLogger(__name__)

LOG_NAME: Final = "ack.log"
CHECKPOINT_NAME: Final = "ack.ckpt"
CHECKPOINT_KIND: Final = "ack checkpoint"
CHECKPOINT_VERSION: Final = 1
RESERVE_BYTES: Final = 256 * KIB
"""Zeroed ahead: on a full disk the answers that let segments go can still be written."""
_GATHER_S: Final = 0.005


class AckLog:
    """Takes events from any thread; what their order means, the store's lock decides."""

    def __init__(
        self,
        folder: Path,
        first_event: int,
        durability: Durability,
        env: Environment,
        *,
        name: str,
    ) -> None:
        """A log whose first event must be a snapshot: it makes the file."""
        self._settings = LogSettings(
            durability=Durability.INTERVAL if durability is Durability.BUFFER else durability,
            commit_delay_s=_GATHER_S,
            queue_bytes=128 * MIB,
            max_message_bytes=64 * MIB,
        )
        self.name = name
        self._env = env
        self._folder = folder
        self._log_id = uuid.uuid4()
        self._timers = Timers(env.pool)
        self._writer: FileWriter | None = None
        self._commits = GroupCommit(
            self._settings,
            first_event,
            name,
            env,
            write=self._write,
            show=lambda _: None,  # nobody reads it while it is open
            has_unsynced=self._has_unsynced,
            on_poisoned=self._poisoned,
        )
        self.on_poisoned: Callable[[LogPoisoned], None] | None = None
        self.snapshot_bytes = 0
        """How large the file was when its last snapshot had been written."""

    def record(self, events: Iterable[Event]) -> Commit:
        """Queues events, which become durable together."""
        return self._commits.append_many([encode_event(event) for event in events]).durable

    def flush(self) -> None:
        self._commits.flush().wait()

    @property
    def failure(self) -> LogUnavailable | None:
        """Why it takes no more events; None while it does."""
        return self._commits.failure

    @property
    def size(self) -> int:
        return self._writer.end if self._writer is not None else 0

    @property
    def depth(self) -> int:
        writer = self._writer
        return writer.next_offset - writer.first_offset if writer is not None else 0

    def close(self) -> None:
        """Commits what waits; raises what kept it from the disk."""
        last = self._commits.close()
        if last is None:
            self._commits.over.wait()
            return
        last.settle()
        self._commits.end()
        if self._writer is not None:
            self._writer.close()
        self._commits.over.set()
        last.wait()

    # --- within a turn -------------------------------------------------------------------------

    def _write(self, batch: CommitBatch) -> None:
        snapshot = _last_snapshot(batch.messages)
        if snapshot is not None:
            self._begin_file(batch, snapshot)
        elif batch.messages:
            assert self._writer is not None
            self._writer.write(batch.messages, batch.size)
        if self._writer is not None and (unsynced := self._writer.unsynced_bytes):
            if batch.must_sync or self._settings.durability is Durability.SYNC:
                self._writer.sync()
            elif unsynced:
                self._timers.start("sync", self._settings.sync_interval_s, self._commits.sync_soon)

    def _begin_file(self, batch: CommitBatch, snapshot: int) -> None:
        """A new file from the snapshot on; the snapshot knows what was queued before it.

        It takes the name only when it is whole and synced: a crash finds one or the other.
        """
        try:
            writer = FileWriter.create(
                self._env,
                self._folder,
                self._log_id,
                batch.first_offset + snapshot,
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
        # The new file stands under the name, synced, with all that the old one proved.
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
            write_atomically(self._env.files, self._folder / CHECKPOINT_NAME, data)
        except OSError as error:
            _LOG.warning("%s: no checkpoint: %s", self.name, error)

    def _poisoned(self, error: LogPoisoned) -> None:
        if self.on_poisoned is not None:
            self.on_poisoned(error)

    def _has_unsynced(self) -> bool:
        return self._writer is not None and self._writer.unsynced_bytes > 0


class Journal:
    """The state and the log of its events, changed together and in the same order.

    `lock` guards the state; it is never held while waiting for a disk that is not full.

    An event is queued first and then changes the state. Should a full disk keep it from the log,
    the state is ahead: after a crash the bundles concerned are delivered once more. What must not
    happen before its event is durable (removing a file) waits for the commit.
    """

    def __init__(self, state: StoreState, acks: AckLog, compact_bytes: int) -> None:
        self.state = state
        self.lock = threading.RLock()
        self._acks = acks
        self._compact_bytes = compact_bytes
        self._compaction: Commit | None = None
        self.latest: Commit = ALREADY
        """Resolves when every event so far is as durable as the settings say."""

    def record(self, *events: Event) -> Commit:
        """Notes the events; they become durable together."""
        with self.lock:
            commit = self.latest = self._acks.record(events)
            for event in events:
                self.state.apply(event)
            self.state.advance()
            grown = self._acks.size - self._acks.snapshot_bytes
            if grown > self._compact_bytes and (not self._compaction or self._compaction.done):
                self.compact()
        return commit

    def compact(self) -> Commit:
        """Begins a new file with the whole state; durable when the commit resolves."""
        with self.lock:
            self._compaction = self._acks.record([Snapshot(self.state.document())])
            return self._compaction

    def flush(self) -> None:
        self._acks.flush()

    def on_poisoned(self, tell: Callable[[LogPoisoned], None]) -> None:
        """Calls `tell`, within a turn, when nothing can be recorded any more; it must be quick."""
        self._acks.on_poisoned = tell

    def close(self) -> None:
        """Leaves a compacted log behind, as far as the disk lets it."""
        try:
            if self._acks.failure is None and self._acks.depth > 1:
                self.compact()
        finally:
            self._acks.close()

    @property
    def depth(self) -> int:
        return self._acks.depth

    @property
    def size(self) -> int:
        return self._acks.size


def _last_snapshot(messages: list[bytes]) -> int | None:
    found = None
    for number, message in enumerate(messages):
        if message[0] == SNAPSHOT:
            found = number
    return found
