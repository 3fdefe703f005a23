"""Decompression that stops at its bound: a few bytes can claim to be gigabytes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from isal import isal_zlib
from isal.igzip_lib import IsalError

from penstock.server.refusals import Cause, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Unpack: TypeAlias = Callable[[bytes, int], bytes]

_GZIP_BITS: Final = 31
_GZIP_MAGIC: Final = b"\x1f\x8b"
_ZLIB_MAGIC: Final = b"\x78"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_WINDOW_BYTES: Final = 8 * 1024 * 1024
_PIECE_BYTES: Final = 64 * 1024
_FRAMES: Final = 1000
"""Of one body, and members of gzip: each costs time, however little it holds."""
_MOST_ENCODINGS: Final = 2


def unpacking(encoding: str) -> Unpack | None:
    """What undoes it; None where there is nothing to undo. Refusal for an unknown one.

    A function of the body and of the most bytes that it may become; Refusal for a broken body, or
    for more.
    """
    methods = _methods_of(encoding)
    return partial(_unpack, methods) if methods else None


def _unpack(methods: list[Unpack], data: bytes, most: int) -> bytes:
    for method in methods:
        data = method(data, most)
    return data


def _methods_of(encoding: str) -> list[Unpack]:
    """In the order in which they undo it."""
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


def unpacking_of(data: bytes) -> Unpack | None:
    """The same for a message that says by its first bytes what it is.

    No OTLP request begins like gzip, zlib (gRPC calls it deflate) or zstd: they would be a wire
    type or a field that it lacks.
    """
    if data[:2] == _GZIP_MAGIC:
        return _gunzip
    if data[:1] == _ZLIB_MAGIC and int.from_bytes(data[:2], "big") % 31 == 0:
        return _inflate
    return _unzstd if data[:4] == _ZSTD_MAGIC else None


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
        rest = member.unused_data
        return first + b"".join(_members(rest, most - len(first), most)) if rest else first
    except EOFError:
        raise Refusal(Cause.INVALID, "the gzip body ends too early") from None
    except (IsalError, ValueError) as error:  # type: ignore[misc]  # isal has no types
        raise Refusal(Cause.INVALID, f"the gzip body is damaged: {error}") from None


def _members(data: bytes, left_over: int, most: int) -> Iterator[bytes]:
    """In pieces: what a member leaves is a copy, and would be one of the whole rest each time."""
    left = memoryview(data)
    for _ in range(_FRAMES):
        if not left[0] and not bytes(left).strip(b"\0"):
            return  # padding
        member = isal_zlib.decompressobj(wbits=_GZIP_BITS)
        while left and not member.eof:
            piece, left = left[:_PIECE_BYTES], left[_PIECE_BYTES:]
            found: bytes = member.decompress(piece, left_over + 1)
            left_over -= len(found)
            if left_over < 0:
                raise _too_large(most)
            yield found
        if not member.eof:
            raise EOFError
        left = memoryview(data)[len(data) - len(left) - len(member.unused_data) :]
        if not left:
            return
    raise Refusal(Cause.INVALID, f"the gzip body has more than {_FRAMES} members")


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
    for _ in range(_FRAMES):
        frame = reader.decompressobj()
        while left and not frame.eof:
            piece, left = left[:_PIECE_BYTES], left[_PIECE_BYTES:]
            frame.decompress(piece)
        if not frame.eof:
            return False
        if not (unused := len(frame.unused_data)) and not left:
            return True
        left = memoryview(data)[len(data) - len(left) - unused :]
    raise Refusal(Cause.INVALID, f"the zstd body has more than {_FRAMES} frames")


def _too_large(most: int) -> Refusal:
    return Refusal(Cause.TOO_LARGE, f"the body has more than {most} bytes when decompressed")


_METHODS: Final[dict[str, Unpack]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "zstd": _unzstd,
}
