"""One class of rules that every metadata store keeps: a local file and a real etcd."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.model.errors import (
    Damaged,
    InvalidArgument,
    MetadataChanged,
    MetadataUnavailable,
    UnsupportedVersion,
)
from penstock.storage.metadata import Entry, Metadata, open_metadata
from tests.patience import PATIENCE_S
from tests.servers.loops import in_loop

if TYPE_CHECKING:
    from tests.servers.etcd import EtcdServer

_COUNT_UP = """
import asyncio, sys
from penstock.model.errors import MetadataChanged
from penstock.storage.metadata import open_metadata

async def main():
    metadata, steps = open_metadata(sys.argv[1]), int(sys.argv[2])
    while steps:
        found = await metadata.get("count")
        try:
            await metadata.compare_and_swap("count", b"%d" % (int(found.data) + 1), found.revision)
        except MetadataChanged:
            continue
        steps -= 1
    await metadata.close()

asyncio.run(main())
"""


@pytest.fixture(params=["embedded", "etcd"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty store of each kind."""
    if request.param == "embedded":
        return f"file://{tmp_path}/some/metadata.db"
    server: EtcdServer = request.getfixturevalue("etcd")
    return server.place()


@pytest.fixture
def metadata(url: str) -> Metadata:
    """A store; `_closing` closes it in the loop that used it."""
    return open_metadata(url)


def _closing(test: Callable[..., object]) -> Callable[..., None]:
    async def run(self: object, metadata: Metadata) -> None:
        try:
            await test(self, metadata)  # type: ignore[misc]
        finally:
            await metadata.close()

    run.__doc__ = test.__doc__
    return in_loop(run)


async def _keys(metadata: Metadata, prefix: str, **options: object) -> list[str]:
    return [entry.key for entry in await metadata.range(prefix, **options)]  # type: ignore[arg-type]


class TestEveryMetadata:
    """The rules."""

    @_closing
    async def test_what_was_put_is_read(self, metadata: Metadata) -> None:
        """A key holds what was last put, with a revision that grows."""
        assert await metadata.get("key") is None
        first = await metadata.put("key", b"one")
        second = await metadata.put("key", b"\x00two")
        assert second > first
        assert await metadata.get("key") == Entry("key", b"\x00two", second)

    @_closing
    async def test_a_swap_names_its_revision(self, metadata: Metadata) -> None:
        """Only the newest revision can be replaced, and None means missing."""
        first = await metadata.compare_and_swap("key", b"1", None)
        second = await metadata.compare_and_swap("key", b"2", first)
        for expected in (None, first):
            with pytest.raises(MetadataChanged):
                await metadata.compare_and_swap("key", b"3", expected)
        assert await metadata.get("key") == Entry("key", b"2", second)

    @_closing
    async def test_a_revision_never_comes_back(self, metadata: Metadata) -> None:
        """A key that was removed and made again is another."""
        first = await metadata.put("key", b"same")
        await metadata.delete("key")
        with pytest.raises(MetadataChanged):
            await metadata.compare_and_swap("key", b"x", first)
        assert await metadata.put("key", b"same") > first
        with pytest.raises(MetadataChanged):
            await metadata.compare_and_swap("key", b"x", first)

    @_closing
    async def test_ranges_are_ordered(self, metadata: Metadata) -> None:
        """A prefix, bounds, a limit and both directions."""
        for key in ("b/2", "a", "b/10", "b/1", "b", "c"):
            await metadata.put(key, b"")
        assert await _keys(metadata, "b/") == ["b/1", "b/10", "b/2"]
        assert await _keys(metadata, "b/", start="b/10") == ["b/10", "b/2"]
        assert await _keys(metadata, "b/", end="b/2") == ["b/1", "b/10"]
        assert await _keys(metadata, "b/", newest_first=True, limit=2) == ["b/2", "b/10"]
        assert await _keys(metadata, "") == ["a", "b", "b/1", "b/10", "b/2", "c"]
        assert await _keys(metadata, "b/", start="c") == []
        assert await _keys(metadata, "nothing") == []

    @_closing
    async def test_long_ranges_are_whole(self, metadata: Metadata) -> None:
        """More keys than a page of any store, in both directions."""
        keys = [f"k/{n:04d}" for n in range(1100)]
        for start in range(0, len(keys), 100):
            await metadata.commit(dict.fromkeys(keys[start : start + 100], b"x"))
        assert await _keys(metadata, "k/") == keys
        assert await _keys(metadata, "k/", newest_first=True) == keys[::-1]
        assert await _keys(metadata, "k/", limit=600) == keys[:600]

    @_closing
    async def test_changes_come_together_or_not_at_all(self, metadata: Metadata) -> None:
        """One condition that does not hold keeps everything as it is."""
        revision = await metadata.put("old", b"1")
        with pytest.raises(MetadataChanged):
            await metadata.commit(
                {"new": b"2"}, deletes=["old"], conditions={"old": revision, "lock": 7}
            )
        assert await _keys(metadata, "") == ["old"]
        written = await metadata.commit(
            {"new": b"2"}, deletes=["old"], conditions={"old": revision, "lock": None}
        )
        assert await metadata.range("") == [Entry("new", b"2", written)]

    @_closing
    async def test_removing_twice_is_no_error(self, metadata: Metadata) -> None:
        """A missing key is removed already."""
        await metadata.put("key", b"")
        await metadata.delete("key")
        await metadata.delete("key")
        assert await metadata.get("key") is None

    @_closing
    async def test_what_some_store_refuses_all_refuse(self, metadata: Metadata) -> None:
        """Empty or unprintable keys and values over the bound are errors."""
        for key, data in (("", b""), ("a\nb", b""), ("x" * 1025, b""), ("k", bytes(1 << 21))):
            with pytest.raises(InvalidArgument):
                await metadata.put(key, data)

    def test_swaps_of_many_processes_lose_nothing(self, url: str) -> None:
        """Three processes count up by compare-and-swap; every step counts."""
        asyncio.run(_put(url, "count", b"0"))
        command = [sys.executable, "-c", _COUNT_UP, url, "20"]
        counters = [subprocess.Popen(command) for _ in range(3)]
        assert [counter.wait() for counter in counters] == [0, 0, 0]
        assert asyncio.run(_get(url, "count")) == b"60"


