"""Queries, a few at a time: in which process each runs, and when that is ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.children.asking import Child, ChildDied, ChildSilent, ChildTooLarge
from penstock.children.frames import decode_document, encode_document
from penstock.children.pool import ChildNotReady, Pool, PoolClosed
from penstock.server.configuration import config as configuration
from penstock.server.places import EVERYBODY, Bounds, Client, Places
from penstock.server.refusals import Cause, Refusal
from penstock.storage.scratch import Scratch

if TYPE_CHECKING:
    from penstock.server.configuration.config import Config

MODULE: Final = "penstock.server.querying.worker"
IDLE_S: Final = 300.0
"""A process that nobody asks ends after this, and gives back its memory."""
MOST_ANSWERS: Final = 1000
"""Nor does one live for ever: whatever a library does not free goes with it."""
_KEPT_SHARE: Final = 0.5
"""Of the memory that it may have; one that holds more afterwards is not kept."""
_GRACE_S: Final = 2.0
"""It stops by itself when its time is over; it is ended so long after that."""
_FAILURES: Final = {
    "broken": Cause.FAILED,
    "incomplete": Cause.FAILED,
    "invalid": Cause.INVALID,
    "limit": Cause.OVER_LIMIT,
    "missing": Cause.NOT_INSTALLED,
    "unavailable": Cause.UNAVAILABLE,
}


class Found(NamedTuple):
    """What is known of an answer, and the answer, as the client gets it."""

    document: dict[str, Any]
    body: bytes


class Queries:
    """Processes that are kept for the next question. Belongs to one event loop."""

    def __init__(self, config: Config) -> None:
        self._config = config
        allowed = config.query
        bounds = Bounds(
            allowed.processes,
            of_client=allowed.token_processes,
            waiting=allowed.waiting,
            what="queries",
            whose="with this token",
        )
        self._places = Places(bounds)
        self._folders: dict[Child, Scratch] = {}
        self._pool = Pool(
            self._start,
            most=allowed.processes,
            kept_bytes=_KEPT_SHARE * allowed.memory,
            idle_s=IDLE_S,
            most_answers=MOST_ANSWERS,
            orders=[encode_document(configuration.handed(config))],
            on_end=lambda child: self._folders.pop(child).remove(),
        )

    @property
    def restarts(self) -> int:
        """How many processes had to be replaced."""
        return self._pool.restarts

    async def ask(
        self, question: dict[str, Any], timeout_s: float | None = None, *, who: str = EVERYBODY
    ) -> Found:
        """The answer to one question of somebody's; Refusal where there is none.

        Cancellation ends the query. A process that was ended, by us or by others, is replaced with
        the next question.
        """
        timeout_s = timeout_s or self._config.query.timeout
        async with self._places.hold(Client(who, who), timeout_s):
            answer = await self._ask(question, timeout_s)
        if "failed" in answer.document:
            cause = _FAILURES[answer.document["failed"]]
            retry_s = 5.0 if cause is Cause.UNAVAILABLE else None
            raise Refusal(cause, answer.document["message"], retry_after_s=retry_s)
        return answer

    async def close(self) -> None:
        """Ends all of them; whoever waits for an answer is told to come again."""
        await self._pool.close()

    async def _ask(self, question: dict[str, Any], timeout_s: float) -> Found:
        asked = [encode_document({**question, "seconds": timeout_s})]
        try:
            document, body = await self._pool.ask(asked, timeout_s + _GRACE_S)
        except PoolClosed:
            raise _later("the server is stopping", 5.0) from None
        except ChildNotReady:
            raise _later("the process that answers queries does not start", 5.0) from None
        except ChildSilent:
            text = f"the query took longer than {timeout_s:g} s"
            raise Refusal(Cause.OVER_LIMIT, text) from None
        except ChildTooLarge:
            text = f"the query took more than {self._config.query.memory} bytes of memory"
            raise Refusal(Cause.OVER_LIMIT, text) from None
        except ChildDied:
            text = "the process that answered the query has ended; ask again"
            raise _later(text, 1.0) from None
        return Found(decode_document(document), bytes(body))

    def _start(self) -> Child:
        # Of its own: what it leaves there when it is killed goes with it. Not made in a thread,
        # which nobody would hear of when whoever asks goes away meanwhile.
        folder = Scratch("queries")
        try:
            child = Child(
                MODULE,
                most_memory=self._config.query.memory,
                environment={"TMPDIR": str(folder.path)},
                inherits=(folder.fileno(),),  # where it may outlive this process
            )
        except BaseException:
            folder.remove()
            raise
        self._folders[child] = folder
        return child


def _later(text: str, retry_after_s: float) -> Refusal:
    return Refusal(Cause.UNAVAILABLE, text, retry_after_s=retry_after_s)
