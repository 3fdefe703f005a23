"""What the log is compared with: the disk itself, SQLite, Redis Streams, NATS JetStream.

Each is a context that yields its measure. The servers get 64 callers of the same kind as the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence

from harness import BaselineAbsent, Measure, Run, event_loop
from servers import HOST, nats_server, redis_server

MESSAGES = [os.urandom(1024) for _ in range(1000)]
"""1 KB each, all different."""
CALLERS = 64
BLOCK = os.urandom(4096)
PREALLOCATED_BYTES = 16 * 2**20

Send = Callable[[bytes], Awaitable[object]]
"""Sends one message; what it returns resolves when the message is durable."""


# --- the disk itself ---------------------------------------------------------------------------


@contextlib.contextmanager
def preallocated_floor(run: Run) -> Iterator[Measure]:
    """4 KB into a file of zeros, and fdatasync: no durable write can be quicker."""
    with _new_file(run) as handle:
        os.pwrite(handle, bytes(PREALLOCATED_BYTES), 0)
        os.fsync(handle)
        positions = itertools.cycle(range(0, PREALLOCATED_BYTES, len(BLOCK)))
        yield lambda: rate_of(run, lambda: _write_block(handle, next(positions)))


@contextlib.contextmanager
def growing_floor(run: Run) -> Iterator[Measure]:
    """4 KB at the end of a file, and fdatasync, which has to write the new size as well."""
    with _new_file(run) as handle:
        positions = itertools.count(0, len(BLOCK))
        yield lambda: rate_of(run, lambda: _write_block(handle, next(positions)))


def _write_block(handle: int, position: int) -> None:
    os.pwrite(handle, BLOCK, position)
    os.fdatasync(handle)


@contextlib.contextmanager
def _new_file(run: Run) -> Iterator[int]:
    with run.folder() as folder:
        handle = os.open(folder / "floor", os.O_RDWR | os.O_CREAT)
        try:
            yield handle
        finally:
            os.close(handle)


# --- SQLite ------------------------------------------------------------------------------------


@contextlib.contextmanager
def sqlite(run: Run) -> Iterator[Measure]:
    """Inserts of 64 messages a transaction into a database in WAL mode, synchronous=FULL."""
    with run.folder() as folder:
        database = sqlite3.connect(folder / "log.db", isolation_level=None)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("CREATE TABLE log (seq INTEGER PRIMARY KEY, message BLOB)")
        rows = itertools.cycle([(message,) for message in MESSAGES])
        try:
            yield lambda: CALLERS * rate_of(run, lambda: _transaction(database, rows))
        finally:
            database.close()


def _transaction(database: sqlite3.Connection, rows: Iterator[tuple[bytes]]) -> None:
    database.execute("BEGIN")
    some = itertools.islice(rows, CALLERS)
    database.executemany("INSERT INTO log (message) VALUES (?)", some)
    database.execute("COMMIT")


# --- Redis -------------------------------------------------------------------------------------


@contextlib.contextmanager
def redis_streams(run: Run) -> Iterator[Measure]:
    """XADD by 64 of Redis's own Python clients, a connection each."""
    try:
        from redis.asyncio import Redis
    except ImportError:
        raise BaselineAbsent("there is no client; `pip install redis` brings it") from None
    with run.folder() as folder, redis_server(folder) as port, event_loop() as runner:
        connect = functools.partial(Redis, host=HOST, port=port, single_connection_client=True)
        clients = [connect() for _ in range(CALLERS)]
        sends = [lambda message, to=client: to.xadd("log", {"m": message}) for client in clients]
        try:
            yield lambda: runner.run(rate_of_callers(run, sends))
        finally:
            for client in clients:
                runner.run(client.aclose())


@contextlib.contextmanager
def redis_streams_bare(run: Run) -> Iterator[Measure]:
    """The same without a client's overhead, which takes most of the time."""
    with run.folder() as folder, redis_server(folder) as port, event_loop() as runner:
        connections = [runner.run(_RedisConnection.open(port)) for _ in range(CALLERS)]
        sends = [connection.xadd for connection in connections]
        try:
            yield lambda: runner.run(rate_of_callers(run, sends))
        finally:
            runner.run(_close(connections))


class _RedisConnection(asyncio.Protocol):
    """Speaks just enough of Redis's protocol for XADD."""

    _XADD = b"*5\r\n$4\r\nXADD\r\n$3\r\nlog\r\n$1\r\n*\r\n$1\r\nm\r\n$%d\r\n%b\r\n"

    def __init__(self) -> None:
        self._answer: asyncio.Future[bytes] | None = None
        self._received = b""

    @classmethod
    async def open(cls, port: int) -> _RedisConnection:
        _, protocol = await asyncio.get_running_loop().create_connection(cls, HOST, port)
        return protocol

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def xadd(self, message: bytes) -> asyncio.Future[bytes]:
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(self._XADD % (len(message), message))
        return self._answer

    def data_received(self, data: bytes) -> None:
        """An answer is the id in two lines, or an error in one."""
        self._received += data
        if self._answer is None or self._answer.done():  # its task was cancelled
            return
        if self._received.startswith(b"-"):
            self._answer.set_exception(RuntimeError(self._received.decode()))
        elif self._received.count(b"\r\n") == 2:
            self._answer.set_result(self._received)
            self._received = b""

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("Redis closed the connection"))

    def close(self) -> None:
        self._transport.close()


async def _close(connections: Sequence[_RedisConnection]) -> None:
    for connection in connections:
        connection.close()


# --- NATS --------------------------------------------------------------------------------------


@contextlib.contextmanager
def nats_jetstream(run: Run) -> Iterator[Measure]:
    """Publishing into a stream on disk, by 64 clients."""
    try:
        import nats
    except ImportError:
        raise BaselineAbsent("there is no client; `pip install nats-py` brings it") from None
    with run.folder() as folder, nats_server(folder) as port, event_loop() as runner:
        clients = [runner.run(nats.connect(f"nats://{HOST}:{port}")) for _ in range(CALLERS)]
        try:
            streams = [client.jetstream() for client in clients]
            runner.run(streams[0].add_stream(name="log", subjects=["log"], storage="file"))
            sends = [lambda message, to=stream: to.publish("log", message) for stream in streams]
            yield lambda: runner.run(rate_of_callers(run, sends))
        finally:
            for client in clients:
                runner.run(client.close())


# --- rates -------------------------------------------------------------------------------------


def rate_of(run: Run, act: Callable[[], object]) -> float:
    """How often a second one thread gets through `act`."""
    started = time.perf_counter()
    deadline, now, count = started + run.slice_s, started, 0
    while now < deadline:
        act()
        count += 1
        now = time.perf_counter()
    return count / (now - started)


async def rate_of_callers(run: Run, sends: Sequence[Send]) -> float:
    """Messages a second of one task for each of `sends`, that waits for one before the next."""
    return await rate_of_tasks(run, [functools.partial(_keep_sending, send) for send in sends])


async def rate_of_tasks(
    run: Run, tasks: Sequence[Callable[[asyncio.Event], Awaitable[int]]]
) -> float:
    """Messages a second of tasks that count theirs until the event is set."""
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(run.slice_s, over.set)
    started = time.perf_counter()
    counts = await asyncio.gather(*(task(over) for task in tasks))
    return sum(counts) / (time.perf_counter() - started)


async def _keep_sending(send: Send, over: asyncio.Event) -> int:
    is_over, count = over.is_set, 0
    for message in itertools.cycle(MESSAGES):
        if is_over():
            break
        await send(message)
        count += 1
    return count
