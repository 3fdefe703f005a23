"""Rules of the store that goes wrong on purpose: each fault does what its name says."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from penstock.model.errors import ObjectMissing, ObjectsUnavailable
from penstock.storage.objects import ObjectStore, open_objects
from tests.servers.loops import in_loop
from tests.simulation.objects import Fault, FaultyObjects, RandomFaults, Script


def _faulty(*faults: Fault | None) -> tuple[FaultyObjects, ObjectStore]:
    inner = open_objects("memory://")
    return FaultyObjects(inner, Script(faults)), inner


@in_loop
async def test_failing_before_changes_nothing() -> None:
    """The request never arrives."""
    faulty, inner = _faulty(Fault.FAIL_BEFORE)
    with pytest.raises(ObjectsUnavailable):
        await faulty.create("key", b"x")
    with pytest.raises(ObjectMissing):
        await inner.get("key")


@in_loop
async def test_failing_after_is_done_all_the_same() -> None:
    """The caller hears of a failure that was none."""
    faulty, inner = _faulty(Fault.FAIL_AFTER)
    with pytest.raises(ObjectsUnavailable):
        await faulty.create("key", b"x")
    assert await inner.head("key")


@in_loop
async def test_a_duplicate_answers_as_the_first() -> None:
    """The second, which is refused, is not heard."""
    faulty, inner = _faulty(Fault.DUPLICATE)
    version = await faulty.create("key", b"x")
    assert (await inner.head("key")).version == version


@in_loop
async def test_reads_can_be_cut() -> None:
    """Each kind of read loses its second half."""
    faulty, inner = _faulty(*[Fault.TRUNCATE] * 3)
    await inner.put("key", b"abcd")
    found = await faulty.get("key")
    assert found is not None
    assert found.data == b"ab"
    assert await faulty.get_range("key", 0, 4) == b"ab"
    assert [piece async for piece in faulty.stream("key")] == [b"ab"]


@in_loop
async def test_lists_can_be_stale() -> None:
    """What was just written is missing, what was just removed is there."""
    faulty, _ = _faulty(None, None, Fault.STALE_LIST, None)
    await faulty.put("old", b"")
    await faulty.delete("old")
    assert [info.key async for info in faulty.list("")] == []
    await faulty.put("new", b"")
    assert [info.key async for info in faulty.list("")] == ["new"]


@in_loop
async def test_an_upload_can_fail_at_each_step() -> None:
    """At its beginning, at a write, and after it is complete."""
    for faults, complete in (
        ([Fault.FAIL_BEFORE], False),
        ([None, Fault.FAIL_BEFORE], False),
        ([Fault.FAIL_AFTER], True),
    ):
        faulty, inner = _faulty(*faults)
        with pytest.raises(ObjectsUnavailable):
            await _upload(faulty)
        assert [info.key async for info in inner.list("")] == (["key"] if complete else [])


@in_loop
async def test_a_delay_lets_others_go_first() -> None:
    """Another task gets its turns before the request is made."""
    faulty, inner = _faulty(Fault.DELAY)
    await inner.put("key", b"first")
    other = asyncio.ensure_future(asyncio.sleep(0, "done"))
    await faulty.head("key")
    assert other.done()


def test_random_faults_repeat_with_their_seed() -> None:
    """The same seed draws the same faults; turned off, none."""
    draws = [[RandomFaults(Random(7))("put", "") for _ in range(3)] for _ in range(2)]
    assert draws[0] == draws[1]
    plan = RandomFaults(Random(7), {Fault.DELAY: 1.0})
    assert plan("put", "") is Fault.DELAY
    plan.active = False
    assert plan("put", "") is None


async def _upload(store: FaultyObjects) -> None:
    async with store.upload("key") as upload:
        await upload.write(b"x")
