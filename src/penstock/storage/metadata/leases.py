"""Ownership of a name, with an epoch that fences whoever had it before.

No clocks are compared. The holder renews; a contender takes over after it has itself watched the
lease stand still for the whole of its duration; the holder stops trusting its lease before that,
counted from the beginning of its last renewal. Every change it makes through the lease is also
conditional on the epoch, so that even a holder that slept changes nothing.

A lease is renewed from the moment it is taken until it is given back or lost: what its holder does
meanwhile may take as long as it likes.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

from penstock.model.clock import Clock, SystemClock
from penstock.model.errors import Fenced, LeaseHeld, MetadataChanged, MetadataUnavailable
from penstock.storage.metadata.format import (
    Beat,
    Holder,
    decode_beat,
    decode_holder,
    encode_beat,
    encode_holder,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.storage.metadata.model import Entry, Metadata

DEFAULT_TTL_S = 15.0
_TRUSTED_SHARE = 0.9
_RENEWALS_PER_TTL = 3


class Leases:
    """Leases in one metadata store. Use one object for as long as its process lives.

    It remembers since when it has watched each lease stand still.
    """

    def __init__(
        self, metadata: Metadata, *, ttl_s: float = DEFAULT_TTL_S, clock: Clock | None = None
    ) -> None:
        self._metadata = metadata
        self._ttl_s = ttl_s
        self._clock = clock or SystemClock()
        self._still_since: dict[str, tuple[int, float]] = {}

    async def acquire(self, name: str, owner: str, *, least_epoch: int = 1) -> Lease:
        """Takes the lease `name` for `owner`, with the next epoch, or a later one, and keeps it.

        At once where nobody has it, where it was given back, or where `owner` itself has it: its
        earlier epoch is fenced. LeaseHeld where another owner has it and lives; call again after
        `retry_after_s`, and a lease that was not renewed meanwhile is taken over.
        """
        found, beat = await self._metadata.get(name), await self._metadata.get(_beat_key(name))
        holder = decode_holder(found.data) if found is not None else None
        if holder is not None and holder.owner != owner:
            self._refuse_while_held(name, holder, beat)
        began = self._clock.monotonic()
        epoch = max(least_epoch, holder.epoch + 1 if holder is not None else 1)
        mine = Holder(epoch, owner, uuid.uuid4().hex, self._ttl_s)
        revision = await self._take(name, mine, found, beat)
        return Lease(self._metadata, name, mine, revision, self._clock, began)

    def _refuse_while_held(self, name: str, holder: Holder, beat: Entry | None) -> None:
        if beat is None or decode_beat(beat.data).released:
            return
        now = self._clock.monotonic()
        revision, since = self._still_since.get(name, (-1, now))
        if revision != beat.revision:
            since = now
            self._still_since[name] = (beat.revision, since)
        left_s = since + holder.ttl_s - now
        if left_s > 0:
            text = f"{name} is owned by {holder.owner} (epoch {holder.epoch})"
            raise LeaseHeld(text, owner=holder.owner, epoch=holder.epoch, retry_after_s=left_s)

    async def _take(self, name: str, mine: Holder, found: Entry | None, beat: Entry | None) -> int:
        """The revision of the fence. A lost answer is recognised by the nonce."""
        puts = {
            name: encode_holder(mine),
            _beat_key(name): encode_beat(Beat(mine.epoch, 0, released=False)),
        }
        conditions = {name: _revision(found), _beat_key(name): _revision(beat)}
        try:
            return await self._metadata.commit(puts, conditions=conditions)
        except (MetadataChanged, MetadataUnavailable) as error:
            return await self._read_back(name, mine, error)

    async def _read_back(self, name: str, mine: Holder, error: Exception) -> int:
        entry = await self._metadata.get(name)
        holder = decode_holder(entry.data) if entry is not None else None
        if entry is not None and holder == mine:
            return entry.revision
        if holder is None or isinstance(error, MetadataUnavailable):
            raise error
        text = f"{name} was just taken by {holder.owner} (epoch {holder.epoch})"
        raise LeaseHeld(
            text, owner=holder.owner, epoch=holder.epoch, retry_after_s=holder.ttl_s
        ) from error


class Lease:
    """Ownership of `name` in one epoch, until it is released, taken over, or not renewed in time.

    For one event loop, as its metadata is.
    """

    def __init__(
        self,
        metadata: Metadata,
        name: str,
        holder: Holder,
        revision: int,
        clock: Clock,
        began: float,
    ) -> None:
        """Use `Leases.acquire`: it is kept from here on."""
        self.name = name
        self.owner = holder.owner
        self.epoch = holder.epoch
        self.ttl_s = holder.ttl_s
        self._metadata = metadata
        self._revision = revision
        self._clock = clock
        self._renewed_at = began
        self._beats = 0
        self._lost: str | None = None
        self.keeping = asyncio.ensure_future(self._keep())
        """Ends by Fenced when the lease is lost, and is cancelled when it is given back."""
        self.keeping.add_done_callback(lambda task: task.cancelled() or task.exception())

    def check(self) -> None:
        """Fenced where the lease is lost, or may be. Cheap: asks the clock, not the store.

        Call it last before anything is acknowledged: a contender waits longer than this does.
        """
        silent_s = self._clock.monotonic() - self._renewed_at
        if self._lost is None and silent_s > self.ttl_s * _TRUSTED_SHARE:
            self._lost = f"the lease was not renewed for {silent_s:.1f} s"
        if self._lost is not None:
            raise Fenced(f"{self.name}: epoch {self.epoch} of {self.owner} is over: {self._lost}")

    async def commit(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        conditions: Mapping[str, int | None] | None = None,
    ) -> int:
        """`Metadata.commit`, if this epoch is still the newest; Fenced otherwise."""
        self.check()
        guarded = {**(conditions or {}), self.name: self._revision}
        try:
            return await self._metadata.commit(puts, deletes=deletes, conditions=guarded)
        except MetadataChanged:
            await self._notice_successor()
            raise

    async def renew(self) -> None:
        """Shows that the holder lives. Fenced where another took over."""
        began = self._clock.monotonic()
        beat = Beat(self.epoch, self._beats + 1, released=False)
        await self.commit({_beat_key(self.name): encode_beat(beat)})
        self._beats += 1
        self._renewed_at = began

    async def _keep(self) -> None:
        """Renews until it is cancelled, or raises Fenced. An unreachable store is asked again."""
        while True:
            await asyncio.sleep(self.ttl_s / _RENEWALS_PER_TTL)
            try:
                await self.renew()
            except MetadataUnavailable:
                self.check()

    async def release(self) -> None:
        """Gives it back, so that anybody may take it at once. No error where it is lost.

        MetadataUnavailable: it is not kept any more, and runs out by itself.
        """
        self.keeping.cancel()
        await asyncio.gather(self.keeping, return_exceptions=True)
        beat = Beat(self.epoch, self._beats + 1, released=True)
        try:
            await self.commit({_beat_key(self.name): encode_beat(beat)})
        except Fenced:
            return
        self._lost = "it was given back"

    async def _notice_successor(self) -> None:
        entry = await self._metadata.get(self.name)
        if _revision(entry) == self._revision:
            return
        successor = decode_holder(entry.data).owner if entry is not None else "nobody"
        self._lost = f"{successor} took over"
        self.check()


def _beat_key(name: str) -> str:
    return f"{name}/beat"


def _revision(entry: Entry | None) -> int | None:
    return entry.revision if entry is not None else None
