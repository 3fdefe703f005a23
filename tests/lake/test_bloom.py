"""Bloom filters are read as Parquet's writers write them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.lake.bloom import bitset_bytes, block_of, may_have, xxh64
from penstock.lake.glance import ColdFile
from penstock.lake.trace_filters import TraceFilters

if TYPE_CHECKING:
    from pathlib import Path

IDS = [os.urandom(16).hex() for _ in range(3000)]


def file_of(path: Path, ids: list[str], *, filtered: bool = True) -> ColdFile:
    """A file with these trace ids, in several row groups."""
    options = {"trace_id": {"ndv": 1000, "fpp": 0.01}} if filtered else None
    rows = pa.table({"number": range(len(ids)), "trace_id": ids})
    pq.write_table(rows, path, row_group_size=1000, bloom_filter_options=options)
    return ColdFile(str(path), len(ids), path.stat().st_size, None, None)


@pytest.mark.parametrize(
    ("data", "hash_"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_hash_is_xxh64(data: bytes, hash_: int) -> None:
    """Of published examples."""
    assert xxh64(data) == hash_


def test_file_that_has_the_trace_is_always_chosen(tmp_path: Path) -> None:
    """A filter is never wrong about what is there, and seldom about what is not."""
    files = [file_of(tmp_path / "a", IDS[:1500]), file_of(tmp_path / "b", IDS[1500:])]
    filters = TraceFilters()
    wrong = 0
    for number in range(0, 3000, 10):
        chosen = filters.chosen(files, {IDS[number]})
        assert files[number // 1500] in chosen
        wrong += len(chosen) - 1
    assert wrong < 30


def test_any_of_several_traces_is_enough(tmp_path: Path) -> None:
    """A file without one of them is not chosen."""
    file = file_of(tmp_path / "a", IDS[:1500])
    filters = TraceFilters()
    assert filters.chosen([file], {IDS[2000], IDS[3]}) == [file]
    assert [filters.chosen([file], {each}) for each in IDS[2000:2020]].count([]) > 15
    assert filters.chosen([file], set()) == []


def test_file_without_filters_may_have_any_trace(tmp_path: Path) -> None:
    """And so may one that cannot be read, or has no such column."""
    plain = file_of(tmp_path / "plain", IDS[:10], filtered=False)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other")
    (tmp_path / "damaged").write_bytes(b"PAR1 nothing")
    others = [
        ColdFile(str(tmp_path / name), 1, 1, None, None) for name in ("other", "damaged", "gone")
    ]
    files = [plain, *others]
    assert TraceFilters().chosen(files, {IDS[2000]}) == files


def test_filter_of_one_text_has_that_text() -> None:
    """In the block and the bits that its hash chooses."""
    hash_ = xxh64(b"abc")
    assert 0 <= block_of(hash_, 1024) <= 992
    assert may_have(hash_, b"\xff" * 32)
    assert not may_have(hash_, bytes(32))


def test_header_says_how_long_a_filter_is() -> None:
    """What begins otherwise is none."""
    assert bitset_bytes(b"\x15\x40\x1c") == 32
    assert bitset_bytes(b"\x15\x80\x80\x08\x1c") == 65536
    assert bitset_bytes(b"\x16\x40") is None
    assert bitset_bytes(b"\x15\x80\x80\x80\x80\x80") is None
    assert bitset_bytes(b"") is None
