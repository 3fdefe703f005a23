"""Objects in S3, GCS, Azure or memory, by `obstore`; only this module and `answers` import it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from obstore import exceptions as refused

from penstock.model.backoff import Backoff
from penstock.model.errors import (
    InvalidArgument,
    ObjectExists,
    ObjectMissing,
    ObjectsUnavailable,
)
from penstock.storage.objects.answers import Call, Conflicting, translated
from penstock.storage.objects.model import (
    Fetched,
    ObjectInfo,
    Version,
    check_key,
    check_range,
    pieces_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from obstore import ObjectMeta, PutMode, PutResult, UpdateVersion
    from obstore.store import ObjectStore as Remote

    from penstock.storage.files import Buffer
    from penstock.storage.objects.model import Data

PART_BYTES = 5 << 20
"""The least that S3 takes as a part of a larger object."""
_PARTS_UNDER_WAY = 2
_PIECE_BYTES = 512 << 10
"""What is handed over at a time, to be made into parts."""
_LIST_CHUNK = 1000
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 0.8
"""Between tries while others change the same object."""
_TRIES = 4


class CloudObjects:
    """An `ObjectStore` on two handles of one remote store.

    `patient` repeats what is safe to repeat. `exact` repeats nothing: a compare-and-swap that was
    done, not answered and repeated would be refused because of its own success.
    """

    def __init__(self, patient: Remote, exact: Remote, prefix: str = "") -> None:
        self._patient = patient
        self._exact = exact
        self._prefix = prefix

    async def put(self, key: str, data: Data) -> Version:
        """Writes the object, whatever stood there."""
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        for _ in range(_TRIES - 1):
            try:
                return await self._put(self._patient, key, data, "overwrite", Call.WRITE)
            except Conflicting:
                await asyncio.sleep(backoff.next_s())
        return await self._put(self._patient, key, data, "overwrite", Call.WRITE)

    async def create(self, key: str, data: Data) -> Version:
        """Writes the object where there is none."""
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        for _ in range(_TRIES - 1):
            try:
                return await self._put(self._exact, key, data, "create", Call.CREATE)
            except ObjectExists:
                # A conflict looks the same as an object that is there. After it nothing was
                # written, so that trying again cannot be refused because of one's own success.
                if await self._exists(key):
                    raise
            await asyncio.sleep(backoff.next_s())
        raise ObjectsUnavailable(f"{key}: others are changing it all the time")

    async def replace(self, key: str, data: Data, expected: Version) -> Version:
        """Writes the object if it is still `expected`."""
        if expected == Version(None, None):
            raise InvalidArgument(f"{key}: this store gives no versions, so none can be replaced")
        mode: UpdateVersion = {}
        if expected.etag is not None:
            mode["e_tag"] = expected.etag
        if expected.version is not None:
            mode["version"] = expected.version
        return await self._put(self._exact, key, data, mode, Call.REPLACE)

    async def get(self, key: str, *, unless: Version | None = None) -> Fetched | None:
        """The object; None where it is still `unless`."""
        options: Any = {}
        if unless is not None and unless.etag is not None:
            options["if_none_match"] = unless.etag
        with translated(key, Call.READ):
            try:
                found = await self._patient.get_async(self._path(key), options=options)
                data = (await found.bytes_async()).to_bytes()
            except refused.NotModifiedError:
                return None
            info = self._info(found.meta)
            return None if info.version == unless else Fetched(data, info)

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        """The bytes from `start` to before `end`."""
        check_range(start, end)
        path = self._path(key)
        if start == end:
            return b""
        with translated(key, Call.READ):
            try:
                return (await self._patient.get_range_async(path, start=start, end=end)).to_bytes()
            except refused.GenericError:
                if start < (await self._patient.head_async(path))["size"]:
                    raise
                return b""  # behind the end: servers call that an error

    async def head(self, key: str) -> ObjectInfo:
        """What is known of the object."""
        with translated(key, Call.READ):
            return self._info(await self._patient.head_async(self._path(key)))

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        """The objects under `prefix`, in order."""
        folder = self._prefix + prefix.rpartition("/")[0]
        offset = None if after is None else self._prefix + after
        with translated(prefix, Call.LIST):
            chunks = self._patient.list_async(
                folder.rstrip("/") or None, offset=offset, chunk_size=_LIST_CHUNK
            )
            async for chunk in chunks:
                for meta in chunk:
                    info = self._info(meta)
                    if info.key.startswith(prefix) and (after is None or info.key != after):
                        yield info

    async def delete(self, *keys: str) -> None:
        """Removes them; what is missing is no error."""
        paths = [self._path(key) for key in keys]
        try:
            with translated(", ".join(keys[:3]), Call.READ):
                await self._patient.delete_async(paths)
        except ObjectMissing:  # GCS and Azure stop at one that is missing
            for key, path in zip(keys, paths, strict=True):
                with translated(key, Call.READ), contextlib.suppress(FileNotFoundError):
                    await self._patient.delete_async([path])

    async def stream(
        self, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        """The bytes in pieces."""
        check_range(start, end)
        options: Any = {}
        if end is not None or start:
            options["range"] = {"offset": start} if end is None else (start, end)
        if start == end:
            return
        with translated(key, Call.READ):
            found = await self._patient.get_async(self._path(key), options=options)
            async for piece in found.stream(min_chunk_size=1 << 20):
                yield bytes(piece)

    @contextlib.asynccontextmanager
    async def upload(self, key: str) -> AsyncIterator[CloudUpload]:
        """Writes an object in pieces."""
        upload = CloudUpload(self, key)
        try:
            yield upload
        except BaseException:
            await upload.abandon()
            raise
        await upload.finish()

    async def close(self) -> None:
        """Connections close by themselves when the handles are forgotten."""

    # --- inside --------------------------------------------------------------------------------

    async def put_parts(self, key: str, parts: AsyncGenerator[bytes]) -> Version:
        """One object from parts that come one by one; none at all where `parts` raises."""
        with translated(key, Call.WRITE):
            result = await self._patient.put_async(
                self._path(key),
                parts,
                use_multipart=True,
                chunk_size=PART_BYTES,
                max_concurrency=_PARTS_UNDER_WAY,
            )
            return _version(result)

    async def _exists(self, key: str) -> bool:
        try:
            await self.head(key)
        except ObjectMissing:
            return False
        return True

    async def _put(self, store: Remote, key: str, data: Data, mode: PutMode, call: Call) -> Version:
        pieces = pieces_of(data)
        with translated(key, call):
            result = await store.put_async(
                self._path(key),
                pieces if len(pieces) > 1 else b"".join(pieces),
                mode=mode,
                use_multipart=False,
            )
            return _version(result)

    def _path(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _info(self, meta: ObjectMeta) -> ObjectInfo:
        key = meta["path"].removeprefix(self._prefix)
        version = Version(meta["e_tag"], meta["version"])
        return ObjectInfo(key, meta["size"], meta["last_modified"], version)


class CloudUpload:
    """Collects what is written; below one part the object is put at once, without ceremony."""

    def __init__(self, store: CloudObjects, key: str) -> None:
        self.version: Version | None = None
        self._store = store
        self._key = check_key(key)
        self._part = bytearray()
        self._ready: asyncio.Queue[bytes | type[_Finish | _Abandon]] = asyncio.Queue(1)
        self._sending: asyncio.Task[Version] | None = None

    async def write(self, data: Buffer) -> None:
        """Adds bytes at the end."""
        self._part += data
        if len(self._part) >= (PART_BYTES if self._sending is None else _PIECE_BYTES):
            part, self._part = bytes(self._part), bytearray()
            await self._send(part)

    async def finish(self) -> None:
        """Makes it visible."""
        if self._sending is None:
            self.version = await self._store.put(self._key, bytes(self._part))
            return
        try:
            if self._part:
                await self._send(bytes(self._part))
            await self._hand_over(self._sending, _Finish)
            self.version = await self._sending
        except BaseException:
            await self.abandon()
            raise

    async def abandon(self) -> None:
        """Leaves nothing behind: the parts end by an error, upon which they are given up."""
        if self._sending is None:
            return
        if self._ready.full():
            self._ready.get_nowait()
        self._ready.put_nowait(_Abandon)
        with contextlib.suppress(ObjectsUnavailable, _Abandon):
            await self._sending

    async def _send(self, part: bytes) -> None:
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._store.put_parts(self._key, self._parts()))
        await self._hand_over(self._sending, part)

    async def _hand_over(
        self, sending: asyncio.Task[Version], part: bytes | type[_Finish | _Abandon]
    ) -> None:
        """Waits for room, but not for a sender that has given up: its error is raised here."""
        putting = asyncio.ensure_future(self._ready.put(part))
        try:
            await asyncio.wait({putting, sending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            taken = putting.done()
            putting.cancel()
        if not taken:
            sending.result()

    async def _parts(self) -> AsyncGenerator[bytes]:
        while not isinstance(part := await self._ready.get(), type):
            yield part
        if part is _Abandon:
            raise _Abandon


class _Finish(Exception):
    """Ends the parts of an upload."""


class _Abandon(Exception):
    """Ends the parts of an upload by an error."""


def _version(result: PutResult) -> Version:
    return Version(result["e_tag"], result["version"])
