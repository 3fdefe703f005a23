"""Runs a test that is a coroutine, in an event loop of its own."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The test as pytest calls it, with the same fixtures."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(_awaited(test, args, kwargs))

    return run


async def _awaited(
    test: Callable[..., Awaitable[None]], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    await test(*args, **kwargs)
