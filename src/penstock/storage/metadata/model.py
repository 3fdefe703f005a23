"""What Penstock asks of a metadata store: ordered keys, revisions, and changes on conditions."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.model.errors import InvalidArgument, MetadataChanged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_DATA_BYTES = 1 << 20
"""The most that one key holds; etcd refuses requests over 1.5 MiB."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A key, what it holds, and the revision of the store that wrote it."""

    key: str
    data: bytes
    revision: int


class Metadata(abc.ABC):
    """Keys with small values; any number of processes may use one store at once.

    Reads see every write that was answered before they began. Writes are durable when they return.
    Revisions only grow: a key that was removed and made again never has an old one.
    MetadataUnavailable from any call: try again; a write may have been done.
    """

    @abc.abstractmethod
    async def get(self, key: str) -> Entry | None:
        """What the key holds, or None."""

    @abc.abstractmethod
    async def range(
        self,
        prefix: str,
        *,
        start: str | None = None,
        end: str | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[Entry]:
        """The keys that begin with `prefix`, from `start` to before `end`, in their order.

        All of one moment, save where there are so many that the store answers in pages.
        """

    @abc.abstractmethod
    async def commit(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        conditions: Mapping[str, int | None] | None = None,
    ) -> int:
        """All changes at once, if each key of `conditions` has its revision (None: is missing).

        Returns the revision of the changes. MetadataChanged: nothing was written.
        """

    @abc.abstractmethod
    async def close(self) -> None:
        """Gives back the connection. Idempotent."""

    async def put(self, key: str, data: bytes) -> int:
        """Writes the key, whatever it held. Safe to repeat."""
        return await self.commit({key: data})

    async def delete(self, key: str) -> None:
        """Removes the key; a missing one is no error. Safe to repeat."""
        await self.commit({}, deletes=[key])

    async def compare_and_swap(self, key: str, data: bytes, expected: int | None) -> int:
        """Writes the key if it still has the revision `expected`, or is missing for None."""
        return await self.commit({key: data}, conditions={key: expected})


def check_changes(puts: Mapping[str, bytes], deletes: Sequence[str]) -> None:
    """InvalidArgument where some store would refuse the changes."""
    for key in (*puts, *deletes):
        check_key(key)
    for key, data in puts.items():
        if len(data) > MAX_DATA_BYTES:
            raise InvalidArgument(f"{key}: {len(data)} bytes are too many for a key")


def check_key(key: str) -> str:
    """The key; InvalidArgument where it is none."""
    if not key or not key.isprintable() or len(key.encode()) > 1024:
        raise InvalidArgument(f"{key!r} is not a key of the metadata")
    return key


def changed(conditions: Mapping[str, int | None]) -> MetadataChanged:
    """The error of a condition that does not hold."""
    return MetadataChanged(f"{', '.join(conditions)}: not the revision that was expected")


def prefix_end(prefix: str) -> str:
    """The first text that is behind every text with that prefix; all compare as UTF-8."""
    return prefix + "\U0010ffff"
