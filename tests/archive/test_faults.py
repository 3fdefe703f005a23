"""Whatever fails, wherever it stops: one descriptor for each range, and nothing left over."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.archive.settings import ArchiveSettings
from penstock.model.errors import (
    ArchiveUnavailable,
    Fenced,
    LeaseHeld,
    MetadataUnavailable,
    ObjectsUnavailable,
)
from penstock.storage.metadata import open_metadata
from penstock.storage.objects import open_objects
from tests.archive.faults import FaultyMetadata
from tests.archive.worlds import World, messages, world
from tests.servers.loops import in_loop
from tests.simulation.objects import Fault, FaultyObjects, Script

if TYPE_CHECKING:
    from penstock.archive.uploader import Uploader

T = TypeVar("T")
_SMALL = ArchiveSettings(upload_bytes=64 * 1024)
_AWAY = (ObjectsUnavailable, MetadataUnavailable, ArchiveUnavailable)
_FAULTS = st.lists(st.sampled_from([None, None, *Fault]), max_size=12)


async def _check_whole(it: World, end: int) -> None:
    """One descriptor for each range, one object for each descriptor, every message once."""
    found = await it.catalog.all()
    bounds = [0, *(one.end_offset for one in found)]
    assert [one.start_offset for one in found] == bounds[:-1]
    assert bounds[-1] == end
    assert sorted(await it.object_ids()) == sorted(one.object_id for one in found)
    assert await it.archived() == messages(0, end)


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
@in_loop
async def test_a_stop_at_any_step_leaves_nothing_behind(tmp_path: Path, fault: Fault) -> None:
    """At every request to either store, before and after it is carried out."""
    for step in itertools.count():
        async with world(tmp_path / str(step)) as it:
            it.append(700)
            objects, metadata = it.objects, it.metadata
            plan = Script([None] * step + [fault])
            it.objects, it.metadata = FaultyObjects(objects, plan), FaultyMetadata(metadata, plan)
            try:
                first = await it.uploader(_SMALL)
                await first.drain()
                await first.tidy()
            except _AWAY:
                pass
            over = bool(plan.faults)
            it.objects, it.metadata = objects, metadata
            it.append(300)
            second = await it.uploader(_SMALL)
            await second.drain()
            await second.tidy()
            await _check_whole(it, 1000)
        if over:
            assert step > 8
            return


class ArchiveMachine(RuleBasedStateMachine):
    """Appends, uploads, restarts, takeovers, retention and reads, with faults in both stores."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-archive-"))
        self._loop = asyncio.new_event_loop()
        self._plan = Script()
        self._inner = open_objects("memory://")
        self._inner_metadata = open_metadata(f"file://{self._folder}/metadata.db")
        self._it = World(
            self._folder / "partition",
            FaultyObjects(self._inner, self._plan),
            FaultyMetadata(self._inner_metadata, self._plan),
        )
        self._uploader: Uploader | None = None
        self._former: Uploader | None = None
        self._archived = 0

    @initialize(count=st.integers(1, 300))
    def begin(self, count: int) -> None:
        """A log with something in it."""
        self._it.append(count)

    @rule(count=st.integers(1, 400))
    def append(self, count: int) -> None:
        """More messages."""
        self._it.append(count)

    @rule(faults=_FAULTS, compression=st.booleans())
    def restart(self, faults: list[Fault | None], compression: bool) -> None:
        """A new uploader in a new epoch; the former one may wake up later."""
        self._plan.faults.extend(faults)
        made = self._run(
            self._it.uploader(ArchiveSettings(upload_bytes=64 * 1024, compression=compression))
        )
        if made is not None:
            self._former, self._uploader = self._uploader, made

    @precondition(lambda self: self._uploader is not None)
    @rule(faults=_FAULTS)
    def upload(self, faults: list[Fault | None]) -> None:
        """One object, or an attempt."""
        assert self._uploader is not None
        self._plan.faults.extend(faults)
        self._run(self._uploader.upload_once())

    @precondition(lambda self: self._uploader is not None)
    @rule(faults=_FAULTS)
    def tidy(self, faults: list[Fault | None]) -> None:
        """Cleaning must not take what is described, also where a list is stale."""
        assert self._uploader is not None
        self._plan.faults.extend(faults)
        self._run(self._uploader.tidy())

    @precondition(lambda self: self._former is not None)
    @rule()
    def wake_former(self) -> None:
        """A fenced uploader adds nothing that counts."""
        assert self._former is not None
        before = self._quietly(self._it.catalog.end_offset())
        self._run(self._former.upload_once())
        assert self._quietly(self._it.catalog.end_offset()) == before

    @rule()
    def forget_locally(self) -> None:
        """The log drops what it may."""
        self._it.log.enforce_retention()

    @rule(faults=_FAULTS)
    def read(self, faults: list[Fault | None]) -> None:
        """What is read is right, though it may stop early."""
        self._plan.faults.extend(faults)
        found = self._run(self._it.archived())
        if found is not None:
            assert found == messages(0, len(found))

    @invariant()
    def nothing_is_only_nowhere(self) -> None:
        """Whatever the log forgot is in the archive, and the archive only grows."""
        end = self._quietly(self._it.catalog.end_offset())
        assert self._it.log.start_offset <= end <= self._it.log.end_offset
        assert end >= self._archived
        self._archived = end

    def teardown(self) -> None:
        """When everything works again, everything becomes whole."""
        try:
            self._plan.faults.clear()
            uploader = self._run(self._it.uploader(_SMALL))
            assert uploader is not None
            self._run(uploader.drain())
            self._run(uploader.tidy())
            self._run(_check_whole(self._it, self._it.log.end_offset))
        finally:
            self._it.log.close()
            for task in asyncio.all_tasks(self._loop):  # leases are kept until they are given back
                task.cancel()
            self._loop.run_until_complete(self._it.metadata.close())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
            shutil.rmtree(self._folder)

    def _run(self, call: Coroutine[Any, Any, T]) -> T | None:
        """None where a store did not answer, or the caller was fenced."""
        try:
            return self._loop.run_until_complete(call)
        except (*_AWAY, Fenced, LeaseHeld):
            return None

    def _quietly(self, call: Coroutine[Any, Any, T]) -> T:
        """Without faults, which stay for later."""
        waiting = list(self._plan.faults)
        self._plan.faults.clear()
        answer = self._loop.run_until_complete(call)
        self._plan.faults.extend(waiting)
        return answer


ArchiveMachine.TestCase.settings = settings(max_examples=15, stateful_step_count=15, deadline=None)
TestArchiveMachine = ArchiveMachine.TestCase


class LongArchiveMachine(ArchiveMachine):
    """The same, for longer."""


LongArchiveMachine.TestCase.settings = settings(
    max_examples=300, stateful_step_count=40, deadline=None
)
TestLongArchiveMachine = pytest.mark.soak(LongArchiveMachine.TestCase)
