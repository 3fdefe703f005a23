"""What a caller of `produce` waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.log.commit import Commit

if TYPE_CHECKING:
    from penstock.model.errors import PenstockError


class DurabilityWatcher:
    """Says whether entries are stored and enqueued. Shared by all calls of one batch.

    May be asked from any thread and any event loop. Waiting may be abandoned and begun again; that
    changes nothing about the entries. QueueUnreachable: they are not in the queue, produce them
    again. OutcomeUnknown: they may be. Anything else: the producer has stopped.
    """

    def __init__(self) -> None:
        self._commit = Commit()
        self._sequence: int | None = None

    @property
    def sequence(self) -> int | None:
        """The sequence of the entries' batch, once they are durable."""
        return self._sequence

    @property
    def done(self) -> bool:
        """Whether it is decided, well or not."""
        return self._commit.done

    def result(self) -> bool | None:
        """True once durable, None while that is open; raises why it is not."""
        if not self._commit.done:
            return None
        self._commit.wait()
        return True

    async def await_durable(self) -> None:
        """Returns when durable; raises why it is not."""
        await self._commit

    def wait(self, timeout: float | None = None) -> None:
        """The same, blocking; TimeoutError while it is open."""
        self._commit.wait(timeout)

    def settle(self, sequence: int) -> None:
        """The entries are in the manifest."""
        if not self._commit.done:
            self._sequence = sequence
            self._commit.resolve()

    def fail(self, error: PenstockError) -> None:
        """They are not, or nobody knows; a second answer changes nothing."""
        if not self._commit.done:
            self._commit.resolve(error)


@dataclass(frozen=True, slots=True)
class WriteHandle:
    """What `produce` returns."""

    watcher: DurabilityWatcher
