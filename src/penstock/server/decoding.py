"""Decoding in a process of its own, off the interpreter's lock of the one that receives.

Messages go over as they are; bundles come back as log messages, which are read without copying.
A decoder process that dies is replaced. What it was at is tried message by message, each alone,
and the one that kills its process again and again is set aside.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import logging
import multiprocessing
import threading
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING

from penstock.model.errors import PenstockError
from penstock.store.decoding import Decoded
from penstock.store.messages import decode_bundle, decode_raw, encode_bundle

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.otel.signals import Signal

_LOG = logging.getLogger(__name__)
_Answer = tuple[int, bytes | None, str]
_TRIES = 2


class DecoderProcess:
    """One child for all the stores of a worker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool = _new_pool()

    def run(self, signal: Signal, messages: Sequence[bytes]) -> list[_Answer]:
        """What became of the messages, in order."""
        pool = self._pool
        try:
            return pool.submit(decode_in_child, signal, list(messages)).result()
        except BrokenProcessPool:
            self._replace(pool)
        # In a process of their own: others must not suffer from these, nor these from others.
        return _one_by_one(signal, messages)

    def close(self) -> None:
        """Ends the child."""
        self._pool.shutdown(cancel_futures=True)

    def _replace(self, broken: concurrent.futures.ProcessPoolExecutor) -> None:
        with self._lock:
            if self._pool is broken:
                _LOG.error("the decoder process died and is replaced")
                broken.shutdown(wait=False)
                self._pool = _new_pool()


def _one_by_one(signal: Signal, messages: Sequence[bytes]) -> list[_Answer]:
    """Each alone, and more than once: a process may have been killed for want of memory."""
    answers: list[_Answer] = []
    pool = _new_pool()
    for message in messages:
        for _ in range(_TRIES):
            try:
                answers += pool.submit(decode_in_child, signal, [message]).result()
                break
            except BrokenProcessPool:
                pool.shutdown(wait=False)
                pool = _new_pool()
        else:
            answers.append((1, None, "the decoder did not survive it"))
    pool.shutdown()
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
            whole: list[_Answer] = [(1, message, "") for message in group]
            for count, data, problem in self._process.run(self._signal, group) if is_raw else whole:
                yield _decoded(offset, count, data, problem)
                offset += count


def _is_raw(message: bytes) -> bool:
    return decode_raw(message) is not None


def _decoded(offset: int, count: int, data: bytes | None, problem: str) -> Decoded:
    try:
        bundle = None if data is None else decode_bundle(data)
    except PenstockError as error:
        bundle, problem = None, str(error)
    return Decoded(offset, count, bundle, problem)


def decode_in_child(signal: Signal, messages: list[bytes]) -> list[_Answer]:
    """Runs in the decoder process."""
    from penstock.otel import decode_requests

    requests = [decode_raw(message) or b"" for message in messages]
    answers: list[_Answer] = []
    for part in decode_requests(signal, requests):
        try:
            data = None if part.bundle is None else encode_bundle(part.bundle)
        except PenstockError as error:
            answers.append((part.count, None, str(error)))
        else:
            answers.append((part.count, data, part.problem))
    return answers


def _new_pool() -> concurrent.futures.ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return concurrent.futures.ProcessPoolExecutor(1, mp_context=context, initializer=_begin_child)


def _begin_child() -> None:
    """Imports what is needed, leaves Ctrl-C to the parent, and ends with it."""
    import os
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # The worker's stdout goes to its supervisor, which takes its end for the worker's.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from penstock import otel  # noqa: F401 - so that the first batch does not wait for it


def _end_with_parent() -> None:
    """A pool's child waits for work for ever, even if the parent was killed."""
    import os

    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)
