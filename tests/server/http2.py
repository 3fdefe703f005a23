"""The little of HTTP/2 that a hostile client needs."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

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


class Connection:
    """A client that keeps to the windows, and otherwise does what it likes."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._window = self._first_window = 65535
        self._windows: dict[int, int] = {}
        self._changed = threading.Condition()
        self.ended: set[int] = set()
        """The streams that the server has ended; 0 is the connection."""
        connected.sendall(PREFACE + frame(SETTINGS, 0, 0))
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def begin_call(self, stream: int, path: str, **more: str) -> None:
        """Begins a call, and sends nothing of its message."""
        self._socket.sendall(frame(HEADERS, END_HEADERS, stream, request_headers(path, **more)))

    def send(self, stream: int, data: bytes) -> int:
        """Part of a message, as far as the windows let it; how many bytes that were."""
        with self._changed:
            left = self._first_window + self._windows.get(stream, 0)
            size = min(len(data), left, self._window, 16384)
            if size <= 0 or stream in self.ended or 0 in self.ended:
                return 0
            self._window -= size
            self._windows[stream] = self._windows.get(stream, 0) - size
        with contextlib.suppress(OSError):
            self._socket.sendall(frame(DATA, 0, stream, data[:size]))
        return size

    def close(self) -> None:
        """Goes away."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _read(self) -> None:
        with self._socket.makefile("rb") as file, contextlib.suppress(OSError):
            while len(head := file.read(9)) == 9:
                kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
                self._take(kind, flags, stream, file.read(int.from_bytes(head[:3], "big")))
        self.ended.add(0)

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        with self._changed:
            if kind == WINDOW and stream:
                change = int.from_bytes(payload, "big")
                self._windows[stream] = self._windows.get(stream, 0) + change
            elif kind == WINDOW:
                self._window += int.from_bytes(payload, "big")
            elif kind == SETTINGS and not flags:
                pairs = struct.iter_unpack(">HI", payload)
                self._first_window = dict(pairs).get(4, self._first_window)
                self._socket.sendall(frame(SETTINGS, 1, 0))
            elif kind == PING and not flags:
                self._socket.sendall(frame(PING, 1, 0, payload))
            elif kind == RESET or (kind in (DATA, HEADERS) and flags & END_STREAM):
                self.ended.add(stream)


def _text(text: bytes) -> bytes:
    length = len(text)
    if length < 127:
        return bytes([length]) + text
    encoded, length = b"\x7f", length - 127
    while length > 127:
        encoded += bytes([length % 128 + 128])
        length //= 128
    return encoded + bytes([length]) + text
