"""Walking frames past damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.log import format as fmt
from penstock.log.scan import CHUNK_BYTES
from tests.log.helpers import messages, scan, write_unsealed

CONTENTS = messages(12)


def frame_starts(contents: list[bytes]) -> list[int]:
    """Where each frame begins, and where the last one ends."""
    starts = [fmt.HEADER_BYTES]
    for message in contents:
        starts.append(starts[-1] + fmt.FRAME_BYTES + len(message))
    return starts


def test_a_file_cut_anywhere_yields_the_frames_before_the_cut(tmp_path: Path) -> None:
    """Torn at every byte: whole frames stay, the torn one is dropped, none is invented."""
    path = write_unsealed(tmp_path, CONTENTS)
    data, starts = path.read_bytes(), frame_starts(CONTENTS)
    for cut in range(starts[-1], fmt.HEADER_BYTES - 1, -1):
        path.write_bytes(data[:cut])
        found, gaps, end = scan(path)
        whole = sum(start <= cut for start in starts[1:])
        assert (found, gaps) == (dict(enumerate(CONTENTS[:whole])), [])
        assert end.offset == whole
        assert end.torn_bytes == len(data[starts[whole] : cut].rstrip(b"\0"))


def test_a_file_cut_anywhere_and_zeroed_behind_yields_the_same(tmp_path: Path) -> None:
    """A torn write into zeroed space: the last frame's beginning, then zeros."""
    contents = [message + b"\x01" for message in CONTENTS]
    path = write_unsealed(tmp_path, contents)
    data, starts = path.read_bytes(), frame_starts(contents)
    for cut in range(starts[-1], starts[-3], -1):
        path.write_bytes(data[:cut].ljust(len(data) + 5000, b"\0"))
        found, gaps, end = scan(path)
        whole = sum(start <= cut for start in starts[1:])
        assert (found, gaps, end.offset) == (dict(enumerate(contents[:whole])), [], whole)


def test_every_flipped_bit_costs_at_most_its_own_message(tmp_path: Path) -> None:
    """Detected or identical: what is read is what was written, and only one frame may miss."""
    path = write_unsealed(tmp_path, CONTENTS)
    data, starts = path.read_bytes(), frame_starts(CONTENTS)
    for at in range(fmt.HEADER_BYTES, starts[-1]):
        hit = sum(start <= at for start in starts) - 1
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            path.write_bytes(flipped)
            found, gaps, _ = scan(path)
            rest = {n: message for n, message in enumerate(CONTENTS) if n != hit}
            assert found == rest
            if hit < len(CONTENTS) - 1:
                assert [(gap.first_offset, gap.end_offset) for gap in gaps] == [(hit, hit + 1)]


@pytest.mark.parametrize("length", [0xFFFFFFFF, 0x7FFFFFFF, 10_000, 0])
def test_a_corrupt_length_does_not_hide_the_rest(tmp_path: Path, length: int) -> None:
    """A frame that claims to reach beyond the file is damage, not an incomplete frame."""
    path = write_unsealed(tmp_path, CONTENTS)
    data, start = bytearray(path.read_bytes()), frame_starts(CONTENTS)[4]
    data[start + 8 : start + 12] = length.to_bytes(4, "little")
    path.write_bytes(data)
    found, gaps, end = scan(path)
    assert sorted(found) == [0, 1, 2, 3, *range(5, 12)]
    assert [(gap.first_offset, gap.end_offset) for gap in gaps] == [(4, 5)]
    assert end.offset == 12


def test_several_damaged_stretches_are_each_confined(tmp_path: Path) -> None:
    """Whole frames overwritten with noise, twice."""
    path = write_unsealed(tmp_path, CONTENTS)
    data, starts = bytearray(path.read_bytes()), frame_starts(CONTENTS)
    data[starts[2] : starts[4]] = b"\xa5" * (starts[4] - starts[2])
    data[starts[7] : starts[8]] = bytes(starts[8] - starts[7])
    path.write_bytes(data)
    found, gaps, _ = scan(path)
    assert sorted(found) == [0, 1, 4, 5, 6, 8, 9, 10, 11]
    assert [(gap.first_offset, gap.end_offset) for gap in gaps] == [(2, 4), (7, 8)]


