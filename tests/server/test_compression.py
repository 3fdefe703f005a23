"""Decompression that stops at its bound."""

from __future__ import annotations

import contextlib
import gzip
import tracemalloc
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.receiving.compression import unpacking, unpacking_of
from penstock.server.refusals import Cause, Refusal

MOST = 1_000_000
TEXT = b"a span, and another span, " * 1000


def streamed(data: bytes) -> bytes:
    """A zstd frame that does not say how long it is, as streaming clients send it."""
    return zstandard.ZstdCompressor(write_content_size=False).compress(data)


def zipped(data: bytes) -> bytes:
    """A zstd frame that does."""
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


PACKERS = {"gzip": gzip.compress, "zstd": zipped, "zstd of unknown length": streamed}
packers = pytest.mark.parametrize("name", PACKERS)


def decompress(data: bytes, encoding: str, most: int) -> bytes:
    """By the name of its encoding."""
    method = unpacking(encoding)
    return data if method is None else method(data, most)


def decompress_marked(data: bytes, most: int) -> bytes:
    """By its first bytes."""
    method = unpacking_of(data)
    return data if method is None else method(data, most)


def unpack(name: str, data: bytes, most: int = MOST) -> bytes:
    """By the name of its packer."""
    return decompress(data, name.split()[0], most)


def cause_of(name: str, data: bytes, most: int = MOST) -> Cause:
    """Why it is refused."""
    with pytest.raises(Refusal) as refused:
        unpack(name, data, most)
    return refused.value.cause


@packers
def test_body_comes_out_as_it_went_in(name: str) -> None:
    """Also where it has as many bytes as are allowed."""
    assert unpack(name, PACKERS[name](TEXT), len(TEXT)) == TEXT


@packers
def test_one_byte_too_many_is_too_large(name: str) -> None:
    """The bound is exact."""
    assert cause_of(name, PACKERS[name](TEXT), len(TEXT) - 1) is Cause.TOO_LARGE


@packers
def test_every_truncated_body_is_refused(name: str) -> None:
    """However short: the rest may hold records that the client believes to be stored."""
    body = PACKERS[name](bytes(range(256)))
    for end in range(len(body)):
        assert cause_of(name, body[:end]) is Cause.INVALID, end


@packers
def test_parts_follow_each_other(name: str) -> None:
    """Members of gzip and frames of zstd are one body, empty ones among them."""
    pack = PACKERS[name]
    assert unpack(name, pack(b"one ") + pack(b"") + pack(b"two")) == b"one two"


