"""The bytes of a log file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log import format as fmt
from penstock.model.errors import Damaged, UnsupportedVersion
from tests.log.helpers import LOG_ID

HEADER = fmt.new_header(LOG_ID, 7, 1_700_000_000_000_000_000, b"saltsalt")


def frames(messages: list[bytes], first_offset: int = 0, seed: int = HEADER.seed) -> bytes:
    """The encoded frames as one string."""
    return b"".join(fmt.encode_frames(messages, first_offset, seed))


def test_header_survives_a_round_trip() -> None:
    """What goes into the header block comes out, from two good copies."""
    block = fmt.encode_header(HEADER)
    assert len(block) == fmt.HEADER_BYTES
    assert fmt.decode_header(block) == (HEADER, 0)


@pytest.mark.parametrize("at", [0, 9, 20, 63, 2048, 2060, 2111])
def test_one_damaged_copy_of_the_header_is_tolerated_and_counted(at: int) -> None:
    """The other copy serves."""
    block = bytearray(fmt.encode_header(HEADER))
    block[at] ^= 1
    assert fmt.decode_header(bytes(block)) == (HEADER, 1)


def test_two_damaged_copies_of_the_header_are_refused() -> None:
    """Without a header no CRC in the file can be checked."""
    block = bytearray(fmt.encode_header(HEADER))
    block[5] ^= 1
    block[2048 + 5] ^= 1
    with pytest.raises(Damaged):
        fmt.decode_header(bytes(block))


def test_a_newer_version_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file from the future is not guessed at."""
    with monkeypatch.context() as patch:
        patch.setattr(fmt, "VERSION", 2)
        block = fmt.encode_header(fmt.new_header(LOG_ID, 0, 0, b"saltsalt"))
    with pytest.raises(UnsupportedVersion, match="version 2"):
        fmt.decode_header(block)


@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(0, 2**63))
def test_frames_survive_a_round_trip(messages: list[bytes], first: int) -> None:
    """Any messages, empty ones included, at any offset."""
    data = frames(messages, first)
    decoded, used = fmt.decode_frames(data, 0, first, first + len(messages), HEADER.seed)
    assert (decoded, used) == (messages, len(data))


def test_a_frame_of_zeros_is_never_valid() -> None:
    """Space that was zeroed ahead reads as the end, whatever the salt."""
    for salt in range(2000):
        header = fmt.new_header(LOG_ID, 0, 0, salt.to_bytes(8, "little"))
        assert not fmt.frame_is_valid(bytes(fmt.FRAME_BYTES), header.seed)


def test_a_salt_that_would_make_zeros_valid_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one salt in four thousand million is not left to luck."""
    real = fmt.crc32
    bad_seed = real(fmt._pack_header(LOG_ID, 0, 0, b"saltsalt"))

    def unlucky(data: bytes, seed: int = 0) -> int:
        return 0 if (data, seed) == (bytes(12), bad_seed) else int(real(data, seed))

    monkeypatch.setattr(fmt, "crc32", unlucky)
    assert fmt.new_header(LOG_ID, 0, 0, b"saltsalt").salt != b"saltsalt"


@pytest.mark.parametrize("change", ["log", "first offset", "salt"])
def test_frames_of_another_file_do_not_pass(change: str) -> None:
    """The CRC is bound to the file: stale and swapped frames are refused."""
    other = {
        "log": fmt.new_header(type(LOG_ID)(int=1), 7, HEADER.created_at_ns, b"saltsalt"),
        "first offset": fmt.new_header(LOG_ID, 8, HEADER.created_at_ns, b"saltsalt"),
        "salt": fmt.new_header(LOG_ID, 7, HEADER.created_at_ns, b"SALTSALT"),
    }[change]
    data = frames([b"hello"], 7, other.seed)
    assert fmt.decode_frames(data, 0, 7, 8, HEADER.seed) == ([], 0)


def test_every_flipped_bit_of_a_frame_is_detected() -> None:
    """Offset, length, CRC and message are all covered."""
    data = frames([b"a message"], 3)
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert fmt.decode_frames(bytes(flipped), 0, 3, 4, HEADER.seed)[0] == []


def test_seal_survives_a_round_trip_and_is_found_from_the_end() -> None:
    """Index and losses included."""
    seal = fmt.Seal(90, 5, 80, lost=((10, 20),), index=((7, 4096), (50, 9000)))
    data = fmt.encode_seal(seal, 12345, HEADER.seed)
    assert fmt.decode_trailer(data[-fmt.TRAILER_BYTES :], HEADER.seed) == 12345
    payload = data[fmt.FRAME_BYTES : -fmt.TRAILER_BYTES]
    assert fmt.decode_seal(payload) == seal
    with pytest.raises(Damaged):
        fmt.decode_seal(payload[:-16])
    with pytest.raises(Damaged):
        fmt.decode_seal(payload[:-3])


@given(st.integers(0, 2**40), st.integers(0, 2**20))
def test_candidate_pattern_finds_every_offset_in_its_range(lowest: int, span: int) -> None:
    """No frame after damage is overlooked."""
    highest = lowest + span
    pattern = fmt.candidate_pattern(lowest, highest)
    for offset in {lowest, highest, (lowest + highest) // 2, fmt.SEAL_OFFSET}:
        head = offset.to_bytes(8, "little")
        assert 3 in [match.start() for match in pattern.finditer(b"xyz" + head + b"tail")]


def test_golden_bytes() -> None:
    """The format as released; a change here needs a new version."""
    header = fmt.new_header(LOG_ID, 5, 6, b"saltsalt")
    block = fmt.encode_header(header)
    assert block[:64].hex() == (
        "504e53544b4c4f47"
        "0100"
        "0000"
        "00000000"
        "00112233445566778899aabbccddeeff"
        "0500000000000000"
        "0600000000000000"
        "73616c7473616c74"
        "00000000" + GOLDEN_CRC
    )
    assert block[2048:2112] == block[:64]
    assert frames([b"hi", b""], 5, header.seed).hex() == GOLDEN_FRAMES


GOLDEN_CRC = "cab57356"
GOLDEN_FRAMES = "050000000000000002000000327384e868690600000000000000000000005887911c"
