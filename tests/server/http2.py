"""The little of HTTP/2 that a hostile client needs."""

from __future__ import annotations

import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return (
        struct.pack(">I", len(payload))[1:]
        + bytes([kind, flags])
        + struct.pack(">I", stream)
        + payload
    )


def header_block(pairs: dict[str, str]) -> bytes:
    """Headers as literals that nobody has to remember."""
    block = b""
    for name, value in pairs.items():
        block += b"\0" + _text(name.encode()) + _text(value.encode())
    return block


def request_headers(path: str, **more: str) -> bytes:
    """Those of a gRPC call."""
    return header_block(
        {
            ":method": "POST",
            ":scheme": "http",
            ":path": path,
            ":authority": "localhost",
            "te": "trailers",
            "content-type": "application/grpc",
            **more,
        }
    )


def begin(connection: socket.socket) -> None:
    """Says what a client says first."""
    connection.sendall(PREFACE + frame(SETTINGS, 0, 0))


def begin_call(connection: socket.socket, stream: int, path: str, **more: str) -> None:
    """Begins a call, and sends nothing of its message."""
    block = request_headers(path, **more)
    connection.sendall(frame(HEADERS, END_HEADERS, stream, block))


def send_data(connection: socket.socket, stream: int, data: bytes) -> None:
    """Part of a message, in frames of the size that every server takes."""
    pieces = [data[at : at + 16384] for at in range(0, len(data), 16384)]
    connection.sendall(b"".join(frame(DATA, 0, stream, piece) for piece in pieces))


def _text(text: bytes) -> bytes:
    length = len(text)
    if length < 127:
        return bytes([length]) + text
    encoded, length = b"\x7f", length - 127
    while length > 127:
        encoded += bytes([length % 128 + 128])
        length //= 128
    return encoded + bytes([length]) + text
