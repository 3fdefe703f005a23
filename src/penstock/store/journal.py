"""The store's state and the log of its events, changed together and in the same order."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from penstock.log.commit import ALREADY
from penstock.store.format import Snapshot

if TYPE_CHECKING:
    from penstock.log.commit import Commit
    from penstock.store.ack_log import AckLog
    from penstock.store.format import Event
    from penstock.store.state import StoreState


class Journal:
    """`lock` guards the state; it is never held while waiting for a disk that is not full.

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
        """Returns when every event so far is synced."""
        self._acks.flush()

    def close(self) -> None:
        """Leaves a compacted log behind, as far as the disk lets it."""
        try:
            if self._acks.failure is None and self._acks.depth > 1:
                self.compact()
        finally:
            self._acks.close()

    @property
    def depth(self) -> int:
        """Events that a restart would replay."""
        return self._acks.depth

    @property
    def size(self) -> int:
        """Bytes of ack.log."""
        return self._acks.size