@in_loop
async def test_etcd_keeps_what_it_answered_through_a_kill(tmp_path: Path) -> None:
    """While it is away calls fail as unavailable; when it is back everything is there."""
    from tests.servers.etcd import EtcdServer

    server = EtcdServer(tmp_path).start()
    metadata = open_metadata(server.place(), {"timeout_s": "2"})
    try:
        await metadata.put("key", b"kept")
        server.kill()
        with pytest.raises(MetadataUnavailable):
            await metadata.get("key")
        server.start()
        found = await _patiently(metadata)
        assert found is not None
        assert found.data == b"kept"
    finally:
        await metadata.close()
        server.stop()


@in_loop
async def test_places_of_one_etcd_are_apart(etcd: EtcdServer) -> None:
    """A prefix in the URL hides every other."""
    one, other = open_metadata(etcd.place()), open_metadata(etcd.place())
    await one.put("key", b"")
    assert await other.range("") == []
    await one.close()
    await other.close()


@in_loop
async def test_a_file_that_is_no_database_is_damaged(tmp_path: Path) -> None:
    """The path is in the error."""
    (tmp_path / "metadata.db").write_bytes(b"nonsense" * 1000)
    with pytest.raises(Damaged, match=r"metadata\.db"):
        await open_metadata(f"file://{tmp_path}/metadata.db").get("key")


@in_loop
async def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    """A version this Penstock does not know is not touched."""
    connection = sqlite3.connect(tmp_path / "metadata.db")
    connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(UnsupportedVersion):
        await open_metadata(f"file://{tmp_path}/metadata.db").put("key", b"")


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("metadata.db", {}),
        ("redis://host", {}),
        ("etcd://", {}),
        ("file:///x", {"a": "b"}),
        ("etcd://host", {"nonsense": "1"}),
    ],
)
def test_a_url_that_names_nothing_is_refused(url: str, options: dict[str, str]) -> None:
    """InvalidArgument, with the URL in its text."""
    with pytest.raises(InvalidArgument, match=url.partition(":")[0]):
        open_metadata(url, options)


async def _put(url: str, key: str, data: bytes) -> None:
    metadata = open_metadata(url)
    await metadata.put(key, data)
    await metadata.close()


async def _get(url: str, key: str) -> bytes:
    metadata = open_metadata(url)
    found = await metadata.get(key)
    await metadata.close()
    assert found is not None
    return found.data


async def _patiently(metadata: Metadata) -> Entry | None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(MetadataUnavailable):
                return await metadata.get("key")
            await asyncio.sleep(0.1)
