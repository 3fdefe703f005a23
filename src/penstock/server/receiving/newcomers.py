"""Connections to a gRPC port that are new: cut off where they send much and it becomes no call.

gRPC's library holds the head of a call to its bound only when the client has acknowledged the
settings that say so. Until then it keeps 16 MiB of it, tens of megabytes in memory; and where the
head ends, or the connection does, hands all of it to Python, which takes seconds in one piece. The
library has no bound for that time, only an end of it (`SETTLED_S`).

So for as long we look at how many bytes the kernel has received on a connection. Nothing else can
be sent between the frames of one head. Where more than `UNEXPLAINED_BYTES` came since a call was
last begun or read on it, beside those of messages that are being read, it is such a head.

A thread looks: the event loop may be the one that is held up. It asks for little that lets go of
the interpreter, which it would have to wait for again each time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import termios
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

from penstock.model.settings import KIB

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

    from penstock.server.configuration.config import Limits

SETTLED_S: Final = 5.0
"""A client that has not acknowledged the settings by then is gone."""
UNEXPLAINED_BYTES: Final = 512 * KIB
"""Of ten calls at once, which nobody has taken up yet, the windows."""
_AGAIN_BYTES: Final = 128 * KIB
"""From an address of which somebody was cut off a while ago."""
_HELD_UP: Final = 4
"""Times as much while the event loop is held up, and may not know of the calls that came."""
_REMEMBERED_S: Final = 60.0
_LOOK_S: Final = 0.02
_IDLE_LOOK_S: Final = 0.05
_COST: Final = 50
"""Looking takes one part in so many of the time at the most."""
_SO_COOKIE: Final = 57
_RECEIVED: Final = struct.Struct("=128xQ")
"""`tcpi_bytes_received` in Linux's `struct tcp_info`."""

Peer = tuple[str, int]


class Seen(NamedTuple):
    """A new connection, when it was looked at last."""

    until: float
    peer: Peer
    explained: int
    """The bytes that had come when a call was last begun or read on it."""
    suspect: int | None = None
    """Too much has come; the turn that the others were asked to take before it is cut off."""


