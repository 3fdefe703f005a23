"""Walks the frames of one file, past damage, without ever decoding an unverified byte."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.log import format as fmt
from penstock.model.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.log.format import Header, Seal
    from penstock.storage.files import File

CHUNK_BYTES = 1024 * 1024
_ZEROS_TRIED = 16  # a message may end with zeros, which look like the zeros behind it


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive messages, and their frames as they stand in the file from `position` on."""

    first_offset: int
    messages: list[bytes]
    position: int
    frames: memoryview

    @property
    def end_position(self) -> int:
        """Behind the last one's frame."""
        return self.position + len(self.frames)


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes [position, end_position) that hold no readable frame: offsets [first, end) are lost.

    No offsets are lost where only stray bytes stood between two intact frames.
    """

    first_offset: int
    end_offset: int
    position: int
    end_position: int

    def recorded_in(self, lost: Iterable[tuple[int, int]]) -> bool:
        """Whether it is the jump that an earlier repair left for what it recorded as lost."""
        jump = self.end_position == self.position
        return jump and any(a <= self.first_offset and self.end_offset <= b for a, b in lost)


@dataclass(frozen=True, slots=True)
class End:
    """Where the frames end. `torn_bytes` counts what an interrupted write left behind there."""

    offset: int
    position: int
    torn_bytes: int = 0
    seal: Seal | None = None


def read_header(file: File) -> tuple[Header, int]:
    """The file's header and how many of its two copies are damaged."""
    return fmt.decode_header(file.pread(fmt.HEADER_BYTES, 0))


def read_seal(file: File, header: Header) -> Seal | None:
    """The seal of a finished file, found from its end; None where there is none that holds."""
    size = file.size()
    trailer = file.pread(fmt.TRAILER_BYTES, max(0, size - fmt.TRAILER_BYTES))
    position = fmt.decode_trailer(trailer, header.seed)
    if position is None or not fmt.HEADER_BYTES <= position <= size - fmt.TRAILER_BYTES:
        return None
    frame = file.pread(size - fmt.TRAILER_BYTES - position, position)
    return _seal_in(frame, header.seed)


def scan_frames(
    file: File, seed: int, position: int, expected: int, end: int | None
) -> Iterator[Run | Gap | End]:
    """Runs and gaps from `position` on, and one End at last.

    `expected` is the offset of the frame at `position`. `end` is the offset behind the last frame
    that must be there; None says that only the file knows (it was never sealed).
    """
    return _Scan(file, seed, end).walk(position, expected)


