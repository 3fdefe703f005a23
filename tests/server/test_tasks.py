"""Work in the background may not end unseen."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.server.tasks import watched

if TYPE_CHECKING:
    import pytest


async def fail() -> None:
    """As a disk does."""
    raise OSError("no room")


async def last() -> None:
    """Until somebody cancels it."""
    await asyncio.Event().wait()


def test_failure_is_named_and_has_its_consequence(caplog: pytest.LogCaptureFixture) -> None:
    """Though nobody waits for the task."""

    async def run() -> None:
        failed = asyncio.Event()
        kept = watched(fail(), "the describing", failed.set)
        await failed.wait()
        assert kept.done()

    asyncio.run(run())
    assert "the describing failed: no room" in caplog.text


def test_cancelled_task_did_not_fail(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing follows from that."""

    async def run() -> bool:
        failed = asyncio.Event()
        task = watched(last(), "waiting", failed.set)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0)
        return failed.is_set()

    assert not asyncio.run(run())
    assert not caplog.text
