"""Checks of large requests: elsewhere, in turn, and in spite of what dies there."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.otel import Signal
from penstock.server.configuration.config import Limits
from penstock.server.places import Client
from penstock.server.receiving import checking
from penstock.server.receiving.checking import FREE_BYTES, Arrived, Checks, unpacked_bytes
from penstock.server.refusals import Cause, Refusal
from tests.server.running import children_of
from tests.server.samples import sample, traces
from tests.servers.loops import in_loop

T = Signal.TRACES
ME = Client("me", "me:1")
LARGE = traces("large", padding=3_000_000)


@contextlib.asynccontextmanager
async def checks(deadline_s: float = 3600.0) -> AsyncIterator[Checks]:
    """Of one worker."""
    made = Checks(Limits(), deadline_s)
    try:
        yield made
    finally:
        await made.close()


async def check(made: Checks, *arrived: Any, **more: Any) -> Any:
    """What is found."""
    return await made.check(Arrived(*arrived, **more), ME, lambda _: None)


@in_loop
async def test_large_and_small_requests_are_found_the_same() -> None:
    """One is checked here, the other in a process; what was not changed is the same object."""
    before = children_of(os.getpid())
    async with checks() as made:
        small = traces("a")
        found = await check(made, T, small)
        assert (found.records, found.data is small) == (1, True)
        assert children_of(os.getpid()) == before
        found = await check(made, T, LARGE)
        assert (found.records, found.data is LARGE) == (1, True)
        assert len(children_of(os.getpid())) == len(before) + 1
    assert children_of(os.getpid()) == before


@in_loop
async def test_what_is_rejected_of_a_large_request_is_left_out() -> None:
    """And told."""
    bad = T.request_class.FromString(LARGE)
    bad.resource_spans[0].scope_spans[0].spans.add(name="no ids")  # type: ignore[attr-defined]
    async with checks() as made:
        found = await check(made, T, bad.SerializeToString())
    assert (found.data, found.records, found.rejected) == (LARGE, 1, 1)
    assert "1 of 2 spans rejected" in found.text


@in_loop
async def test_large_request_that_is_malformed_is_refused_for_good() -> None:
    """In the words of a small one."""
    async with checks() as made:
        with pytest.raises(Refusal, match="not an ExportTraceServiceRequest") as refused:
            await check(made, T, LARGE[:-1])
    assert refused.value.cause is Cause.INVALID


@in_loop
async def test_process_that_was_killed_is_replaced() -> None:
    """Its request is checked by the next."""
    async with checks() as made:
        before = set(children_of(os.getpid()))
        await check(made, T, LARGE)
        for pid in set(children_of(os.getpid())) - before:
            os.kill(pid, signal.SIGKILL)
        assert (await check(made, T, LARGE)).records == 1


@in_loop
async def test_check_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be the machine: the client is to come again."""
    monkeypatch.setattr(checking, "CHECKER", "tests.children.hanging")
    async with checks(0.2) as made:
        with pytest.raises(Refusal, match="too long") as refused:
            await check(made, T, LARGE)
        assert refused.value.cause is Cause.UNAVAILABLE
        assert refused.value.retry_after_s
        assert made.restarts == 1


@in_loop
async def test_stopping_does_not_wait_for_a_check_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its client is told to come again."""
    monkeypatch.setattr(checking, "CHECKER", "tests.children.hanging")
    before = children_of(os.getpid())
    async with checks() as made:
        hanging = asyncio.create_task(check(made, T, LARGE))
        while children_of(os.getpid()) == before:
            await asyncio.sleep(0.01)
    with pytest.raises(Refusal, match="stopping") as refused:
        await hanging
    assert refused.value.retry_after_s


@in_loop
async def test_request_that_kills_its_process_is_refused_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a second try: others must not suffer from it for ever."""
    monkeypatch.setattr(checking, "CHECKER", "tests.children.ending")
    async with checks() as made:
        with pytest.raises(Refusal, match="did not survive") as refused:
            await check(made, T, LARGE)
    assert refused.value.cause is Cause.INVALID


@in_loop
async def test_request_is_put_off_where_no_process_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is not the request's fault: the client is to come again."""

    def refuse(_: str) -> Any:
        raise OSError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr(checking, "Child", refuse)
    async with checks() as made:
        with pytest.raises(Refusal, match="no more processes") as refused:
            await check(made, T, LARGE)
    assert refused.value.cause is Cause.UNAVAILABLE
    assert refused.value.retry_after_s


@in_loop
async def test_check_goes_on_when_its_client_has_gone() -> None:
    """Its process is asked the next question only then."""
    async with checks() as made:
        task = asyncio.create_task(check(made, T, LARGE))
        await asyncio.sleep(0)
        task.cancel()
        assert (await check(made, T, LARGE)).records == 1


@pytest.mark.parametrize("sent", [Signal.TRACES, Signal.LOGS])
def test_batches_of_sdks_are_light(sent: Signal) -> None:
    """They are checked where they are; metrics, which are full of zeros, are not."""
    data = sample(sent, *(f"GET /api/cart/{number}" for number in range(512)))
    assert checking.is_light(data, is_json=False)


def test_ratio_counts_beyond_what_is_free() -> None:
    """A small body may become so much, a larger one so many times its size."""
    limits = Limits()
    assert unpacked_bytes(10, limits) == FREE_BYTES
    assert unpacked_bytes(40_000, limits) == 40_000 * limits.ratio
    assert unpacked_bytes(10**6, limits) == limits.decompressed