class Newcomers:
    """Those of one port of this process."""

    def __init__(
        self,
        port: int,
        limits: Limits,
        *,
        tls: bool,
        call_soon: Callable[..., object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`call_soon`: has the event loop call something, where one takes up the calls."""
        self._call_soon = call_soon
        self._port = port
        # With TLS the settings are sent when hands were shaken.
        self._new_s = SETTLED_S + 1.0 + (limits.timeout if tls else 0.0)
        self._most_in_all = limits.in_flight // 4
        self._message_bytes = limits.request
        self._clock = clock
        self._moved: deque[str] = deque(maxlen=65_536)
        self._reading: Counter[str] = Counter()
        self._seen: dict[int, Seen] = {}
        self._others: set[int] = set()
        """Sockets of anything else, and connections that are not new any more; by cookie."""
        self._asked = self._taken = 0
        """Turns that the event loop was asked to take, and has taken."""
        self._cut: dict[str, float] = {}
        """Addresses, and until when they are remembered."""

    # --- what is done with calls ---------------------------------------------------------------

    def moved(self, peer: str) -> None:
        """A call was begun there."""
        self._moved.append(peer)

    @contextlib.contextmanager
    def reading(self, peer: str) -> Iterator[None]:
        """A message of it is read."""
        self._reading[peer] += 1
        try:
            yield
        finally:
            self._moved.append(peer)
            self._reading[peer] -= 1
            if not self._reading[peer]:
                del self._reading[peer]

    # --- looking -------------------------------------------------------------------------------

    def watch(self, ended: threading.Event) -> None:
        """Looks until then."""
        pause_s = _LOOK_S
        while not ended.wait(pause_s):
            with contextlib.suppress(OSError):  # no descriptor to look with at present
                pause_s = self.look()

    def look(self) -> float:
        """Cuts off who has sent too much; seconds until it is time to look again."""
        begun, spent = self._clock(), time.thread_time()
        moved = {_peer(self._moved.popleft()) for _ in range(len(self._moved))}
        reading = {_peer(each): count for each, count in tuple(self._reading.items())}
        seen, others, excess = dict[int, Seen](), set[int](), dict[int, tuple[int, int]]()
        for fd, cookie in _sockets():
            if cookie in self._others:
                others.add(cookie)
                continue
            known = self._seen.get(cookie) or self._begin(fd, begun)
            if known is None or begun > known.until:
                others.add(cookie)
                continue
            received = _received(fd)
            if known.peer in moved:
                known = known._replace(explained=received, suspect=None)
            allowed = reading.get(known.peer, 0) * self._message_bytes
            excess[cookie] = fd, received - known.explained - allowed
            seen[cookie] = known
        self._seen, self._others = seen, others
        self._judge(excess, begun)
        pause = _LOOK_S if seen else _IDLE_LOOK_S
        return max(pause, _COST * (time.thread_time() - spent))

    def _begin(self, fd: int, now: float) -> Seen | None:
        peer = _peer_of(fd, self._port)
        return None if peer is None else Seen(now + self._new_s, peer, 0)

    def _judge(self, excess: dict[int, tuple[int, int]], now: float) -> None:
        self._cut = {host: until for host, until in self._cut.items() if until > now}
        in_all = sum(max(0, size) for _, size in excess.values())
        for cookie, (fd, size) in excess.items():
            known = self._seen[cookie]
            allowed = _AGAIN_BYTES if known.peer[0] in self._cut else UNEXPLAINED_BYTES
            if in_all > self._most_in_all:
                allowed = min(allowed, _AGAIN_BYTES)
            if size <= allowed or size - _unread(fd) <= allowed:
                continue
            if known.suspect is None:
                self._seen[cookie] = known._replace(suspect=self._ask())
            # A call that came is begun when the loop has had a turn; so much is none, anyhow.
            elif known.suspect <= self._taken or size > _HELD_UP * allowed:
                self._cut[known.peer[0]] = now + _REMEMBERED_S
                _cut_off(fd, cookie)

    def _ask(self) -> int:
        self._asked += 1
        if self._call_soon is None:
            self._taken = self._asked
        else:
            self._call_soon(self._take_turn, self._asked)
        return self._asked

    def _take_turn(self, number: int) -> None:
        self._taken = number


def _peer(text: str) -> Peer:
    """Of what gRPC calls it: `ipv4:127.0.0.1:4317`, `ipv6:%5B::1%5D:4317`."""
    host, _, port = unquote(text).partition(":")[2].rpartition(":")
    return _plain(host.strip("[]")), int(port) if port.isdigit() else 0


def _plain(host: str) -> str:
    return host.partition("%")[0].removeprefix("::ffff:")


def _sockets() -> Iterator[tuple[int, int]]:
    """The descriptors of this process that are sockets, and what the kernel knows them by."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - fifty times a second
        with contextlib.suppress(OSError), _borrowed(int(name)) as each:
            yield int(name), _cookie(each)


def _cookie(each: socket.socket) -> int:
    """No other socket ever has the same."""
    return int.from_bytes(each.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, 8), "little")


@contextlib.contextmanager
def _borrowed(fd: int) -> Iterator[socket.socket]:
    """The library's own, which it may close at any time: for questions alone."""
    # The family is not asked for: it makes no difference to these questions.
    borrowed = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=fd)
    try:
        yield borrowed
    finally:
        borrowed.detach()


def _peer_of(fd: int, port: int) -> Peer | None:
    """Who is at the other end of a connection to that port; None where it is none."""
    with contextlib.suppress(OSError), _borrowed(fd) as each:
        name = each.getsockname()
        if isinstance(name, tuple) and len(name) > 1 and name[1] == port:
            host, its_port = each.getpeername()[:2]
            return _plain(host), its_port
    return None


def _received(fd: int) -> int:
    """What has come; 0 where it has gone."""
    with contextlib.suppress(OSError, struct.error), _borrowed(fd) as each:
        info = each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        (size,) = _RECEIVED.unpack_from(info)
        return int(size)
    return 0


def _unread(fd: int) -> int:
    """What of it the library has not taken."""
    with contextlib.suppress(OSError):
        [unread] = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))
        return int(unread)
    return 0


def _cut_off(fd: int, cookie: int) -> None:
    """Ends the connection with a reset, if the descriptor is still its own."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as own:
        # Nobody can give this descriptor to another: what is looked at is what is ended.
        if _cookie(own) == cookie:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            own.shutdown(socket.SHUT_RDWR)
