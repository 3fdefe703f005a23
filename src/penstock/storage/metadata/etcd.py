"""Metadata in etcd, by its gRPC interface."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import grpc
from aetcd import rpc

from penstock.model.errors import InvalidArgument, MetadataUnavailable
from penstock.storage.metadata.model import (
    Entry,
    Metadata,
    changed,
    check_changes,
    check_key,
    prefix_end,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PAGE = 500
_PERMANENT = frozenset({grpc.StatusCode.INVALID_ARGUMENT})
"""Not OUT_OF_RANGE: a revision that was compacted between two pages is there in the next try."""
_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", 64 << 20),
    # A server that comes back is found within a second, not after minutes of growing pauses.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class EtcdMetadata(Metadata):
    """Keys under `prefix` of an etcd cluster. A call that is not answered in `timeout_s` fails."""

    def __init__(
        self,
        target: str,
        *,
        prefix: str = "",
        credentials: grpc.ChannelCredentials | None = None,
        user: str | None = None,
        password: str | None = None,
        timeout_s: float = 5.0,
    ) -> None:
        """Connects when it is first used, in that event loop."""
        self._target = target
        self._prefix = prefix
        self._credentials = credentials
        self._login = (user, password) if user is not None else None
        self._timeout_s = timeout_s
        self._channel: Any = None
        self._token: tuple[tuple[str, str], ...] = ()

    async def get(self, key: str) -> Entry | None:
        """What the key holds."""
        found = await self._ask("Range", rpc.RangeRequest(key=self._key(check_key(key))))
        return self._entry(found.kvs[0]) if found.kvs else None

    async def range(
        self,
        prefix: str,
        *,
        start: str | None = None,
        end: str | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[Entry]:
        """The keys of a prefix, in pages that are all of one revision."""
        low, high = max(prefix, start or ""), prefix_end(prefix)
        high = high if end is None else min(high, end)
        entries: list[Entry] = []
        revision = 0
        while low < high and (limit is None or len(entries) < limit):
            page = min(_PAGE, limit - len(entries)) if limit is not None else _PAGE
            found = await self._page(low, high, page, newest_first, revision)
            entries += map(self._entry, found.kvs)
            if not found.more:
                break
            revision = revision or found.header.revision
            low, high = _rest(low, high, entries[-1].key, newest_first)
        return entries

    async def commit(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        conditions: Mapping[str, int | None] | None = None,
    ) -> int:
        """All changes in one transaction."""
        check_changes(puts, deletes)
        conditions = conditions or {}
        removals = [rpc.DeleteRangeRequest(key=self._key(key)) for key in deletes]
        writes = [rpc.PutRequest(key=self._key(key), value=data) for key, data in puts.items()]
        request = rpc.TxnRequest(
            compare=[self._compare(key, expected) for key, expected in conditions.items()],
            success=[
                *(rpc.RequestOp(request_delete_range=removal) for removal in removals),
                *(rpc.RequestOp(request_put=write) for write in writes),
            ],
        )
        answer = await self._ask("Txn", request)
        if not answer.succeeded:
            raise changed(conditions)
        return int(answer.header.revision)

    async def close(self) -> None:
        """Closes the connection."""
        if self._channel is not None:
            await self._channel.close()
        self._channel = None

    # --- inside --------------------------------------------------------------------------------

    async def _page(
        self, low: str, high: str, limit: int, newest_first: bool, revision: int
    ) -> Any:
        order = rpc.RangeRequest.DESCEND if newest_first else rpc.RangeRequest.ASCEND
        request = rpc.RangeRequest(
            key=self._key(low) or b"\0",
            range_end=self._key(high),
            limit=limit,
            revision=revision,
            sort_order=order,
            sort_target=rpc.RangeRequest.KEY,
        )
        return await self._ask("Range", request)

    async def _ask(self, method: str, request: Any) -> Any:
        with _translated(self._target):
            stub = await self._connected()
            call = getattr(stub, method)
            try:
                return await call(request, timeout=self._timeout_s, metadata=self._token)
            except grpc.aio.AioRpcError as error:
                if error.code() != grpc.StatusCode.UNAUTHENTICATED or self._login is None:
                    raise
            await self._log_in()  # a token is good for five minutes
            return await call(request, timeout=self._timeout_s, metadata=self._token)

    async def _connected(self) -> Any:
        if self._channel is None:
            if self._credentials is None:
                self._channel = grpc.aio.insecure_channel(self._target, options=_CHANNEL_OPTIONS)
            else:
                self._channel = grpc.aio.secure_channel(
                    self._target, self._credentials, options=_CHANNEL_OPTIONS
                )
            if self._login is not None:
                await self._log_in()
        return rpc.KVStub(self._channel)

    async def _log_in(self) -> None:
        assert self._login is not None
        request = rpc.AuthenticateRequest(name=self._login[0], password=self._login[1])
        answer = await rpc.AuthStub(self._channel).Authenticate(request, timeout=self._timeout_s)
        self._token = (("token", answer.token),)

    def _compare(self, key: str, expected: int | None) -> Any:
        """A missing key has the revision 0 there."""
        return rpc.Compare(
            key=self._key(key),
            target=rpc.Compare.MOD,
            result=rpc.Compare.EQUAL,
            mod_revision=expected or 0,
        )

    def _key(self, key: str) -> bytes:
        return (self._prefix + key).encode()

    def _entry(self, found: Any) -> Entry:
        return Entry(found.key.decode()[len(self._prefix) :], found.value, found.mod_revision)


def _rest(low: str, high: str, last: str, newest_first: bool) -> tuple[str, str]:
    return (low, last) if newest_first else (last + "\0", high)


@contextlib.contextmanager
def _translated(target: str) -> Iterator[None]:
    """Penstock's errors for those of gRPC."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        text = f"etcd at {target}: {error.code().name}: {error.details()}"
        if error.code() in _PERMANENT:
            raise InvalidArgument(text) from error
        raise MetadataUnavailable(text) from error
