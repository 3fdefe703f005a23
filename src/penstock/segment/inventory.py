"""What a store knows of a segment without opening it, and what its file is called."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.model.errors import Damaged
from penstock.segment import format as fmt

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.storage.files import Files

SUFFIX = ".seg"
_NAME = re.compile(r"([0-9]{20})\.seg")


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A sealed segment: immutable but for its deletion."""

    segment_seq: int
    first_offset: int
    end_offset: int
    """One past the last message."""
    bundles: int
    items: int
    size: int
    """Bytes of the file."""
    first_ingested_at_ns: int
    """The earliest of its bundles."""
    last_ingested_at_ns: int
    """The latest of its bundles."""
    sealed_at_ns: int


def segment_name(segment_seq: int) -> str:
    """`00000000000000000042.seg`: sorts as text in the order of segments."""
    return f"{segment_seq:020d}{SUFFIX}"


def segment_seq_of(name: str) -> int | None:
    """The number in a segment's name; None for other names."""
    match = _NAME.fullmatch(name)
    segment_seq = int(match[1]) if match else None
    return segment_seq if segment_seq is not None and segment_seq < 2**63 else None


def info_of(trailer: fmt.Trailer, size: int) -> SegmentInfo:
    """What the trailer says."""
    return SegmentInfo(
        trailer.segment_seq,
        trailer.first_offset,
        trailer.end_offset,
        trailer.bundles,
        trailer.items,
        size,
        trailer.first_ingested_at_ns,
        trailer.last_ingested_at_ns,
        trailer.sealed_at_ns,
    )


def read_info(files: Files, path: Path) -> SegmentInfo:
    """What the file's last bytes say; one small read. Damaged where they are no trailer."""
    file = files.open(path)
    try:
        size = file.size()
        if size < fmt.HEADER_BYTES + fmt.TRAILER_BYTES:
            raise Damaged(f"{path.name} is too short for a segment")
        data = file.pread(fmt.TRAILER_BYTES, size - fmt.TRAILER_BYTES)
    finally:
        file.close()
    try:
        return info_of(fmt.decode_trailer(data, size), size)
    except Damaged as error:
        raise Damaged(f"{path.name}: {error}") from None
