"""What a log knows of its finished files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SUFFIX = ".wal"
_NAME = re.compile(r"([0-9]{20})\.wal")


@dataclass(frozen=True, slots=True)
class LogFile:
    """A sealed file: immutable but for its deletion."""

    path: Path
    first_offset: int
    end_offset: int
    size: int
    sealed_at_ns: int
    lost: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Lost:
    """Messages [first_offset, end_offset) that were in the log and cannot be read."""

    first_offset: int
    end_offset: int
    file: str
    position: int
    reason: str
    recorded: bool = False
    """A repair has written down that they are lost; nothing will bring them back."""

    @property
    def messages(self) -> int:
        return self.end_offset - self.first_offset

    def __str__(self) -> str:
        if self.messages:
            span = (
                f"{self.messages} messages (offsets {self.first_offset} to {self.end_offset - 1})"
            )
        else:
            span = f"nobody knows how many messages from offset {self.first_offset} on"
        return f"{span} in {self.file} at byte {self.position}: {self.reason}"


def file_name(first_offset: int) -> str:
    """`00000000000000000042.wal`: sorts as text in the order of offsets."""
    return f"{first_offset:020d}{SUFFIX}"


def first_offsets(names: Iterable[str]) -> list[int]:
    """The offsets in the names of log files, in their order; other names are passed over."""
    return [first for name in names if (first := first_offset_of(name)) is not None]


def first_offset_of(name: str) -> int | None:
    """The offset in a log file's name; None for other names."""
    match = _NAME.fullmatch(name)
    first = int(match[1]) if match else None
    return first if first is not None and first < 2**63 else None
