"""Decoding in another process, seen from the one that receives.

Messages go over as they are; bundles come back as log messages, which are read without copying.
A decoder process that dies is replaced, and one that does not answer in time is ended for that.
What it was at is tried message by message, each alone, and the one that kills its process again and
again is set aside.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.children.asking import SEEN, Child, ChildDied
from penstock.server.keeping.decoder import Answer, from_parts
from penstock.store.decoding import bundle_in, decoded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.otel.signals import Signal
    from penstock.store.decoding import Decoded, Part

_LOG = logging.getLogger(__name__)
_TRIES: Final = 2
DECODER: Final = "penstock.server.keeping.decoder"
_LEAST_RATE: Final = 256 * 1024
"""Bytes a second that a decoder is given time for, beside its deadline: a tenth of the slowest."""
_HURRY_S: Final = 3.0


class DecoderProcess:
    """One child for all the stores of a worker, which take turns."""

    def __init__(self, module: str = DECODER, deadline_s: float = 30.0) -> None:
        self._module = module
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._child = self._start()
        self._alone: set[Child] = set()
        """Those that try what another one did not survive."""
        self._closed = False
        self.restarts = 0

    @property
    def pid(self) -> int:
        """Of the process that decodes at present."""
        return self._child.pid

    def run(self, signal: Signal, messages: Sequence[bytes]) -> list[Answer]:
        """What became of the messages, in order."""
        with self._lock:
            try:
                return self._ask(self._child, signal, messages)
            except ChildDied:
                if self._closed:
                    raise
                _LOG.error("the decoder process died and is replaced")
                self.restarts += 1
                self._child.end()
                self._child = self._start()
        # In a process of their own: others must not suffer from these, nor these from others.
        return self._one_by_one(signal, messages)

    @property
    def failures(self) -> list[str]:
        """What is wrong with it at present."""
        waited = max(child.silent_s for child in self._all())
        silent = waited > self._deadline_s / SEEN
        return [f"the decoder has not answered for {waited:.0f} s"] if silent else []

    def hurry(self) -> None:
        """Whoever hangs must not hold up the end: what is asked from now on has a few seconds."""
        self._deadline_s = min(self._deadline_s, _HURRY_S)
        for child in self._all():
            child.hurry(_HURRY_S)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._child.end()

    def _all(self) -> list[Child]:
        return [self._child, *self._alone]

    def _start(self) -> Child:
        # Arrow's memory does not go back to the system with every bundle.
        return Child(self._module, allocate=pa.allocate_buffer)

    def _ask(self, child: Child, signal: Signal, messages: Sequence[bytes]) -> list[Answer]:
        within_s = self._deadline_s + sum(map(len, messages)) / _LEAST_RATE
        answers = from_parts(child.ask([signal.value.encode(), *messages], within_s))
        if sum(each.messages for each in answers) != len(messages):
            raise ChildDied("the decoder does not answer what it was asked")
        return answers

    def _one_by_one(self, signal: Signal, messages: Sequence[bytes]) -> list[Answer]:
        """Each alone, and more than once: a process may have been killed for want of memory."""
        answers: list[Answer] = []
        child = self._start_alone()
        try:
            for message in messages:
                for _ in range(_TRIES):
                    try:
                        answers += self._ask(child, signal, [message])
                        break
                    except ChildDied:
                        self.restarts += 1
                        self._end_alone(child)
                        child = self._start_alone()
                else:
                    answers.append(Answer(1, None, "the decoder did not survive it"))
        finally:
            self._end_alone(child)
        return answers

    def _start_alone(self) -> Child:
        child = self._start()
        self._alone.add(child)
        return child

    def _end_alone(self, child: Child) -> None:
        self._alone.discard(child)
        child.end()


class RemoteDecoder:
    """A store's decoder (`store.decoding.Decoder`) for one signal."""

    def __init__(self, process: DecoderProcess, signal: Signal) -> None:
        self._process = process
        self._signal = signal

    def decode(self, first_offset: int, messages: Sequence[bytes]) -> Iterator[Decoded]:
        """Consecutive requests share a bundle; what is a bundle already stays as it is."""
        return decoded(first_offset, messages, self._requests)

    def _requests(self, messages: list[bytes]) -> Iterator[Part]:
        for count, bundle, problem in self._process.run(self._signal, messages):
            yield (count, None, problem) if bundle is None else bundle_in(bundle, count)
