"""From a request's bytes to a durable message, with real stores and a disk that may fail."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.metrics import Metrics
from penstock.model.clock import SystemClock
from penstock.otel import Signal
from penstock.server.configuration.loading import load
from penstock.server.keeping import opening
from penstock.server.keeping import stores as stores_module
from penstock.server.keeping.opening import Opener
from penstock.server.keeping.stores import Stores
from penstock.server.receiving.ingest import Ingest
from penstock.server.receiving.repeats import Repeats
from penstock.server.refusals import Cause, Refusal
from penstock.storage import DataDirectory, LocalFiles
from penstock.store import Store
from penstock.store.decoding import PlainDecoder
from penstock.store.outside import Delivered, Taken, write_delivered
from tests.patience import PATIENCE_S
from tests.server.samples import logs, sample, traces
from tests.server.taking import take
from tests.simulation.faults import FaultyFiles

if TYPE_CHECKING:
    from penstock.server.configuration.config import Config

T, L = Signal.TRACES, Signal.LOGS


class World:
    """One worker's way in, and the disk under it."""

    def __init__(self, folder: Path, config: Config, files: FaultyFiles) -> None:
        self.files = files
        self.limits = config.limits
        decoders = {sent: PlainDecoder(sent.raw_slot) for sent in Signal}
        self.stores = Stores(Opener(config, decoders, Metrics()), 0, config)
        self.repeats = Repeats(config.dedupe, folder, SystemClock())
        self.ingest = Ingest(self.stores, self.repeats, config.limits)

    def messages(self, sent: Signal = T, namespace: str = "default") -> list[bytes]:
        """What is in the log of a topic."""
        name = f"/{namespace}/{sent.value}/0"
        found = [store for store in self.stores.all() if store.name == name]
        return [message for store in found for _, message in store.log.read()]

    async def take(self, sent: Signal, namespace: str, data: bytes) -> None:
        """A request."""
        await take(self.ingest, sent, namespace, data, self.limits)

    async def take_at_last(self, sent: Signal, data: bytes) -> None:
        """Sends a request again and again, until it is taken."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with contextlib.suppress(Refusal):
                    await self.take(sent, "default", data)
                    return
                await asyncio.sleep(0.02)

    async def cause(self, sent: Signal, data: bytes, namespace: str = "default") -> Cause:
        """Why a request is refused."""
        with pytest.raises(Refusal) as refused:
            await self.take(sent, namespace, data)
        return refused.value.cause


Test = Callable[[World], Awaitable[None]]
Run = Callable[..., None]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a test in a world; `config` is what a file would say."""
    files = FaultyFiles(LocalFiles())

    def open_store(*arguments: Any, **more: Any) -> Store:
        env = replace(more.pop("env"), files=files)
        return Store.open(*arguments, **more, env=env)

    class Faulty:
        open = staticmethod(open_store)

    monkeypatch.setattr(opening, "Store", Faulty)

    @contextlib.asynccontextmanager
    async def world(config: dict[str, Any]) -> AsyncIterator[World]:
        made = World(tmp_path, load({"data_dir": str(tmp_path), **config}, {}, {}), files)
        await made.stores.open_first()
        await made.stores.open_rest()
        try:
            yield made
        finally:
            files.heal()
            await made.stores.close()
            made.repeats.close()

    def run(test: Test, **config: Any) -> None:
        async def all_of_it() -> None:
            async with world(config) as made:
                await test(made)

        asyncio.run(all_of_it())

    return run


def test_request_is_in_the_log_as_it_came(run: Run) -> None:
    """Byte for byte, when the answer is given."""

    async def test(world: World) -> None:
        for sent in Signal:
            data = sample(sent, "a", "b")
            await world.take(sent, "default", data)
            assert world.messages(sent) == [data]

    run(test)


def test_request_without_records_makes_no_topic(run: Run, tmp_path: Path) -> None:
    """It is well-formed, and there is nothing to store."""

    async def test(world: World) -> None:
        await world.take(T, "default", b"")
        assert not (tmp_path / "topics").exists()

    run(test)


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05", traces("a")[:-1], b"\x0a\x02\x12\xff"])
def test_malformed_request_is_invalid_and_explained(run: Run, data: bytes) -> None:
    """Nothing is made for it."""

    async def test(world: World) -> None:
        with pytest.raises(Refusal, match="not an ExportTraceServiceRequest: ") as refused:
            await world.take(T, "default", data)
        assert refused.value.cause is Cause.INVALID
        assert world.stores.all() == []

    run(test)


def test_limits_of_records_hold(run: Run) -> None:
    """Of one signal as of the others."""

    async def test(world: World) -> None:
        for sent in Signal:
            await world.take(sent, "default", sample(sent, "a", "b"))
            assert await world.cause(sent, sample(sent, "a", "b", "c")) is Cause.INVALID

    run(test, limits={"records": 2})


