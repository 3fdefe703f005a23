"""What one group commit takes to the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from penstock.model.errors import InvalidArgument

if TYPE_CHECKING:
    from penstock.log.commit import Commit

Buffer: TypeAlias = bytes | bytearray | memoryview


class CommitBatch:
    """Messages that will be, or are being, committed together."""

    __slots__ = ("commit", "first_offset", "messages", "must_sync", "size")

    def __init__(self, first_offset: int, commit: Commit) -> None:
        self.first_offset = first_offset
        self.messages: list[bytes] = []
        self.size = 0
        """Bytes of all frames; known when the batch is taken."""
        self.must_sync = False
        self.commit = commit

    @property
    def end_offset(self) -> int:
        """One past the last message."""
        return self.first_offset + len(self.messages)


def frozen(message: Buffer) -> bytes:
    """The message as it is now, whatever its owner does with it until the commit."""
    if isinstance(message, bytes):
        return message
    if isinstance(message, bytearray | memoryview):
        return bytes(message)
    raise InvalidArgument(f"a message is bytes, not {type(message).__name__}")