@packers
def test_truncated_second_part_is_refused(name: str) -> None:
    """Though the first is whole."""
    pack = PACKERS[name]
    second = pack(TEXT)
    for end in (1, 5, len(second) // 2, len(second) - 1):
        assert cause_of(name, pack(b"one") + second[:end]) is Cause.INVALID, end


@packers
def test_bound_holds_for_all_parts_together(name: str) -> None:
    """Each alone would be small enough."""
    part = PACKERS[name](TEXT)
    assert cause_of(name, part * 3, 2 * len(TEXT)) is Cause.TOO_LARGE


@packers
def test_bomb_takes_no_more_memory_than_the_bound(name: str) -> None:
    """A gigabyte of zeros is looked at as far as the bound."""
    packed = {
        "gzip": gzip.compress(bytes(2**20)) * 256,
        "zstd": zipped(bytes(2**28)),
        "zstd of unknown length": streamed(bytes(2**28)),
    }[name]
    tracemalloc.start()
    try:
        assert cause_of(name, packed) is Cause.TOO_LARGE
        assert tracemalloc.get_traced_memory()[1] < 8 * MOST
    finally:
        tracemalloc.stop()


def test_window_of_zstd_is_bounded() -> None:
    """A frame may ask for gigabytes of memory before its first byte comes out."""
    parameters = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    assert cause_of("zstd", packer.compress(TEXT) + packer.flush()) is Cause.INVALID


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_damaged_body_is_refused(name: str) -> None:
    """Its checksum is looked at."""
    body = bytearray(PACKERS[name](TEXT))
    body[-2] ^= 1
    assert cause_of(name, bytes(body)) is Cause.INVALID


@packers
@given(data=st.binary(max_size=200))
def test_random_bytes_are_refused_or_unpacked(name: str, data: bytes) -> None:
    """Nothing but a Refusal comes out of them."""
    with contextlib.suppress(Refusal):
        assert len(unpack(name, data)) <= MOST


@pytest.mark.parametrize("name", ["", "identity", " Identity ", "identity, identity"])
def test_identity_changes_nothing(name: str) -> None:
    """Nor does no encoding at all."""
    assert decompress(TEXT, name, MOST) is TEXT


@pytest.mark.parametrize("name", ["GZIP", "x-gzip", " gzip ", "identity, gzip"])
def test_names_of_encodings_are_read_as_http_says(name: str) -> None:
    """Case and space do not matter."""
    assert decompress(gzip.compress(TEXT, mtime=0), name, MOST) == TEXT


def test_two_encodings_are_undone_in_reverse() -> None:
    """The last one named was applied last."""
    assert decompress(gzip.compress(zipped(TEXT)), "zstd, gzip", MOST) == TEXT


def test_three_encodings_are_unsupported() -> None:
    """A thousand of them would cost a thousand times the work."""
    assert cause_of("gzip,gzip,gzip", TEXT) is Cause.UNSUPPORTED


@pytest.mark.parametrize("name", ["br", "deflate", "gzip, br", "gz ip", "zstd;q=1"])
def test_unknown_encoding_is_unsupported_and_named(name: str) -> None:
    """The text says which are known."""
    with pytest.raises(Refusal, match="is not one of gzip, zstd or identity") as refused:
        decompress(TEXT, name, MOST)
    assert refused.value.cause is Cause.UNSUPPORTED


MARKED = {**PACKERS, "deflate": zlib.compress, "fast deflate": lambda data: zlib.compress(data, 1)}
marked = pytest.mark.parametrize("name", MARKED)


@marked
def test_marked_message_is_unpacked(name: str) -> None:
    """Over gRPC the transport hands over a compressed message as it came."""
    assert decompress_marked(MARKED[name](TEXT), MOST) == TEXT


@marked
def test_truncated_marked_message_is_refused(name: str) -> None:
    """Wherever its mark is still there to see."""
    body = MARKED[name](TEXT)
    for end in (5, len(body) // 2, len(body) - 1):
        with pytest.raises(Refusal) as refused:
            decompress_marked(body[:end], MOST)
        assert refused.value.cause is Cause.INVALID


@pytest.mark.parametrize("data", [TEXT, b"", b"\x1f", b"\x28\xb5", b"\x78", b"\x78\x00"])
def test_message_without_mark_is_left_alone(data: bytes) -> None:
    """Without a copy."""
    assert decompress_marked(data, MOST) is data


@marked
def test_marked_bomb_is_too_large(name: str) -> None:
    """The bound holds for gRPC too."""
    with pytest.raises(Refusal) as refused:
        decompress_marked(MARKED[name](bytes(MOST + 1)), MOST)
    assert refused.value.cause is Cause.TOO_LARGE


def test_raw_deflate_is_not_taken_for_gzip() -> None:
    """A zlib stream under the name gzip is damaged."""
    assert cause_of("gzip", zlib.compress(TEXT)) is Cause.INVALID


def test_many_members_are_as_one() -> None:
    """Gzip files that were put together, and padded."""
    members = [gzip.compress(bytes([number]) * 300_000) for number in range(3)]
    whole = b"".join(bytes([number]) * 300_000 for number in range(3))
    assert unpack("gzip", b"".join(members)) == whole
    assert unpack("gzip", b"".join(members) + bytes(100)) == whole
    assert cause_of("gzip", b"".join(members), 899_999) is Cause.TOO_LARGE
    assert cause_of("gzip", b"".join(members)[:-1]) is Cause.INVALID
    assert cause_of("gzip", b"".join(members) + b"x") is Cause.INVALID


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_number_of_members_is_bounded(name: str) -> None:
    """Each of them costs time, though it holds nothing."""
    assert cause_of(name, PACKERS[name](b"") * 2000) is Cause.INVALID