@pytest.mark.parametrize("name", ["", "a/b", "n" * 300, "\x00"])
def test_namespace_that_cannot_be_stored_is_invalid(run: Run, name: str) -> None:
    """Refused before the disk sees it."""

    async def test(world: World) -> None:
        assert await world.cause(T, traces("a"), name) is Cause.INVALID

    run(test)


def test_first_requests_of_a_topic_open_it_once(run: Run) -> None:
    """Though they come together."""

    async def test(world: World) -> None:
        names = [str(number) for number in range(30)]
        await asyncio.gather(*(world.take(L, "default", logs(name)) for name in names))
        assert len(world.stores.all()) == 1
        assert sorted(world.messages(L)) == sorted(map(logs, names))

    run(test)


def test_topics_are_bounded_also_while_they_are_made(run: Run) -> None:
    """Too many are put off; those that are there are served."""

    async def test(world: World) -> None:
        calls = [world.take(L, f"ns{number}", logs("a")) for number in range(20)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        taken = [number for number, each in enumerate(found) if each is None]
        refused = [each.cause for each in found if isinstance(each, Refusal)]
        assert (len(taken), refused) == (5, [Cause.BUSY] * 15)
        await world.take(L, f"ns{taken[0]}", logs("b"))

    run(test, limits={"topics": 5})


def test_topics_beyond_the_bound_are_opened_at_the_start(run: Run) -> None:
    """What is on disk is served, whatever the bound is now."""

    async def make(world: World) -> None:
        for number in range(6):
            await world.take(L, f"ns{number}", logs("a"))

    async def test(world: World) -> None:
        assert len(world.stores.all()) == 6
        await world.take(L, "ns5", logs("b"))
        assert await world.cause(L, logs("a"), "another") is Cause.BUSY

    run(make)
    run(test, limits={"topics": 3})


def few(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """As if there were descriptors for so many stores."""
    monkeypatch.setattr(stores_module, "most_open_stores", lambda _: most)


def test_store_that_was_closed_for_others_goes_on_where_it_was(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More topics than may be open: each has what was sent to it, and all of them are shown."""
    few(monkeypatch, 3)

    async def test(world: World) -> None:
        for _ in range(2):
            for number in range(8):
                await world.take(L, f"ns{number}", logs("a"))
                assert len(world.stores.all()) <= 3
        ends = {each["namespace"]: each["end"] for each in world.stores.described()}
        assert ends == {f"ns{number}": 2 for number in range(8)}

    run(test)


def test_store_in_use_is_not_closed_for_another(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all are in use, one more is put off, and comes in when one is left."""
    few(monkeypatch, 1)

    async def test(world: World) -> None:
        async with world.stores.using("used", L) as store:
            assert await world.cause(L, logs("a"), "another") is Cause.BUSY
            assert world.stores.all() == [store]
        await world.take(L, "another", logs("a"))

    run(test)


def test_closed_store_hears_of_the_pipeline(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the lake has by now is let go of, though nobody sends to that topic any more."""
    few(monkeypatch, 1)

    async def test(world: World) -> None:
        for name in ("first", "second"):
            await world.take(L, name, logs("a"))
        [before] = [e for e in world.stores.described() if e["namespace"] == "first"]
        assert before["segments"] == 1
        through = {"/first/logs/0": Taken(0, 1, 2**62)}
        directory = DataDirectory(tmp_path)
        directory.create()
        source = directory.identity()
        write_delivered(tmp_path, Delivered("lake", through, source))
        await world.stores.hear_of_the_pipeline()
        [after] = [e for e in world.stores.described() if e["namespace"] == "first"]
        assert after["segments"] == 0

    run(test)


def test_new_topic_that_is_refused_leaves_no_folder(run: Run, tmp_path: Path) -> None:
    """Without a descriptor for it: it is put off, and the next try makes it."""

    async def test(world: World) -> None:
        world.files.fail("create", errno.EMFILE, name="*.wal*")
        assert await world.cause(L, logs("a"), "refused") in (Cause.BUSY, Cause.UNAVAILABLE)
        assert not (tmp_path / "topics" / "refused").exists()
        world.files.heal()
        await world.take(L, "refused", logs("a"))

    run(test)


def test_topic_that_cannot_be_opened_does_not_stop_the_others(run: Run, tmp_path: Path) -> None:
    """At the start: it is red and refused, they are served."""

    async def make(world: World) -> None:
        for name in ("a", "b", "c"):
            await world.take(L, name, logs("x"))

    async def test(world: World) -> None:
        await world.take(L, "a", logs("y"))
        await world.take(L, "c", logs("y"))
        assert await world.cause(L, logs("y"), "b") is Cause.UNAVAILABLE

    run(make)
    folder = tmp_path / "topics" / "b" / "logs" / "0" / "log"
    folder.rename(folder.with_name("elsewhere"))
    folder.write_text("in the way")
    run(test)


def test_topic_that_could_not_be_opened_is_tried_again(run: Run) -> None:
    """With the next request; a full or failing disk may have been the reason."""

    async def test(world: World) -> None:
        fault = world.files.fail("create", errno.EMFILE, times=None)
        assert await world.cause(T, traces("a")) is Cause.UNAVAILABLE
        assert fault.hits
        world.files.heal()
        await world.take(T, "default", traces("a"))
        assert world.messages() == [traces("a")]

    run(test)


def test_full_disk_is_put_off_and_goes_on(run: Run) -> None:
    """BUSY; nothing of the request is stored, and its retry is."""

    async def test(world: World) -> None:
        await world.take(T, "default", traces("a"))
        world.files.fail("pwrite", errno.ENOSPC, name="*.wal", times=None)
        assert await world.cause(T, traces("b")) is Cause.BUSY
        world.files.heal()
        await world.take_at_last(T, traces("b"))
        assert world.messages() == [traces("a"), traces("b")]

    run(test)


def test_poisoned_log_is_seen_and_opened_again(run: Run) -> None:
    """A failed sync: UNAVAILABLE, a failure to report, and a new beginning with the next one."""

    async def test(world: World) -> None:
        await world.take(T, "default", traces("a"))
        [store] = world.stores.all()
        world.files.fail("sync", errno.EIO, name="*.wal")
        assert await world.cause(T, traces("b")) is Cause.UNAVAILABLE
        assert store.log.failure is not None
        await world.take(T, "default", traces("c"))
        assert world.stores.all() != [store]
        found = world.messages()
        assert found[0] == traces("a")
        assert found[-1] == traces("c")

    run(test)


def test_failed_request_may_be_sent_again(run: Run) -> None:
    """It is not remembered as stored."""

    async def test(world: World) -> None:
        world.files.fail("sync", errno.EIO, name="*.wal")
        assert await world.cause(T, traces("a")) is Cause.UNAVAILABLE
        await world.take(T, "default", traces("a"))
        assert traces("a") in world.messages()

    run(test)


def test_cancelled_request_is_stored_and_remembered(run: Run) -> None:
    """The client has gone; its retry is answered without a second copy."""

    async def test(world: World) -> None:
        await world.take(T, "default", traces("a"))
        gate = world.files.hold_up("sync", name="*.wal")
        task = asyncio.create_task(world.take(T, "default", traces("b")))
        await asyncio.to_thread(gate.reached.wait, PATIENCE_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        again = asyncio.create_task(world.take(T, "default", traces("b")))
        await asyncio.sleep(0)
        gate.open()
        await again
        assert world.messages() == [traces("a"), traces("b")]

    run(test)


def test_requests_whose_clients_have_gone_are_bounded(run: Run) -> None:
    """A client that sends and goes, again and again, fills no memory while the disk is slow."""

    async def test(world: World) -> None:
        await world.take(T, "default", traces("first"))
        gate = world.files.hold_up("sync", name="*.wal")
        for number in range(4):
            data = traces(str(number), padding=400_000)
            task = asyncio.create_task(world.take(T, "default", data))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        assert await world.cause(T, traces("more")) is Cause.BUSY
        gate.open()
        await world.take_at_last(T, traces("more"))

    run(test, limits={"in_flight": "1MB"})


def test_used_up_budget_is_put_off(run: Run) -> None:
    """BUSY with a time, and not an endless wait."""

    async def test(world: World) -> None:
        async def fill() -> None:
            for number in range(100):
                await world.take(T, "default", traces(str(number), padding=100_000))

        with pytest.raises(Refusal) as refused:
            await asyncio.wait_for(fill(), PATIENCE_S)
        assert refused.value.cause is Cause.BUSY
        assert refused.value.retry_after_s

    run(test, retention={"size_cap": "3MB"})


def test_closed_stores_take_nothing(run: Run) -> None:
    """UNAVAILABLE: the client is to try elsewhere, or later."""

    async def test(world: World) -> None:
        await world.take(T, "default", traces("a"))
        await world.stores.close()
        for namespace in ("default", "another"):
            assert await world.cause(T, traces("b"), namespace) is Cause.UNAVAILABLE

    run(test)


def test_partitions_of_workers_that_are_no_more_are_opened(run: Run, tmp_path: Path) -> None:
    """They are sealed and delivered; new requests go to the worker's own."""

    async def make(world: World) -> None:
        await world.take(T, "default", traces("a"))

    async def test(world: World) -> None:
        names = sorted(store.name for store in world.stores.all())
        assert names == ["/default/traces/0", "/default/traces/3"]
        await world.take(T, "default", traces("b"))
        assert world.messages()[-1] == traces("b")

    run(make)
    folder = tmp_path / "topics" / "default" / "traces"
    (folder / "0").rename(folder / "3")
    (tmp_path / "repeats.tbl").unlink()
    run(make)
    run(test)


def test_traces_in_other_bytes_are_other_requests(run: Run) -> None:
    """Only a retry byte for byte is a repeat."""

    async def test(world: World) -> None:
        for name in ("a", "b", "a"):
            await world.take(T, "default", traces(name))
        assert world.messages() == [traces("a"), traces("b")]
        assert world.repeats.hits == 1

    run(test)
