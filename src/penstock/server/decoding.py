"""Decoding in another process, seen from the one that receives.

Messages go over as they are; bundles come back as log messages, which are read without copying.
A decoder process that dies is replaced. What it was at is tried message by message, each alone,
and the one that kills its process again and again is set aside.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import logging
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING, Final

from penstock.model.errors import PenstockError
from penstock.server.decoder import Answer, read_answers, write_list
from penstock.store.decoding import Decoded
from penstock.store.messages import decode_bundle, decode_raw

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.otel.signals import Signal

_LOG = logging.getLogger(__name__)
_TRIES: Final = 2
_PIPE_BYTES: Final = 1024 * 1024
"""As much as Linux grants everybody: fewer turns between the two processes."""
DECODER: Final = "penstock.server.decoder"


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

    def ask(self, signal: Signal, messages: Sequence[bytes]) -> list[Answer]:
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


class DecoderProcess:
    """One child for all the stores of a worker, which take turns."""

    def __init__(self, module: str = DECODER) -> None:
        self._module = module
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
                return self._child.ask(signal, messages)
            except (EOFError, OSError):
                if self._closed:
                    raise
                _LOG.error("the decoder process died and is replaced")
                self._child.end()
                self._child = _Child(self._module)
        # In a process of their own: others must not suffer from these, nor these from others.
        return self._one_by_one(signal, messages)

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
                    answers += child.ask(signal, [message])
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