def test_damage_larger_than_a_chunk_is_searched_through(tmp_path: Path) -> None:
    """The search goes on from window to window and finds frames that begin at their edges."""
    contents = [b"first", b"\x5a" * (3 * CHUNK_BYTES + 77), b"last", b"end"]
    path = write_unsealed(tmp_path, contents)
    data, starts = bytearray(path.read_bytes()), frame_starts(contents)
    data[starts[1] : starts[1] + 16] = b"\xee" * 16
    path.write_bytes(data)
    found, gaps, _ = scan(path)
    assert sorted(found) == [0, 2, 3]
    assert [(gap.first_offset, gap.end_offset) for gap in gaps] == [(1, 2)]


@pytest.mark.parametrize("shift", range(-20, 4))
def test_frames_around_the_edge_of_a_search_window_are_found(tmp_path: Path, shift: int) -> None:
    """Whatever part of the next frame's header the window ends in."""
    contents = [b"x" * (CHUNK_BYTES - fmt.FRAME_BYTES + shift), b"wanted"]
    path = write_unsealed(tmp_path, contents)
    data = bytearray(path.read_bytes())
    data[fmt.HEADER_BYTES : fmt.HEADER_BYTES + 16] = b"\xee" * 16
    path.write_bytes(data)
    assert scan(path)[0] == {1: b"wanted"}


def test_messages_longer_than_a_chunk_are_read(tmp_path: Path) -> None:
    """A chunk is a unit of reading, not a limit."""
    contents = [b"a", b"b" * (2 * CHUNK_BYTES + 5), b"c", b"d" * (CHUNK_BYTES - 16), b"e"]
    path = write_unsealed(tmp_path, contents)
    assert scan(path)[0] == dict(enumerate(contents))


def test_a_whole_last_frame_with_a_bad_checksum_counts_as_lost(tmp_path: Path) -> None:
    """It may have been acknowledged, so its offset is not given out again."""
    path = write_unsealed(tmp_path, CONTENTS)
    data = bytearray(path.read_bytes())
    data[frame_starts(CONTENTS)[-2] + 17] ^= 1
    path.write_bytes(bytes(data).ljust(len(data) + 4096, b"\0"))
    found, gaps, end = scan(path)
    assert sorted(found) == list(range(11))
    assert [(gap.first_offset, gap.end_offset) for gap in gaps] == [(11, 12)]
    assert end.offset == 12


def test_a_file_that_must_hold_more_reports_what_misses(tmp_path: Path) -> None:
    """With a known end a cut is a loss, not a torn tail."""
    path = write_unsealed(tmp_path, CONTENTS)
    path.write_bytes(path.read_bytes()[: frame_starts(CONTENTS)[9] + 3])
    _, gaps, end = scan(path, end=12)
    assert [(gap.first_offset, gap.end_offset) for gap in gaps] == [(9, 12)]
    assert end.offset == 12


def test_a_whole_last_frame_with_a_damaged_header_counts_as_lost_too(tmp_path: Path) -> None:
    """Whichever bit was hit; where the message ends with zeros, whichever of offset and length."""
    for last, bits in ((b"acknowledged", 128), (b"zeros behind" + bytes(9), 96), (b"", 128)):
        contents = [*CONTENTS, last]
        path = write_unsealed(tmp_path, contents)
        data, start = path.read_bytes(), frame_starts(contents)[-2]
        for bit in range(bits):
            flipped = bytearray(data).ljust(len(data) + 4096, b"\0")
            flipped[start + bit // 8] ^= 1 << bit % 8
            path.write_bytes(flipped)
            found, gaps, end = scan(path)
            assert found == dict(enumerate(CONTENTS)), (last, bit)
            assert ([gap.end_offset for gap in gaps], end.offset) == ([13], 13), (last, bit)
