"""What Penstock asks of an object store: whole objects, compare-and-swap, ranges, ordered lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from penstock.model.errors import InvalidArgument
from penstock.storage.files import Buffer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime

Data: TypeAlias = Buffer | Sequence[Buffer]
"""What an object is made of: bytes, or pieces that stand one behind the other."""

RESERVED = ".penstock"
"""The first part of a key that no object may have: the local folder keeps its own things there."""

_MAX_KEY_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Version:
    """What a compare-and-swap names; opaque. Some stores give equal contents equal versions."""

    etag: str | None
    version: str | None


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a store knows of an object without its bytes."""

    key: str
    size: int
    modified: datetime
    version: Version


@dataclass(frozen=True, slots=True)
class Fetched:
    """An object's bytes, and the version that they are."""

    data: bytes
    info: ObjectInfo


class Upload(Protocol):
    """An object that is being written in pieces."""

    version: Version | None
    """Of the finished object, once its block has ended; None before."""

    async def write(self, data: Buffer) -> None:
        """Adds bytes at the end; waits while more than a few parts are under way."""
        ...


class ObjectStore(Protocol):
    """Objects by key. Any number of processes may use one store at once.

    Reads see every write that was answered before they began. ObjectsUnavailable from any call:
    try again later; after a write that was cut short, or cancelled, it may have been done or not.
    Writes are durable when they return, save in memory.
    """

    async def put(self, key: str, data: Data) -> Version:
        """Writes the object, whatever stood there. Safe to repeat."""
        ...

    async def create(self, key: str, data: Data) -> Version:
        """Writes the object where there is none; ObjectExists otherwise.

        Never repeated inside: ObjectExists says that another call made it, maybe an earlier one of
        the same caller that was answered with ObjectsUnavailable.
        """
        ...

    async def replace(self, key: str, data: Data, expected: Version) -> Version:
        """Writes the object if it is still `expected`; ObjectChanged otherwise, or if it is gone.

        Never repeated inside: see `create`.
        """
        ...

    async def get(self, key: str, *, unless: Version | None = None) -> Fetched | None:
        """The object; None where it is still `unless`. ObjectMissing: there is none."""
        ...

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        """The bytes from `start` to before `end`; fewer only where the object ends before."""
        ...

    async def head(self, key: str) -> ObjectInfo:
        """What is known of the object; ObjectMissing: there is none."""
        ...

    def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        """The objects whose keys begin with the text `prefix`, behind the key `after`.

        Keys of one folder come in their order as text. A server that keeps keys as folders may
        answer with all of `a/…` before `a-b`, where text says the reverse.
        """
        ...

    async def delete(self, *keys: str) -> None:
        """Removes them; what is missing is no error. Safe to repeat."""
        ...

    def stream(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The bytes in pieces of a few MiB, all of one version; ObjectMissing: there is none."""
        ...

    def upload(self, key: str) -> AbstractAsyncContextManager[Upload]:
        """Writes an object in pieces, with little memory; replaces what stood there.

        It appears whole when the block ends, and not at all where the block ends by an error or is
        cancelled; ObjectsUnavailable at the end of the block leaves open which.
        """
        ...

    async def close(self) -> None:
        """Gives back connections. Idempotent."""
        ...


def check_key(key: str) -> str:
    """The key; InvalidArgument where some store could not keep it apart from others."""
    parts = key.split("/")
    if any(part in ("", ".", "..") for part in parts) or parts[0] == RESERVED:
        raise InvalidArgument(f"{key!r} is not a key of an object: a part of it is not a name")
    if "\\" in key or not key.isprintable() or len(key.encode()) > _MAX_KEY_BYTES:
        raise InvalidArgument(f"{key!r} is not a key of an object: too long, or unprintable")
    return key


def check_range(start: int, end: int | None) -> None:
    """InvalidArgument where it is not a range."""
    if start < 0 or (end is not None and end < start):
        raise InvalidArgument(f"bytes {start} to {end} are not a range")


def pieces_of(data: Data) -> list[Buffer]:
    """The data as pieces."""
    return [data] if isinstance(data, (bytes, bytearray, memoryview)) else list(data)
