"""A receiver that is no Penstock: throws requests away, or keeps them in Redis.

    python bench/ingest_receiver.py WORKERS [REDIS_PORT]

Prints a line of JSON with its port when every worker listens.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from penstock.otel.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

HOST = "127.0.0.1"
KEPT = 1000
"""Entries of the stream, so that memory is not what is measured."""
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 1)]

WORDS = (b"XADD", b"log", b"MAXLEN", b"~", str(KEPT).encode(), b"*", b"m")
XADD = b"*8\r\n" + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in WORDS)


class RedisStream(asyncio.Protocol):
    """Speaks just enough of Redis's protocol for XADD; answers come in the order of commands."""

    def __init__(self) -> None:
        self._waiting: collections.deque[asyncio.Future[None]] = collections.deque()
        self._received = b""

    # A stream's transport is always this one
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Ready."""
        self._transport = transport

    async def add(self, message: bytes) -> None:
        """Returns when Redis has it."""
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self._transport.writelines([XADD, b"$%d\r\n" % len(message), message, b"\r\n"])
        await done

    def data_received(self, data: bytes) -> None:
        """An answer is the id in two lines, or an error in one."""
        *lines, self._received = (self._received + data).split(b"\r\n")
        for line in lines:
            if line.startswith(b"-"):
                raise SystemExit(line.decode())
            if not line.startswith(b"$"):
                self._waiting.popleft().set_result(None)


async def discard(_: bytes) -> None:
    """Nothing is durable sooner."""


async def serve(port: int, redis_port: int | None) -> None:
    """One worker, until stdin ends: with it, whoever started it has."""
    keep: Callable[[bytes], Awaitable[None]] = discard
    if redis_port is not None:
        loop = asyncio.get_running_loop()
        _, stream = await loop.create_connection(RedisStream, HOST, redis_port)
        keep = stream.add

    async def export(data: bytes, _: object) -> bytes:
        await keep(data)
        return b""

    server = grpc.aio.server(options=OPTIONS)
    for signal in Signal:
        method = {"Export": grpc.unary_unary_rpc_method_handler(export)}
        handler = grpc.method_handlers_generic_handler(signal.service, method)
        server.add_generic_rpc_handlers([handler])
    server.add_insecure_port(f"{HOST}:{port}")
    await server.start()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(None)


def start(workers: int, redis: list[str]) -> None:
    """Workers that share a port, until stdin ends."""
    with socket.socket() as reserved, contextlib.ExitStack() as stack:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind((HOST, 0))
        port = reserved.getsockname()[1]
        command = [sys.executable, __file__, "worker", str(port), *redis]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        processes = [
            # mypy does not look into a mapping of arguments
            stack.enter_context(subprocess.Popen(command, **pipes))  # type: ignore[call-overload]
            for _ in range(workers)
        ]
        for process in processes:
            process.stdout.readline()
        print(json.dumps({"port": port}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        asyncio.run(serve(int(sys.argv[2]), int(sys.argv[3]) if sys.argv[3:] else None))
    else:
        start(int(sys.argv[1]), sys.argv[2:])
