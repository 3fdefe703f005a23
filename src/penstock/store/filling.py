"""From the log into segments: reads what is durable, decodes it, gathers it and seals it.

The log is the only way in. What is appended now and what a restart replays take the same path, in
the order of offsets, and nothing can be in a segment that is not durable in the log. Appends never
wait here: while a seal takes its time, the log simply grows.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from typing import TYPE_CHECKING, Final

from penstock.log.cache import Batch
from penstock.log.commit import Commit
from penstock.log.pool import Job, Timers
from penstock.metrics import names
from penstock.model.errors import DiskFull, LogUnavailable, StoreStopped, TooManyFiles
from penstock.model.settings import Durability
from penstock.segment import OpenSegment, write_segment
from penstock.storage.files import OUT_OF_FILES, OUT_OF_SPACE, write_atomically
from penstock.store.format import Sealed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.model.slots import SlotTable
    from penstock.store.decoding import Decoded, Decoder
    from penstock.store.holdings import Holdings

_LOG = logging.getLogger(__name__)
GATHER_S: Final = 0.1
GATHER_BYTES: Final = 1024 * 1024
"""New messages wait to be decoded together, until it is so much or so long."""
TURN_BYTES: Final = 4 * GATHER_BYTES
"""Read and sealed in a turn; then other stores have theirs. Enough that turns cost nothing."""
RETRY_S: Final = 1.0
SEGMENT_EXTRA_BYTES: Final = 256 * 1024
"""More than a segment's tables and schemas take beside its batches."""
ASIDE_SUFFIX: Final = ".msg"


