"""An object store that is a dictionary: every call takes one turn of the event loop, no thread.

So that a test that failed once fails again, which no store with threads of its own can promise.
"""

from __future__ import annotations

import asyncio
import datetime
import itertools
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

from penstock.model.errors import ObjectChanged, ObjectExists, ObjectMissing
from penstock.storage.objects import Data, Fetched, ObjectInfo, Version
from penstock.storage.objects.model import pieces_of

_LONG_AGO = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


class PlainObjects:
    """Objects by key. `objects` may be changed by a test as it likes."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.calls: list[tuple[str, str]] = []
        self._versions: dict[str, Version] = {}
        self._numbers = itertools.count()

    async def put(self, key: str, data: Data) -> Version:
        """Writes."""
        await self._turn("put", key)
        return self.write(key, data)

    async def create(self, key: str, data: Data) -> Version:
        """Writes where there is nothing."""
        await self._turn("create", key)
        if key in self.objects:
            raise ObjectExists(key)
        return self.write(key, data)

    async def replace(self, key: str, data: Data, expected: Version) -> Version:
        """Compares and swaps."""
        await self._turn("replace", key)
        if key not in self.objects or self._versions[key] != expected:
            raise ObjectChanged(key)
        return self.write(key, data)

    async def get(self, key: str, *, unless: Version | None = None) -> Fetched | None:
        """Reads."""
        await self._turn("get", key)
        info = self._info(key)
        return None if info.version == unless else Fetched(self.objects[key], info)

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        """Reads a part."""
        await self._turn("get_range", key)
        self._info(key)
        return self.objects[key][start:end]

    async def head(self, key: str) -> ObjectInfo:
        """Looks."""
        await self._turn("head", key)
        return self._info(key)

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        """Lists in order."""
        await self._turn("list", prefix)
        for key in sorted(self.objects):
            if key.startswith(prefix) and (after is None or key > after) and key in self.objects:
                yield self._info(key)

    async def delete(self, *keys: str) -> None:
        """Removes."""
        await self._turn("delete", ",".join(keys))
        for key in keys:
            self.objects.pop(key, None)
            self._versions.pop(key, None)

    def stream(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Not needed here."""
        raise NotImplementedError

    def upload(self, key: str) -> AbstractAsyncContextManager[Any]:
        """Not needed here."""
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing to give back."""

    def write(self, key: str, data: Data) -> Version:
        """Writes at once, behind everybody's back."""
        self.objects[key] = b"".join(map(bytes, pieces_of(data)))
        self._versions[key] = version = Version(str(next(self._numbers)), None)
        return version

    async def _turn(self, operation: str, key: str) -> None:
        self.calls.append((operation, key))
        await asyncio.sleep(0)

    def _info(self, key: str) -> ObjectInfo:
        if key not in self.objects:
            raise ObjectMissing(key)
        return ObjectInfo(key, len(self.objects[key]), _LONG_AGO, self._versions[key])
