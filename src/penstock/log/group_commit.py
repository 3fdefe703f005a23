"""Group commit: many appends, one write, one fdatasync, one wake-up per event loop.

An append gives its message the next offset, queues it and asks for a turn.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from penstock.log.batch import frozen
from penstock.log.commit import ALREADY, Append, Commit, new_append
from penstock.log.format import FRAME_BYTES
from penstock.log.turns import QUEUED, Turn, Turns
from penstock.model.errors import InvalidArgument, MessageTooLarge, QueueFull

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.log.batch import Buffer


class GroupCommit(Turns):
    """The appending half of a log."""

    def append(self, message: Buffer, *, block: bool = True) -> Append:
        """Queues a message and returns its offset and what to wait for; does no I/O.

        A full queue makes it wait for the disk, or raise QueueFull without `block`. Retry safety: a
        Retryable error, from here or from `durable`, says that the message is not in the log.
        """
        if type(message) is bytes:
            size = len(message) + FRAME_BYTES
            with self._lock:
                queued = self._queued_bytes + size
                if queued <= self._room and size <= self._largest:
                    self._queued_bytes = queued
                    batch = self._pending
                    messages = batch.messages
                    offset = batch.first_offset + len(messages)
                    messages.append(message)
                    if self._turn < QUEUED:
                        self._ask_for_turn()
                    return new_append((offset, batch.commit if self._late else ALREADY))
        return self._append_slowly([message], block=block, ask=self._ask_for_turn)

    def append_many(self, messages: Sequence[Buffer], *, block: bool = True) -> Append:
        """Queues messages with consecutive offsets; `offset` is the first one's.

        They become durable, or fail, together. They must fit into the queue together.
        """
        if not messages:
            raise InvalidArgument("append_many needs at least one message")
        return self._append_slowly(messages, block=block, ask=self._ask_for_turn)

    def append_durable(self, message: Buffer) -> int:
        """Appends and waits; returns the offset of the durable message.

        The quickest way for a thread that appends one message at a time: where the disk is free
        the thread commits by itself, and saves the switch to another thread and back.
        """
        message = frozen(message)
        size = len(message) + FRAME_BYTES
        with self._lock:
            queued = self._queued_bytes + size
            batch = self._pending
            fits = queued <= self._room and size <= self._largest
            mine = fits and self._turn is Turn.IDLE and not self.settings.commit_delay_s
            if mine:
                self._queued_bytes = queued
                batch.messages.append(message)
                self._turn = Turn.RUNNING
        if not mine:
            append = self.append(message)
            append.durable.wait()
            return append.offset
        self._run_turn()
        if self._late:
            batch.commit.wait()
        return batch.first_offset

    async def append_async(self, message: Buffer) -> Append:
        """`append` for coroutines: a full queue suspends the task instead of the thread."""
        return await self.append_many_async([message])

    async def append_many_async(self, messages: Sequence[Buffer]) -> Append:
        """`append_many` for coroutines. Cancelled while it waits, it has queued nothing."""
        if not messages:
            raise InvalidArgument("append_many needs at least one message")
        while True:
            try:
                return self._append_slowly(messages, block=False, ask=self._ask_in_loop)
            except QueueFull:
                await self._oldest_commit().settle_async()

    def flush(self) -> None:
        """Returns when everything appended before is synced to disk, in every durability mode."""
        commit = self._ask_for_flush()
        if commit is not None:
            commit.wait()

    async def flush_async(self) -> None:
        """`flush` for coroutines."""
        commit = self._ask_for_flush()
        if commit is not None:
            await commit

    @property
    def next_offset(self) -> int:
        """The offset that the next append gets, if nobody appends or fails before."""
        with self._lock:
            return self._pending.end_offset

    def has_room(self, size: int) -> bool:
        """Whether a message of that size would be queued at once, as things stand."""
        return self._queued_bytes + size + FRAME_BYTES <= self._room

    @property
    def queued_bytes(self) -> int:
        """Bytes waiting for the disk."""
        return self._queued_bytes

    # --- small parts ---------------------------------------------------------------------------

    def _append_slowly(
        self, messages: Sequence[Buffer], *, block: bool, ask: Callable[[], None]
    ) -> Append:
        """Appends any number of messages, waits for room, and says why something is refused."""
        kept = [frozen(message) for message in messages]
        size = self._checked_size(kept)
        while True:
            with self._lock:
                if self.failure is not None:
                    raise copy.copy(self.failure)
                if self._queued_bytes + size <= self._room:
                    self._queued_bytes += size
                    batch = self._pending
                    offset = batch.first_offset + len(batch.messages)
                    batch.messages += kept
                    if self._turn < QUEUED:
                        ask()
                    return Append(offset, batch.commit if self._late else ALREADY)
                waiting, commit = self._queued_bytes, (self._in_flight or self._pending).commit
            if not block:
                raise QueueFull(f"{waiting} bytes already wait for the disk", retry_after_s=0.1)
            commit.settle()

    def _checked_size(self, messages: list[bytes]) -> int:
        for message in messages:
            if len(message) > self.settings.max_message_bytes:
                limit = self.settings.max_message_bytes
                raise MessageTooLarge(f"a message of {len(message)} bytes; the limit is {limit}")
        size = sum(map(len, messages)) + FRAME_BYTES * len(messages)
        if size > self.settings.queue_bytes:
            raise MessageTooLarge(
                f"{size} bytes at once; queue_bytes is {self.settings.queue_bytes}"
            )
        return size

    def _ask_for_flush(self) -> Commit | None:
        """The commit after which everything is synced; None where it already is."""
        with self._lock:
            if self.failure is not None:
                raise copy.copy(self.failure)
            if self._turn is Turn.IDLE and not self._has_unsynced():
                return None
            self._pending.must_sync = True
            if self._turn < QUEUED:
                self._queue_turn()
            return self._pending.commit

    def _oldest_commit(self) -> Commit:
        with self._lock:
            return (self._in_flight or self._pending).commit