class _Tight:
    """The turn of the one store that seals without room for it, in this process."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        if hasattr(os, "register_at_fork"):  # the parent's may have been held at the fork
            os.register_at_fork(after_in_child=self._begin_anew)

    def _begin_anew(self) -> None:
        self.turn = threading.Lock()


_tight: Final = _Tight()


class Filling:
    """Owns the open segment. Its job runs on one thread at a time."""

    def __init__(
        self,
        held: Holdings,
        decoder: Decoder,
        slots: SlotTable,
        *,
        is_tight: Callable[[int], bool],
        on_disk_full: Callable[[int], None],
        on_sealed: Callable[[], None],
        on_failed: Callable[[StoreStopped], None],
    ) -> None:
        """`is_tight`: whether there is no room for so much more. The others hear what happens."""
        self._log = held.log
        self._journal = held.journal
        self._segments = held.segments
        self._decoder = decoder
        self._slots = slots
        self._settings = held.settings
        self._aside_folder = held.folder / "aside"
        self._clock = held.env.clock
        self._memory = held.env.memory
        self._metrics = held.metrics
        self._is_tight = is_tight
        self._on_disk_full = on_disk_full
        self._on_sealed = on_sealed
        self._on_failed = on_failed
        self.open = OpenSegment(held.settings.segment, slots)
        self.sealed_through = max(held.journal.state.sealed_offset, held.log.start_offset)
        """Every message below it is in a segment, set aside, or reported as lost."""
        self._reader = held.log.read(self.sealed_through)
        self._stream: Iterator[Decoded] | None = None
        self._waiting: Decoded | None = None  # does not fit into the open segment
        self._seal_due = False
        self._seal_failures = 0
        self._seal_most: int | None = None  # bundles; fewer each time that the disk had no room
        self._opened_at = 0.0
        self._unread_bytes = 0
        self._turn_bytes = 0
        self._wanted_through = 0
        self._pressed = False  # seal at the next chance
        self._resting = False  # a seal failed; its next try is not due yet
        self._failed = False
        self.waits_for_space = False
        """A seal failed on a full disk. What is freed must not go to the log before: a log that has
        the whole disk can never become segments."""
        self.changed = Commit()
        self._job = Job(held.env.workers, self._run)
        self._timers = Timers(held.env.workers)

    def start(self) -> None:
        """Begins with what the log holds, and goes on with what comes."""
        self._log.set_floor(self.sealed_through)
        self._log.on_commit(self._hear)
        self._log.on_disk_full(self._on_disk_full)
        self._job.ask()

    def seal_through(self, offset: int) -> Commit:
        """Asks for everything below `offset` to be sealed; the commit says when to look again."""
        changed = self.changed
        self._wanted_through = max(self._wanted_through, offset)
        self._job.ask()
        return changed

    def seal_soon(self) -> None:
        """Seals what is open, whatever its size: memory or disk is short."""
        self._pressed = True
        self._job.ask()

    def stop(self) -> None:
        """Ends the job; what is open stays in the log."""
        self._log.on_commit(None)
        self._log.on_disk_full(None)
        self._job.stop()
        self._memory.hold(self, 0)
        self._wake()

    # --- the job -------------------------------------------------------------------------------

    def _hear(self, size: int) -> None:
        self._unread_bytes += size
        if self._unread_bytes < GATHER_BYTES:
            self._timers.start("gather", GATHER_S, self._job.ask)
        else:
            self._job.ask()

    def _run(self) -> None:
        # Invariant: nothing is read on after a failure; it would be sealed without what failed.
        if self._failed or self._resting:
            return
        try:
            self._fill()
        except Exception as error:  # noqa: BLE001 - whatever it was, the store must not go on
            self._failed = True
            why = str(error) or type(error).__name__
            stopped = StoreStopped(f"the store stopped: {why}; open it again")
            stopped.__cause__ = error
            self._on_failed(stopped)
        self._wake()

    def _fill(self) -> None:
        """A turn: until the log has no more, a seal has to be tried again, or it was enough."""
        self._unread_bytes = self._turn_bytes = 0
        while not self._seal_due or self._seal():
            if self._turn_bytes >= TURN_BYTES:
                self._job.ask()
                break
            decoded = self._waiting or self._next()
            if decoded is None:
                if self._is_time():
                    self._seal_due = True
                    continue
                break
            assert decoded.bundle is not None
            if self.open.accepts(decoded.bundle):
                self._waiting = None
                self._add(decoded)
            else:
                self._waiting = decoded
                self._seal_due = True

    def _add(self, decoded: Decoded) -> None:
        assert decoded.bundle is not None
        if not self.open.bundles:
            self._opened_at = self._clock.monotonic()
            self._timers.start("age", self._settings.segment.max_open_s, self._job.ask)
        self.open.add(
            decoded.bundle,
            first_offset=decoded.first_offset,
            messages=decoded.messages,
            ingested_at_ns=self._clock.wall_ns(),
        )
        self._memory.hold(self, self.open.nbytes)
        # However much of the log is still unread: age and wishes do not wait for its end.
        self._seal_due = (
            self._pressed
            or self.open.is_full()
            or self._age_left() <= 0
            or self.sealed_through < self._wanted_through <= self.open.end_offset
        )

    def _age_left(self) -> float:
        return self._opened_at + self._settings.segment.max_open_s - self._clock.monotonic()

    def _is_time(self) -> bool:
        """At the end of the log: whether what is open is to be sealed now."""
        if not self.open.bundles:
            self._pressed = False
            self._sealed_up_to(self._reader.position)
            return False
        left = self._age_left()
        # What is wanted but not read yet is sealed together with this, in the next run.
        flushed = self.sealed_through < self._wanted_through <= self._reader.position
        wanted = self._pressed or flushed
        if left > 0 and not wanted:
            self._timers.start("age", left, self._job.ask)
            return False
        return True

    # --- reading -------------------------------------------------------------------------------

    def _next(self) -> Decoded | None:
        """The next bundle; None when everything that is durable was read."""
        if self._stream is None:
            self._stream = self._read()
        decoded = next(self._stream, None)
        if decoded is None:
            self._stream = None
        return decoded

    def _read(self) -> Iterator[Decoded]:
        for batch in self._batches():
            for decoded in self._decoder.decode(*batch):
                if decoded.bundle is not None:
                    yield decoded
                    continue
                start = decoded.first_offset - batch.first_offset
                for number in range(decoded.messages):
                    message = batch.messages[start + number]
                    self._set_aside(decoded.first_offset + number, message, decoded.problem)

    def _batches(self) -> Iterator[Batch]:
        """Messages of several commits: a call of a decoder costs more than a message in it."""
        joined, size = Batch(0, []), 0
        while (batch := self._reader.read_batch()) is not None:
            if joined.messages and batch.first_offset != joined.first_offset + len(joined.messages):
                yield joined
                joined, size = Batch(0, []), 0
            if not joined.messages:
                joined = Batch(batch.first_offset, [])
            joined.messages.extend(batch.messages)
            read = sum(map(len, batch.messages))
            size += read
            self._turn_bytes += read
            if size >= GATHER_BYTES:
                yield joined
                joined, size = Batch(0, []), 0
        if joined.messages:
            yield joined

    def _set_aside(self, offset: int, message: bytes, problem: str) -> None:
        """Keeps a message that cannot be decoded, and goes on."""
        files = self._segments.files
        files.make_folder(self._aside_folder)
        path = self._aside_folder / f"{offset:020d}{ASIDE_SUFFIX}"
        # Synced before it is passed over: what is sealed behind it lets the log forget it.
        write_atomically(files, path, message)
        self._metrics.count(names.STORE_SET_ASIDE)
        _LOG.error("message %d cannot be decoded and is kept in %s: %s", offset, path, problem)

    # --- sealing -------------------------------------------------------------------------------

    def _seal(self) -> bool:
        """Seals what is open; False when that is to be tried again later."""
        if not self.open.bundles:
            self._seal_due = False
            return True
        # Without room for it only one store at a time has a segment beside the log it comes from.
        with _tight.turn if self._is_tight(self.open.nbytes) else contextlib.nullcontext():
            return self._seal_now()

    def _seal_now(self) -> bool:
        started = self._clock.monotonic()
        part, rest = self.open.split(self._seal_most)
        try:
            if self._settings.log.durability is not Durability.SYNC:
                self._log.flush()  # the log must never end before its segments do
            info = write_segment(
                self._segments.files,
                self._segments.folder,
                self._journal.state.next_seq,
                self._journal.state.store_id,
                part,
                sealed_at_ns=self._clock.wall_ns(),
                settings=self._settings.segment,
                slots=self._slots,
            )
        except (OSError, DiskFull, TooManyFiles, LogUnavailable) as error:
            self._put_off(error, part)
            return False
        # The segment is whole, synced and named: whoever learns of it here can read it after any
        # crash. Should its event be lost, opening finds the file.
        with self._journal.lock:
            self._journal.record(Sealed(info))
            sealed, self.open = self.open, rest
        del sealed, part  # not under the lock: it takes a while
        self._metrics.count(names.STORE_SEALED_SEGMENTS)
        self._metrics.count(names.STORE_SEALED_BYTES, info.size)
        self._turn_bytes += info.size
        self._metrics.seals.observe(self._clock.monotonic() - started)
        self._memory.hold(self, rest.nbytes)
        self._seal_due, self._pressed, self._seal_failures = rest.bundles > 0, False, 0
        self._seal_most, self.waits_for_space = None, False
        self._sealed_up_to(info.end_offset)
        self._on_sealed()
        self._wake()
        return True

    def _sealed_up_to(self, offset: int) -> None:
        if offset > self.sealed_through:
            self.sealed_through = offset
            # The log may now forget what is below: it is in a durable segment, or set aside.
            self._log.set_floor(offset)

    def _put_off(
        self, error: OSError | DiskFull | TooManyFiles | LogUnavailable, part: OpenSegment
    ) -> None:
        """Tries again later; too many failures stop the store. Nothing is skipped.

        What the disk has no room for is tried in smaller parts: the log it came from can only go
        when it is sealed.
        """
        self._metrics.count(names.STORE_SEAL_FAILURES)
        full = isinstance(error, OSError) and error.errno in OUT_OF_SPACE
        if full or isinstance(error, DiskFull):
            self.waits_for_space = True
            self._seal_most = max(1, part.bundles // 2)
            self._on_disk_full(part.nbytes + SEGMENT_EXTRA_BYTES)
        elif not _lacks_descriptor(error):  # which comes back by itself, however long it takes
            self._seal_failures += 1
            if self._seal_failures > self._settings.seal_retries:
                raise error
        _LOG.warning("a segment could not be sealed and is tried again: %s", error)
        self._resting = True
        self._timers.start("retry", RETRY_S, self._try_again)

    def _try_again(self) -> None:
        self._resting = False
        self._job.ask()

    def _wake(self) -> None:
        changed, self.changed = self.changed, Commit()
        changed.resolve()


def _lacks_descriptor(error: Exception) -> bool:
    lacks = isinstance(error, OSError) and error.errno in OUT_OF_FILES
    return lacks or isinstance(error, TooManyFiles)
