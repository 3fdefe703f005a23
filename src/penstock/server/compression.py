"""Decompression that stops at its bound: a few bytes can claim to be gigabytes."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

from isal import igzip, isal_zlib
from isal.igzip_lib import IsalError

from penstock.server.refusals import Cause, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

_GZIP_BITS: Final = 31
_GZIP_MAGIC: Final = b"\x1f\x8b"
_ZLIB_MAGIC: Final = b"\x78"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_WINDOW_BYTES: Final = 8 * 1024 * 1024
_ZSTD_PIECE: Final = 64 * 1024
_ZSTD_FRAMES: Final = 1000
_MOST_ENCODINGS: Final = 2


def decompress(data: bytes, encoding: str, most: int) -> bytes:
    """The body; Refusal for an unknown encoding, a broken one, or more than `most` bytes."""
    for method in methods_of(encoding):
        data = method(data, most)
    return data


def methods_of(encoding: str) -> list[Callable[[bytes, int], bytes]]:
    """What undoes it, in that order; Refusal where one of its parts is unknown."""
    names = [part.strip().lower() for part in encoding.split(",")]
    names = [name for name in names if name not in ("", "identity")]
    if len(names) > _MOST_ENCODINGS:
        text = f"the body is encoded {len(names)} times; the most is {_MOST_ENCODINGS}"
        raise Refusal(Cause.UNSUPPORTED, text)
    for name in reversed(names):
        if name not in _METHODS:
            known = "gzip, zstd or identity"
            raise Refusal(Cause.UNSUPPORTED, f"the encoding {name!r} is not one of {known}")
    return [_METHODS[name] for name in reversed(names)]


def decompress_marked(data: bytes, most: int) -> bytes:
    """The same for a message that says by its first bytes what it is.

    No OTLP request begins like gzip, zlib (gRPC calls it deflate) or zstd: they would be a wire
    type or a field that it lacks.
    """
    if data[:2] == _GZIP_MAGIC:
        return _gunzip(data, most)
    if data[:1] == _ZLIB_MAGIC and int.from_bytes(data[:2], "big") % 31 == 0:
        return _inflate(data, most)
    return _unzstd(data, most) if data[:4] == _ZSTD_MAGIC else data


def _inflate(data: bytes, most: int) -> bytes:
    stream = isal_zlib.decompressobj()
    try:
        body: bytes = stream.decompress(data, most + 1)
    except (IsalError, ValueError) as error:  # type: ignore[misc]  # isal has no types
        raise Refusal(Cause.INVALID, f"the deflate body is damaged: {error}") from None
    if len(body) > most:
        raise _too_large(most)
    if not stream.eof or stream.unused_data:
        raise Refusal(Cause.INVALID, "the deflate body ends too early or too late")
    return body


def _gunzip(data: bytes, most: int) -> bytes:
    """All members of a gzip file, one behind the other."""
    member = isal_zlib.decompressobj(wbits=_GZIP_BITS)
    try:
        first: bytes = member.decompress(data, most + 1)
        if len(first) > most:
            raise _too_large(most)
        if not member.eof:
            raise EOFError
        # `unused_data` is a copy: member by member it would be as many as there are members.
        rest = member.unused_data
        if not rest:
            return first
        # isal has no types
        with igzip.IGzipFile(fileobj=io.BytesIO(rest)) as stream:  # type: ignore[no-untyped-call]
            others: bytes = stream.read(most - len(first) + 1)
    except EOFError:
        raise Refusal(Cause.INVALID, "the gzip body ends too early") from None
    except (IsalError, ValueError, OSError) as error:  # type: ignore[misc]  # as above
        raise Refusal(Cause.INVALID, f"the gzip body is damaged: {error}") from None
    if len(first) + len(others) > most:
        raise _too_large(most)
    return first + others


def _unzstd(data: bytes, most: int) -> bytes:
    """All frames, one behind the other."""
    import zstandard

    reader = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    try:
        with reader.stream_reader(data, read_across_frames=True) as stream:
            body: bytes = stream.read(most + 1)
        if len(body) > most:
            raise _too_large(most)
        if not _is_whole(data, reader):
            raise Refusal(Cause.INVALID, "the zstd body ends too early")
    except zstandard.ZstdError as error:
        raise Refusal(Cause.INVALID, f"the zstd body is damaged: {error}") from None
    return body


def _is_whole(data: bytes, reader: Any) -> bool:
    """Whether the last frame is complete: reading says nothing of it. The output is bounded."""
    left = memoryview(data)
    for _ in range(_ZSTD_FRAMES):
        frame = reader.decompressobj()
        while left and not frame.eof:
            piece, left = left[:_ZSTD_PIECE], left[_ZSTD_PIECE:]
            frame.decompress(piece)
        if not frame.eof:
            return False
        if not (unused := len(frame.unused_data)) and not left:
            return True
        left = memoryview(data)[len(data) - len(left) - unused :]
    raise Refusal(Cause.INVALID, f"the zstd body has more than {_ZSTD_FRAMES} frames")


def _too_large(most: int) -> Refusal:
    return Refusal(Cause.TOO_LARGE, f"the body has more than {most} bytes when decompressed")


_METHODS: Final[dict[str, Callable[[bytes, int], bytes]]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "zstd": _unzstd,
}
