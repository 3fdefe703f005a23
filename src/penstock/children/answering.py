"""The child's side: its first steps, the questions that come, and the answers to them.

A child is nothing without the process that started it, and ends as if killed. Not in order: closing
writes, renames and removes by path, and whoever sees that its parent is gone may have put another
data directory there. What was acknowledged is in the log; the next server recovers it, as after a
power loss.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, NoReturn

from penstock.children.frames import (
    Part,
    decode_document,
    encode_document,
    read_message,
    write_message,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

NICENESS: Final = 5
"""Of children that work for others: whoever waits for an acknowledgement comes first."""
_SET_DEATH_SIGNAL: Final = 1
"""PR_SET_PDEATHSIG, of <linux/prctl.h>."""
_STDIN: Final = 0


class Parent:
    """Who asks. The pipes are its alone: what a library prints is no answer."""

    def __init__(self) -> None:
        self._questions = sys.stdin.buffer
        self._answers = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        self._lock = threading.Lock()

    def questions(self) -> Iterator[list[bytes]]:
        """Until there are no more."""
        while (question := read_message(self._questions)) is not None:
            yield question

    def answer(self, *parts: Part) -> None:
        """None of them: there are no more answers to the question. From any thread."""
        with self._lock:
            write_message(self._answers, parts)

    def documents(self) -> Iterator[dict[str, Any]]:
        """Questions that are one document each."""
        for question in self.questions():
            yield decode_document(question[0])

    def say(self, document: dict[str, Any], *parts: Part) -> None:
        """Answers with a document, and what goes with it."""
        self.answer(encode_document(document), *parts)


def begin(*, niceness: int = 0, dies_with_starter: bool = False) -> Parent:
    """First of all in every child; from now on it ends with its parent, or has ended.

    `dies_with_starter`: Linux kills it before anybody can see that its parent is gone. It would do
    so, too, when the *thread* ends that started it: for children of a process's main thread alone.
    The others end when their stdin does, as all do on other systems.
    """
    if dies_with_starter and sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    if _hang_up().poll(0):  # it had ended before
        end_at_once()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.meta_path.insert(0, _NoPandas())
    os.nice(niceness)
    return Parent()


def end_at_once() -> NoReturn:
    """Nothing more reaches the disk."""
    os._exit(1)


def _hang_up() -> select.poll:
    """Of stdin, whose other end the parent alone has."""
    waiting = select.poll()
    waiting.register(_STDIN, 0)
    return waiting


def _end_with_parent() -> None:
    """Whatever this process is at."""
    _hang_up().poll()
    end_at_once()


class _NoPandas:
    """Asked before all others for a module that nobody has imported yet.

    Arrow and DuckDB import pandas at the first Python list that they see, if it is installed. No
    child has use for it; it would take each 0.2 s and 40 MB.
    """

    def find_spec(self, name: str, *_: Any) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("the server does without pandas", name=name)
