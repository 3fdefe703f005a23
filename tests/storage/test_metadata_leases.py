"""Rules of leases: one owner at a time, and a former one changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.model.errors import (
    Damaged,
    Fenced,
    LeaseHeld,
    MetadataChanged,
    MetadataUnavailable,
    UnsupportedVersion,
)
from penstock.storage.metadata import Leases, Metadata, open_metadata
from penstock.storage.metadata.embedded import EmbeddedMetadata
from penstock.storage.metadata.format import (
    Beat,
    Holder,
    decode_beat,
    decode_holder,
    encode_beat,
    encode_holder,
)
from tests.servers.loops import in_loop

_NAME = "/penstock/storage/topics/default/traces/lease"


class _Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall_ns(self) -> int:
        return 0


@asynccontextmanager
async def _store(folder: Path) -> AsyncIterator[Metadata]:
    metadata = open_metadata(f"file://{folder}/metadata.db")
    yield metadata
    await metadata.close()


@in_loop
async def test_a_second_owner_is_refused(tmp_path: Path) -> None:
    """LeaseHeld says who has it and when to ask again."""
    async with _store(tmp_path) as metadata:
        assert (await Leases(metadata).acquire(_NAME, "a")).epoch == 1
        with pytest.raises(LeaseHeld) as refused:
            await Leases(metadata).acquire(_NAME, "b")
        assert (refused.value.owner, refused.value.epoch) == ("a", 1)
        assert refused.value.retry_after_s == pytest.approx(15.0)


@in_loop
async def test_a_silent_owner_is_fenced_before_it_is_replaced(tmp_path: Path) -> None:
    """At the moment the second may take over, the first has stopped trusting its lease."""
    clock = _Clock()
    async with _store(tmp_path) as metadata:
        first = await Leases(metadata, clock=clock).acquire(_NAME, "a")
        contender = Leases(metadata, clock=clock)
        with pytest.raises(LeaseHeld):
            await contender.acquire(_NAME, "b")
        first.check()
        clock.now += 14.9
        with pytest.raises(LeaseHeld):
            await contender.acquire(_NAME, "b")
        with pytest.raises(Fenced, match="not renewed"):
            first.check()
        clock.now += 0.1
        assert (await contender.acquire(_NAME, "b")).epoch == 2


@in_loop
async def test_an_owner_that_renews_is_not_replaced(tmp_path: Path) -> None:
    """Each renewal starts the contender's wait anew."""
    clock = _Clock()
    async with _store(tmp_path) as metadata:
        first = await Leases(metadata, clock=clock).acquire(_NAME, "a")
        contender = Leases(metadata, clock=clock)
        for _ in range(5):
            clock.now += 10.0
            await first.renew()
            with pytest.raises(LeaseHeld):
                await contender.acquire(_NAME, "b")
        first.check()


@in_loop
async def test_a_sleeper_changes_nothing(tmp_path: Path) -> None:
    """A holder whose clock stood still finds its changes refused, and knows by whom."""
    awake, asleep = _Clock(), _Clock()
    async with _store(tmp_path) as metadata:
        first = await Leases(metadata, clock=asleep).acquire(_NAME, "a")
        contender = Leases(metadata, clock=awake)
        with pytest.raises(LeaseHeld):
            await contender.acquire(_NAME, "b")
        awake.now += 15.0
        second = await contender.acquire(_NAME, "b")
        with pytest.raises(Fenced, match="b took over"):
            await first.commit({"key": b"stale"})
        with pytest.raises(Fenced):
            first.check()
        await second.commit({"key": b"new"})
        await first.release()
        second.check()
        await second.renew()


@in_loop
async def test_a_released_lease_is_free_at_once(tmp_path: Path) -> None:
    """The next owner need not wait; the former one is done."""
    async with _store(tmp_path) as metadata:
        first = await Leases(metadata).acquire(_NAME, "a")
        await first.release()
        with pytest.raises(Fenced, match="given back"):
            first.check()
        assert (await Leases(metadata).acquire(_NAME, "b")).epoch == 2


@in_loop
async def test_a_restarted_owner_fences_its_former_self(tmp_path: Path) -> None:
    """The same owner takes its own lease without a wait, in a new epoch."""
    async with _store(tmp_path) as metadata:
        first = await Leases(metadata).acquire(_NAME, "a")
        assert (await Leases(metadata).acquire(_NAME, "a")).epoch == 2
        with pytest.raises(Fenced):
            await first.renew()


@in_loop
async def test_of_many_contenders_one_wins(tmp_path: Path) -> None:
    """Acquisitions at the same time: one holds it, the others hear so."""
    async with _store(tmp_path) as metadata:
        answers = await asyncio.gather(
            *(Leases(metadata).acquire(_NAME, f"owner-{n}") for n in range(6)),
            return_exceptions=True,
        )
        refused = [answer for answer in answers if isinstance(answer, LeaseHeld)]
        assert len(refused) == 5


@in_loop
async def test_a_condition_of_the_caller_is_not_a_fence(tmp_path: Path) -> None:
    """MetadataChanged where the lease holds and another condition does not."""
    async with _store(tmp_path) as metadata:
        lease = await Leases(metadata).acquire(_NAME, "a")
        with pytest.raises(MetadataChanged):
            await lease.commit({"key": b""}, conditions={"key": 1234})
        lease.check()


class _LosesAnswers(EmbeddedMetadata):
    """Carries out the next commits and does not answer."""

    lose = 0

    async def commit(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        conditions: Mapping[str, int | None] | None = None,
    ) -> int:
        revision = await super().commit(puts, deletes=deletes, conditions=conditions)
        if self.lose:
            self.lose -= 1
            raise MetadataUnavailable("the answer was lost")
        return revision


@in_loop
async def test_a_lost_answer_is_recognised(tmp_path: Path) -> None:
    """An acquisition that was carried out is found by its nonce."""
    metadata = _LosesAnswers(tmp_path / "metadata.db")
    metadata.lose = 1
    lease = await Leases(metadata).acquire(_NAME, "a")
    await lease.renew()
    await metadata.close()


@in_loop
async def test_keeping_goes_on_until_it_is_fenced(tmp_path: Path) -> None:
    """Renewals go on through lost answers and end when another epoch is there."""
    metadata = _LosesAnswers(tmp_path / "metadata.db")
    lease = await Leases(metadata, ttl_s=0.9).acquire(_NAME, "a")
    metadata.lose = 1
    await asyncio.sleep(0.7)
    later = await Leases(metadata).acquire(_NAME, "a", least_epoch=7)
    assert later.epoch == 7
    with pytest.raises(Fenced):
        await lease.keeping
    await metadata.close()


def test_leases_are_json() -> None:
    """Both keys as documented, and back."""
    holder = Holder(3, "host-a", "00ff", 15.0)
    text = b'{"version":1,"epoch":3,"owner":"host-a","nonce":"00ff","ttl_s":15.0}'
    assert encode_holder(holder) == text
    assert decode_holder(text) == holder
    beat = Beat(3, 9, released=False)
    assert encode_beat(beat) == b'{"version":1,"epoch":3,"count":9,"released":false}'
    assert decode_beat(encode_beat(beat)) == beat


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"version":1}', b"\xff", b"1"])
def test_what_is_no_lease_is_damaged(data: bytes) -> None:
    """Neither key is guessed at."""
    with pytest.raises(Damaged):
        decode_holder(data)
    with pytest.raises(Damaged):
        decode_beat(data)


def test_a_newer_lease_is_refused() -> None:
    """Written by a newer Penstock."""
    with pytest.raises(UnsupportedVersion):
        decode_holder(b'{"version":2}')