class _Scan:
    def __init__(self, file: File, seed: int, end: int | None) -> None:
        self._file = file
        self._seed = seed
        self._end = end

    def walk(self, position: int, expected: int) -> Iterator[Run | Gap | End]:
        stop = fmt.SEAL_OFFSET if self._end is None else self._end
        while expected < stop:
            data = self._file.pread(CHUNK_BYTES, position)
            messages, used = fmt.decode_frames(data, 0, expected, stop, self._seed)
            if not messages:
                data = self._whole_frame(data, position, expected)
                messages, used = fmt.decode_frames(data, 0, expected, stop, self._seed)
            if messages:
                yield Run(expected, messages, position, memoryview(data)[:used])
                expected += len(messages)
                position += used
                continue
            found = self._resume(position, expected)
            if isinstance(found, Gap):
                yield found
                expected, position = found.end_offset, found.end_position
                continue
            if self._end is not None and expected < self._end:
                yield Gap(expected, self._end, position, found.position + found.torn_bytes)
                found = End(self._end, found.position, 0, found.seal)
            elif found.offset > expected:
                yield Gap(expected, found.offset, position, found.position)
            yield found
            return
        yield End(expected, position)

    def _whole_frame(self, data: bytes, position: int, expected: int) -> bytes:
        """`data`, read on to the end of its first frame where that is longer than a chunk."""
        if len(data) < CHUNK_BYTES:
            return data
        offset, length = fmt.frame_fields(data, 0)
        whole = fmt.FRAME_BYTES + length
        if offset != expected or whole <= len(data) or position + whole > self._file.size():
            return data
        return self._file.pread(whole, position)

    def _resume(self, position: int, expected: int) -> Gap | End:
        """What stands where no frame with the expected offset does."""
        size = self._file.size()
        found = self._frame_at(position, expected, size)
        if found is not None:  # a repaired file jumps over what it lost
            return self._up_to(found, expected, position, position)
        after = self._claimed_end(position, expected)
        if self._frame_at(after, expected, size) == expected + 1:
            # The likeliest damage lies in the message. Not so if the length were damaged: then
            # this would be a later frame, and the search must find those before it.
            return Gap(expected, expected + 1, position, after)
        return self._search(position, expected, size)

    def _search(self, position: int, expected: int, size: int) -> Gap | End:
        """Looks at every byte for the next valid frame or seal."""
        highest = expected + (size - position) // fmt.FRAME_BYTES
        pattern = fmt.candidate_pattern(expected, min(highest, fmt.SEAL_OFFSET - 1))
        written_to = position
        for start in range(position, size, CHUNK_BYTES):
            window = self._file.pread(CHUNK_BYTES + fmt.FRAME_BYTES - 1, start)
            written = len(window.rstrip(b"\0"))
            if not written:
                continue
            written_to = start + written
            for match in pattern.finditer(window, 0, min(written + 8, len(window))):
                at = start + match.start()
                if not _may_begin(window, match.start(), expected, highest, size - at):
                    continue
                found = self._frame_at(at, expected, size)
                if found is not None:
                    return self._up_to(found, expected, position, at)
        return self._torn_end(position, expected, written_to)

    def _frame_at(self, position: int, expected: int, size: int) -> int | Seal | None:
        """The offset of a valid frame, or the valid seal, at `position`."""
        head = self._file.pread(fmt.FRAME_BYTES, position)
        if len(head) < fmt.FRAME_BYTES:
            return None
        offset, length = fmt.frame_fields(head, 0)
        if offset < expected or position + fmt.FRAME_BYTES + length > size:
            return None
        frame = self._file.pread(fmt.FRAME_BYTES + length, position)
        if offset == fmt.SEAL_OFFSET:
            return _seal_in(frame, self._seed)
        return offset if fmt.frame_is_valid(frame, self._seed) else None

    def _up_to(self, found: int | Seal, expected: int, position: int, at: int) -> Gap | End:
        if isinstance(found, int):
            return Gap(expected, found, position, at)
        return End(found.end_offset, at, 0, found)

    def _claimed_end(self, position: int, expected: int) -> int:
        """Where the frame at `position` ends if its length is to be believed."""
        head = self._file.pread(fmt.FRAME_BYTES, position)
        if len(head) < fmt.FRAME_BYTES:
            return position
        offset, length = fmt.frame_fields(head, 0)
        return position + fmt.FRAME_BYTES + length if offset == expected else position

    def _torn_end(self, position: int, expected: int, written_to: int) -> End:
        """The end of a file that was never sealed, and whether a message was lost there.

        An interrupted write leaves a beginning without its end. A frame that was written whole may
        have been acknowledged before it was damaged: it counts as lost, and its offset is not given
        out again.
        """
        after = self._end_of_whole_frame(position, expected, written_to)
        if after is None:
            return End(expected, position, written_to - position)
        return End(expected + 1, after, max(0, written_to - after))

    def _end_of_whole_frame(self, position: int, expected: int, written_to: int) -> int | None:
        """Where a damaged frame that had been written whole ends; None if it may be torn."""
        start = position + fmt.FRAME_BYTES
        claimed = self._claimed_end(position, expected)
        if position < claimed <= written_to:
            return claimed
        # Or is it the header that was damaged? With the right one the checksum would match.
        data = self._file.pread(written_to - position + _ZEROS_TRIED, position)
        if written_to == position or len(data) < fmt.FRAME_BYTES:
            return None
        _, stated = fmt.frame_fields(data, 0)
        likely = range(written_to - start, written_to - start + _ZEROS_TRIED + 1)
        lengths: list[int] = [stated, *likely]
        for whole in (fmt.FRAME_BYTES + length for length in lengths if length >= 0):
            if whole <= len(data) and fmt.would_be_valid(data[:whole], expected, self._seed):
                return position + whole
        return None


def _may_begin(window: bytes, at: int, expected: int, highest: int, room: int) -> bool:
    """A cheap look at a candidate, before its message is read."""
    if at + fmt.FRAME_BYTES > len(window):
        return True
    offset, length = fmt.frame_fields(window, at)
    in_range = expected <= offset <= highest or offset == fmt.SEAL_OFFSET
    return in_range and fmt.FRAME_BYTES + length <= room


def _seal_in(frame: bytes, seed: int) -> Seal | None:
    if len(frame) < fmt.FRAME_BYTES or not fmt.frame_is_valid(frame, seed):
        return None
    offset, length = fmt.frame_fields(frame, 0)
    if offset != fmt.SEAL_OFFSET or len(frame) != fmt.FRAME_BYTES + length:
        return None
    try:
        return fmt.decode_seal(frame[fmt.FRAME_BYTES :])
    except Damaged:
        return None
