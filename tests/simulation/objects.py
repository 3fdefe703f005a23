"""An object store that goes wrong in every way a remote one can, as a plan says."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import enum
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from random import Random
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock.model.errors import ObjectConflict, ObjectsUnavailable

if TYPE_CHECKING:
    from penstock.storage.files import Buffer
    from penstock.storage.objects import Data, Fetched, ObjectInfo, ObjectStore, Upload, Version

T = TypeVar("T")
_HISTORY = 3


class Fault(enum.Enum):
    """What happens to one call."""

    FAIL_BEFORE = "the request never arrives"
    FAIL_AFTER = "it is carried out, and the answer is lost"
    DELAY = "others go first"
    DUPLICATE = "it is carried out twice; the first answer is heard"
    TRUNCATE = "a read answers with fewer bytes"
    STALE_LIST = "a list does not know of the last changes"


class Plan(Protocol):
    """Decides what happens to each call."""

    def __call__(self, operation: str, key: str) -> Fault | None:
        """None: nothing goes wrong. `operation` is the method's name, or `write` of an upload."""
        ...


class Script:
    """Faults in the order of the calls, then none; `asked` says which calls there were."""

    def __init__(self, faults: Iterable[Fault | None] = ()) -> None:
        self.faults = collections.deque(faults)
        self.asked: list[tuple[str, str]] = []

    def __call__(self, operation: str, key: str) -> Fault | None:
        """The next of them."""
        self.asked.append((operation, key))
        return self.faults.popleft() if self.faults else None


class RandomFaults:
    """Each fault at its rate; `active` turns them all off, for the end of a test."""

    def __init__(self, random: Random, rates: Mapping[Fault, float] | None = None) -> None:
        self.active = True
        self._random = random
        self._rates = rates if rates is not None else dict.fromkeys(Fault, 0.05)

    def __call__(self, _operation: str, _key: str) -> Fault | None:
        """One of them, or None."""
        draw = self._random.random()
        for fault, rate in self._rates.items() if self.active else ():
            draw -= rate
            if draw < 0:
                return fault
        return None


class FaultyObjects:
    """Any `ObjectStore`, with faults. A fault that makes no sense for a call does nothing."""

    def __init__(self, inner: ObjectStore, plan: Plan, *, delay_turns: int = 5) -> None:
        self._inner = inner
        self._plan = plan
        self._delay_turns = delay_turns
        self._past: collections.deque[list[ObjectInfo]] = collections.deque(maxlen=_HISTORY)

    async def put(self, key: str, data: Data) -> Version:
        """Writes, or seems not to."""
        return await self._change("put", key, lambda: self._inner.put(key, data))

    async def create(self, key: str, data: Data) -> Version:
        """Creates, or seems not to."""
        return await self._change("create", key, lambda: self._inner.create(key, data))

    async def replace(self, key: str, data: Data, expected: Version) -> Version:
        """Replaces, or seems not to."""
        return await self._change("replace", key, lambda: self._inner.replace(key, data, expected))

    async def delete(self, *keys: str) -> None:
        """Removes, or seems not to."""
        await self._change("delete", ",".join(keys), lambda: self._inner.delete(*keys))

    async def get(self, key: str, *, unless: Version | None = None) -> Fetched | None:
        """Reads, perhaps too little."""
        fault = await self._before("get", key)
        found = await self._inner.get(key, unless=unless)
        self._after(fault, key)
        if found is None or fault is not Fault.TRUNCATE:
            return found
        return dataclasses.replace(found, data=_cut(found.data))

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        """Reads, perhaps too little."""
        fault = await self._before("get_range", key)
        data = await self._inner.get_range(key, start, end)
        self._after(fault, key)
        return _cut(data) if fault is Fault.TRUNCATE else data

    async def head(self, key: str) -> ObjectInfo:
        """Looks, or fails."""
        fault = await self._before("head", key)
        info = await self._inner.head(key)
        self._after(fault, key)
        return info

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        """Lists, perhaps what was."""
        fault = await self._before("list", prefix)
        found = [info async for info in self._inner.list(prefix, after=after)]
        if fault is Fault.STALE_LIST and self._past:
            found = [
                info
                for info in self._past[0]
                if info.key.startswith(prefix) and (after is None or info.key > after)
            ]
        for info in found[: len(found) // 2] if fault is Fault.FAIL_AFTER else found:
            yield info
        self._after(fault, prefix)

    async def stream(
        self, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        """Reads, perhaps too little, perhaps with an error in the middle."""
        fault = await self._before("stream", key)
        async for piece in self._inner.stream(key, start=start, end=end):
            if fault in (Fault.TRUNCATE, Fault.FAIL_AFTER):
                yield _cut(piece)
                self._after(fault, key)
                return
            yield piece

    @contextlib.asynccontextmanager
    async def upload(self, key: str) -> AsyncIterator[Upload]:
        """Uploads; FAIL_AFTER leaves the whole object. Each write asks the plan too."""
        fault = await self._before("upload", key)
        await self._remember()
        async with self._inner.upload(key) as upload:
            yield _FaultyUpload(self, key, upload)
        self._after(fault, key)

    async def close(self) -> None:
        """Closes the store inside."""
        await self._inner.close()

    async def before_write(self, key: str) -> None:
        """What may happen to one write of an upload."""
        self._after(await self._before("write", key), key)

    # --- inside --------------------------------------------------------------------------------

    async def _change(self, operation: str, key: str, call: Callable[[], Awaitable[T]]) -> T:
        fault = await self._before(operation, key)
        await self._remember()
        answer = await call()
        if fault is Fault.DUPLICATE:
            with contextlib.suppress(ObjectConflict):
                await call()
        self._after(fault, key)
        return answer

    async def _before(self, operation: str, key: str) -> Fault | None:
        fault = self._plan(operation, key)
        if fault is Fault.FAIL_BEFORE:
            raise ObjectsUnavailable(f"{operation} {key}: {fault.value}")
        if fault is Fault.DELAY:
            for _ in range(self._delay_turns):
                await asyncio.sleep(0)
        return fault

    def _after(self, fault: Fault | None, key: str) -> None:
        if fault is Fault.FAIL_AFTER:
            raise ObjectsUnavailable(f"{key}: {fault.value}")

    async def _remember(self) -> None:
        self._past.append([info async for info in self._inner.list("")])


class _FaultyUpload:
    """An upload whose writes can fail."""

    def __init__(self, store: FaultyObjects, key: str, inner: Upload) -> None:
        self._store = store
        self._key = key
        self._inner = inner

    @property
    def version(self) -> Version | None:
        return self._inner.version

    async def write(self, data: Buffer) -> None:
        await self._store.before_write(self._key)
        await self._inner.write(data)


def _cut(data: bytes) -> bytes:
    return data[: len(data) // 2]
