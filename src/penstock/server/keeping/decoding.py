"""Decoding in another process, seen from the one that receives.

Messages go over as they are; bundles come back as log messages, which are read without copying.
A decoder process that dies is replaced, and one that does not answer in time is ended for that.
What it was at is tried message by message, each alone, and the one that kills its process again and
again is set aside.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import logging
import subprocess
import sys
import threading
import time
from typing import IO, TYPE_CHECKING, Final

from penstock.model.errors import PenstockError
from penstock.server.keeping.decoder import Answer, read_answers, write_list
from penstock.store.decoding import Decoded
from penstock.store.messages import decode_bundle, decode_raw

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.otel.signals import Signal

_LOG = logging.getLogger(__name__)
_TRIES: Final = 2
_PIPE_BYTES: Final = 1024 * 1024
"""As much as Linux grants everybody: fewer turns between the two processes."""
DECODER: Final = "penstock.server.keeping.decoder"
_LEAST_RATE: Final = 256 * 1024
"""Bytes a second that a decoder is given time for, beside its deadline: a tenth of the slowest."""
_HURRY_S: Final = 3.0
_SEEN: Final = 3
"""It shows after this part of its deadline."""


class _Child:
    """One process. EOFError, OSError: it has died."""

    def __init__(self, module: str) -> None:
        # In a session of its own: Ctrl-C is for the supervisor to hear.
        self.process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._questions, self._answers = _large(self.process.stdin), _large(self.process.stdout)

    def ask(self, signal: Signal, messages: Sequence[bytes], patience: Patience) -> list[Answer]:
        with patience.for_one(self.process, sum(map(len, messages))):
            write_list(self._questions, [signal.value.encode(), *messages])
            answers = read_answers(self._answers)
        if not answers:
            raise EOFError("the decoder process is no more")
        return answers

    def end(self) -> None:
        with contextlib.suppress(OSError):  # what was not sent cannot be
            self._questions.close()
        self.process.kill()
        self.process.wait()
        self._answers.close()


class Patience:
    """How long a child may take; one that takes longer is killed, and its asker hears of its end.

    Each has at most one child at a question.
    """

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._asked: subprocess.Popen[bytes] | None = None
        self._asked_at = 0.0

    @contextlib.contextmanager
    def for_one(self, process: subprocess.Popen[bytes], size: int) -> Iterator[None]:
        """While the block runs, `process` has its time for so many bytes."""
        with self._lock:
            self._asked, self._asked_at = process, time.monotonic()
            timer = self._killing(process, self._deadline_s + size / _LEAST_RATE)
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            with self._lock:
                self._asked = None

    @property
    def silence_s(self) -> float:
        """How long it has been without an answer; 0 where that is not long."""
        with self._lock:
            if self._asked is None:
                return 0.0
            waited = time.monotonic() - self._asked_at
        return waited if waited > self._deadline_s / _SEEN else 0.0

    def hurry(self) -> None:
        """The server stops: what is asked now, and from now on, has a few seconds."""
        with self._lock:
            self._deadline_s = min(self._deadline_s, _HURRY_S)
            if self._asked is not None:
                self._killing(self._asked, self._deadline_s)

    def _killing(self, process: subprocess.Popen[bytes], after_s: float) -> threading.Timer:
        """Kills it after that time, if it is still at the question that it is at now."""
        asked_at = self._asked_at

        def kill() -> None:
            with self._lock:
                if self._asked is process and self._asked_at == asked_at:
                    _LOG.error("the decoder process does not answer and is ended")
                    process.kill()

        timer = threading.Timer(after_s, kill)
        timer.daemon = True
        timer.start()
        return timer


class DecoderProcess:
    """One child for all the stores of a worker, which take turns."""

    def __init__(self, module: str = DECODER, deadline_s: float = 30.0) -> None:
        self._module = module
        self._patience = Patience(deadline_s)
        self._alone = Patience(deadline_s)
        self._lock = threading.Lock()
        self._child = _Child(module)
        self._closed = False

    @property
    def pid(self) -> int:
        """Of the process that decodes at present."""
        return self._child.process.pid

    def run(self, signal: Signal, messages: Sequence[bytes]) -> list[Answer]:
        """What became of the messages, in order."""
        with self._lock:
            try:
                return self._child.ask(signal, messages, self._patience)
            except (EOFError, OSError):
                if self._closed:
                    raise
                _LOG.error("the decoder process died and is replaced")
                self._child.end()
                self._child = _Child(self._module)
        # In a process of their own: others must not suffer from these, nor these from others.
        return self._one_by_one(signal, messages)

    @property
    def failures(self) -> list[str]:
        """What is wrong with it at present."""
        waited = max(self._patience.silence_s, self._alone.silence_s)
        return [f"the decoder has not answered for {waited:.0f} s"] if waited else []

    def hurry(self) -> None:
        """Whoever hangs must not hold up the end."""
        self._patience.hurry()
        self._alone.hurry()

    def close(self) -> None:
        """Ends the child."""
        with self._lock:
            self._closed = True
            self._child.end()

    def _one_by_one(self, signal: Signal, messages: Sequence[bytes]) -> list[Answer]:
        """Each alone, and more than once: a process may have been killed for want of memory."""
        answers: list[Answer] = []
        child = _Child(self._module)
        for message in messages:
            for _ in range(_TRIES):
                try:
                    answers += child.ask(signal, [message], self._alone)
                    break
                except (EOFError, OSError):
                    child.end()
                    child = _Child(self._module)
            else:
                answers.append(Answer(1, None, "the decoder did not survive it"))
        child.end()
        return answers


class RemoteDecoder:
    """A store's decoder (`store.decoding.Decoder`) for one signal."""

    def __init__(self, process: DecoderProcess, signal: Signal) -> None:
        self._process = process
        self._signal = signal

    def decode(self, first_offset: int, messages: Sequence[bytes]) -> Iterator[Decoded]:
        """Consecutive requests share a bundle; what is a bundle already stays as it is."""
        offset = first_offset
        for is_raw, run in itertools.groupby(messages, _is_raw):
            group = list(run)
            whole = [Answer(1, message) for message in group]
            for answer in self._process.run(self._signal, group) if is_raw else whole:
                yield _decoded(offset, answer)
                offset += answer.messages


def _is_raw(message: bytes) -> bool:
    return decode_raw(message) is not None


def _decoded(offset: int, answer: Answer) -> Decoded:
    bundle, problem = None, answer.problem
    try:
        if answer.bundle is not None:
            bundle = decode_bundle(answer.bundle)
    except PenstockError as error:
        problem = str(error)
    return Decoded(offset, answer.messages, bundle, problem)


def _large(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):  # somebody has many pipes, or may have none so large
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return pipe
