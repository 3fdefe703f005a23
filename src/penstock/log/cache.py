"""The newest messages, kept as the commits brought them: nothing is done per message."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

BATCH_BYTES = 1024 * 1024
"""A reader gets at most about this much at a time."""


class Batch(NamedTuple):
    """Consecutive messages; the first has `first_offset`."""

    first_offset: int
    messages: list[bytes]


class Cache:
    """Holds at most `limit` bytes, dropping the oldest commits first. The log's lock guards it."""

    __slots__ = ("_commits", "_firsts", "_gone", "_limit", "_size")

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._firsts: list[int] = []
        self._commits: list[tuple[list[bytes], int]] = []
        self._gone = 0  # leading entries that were dropped and not yet cut off
        self._size = 0

    @property
    def size(self) -> int:
        return self._size

    @property
    def first_offset(self) -> int | None:
        return self._firsts[self._gone] if self._gone < len(self._firsts) else None

    def add(self, first_offset: int, messages: list[bytes], size: int) -> None:
        """Takes the messages of a commit, which follow those of the last one."""
        self._firsts.append(first_offset)
        self._commits.append((messages, size))
        self._size += size
        while self._size > self._limit:
            self._size -= self._commits[self._gone][1]
            self._commits[self._gone] = _DROPPED
            self._gone += 1
        if self._gone * 2 > len(self._commits):
            del self._firsts[: self._gone], self._commits[: self._gone]
            self._gone = 0

    def get(self, offset: int) -> Batch | None:
        """The messages from `offset` on, as far as one commit and BATCH_BYTES reach."""
        at = bisect_right(self._firsts, offset, self._gone) - 1
        if at < self._gone:
            return None
        messages, size = self._commits[at]
        start = offset - self._firsts[at]
        if start >= len(messages):
            return None
        count = max(1, len(messages) * BATCH_BYTES // max(size, 1))
        return Batch(offset, messages[start : start + count])

    def clear(self) -> None:
        self._firsts, self._commits, self._gone, self._size = [], [], 0, 0


_DROPPED: tuple[list[bytes], int] = ([], 0)
