"""What segments and their bundles are known by, and what a segment's file is called."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from penstock.model.errors import Damaged
from penstock.segment import format as fmt

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.model.bundle import Bundle
    from penstock.segment.format import SegmentInfo
    from penstock.storage.files import Files

SUFFIX = ".seg"
_NAME = re.compile(r"([0-9]{20})\.seg")


class StoredBundle(NamedTuple):
    """A bundle with its place: in the log by offsets, in its segment by index."""

    bundle: Bundle
    """With `items` set."""
    first_offset: int
    messages: int
    ingested_at_ns: int
    bundle_index: int

    @property
    def end_offset(self) -> int:
        """One past the bundle's last message."""
        return self.first_offset + self.messages


def segment_name(segment_seq: int) -> str:
    """`00000000000000000042.seg`: sorts as text in the order of segments."""
    return f"{segment_seq:020d}{SUFFIX}"


def segment_seq_of(name: str) -> int | None:
    """The number in a segment's name; None for other names."""
    match = _NAME.fullmatch(name)
    segment_seq = int(match[1]) if match else None
    return segment_seq if segment_seq is not None and segment_seq < 2**63 else None


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
        return fmt.decode_trailer(data, size).info
    except Damaged as error:
        raise Damaged(f"{path.name}: {error}") from None
