"""The pauses of a queue's tries: after others were quicker, and after the store was silent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.model.backoff import Backoff

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    Sleep: TypeAlias = Callable[[float], Awaitable[None]]

_LONGEST_S: Final = 2.0
_SILENCE_S: Final = 0.05
"""The first pause after the store did not answer."""
_QUICKEST_S: Final = 0.0005


class Pauses:
    """Those after a conflict are measured by how long a try takes.

    So the pauses of a store in memory are short and those of one far away are long, and with many
    writers each one's chance to be alone grows until somebody gets through.
    """

    def __init__(self, randomness: random.Random, sleep: Sleep | None = None) -> None:
        self._backoff = Backoff(_SILENCE_S, _LONGEST_S, randomness)
        self._sleep = sleep or asyncio.sleep
        self._try_s = _QUICKEST_S

    def succeeded(self) -> None:
        """The next pause is short again."""
        self._backoff.reset()

    def took(self, seconds: float) -> None:
        """How long a try took, whatever came of it."""
        self._try_s = max(_QUICKEST_S, 0.7 * self._try_s + 0.3 * seconds)

    async def after_conflict(self) -> None:
        """Somebody else was quicker."""
        await self._sleep(self._backoff.next_s(self._try_s))

    async def after_silence(self) -> None:
        """The store did not answer."""
        await self._sleep(self._backoff.next_s())
