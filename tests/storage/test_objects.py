"""One class of rules that every object store keeps: memory, a local folder and a real S3 server."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.model.errors import (
    InvalidArgument,
    ObjectChanged,
    ObjectExists,
    ObjectMissing,
    ObjectsUnavailable,
)
from penstock.storage.objects import ObjectStore, Version, open_objects
from tests.servers.loops import in_loop

if TYPE_CHECKING:
    from tests.servers.seaweed import S3Server

_MIB = 1 << 20


@pytest.fixture(params=["memory", "prefix", "folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """An empty store of each kind."""
    if request.param == "memory":
        return open_objects("memory://")
    if request.param == "prefix":
        return open_objects("memory://shared/some/where" + tmp_path.as_posix())
    if request.param == "folder":
        return open_objects(f"file://{tmp_path}/objects")
    server: S3Server = request.getfixturevalue("s3")
    return open_objects(server.place(), server.options)


async def _keys(store: ObjectStore, prefix: str, after: str | None = None) -> list[str]:
    return [info.key async for info in store.list(prefix, after=after)]


class TestEveryStore:
    """The rules."""

    @in_loop
    async def test_what_was_put_is_read(self, store: ObjectStore) -> None:
        """A put in pieces is one object, with its size and version."""
        version = await store.put("folder/key", [b"ab", memoryview(b"cd")])
        found = await store.get("folder/key")
        assert found is not None
        assert (found.data, found.info.size, found.info.version) == (b"abcd", 4, version)
        assert await store.head("folder/key") == found.info

    @in_loop
    async def test_a_put_replaces(self, store: ObjectStore) -> None:
        """The second put wins and has another version."""
        first = await store.put("key", b"one")
        assert await store.put("key", b"two") != first
        assert (await _data(store, "key")) == b"two"

    @in_loop
    async def test_empty_objects_are_objects(self, store: ObjectStore) -> None:
        """Nothing at all can be stored, read and listed."""
        await store.put("empty", b"")
        assert await _data(store, "empty") == b""
        assert await _keys(store, "") == ["empty"]

    @in_loop
    async def test_only_the_first_creates(self, store: ObjectStore) -> None:
        """A second create is refused and changes nothing."""
        await store.create("key", b"one")
        with pytest.raises(ObjectExists):
            await store.create("key", b"two")
        assert await _data(store, "key") == b"one"

    @in_loop
    async def test_of_many_creates_one_wins(self, store: ObjectStore) -> None:
        """Creates at the same time: one succeeds, and its bytes are there."""
        answers = await asyncio.gather(
            *(store.create("key", b"%d" % n) for n in range(8)), return_exceptions=True
        )
        winners = [n for n, answer in enumerate(answers) if isinstance(answer, Version)]
        assert len(winners) == 1
        assert await _data(store, "key") == b"%d" % winners[0]

    @in_loop
    async def test_a_replace_names_its_version(self, store: ObjectStore) -> None:
        """Only the newest version can be replaced."""
        first = await store.create("key", b"one")
        second = await store.replace("key", b"two", first)
        with pytest.raises(ObjectChanged):
            await store.replace("key", b"three", first)
        await store.replace("key", [b"th", b"ree"], second)
        assert await _data(store, "key") == b"three"

    @in_loop
    async def test_what_is_gone_is_not_replaced(self, store: ObjectStore) -> None:
        """A removed object counts as changed."""
        version = await store.create("key", b"one")
        await store.delete("key")
        with pytest.raises(ObjectChanged):
            await store.replace("key", b"two", version)
        assert await _keys(store, "") == []

    @in_loop
    async def test_swaps_of_many_lose_nothing(self, store: ObjectStore) -> None:
        """Counting up by compare-and-swap from many tasks counts every step."""
        await store.create("count", b"0")
        await asyncio.gather(*(_count_up(store, 5) for _ in range(4)))
        assert await _data(store, "count") == b"20"

    @in_loop
    async def test_an_unchanged_object_is_not_fetched(self, store: ObjectStore) -> None:
        """A get of the known version answers None until it changes."""
        version = await store.put("key", b"one")
        assert await store.get("key", unless=version) is None
        await store.put("key", b"two")
        found = await store.get("key", unless=version)
        assert found is not None
        assert found.data == b"two"

    @in_loop
    async def test_what_is_missing_is_named(self, store: ObjectStore) -> None:
        """Reads of nothing raise ObjectMissing."""
        await store.put("folder/key", b"")
        for key in ("nothing", "folder"):
            with pytest.raises(ObjectMissing):
                await store.get(key)
            with pytest.raises(ObjectMissing):
                await store.head(key)
            with pytest.raises(ObjectMissing):
                await store.get_range(key, 0, 1)
            with pytest.raises(ObjectMissing):
                await _streamed(store, key)

    @in_loop
    async def test_ranges_are_cut_at_the_end(self, store: ObjectStore) -> None:
        """A range ends where the object does, and is empty behind it."""
        await store.put("key", b"0123456789")
        assert await store.get_range("key", 2, 5) == b"234"
        assert await store.get_range("key", 8, 20) == b"89"
        assert await store.get_range("key", 3, 3) == b""
        assert await store.get_range("key", 10, 20) == b""
        with pytest.raises(InvalidArgument):
            await store.get_range("key", 5, 2)

    @in_loop
    async def test_streams_carry_every_byte(self, store: ObjectStore) -> None:
        """A large object comes in pieces, from any position to any other."""
        data = os.urandom(6 * _MIB)
        await store.put("key", data)
        assert await _streamed(store, "key") == data
        assert await _streamed(store, "key", 100, 5 * _MIB) == data[100 : 5 * _MIB]
        assert await _streamed(store, "key", 6 * _MIB - 7) == data[-7:]

    @in_loop
    async def test_keys_are_listed_in_order(self, store: ObjectStore) -> None:
        """A prefix is text, `after` is exclusive, folders are descended into."""
        names = [f"log/{n:03d}" for n in range(12)]
        await asyncio.gather(*(store.put(key, b"x") for key in [*names, "logs/1", "other"]))
        assert await _keys(store, "log/") == names
        assert await _keys(store, "log/00", after="log/004") == names[5:10]
        assert await _keys(store, "log") == [*names, "logs/1"]
        assert await _keys(store, "", after="log/011") == ["logs/1", "other"]
        assert await _keys(store, "nothing/") == []

    @in_loop
    async def test_removing_twice_is_no_error(self, store: ObjectStore) -> None:
        """A delete takes what is there of its keys."""
        await store.put("a/b", b"")
        await store.put("c", b"")
        await store.delete("a/b", "nothing", "nothing/here")
        await store.delete("a/b")
        await store.delete()
        assert await _keys(store, "") == ["c"]

    @pytest.mark.parametrize("size", [0, 1000, 5 * _MIB, 17 * _MIB + 1])
    @in_loop
    async def test_an_upload_appears_whole(self, store: ObjectStore, size: int) -> None:
        """Nothing is seen before the block ends, everything after it."""
        data = os.urandom(size)
        async with store.upload("big/one") as upload:
            for start in range(0, size, 3 * _MIB):
                await upload.write(memoryview(data)[start : start + 3 * _MIB])
            assert await _keys(store, "") == []
        info = await store.head("big/one")
        assert (info.size, info.version) == (size, upload.version)
        assert await _streamed(store, "big/one") == data

    @pytest.mark.parametrize("size", [10, 12 * _MIB])
    @in_loop
    async def test_an_abandoned_upload_leaves_nothing(self, store: ObjectStore, size: int) -> None:
        """An error in the block takes everything back, and is raised."""
        with pytest.raises(KeyError, match="mine"):
            await _give_up(store, size)
        assert await _keys(store, "") == []

    @in_loop
    async def test_an_upload_replaces(self, store: ObjectStore) -> None:
        """What stood there is seen until the block ends."""
        await store.put("key", b"old")
        async with store.upload("key") as upload:
            await upload.write(b"new")
            assert await _data(store, "key") == b"old"
        assert await _data(store, "key") == b"new"

    @pytest.mark.parametrize(
        "key", ["", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\\b", "a\nb", ".penstock/x"]
    )
    @in_loop
    async def test_ambiguous_keys_are_refused(self, store: ObjectStore, key: str) -> None:
        """A key that leaves its place, or that some store reads differently, is an error."""
        with pytest.raises(InvalidArgument):
            await store.put(key, b"")
        with pytest.raises(InvalidArgument):
            await store.get(key)
        with pytest.raises(InvalidArgument):
            async with store.upload(key):
                pass

    @in_loop
    async def test_unusual_keys_survive(self, store: ObjectStore) -> None:
        """Spaces, signs and letters of any script are part of a key as they are."""
        keys = ["%20 +é", "a b", "ключ=1&2"]
        for key in keys:
            await store.put(key, key.encode())
        assert await _keys(store, "") == keys
        assert [await _data(store, key) for key in keys] == [key.encode() for key in keys]


async def _data(store: ObjectStore, key: str) -> bytes:
    found = await store.get(key)
    assert found is not None
    return found.data


async def _streamed(store: ObjectStore, key: str, start: int = 0, end: int | None = None) -> bytes:
    return b"".join([piece async for piece in store.stream(key, start=start, end=end)])


async def _upload(store: ObjectStore, size: int) -> None:
    async with store.upload("big") as upload:
        await upload.write(b"x" * size)


async def _give_up(store: ObjectStore, size: int) -> None:
    async with store.upload("big") as upload:
        await upload.write(b"x" * size)
        raise KeyError("mine")


async def _count_up(store: ObjectStore, steps: int) -> None:
    while steps:
        found = await store.get("count")
        assert found is not None
        try:
            await store.replace("count", b"%d" % (int(found.data) + 1), found.info.version)
        except ObjectChanged:
            continue
        steps -= 1


@in_loop
async def test_parts_of_an_abandoned_upload_are_given_back(s3: S3Server) -> None:
    """The S3 server keeps no unfinished upload after an error."""
    store = open_objects(s3.place(), s3.options)
    with pytest.raises(KeyError):
        await _give_up(store, 12 * _MIB)
    assert s3.uploads() == 0


@in_loop
async def test_a_store_that_is_away_is_unavailable() -> None:
    """No server at all is ObjectsUnavailable, in every kind of write."""
    away = {"aws_endpoint": "http://127.0.0.1:9", "allow_http": "true", "skip_signature": "true"}
    store = open_objects("s3://bucket", away)
    calls = [
        store.create("key", b""),
        store.replace("key", b"", Version("x", None)),
        store.put("key", b""),
        _upload(store, 12 * _MIB),
    ]
    for call in calls:
        with pytest.raises(ObjectsUnavailable):
            await call


@in_loop
async def test_no_version_at_all_replaces_nothing() -> None:
    """A replacement without a condition would be none."""
    store = open_objects("memory://")
    await store.put("key", b"")
    with pytest.raises(InvalidArgument, match="no versions"):
        await store.replace("key", b"", Version(None, None))


def test_memory_is_shared_by_name() -> None:
    """Two openings of one name see one store; without a name each is its own."""
    asyncio.run(open_objects("memory://by-name").put("key", b"x"))
    assert asyncio.run(open_objects("memory://by-name").get("key")) is not None
    with pytest.raises(ObjectMissing):
        asyncio.run(open_objects("memory://").get("key"))


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("bucket/prefix", {}),
        ("ftp://host/x", {}),
        ("s3://", {}),
        ("s3://bucket", {"nonsense": "1"}),
        ("s3://bucket?x=1", {}),
        ("file://relative/path", {}),
        ("file:///x", {"a": "b"}),
        ("memory://x", {"a": "b"}),
        ("az://container", {}),
    ],
)
def test_a_url_that_names_nothing_is_refused(url: str, options: dict[str, str]) -> None:
    """InvalidArgument, with the URL in its text."""
    with pytest.raises(InvalidArgument, match=url.partition(":")[0]):
        open_objects(url, options)
