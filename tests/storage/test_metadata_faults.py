"""Rules of metadata stores that fail for a while: later it works, and nothing is called invalid."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import grpc
import pytest

from penstock.model.errors import InvalidArgument, MetadataUnavailable
from penstock.storage.metadata.embedded import EmbeddedMetadata
from penstock.storage.metadata.etcd import EtcdMetadata
from tests.servers.loops import in_loop


class _FullAtCommit(sqlite3.Connection):
    """A disk that is full when the next transactions end."""

    left = 0

    def execute(self, sql: str, *args: object) -> sqlite3.Cursor:  # type: ignore[override]
        if sql == "COMMIT" and _FullAtCommit.left:
            _FullAtCommit.left -= 1
            raise sqlite3.OperationalError("database or disk is full")
        return super().execute(sql, *args)  # type: ignore[arg-type]


@in_loop
async def test_full_disk_is_over_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction that could not end is given up, and the next one begins."""
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *args, **kwargs: connect(*args, **kwargs, factory=_FullAtCommit)
    )
    metadata = EmbeddedMetadata(tmp_path / "metadata.db")
    await metadata.put("a", b"1")
    _FullAtCommit.left = 1
    with pytest.raises(MetadataUnavailable, match="full"):
        await metadata.put("a", b"2")
    found = await metadata.get("a")
    assert found is not None
    assert found.data == b"1"
    await metadata.put("a", b"3")
    await metadata.close()


@in_loop
async def test_locked_file_is_unavailable_for_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process has it; the next call works."""
    monkeypatch.setattr("penstock.storage.metadata.embedded._WAIT_S", 0.05)
    metadata = EmbeddedMetadata(tmp_path / "metadata.db")
    await metadata.put("a", b"1")
    other = sqlite3.connect(tmp_path / "metadata.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(MetadataUnavailable, match="locked"):
        await metadata.put("a", b"2")
    other.execute("ROLLBACK")
    other.close()
    await metadata.put("a", b"2")
    await metadata.close()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (grpc.StatusCode.OUT_OF_RANGE, MetadataUnavailable),
        (grpc.StatusCode.UNAVAILABLE, MetadataUnavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, MetadataUnavailable),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, MetadataUnavailable),
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidArgument),
    ],
)
@in_loop
async def test_compacted_revision_is_asked_for_again(
    code: grpc.StatusCode, expected: type[Exception]
) -> None:
    """What etcd answers for now is not called invalid, a compaction between two pages neither."""
    metadata = EtcdMetadata("127.0.0.1:1")

    class Stub:
        async def Range(self, *_: object, **__: object) -> None:  # noqa: N802 - etcd's name
            nothing = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(code, nothing, nothing, "as it is")

    async def connected() -> Stub:
        return Stub()

    metadata._connected = connected  # type: ignore[method-assign]
    with pytest.raises(expected):
        await metadata.get("a")
