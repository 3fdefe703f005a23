"""A child that does nothing unless it is asked, seen from the process that started it.

It has a time for each answer. One that takes longer, or more memory than it may, is killed; whoever
asked hears of it, and starts another one.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import math
import os
import select
import subprocess
import sys
import threading
import time
from typing import IO, TYPE_CHECKING, Any, Final

from penstock.children.frames import COUNT, MOST_BYTES, FrameTooLarge, count_of, lengths_of, pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.children.frames import Part

_LOG = logging.getLogger(__name__)
_PIPE_BYTES: Final = 1024 * 1024
"""As much as Linux grants everybody: fewer turns between the two processes."""
_LOOK_S: Final = 0.2
_LAST_STEPS_S: Final = 1.0
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
SEEN: Final = 3
"""Who is silent for such a part of its deadline shows in health, before it is ended."""
PIPES: Final[dict[str, Any]] = {
    "stdin": subprocess.PIPE,
    "stdout": subprocess.PIPE,
    "start_new_session": True,  # Ctrl-C is for the first process to hear, and to pass on
}


class ChildDied(Exception):
    """There is no answer, and the child is of no more use: `end` it."""


class ChildSilent(ChildDied):
    """It did not answer in time, and was killed for that."""


class ChildTooLarge(ChildDied):
    """It took more memory than it may, and was killed for that."""


def command(module: str) -> list[str]:
    """How a child is started: a module by its name, or by its file."""
    return [sys.executable, *([] if module.endswith(".py") else ["-m"]), module]


def resident_bytes(pid: int | None = None) -> int:
    """The memory of a process, or of this one; 0 where it has ended, or the system does not say."""
    try:
        with open(f"/proc/{pid or 'self'}/statm", "rb") as file:  # noqa: PTH123 - five times a second
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


class Child:
    """One process. Safe from any thread; it answers one question after the other."""

    def __init__(
        self,
        module: str,
        *,
        allocate: Callable[[int], Any] = bytearray,
        most_bytes: int = MOST_BYTES,
        most_memory: float = math.inf,
        stderr: int | None = None,
        environment: dict[str, str] | None = None,
        inherits: Sequence[int] = (),
    ) -> None:
        """`allocate` makes the buffer of an answer, of `most_bytes` at the most."""
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            command(module),
            stderr=stderr,
            env=None if environment is None else {**os.environ, **environment},
            pass_fds=inherits,
            bufsize=0,
            **PIPES,
        )
        self._allocate, self._most_bytes = allocate, most_bytes
        self._most_memory = most_memory
        self._questions, self._writable = _ready_made(self._process.stdin, select.POLLOUT)
        self._answers, self._readable = _ready_made(self._process.stdout, select.POLLIN)
        self._lock = threading.Lock()
        self._asked_at: float | None = None
        self._until = 0.0
        self._hurry_s = math.inf
        self._spent = False
        self.answered = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    @property
    def is_usable(self) -> bool:
        """Whether it can be asked; one that has died is known by its memory before by its end."""
        return not self._spent and self.exit_code is None and self.resident_bytes > 0

    @property
    def resident_bytes(self) -> int:
        """Its memory; 0 where it has ended."""
        return resident_bytes(self.pid)

    @property
    def silent_s(self) -> float:
        """How long it has been asked without an answer; 0 where nobody asks it."""
        asked_at = self._asked_at
        return 0.0 if asked_at is None else time.monotonic() - asked_at

    def ask(self, parts: Sequence[Part], within_s: float) -> list[memoryview]:
        """Its answer: parts of one buffer. ChildDied where there is none."""
        with self._lock, self._asked(within_s):
            self._send(parts)
            return self._receive()

    def ask_all(self, parts: Sequence[Part], within_s: float) -> Iterator[list[memoryview]]:
        """All its answers, each within that time."""
        with self._lock, self._asked(within_s):
            self._send(parts)
            while answer := self._receive():
                yield answer
                self._begin(within_s)

    def hurry(self, within_s: float) -> None:
        """What is asked now, and from now on, has no more time than that."""
        self._hurry_s = within_s
        self._until = min(self._until, time.monotonic() + within_s)

    def kill(self) -> None:
        """At once, whatever it is at; whoever asks it hears of that."""
        self._spent = True
        self._process.kill()

    def end(self) -> None:
        """Returns when it is gone. Idempotent."""
        self.kill()
        with self._lock:
            self._process.wait()
            for pipe in (self._questions, self._answers):
                pipe.close()

    @contextlib.contextmanager
    def _asked(self, within_s: float) -> Iterator[None]:
        if self._spent:  # an answer that nobody took may still be in the pipe
            raise ChildDied("the process was ended")
        self._begin(within_s)
        try:
            yield
        except BaseException as error:
            self.kill()  # what it says next would be taken for the answer to another question
            if isinstance(error, (OSError, ValueError)):  # a broken or closed pipe, or nonsense
                if isinstance(error, FrameTooLarge):
                    _LOG.error("process %d answers with %s, and is ended", self.pid, error)
                raise ChildDied(f"the process is no more: {error}") from error
            raise
        else:
            self.answered += 1
        finally:
            self._asked_at = None

    def _begin(self, within_s: float) -> None:
        self._asked_at = time.monotonic()
        self._until = self._asked_at + min(within_s, self._hurry_s)

    def _send(self, parts: Sequence[Part]) -> None:
        descriptor = self._questions.fileno()
        for piece in pieces(parts):
            left = memoryview(piece)
            while left:
                try:
                    left = left[os.write(descriptor, left) :]
                except BlockingIOError:
                    self._wait(self._writable)

    def _receive(self) -> list[memoryview]:
        count = count_of(self._read(bytearray(COUNT.size)))
        lengths = lengths_of(self._read(bytearray(8 * count)), self._most_bytes)
        data, parts, at = self._read(self._allocate(sum(lengths))), [], 0
        for length in lengths:
            parts.append(data[at : at + length])
            at += length
        return parts

    def _read(self, buffer: Any) -> memoryview:
        whole = memoryview(buffer)
        left, descriptor = whole, self._answers.fileno()
        while left:
            try:
                size = os.readv(descriptor, [left])
            except BlockingIOError:
                self._wait(self._readable)
                continue
            if not size:
                with contextlib.suppress(subprocess.TimeoutExpired):  # it ends with a code
                    self._process.wait(_LAST_STEPS_S)
                raise ChildDied(f"the process ended with {self._process.returncode}")
            left = left[size:]
        return whole

    def _wait(self, pipe: select.poll) -> None:
        """Until it can be written to, or read from; in short steps, since others may hurry it."""
        while True:
            left_s = self._until - time.monotonic()
            if left_s <= 0:
                _LOG.error("process %d does not answer and is ended", self.pid)
                self.kill()
                raise ChildSilent(f"process {self.pid} did not answer in time")
            if pipe.poll(math.ceil(1000 * min(left_s, _LOOK_S))):
                return
            if self._most_memory < math.inf and self.resident_bytes > self._most_memory:
                self.kill()
                raise ChildTooLarge(f"process {self.pid} took too much memory")


def _ready_made(pipe: IO[bytes] | None, event: int) -> tuple[IO[bytes], select.poll]:
    """A large pipe that never blocks this process, and what waits for it."""
    assert pipe is not None
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):  # somebody has many pipes, or may have none so large
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    os.set_blocking(pipe.fileno(), False)
    waiting = select.poll()
    waiting.register(pipe, event)
    return pipe, waiting
