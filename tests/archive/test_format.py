"""Rules of the archive's formats: golden bytes, and nothing believed that is not verified."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal.isal_zlib import crc32

from penstock.archive import format as fmt
from penstock.archive.encoder import ObjectDecoder, ObjectEncoder, open_block
from penstock.model.errors import Damaged, FormatError, UnsupportedVersion

_LOG_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
_SOURCE = uuid.UUID("ffeeddcc-bbaa-9988-7766-554433221100")
_HEADER = fmt.Header(_LOG_ID, 1, 42, 44, 0, _SOURCE)
_OBJECT = (
    "504e53544b41524302000000010000000011223344556677"
    "8899aabbccddeeff2a000000000000002c00000000000000"
    "000000000000000000000000ffeeddccbbaa99887766554433221100"
)
_REST = (
    "308ae0f82a00000000000000020000002500000025000000dbe9c9442a0000000000000005000000"
    "5c0385a868656c6c6f2b0000000000000000000000758edd89"
)
_SUM = "crc32:bcb9fa17"
_OLD = (
    "504e53544b415243010000000100000000112233445566778899aabbccddeeff"
    "2a000000000000002c0000000000000000000000000000000000000085da6490"
    "2a000000000000000200000025000000250000003a7aaace2a0000000000000005000000"
    "1c43736c68656c6c6f2b000000000000000000000062f77b15"
)
"""The same messages as version 1 wrote them."""
_DESCRIPTOR = fmt.Descriptor(
    object_id=fmt.object_id(1, 42, 44),
    start_offset=42,
    end_offset=44,
    size=141,
    etag='"abc"',
    checksum=_SUM,
    created_at="2025-01-01T00:00:00.000+00:00",
    completed=True,
    offset_index=((42, 80),),
    epoch=1,
    log_id=str(_LOG_ID),
    messages=2,
    source=str(_SOURCE),
)


def _object(header: fmt.Header, messages: list[bytes]) -> tuple[bytes, ObjectEncoder]:
    encoder = ObjectEncoder(header)
    parts = [encoder.begin(), *encoder.add(header.start_offset, messages), *encoder.finish()]
    return b"".join(parts), encoder


def _messages(data: bytes) -> list[bytes]:
    header = fmt.decode_header(data)
    position, found = header.size, []
    while position < len(data):
        head = fmt.decode_block_head(data, position)
        end = position + fmt.BLOCK_BYTES + head.stored_bytes
        stored = data[position + fmt.BLOCK_BYTES : end]
        found += open_block(head, stored, header.flags, header.seed)
        position = end
    return found


def test_golden_bytes_of_an_object() -> None:
    """Header, one block and two frames, as in the documentation."""
    data, encoder = _object(_HEADER, [b"hello", b""])
    assert data[:76].hex() == _OBJECT
    assert data.hex() == _OBJECT + _REST
    assert (encoder.index, encoder.size, encoder.checksum) == ([(42, 80)], len(data), _SUM)
    assert _messages(data) == [b"hello", b""]


def test_version_1_is_read_and_says_no_source() -> None:
    """An object and a descriptor of 0.1, byte by byte."""
    old = bytes.fromhex(_OLD)
    assert _messages(old) == [b"hello", b""]
    header = fmt.decode_header(old)
    assert (header.version, header.size, header.source) == (1, 64, None)
    assert _object(header, [b"hello", b""])[0] == old
    fields = json.loads(fmt.encode_descriptor(replace(_DESCRIPTOR, source=None)))
    assert (fields["version"], "source" in fields) == (1, False)
    assert fmt.decode_descriptor(json.dumps(fields).encode()).source is None


@pytest.mark.parametrize("size", [1, 7, 64, 79, 1000])
def test_an_object_is_taken_apart_in_any_pieces(size: int) -> None:
    """Both versions; positions and the checksum are those of the whole."""
    for whole in (bytes.fromhex(_OLD), bytes.fromhex(_OBJECT + _REST)):
        decoder, found = ObjectDecoder(), []
        for at in range(0, len(whole), size):
            for head, messages in decoder.feed(whole[at : at + size]):
                found.append((head.first_offset, decoder.position, messages))
        assert decoder.header is not None
        assert found == [(42, decoder.header.size, [b"hello", b""])]
        assert (decoder.position, decoder.waiting_bytes) == (len(whole), 0)
        assert decoder.checksum == crc32(whole)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=2500), st.booleans())
def test_what_is_encoded_is_decoded(messages: list[bytes], packed: bool) -> None:
    """Any messages, compressed or not; the index names each block."""
    flags = fmt.ZSTD if packed else 0
    header = replace(_HEADER, end_offset=42 + len(messages), flags=flags)
    data, encoder = _object(header, messages)
    assert _messages(data) == messages
    assert encoder.lost == []
    starts = [offset for offset, _ in encoder.index]
    assert starts == list(range(42, 42 + len(messages), fmt.INDEX_MESSAGES))


@given(st.data())
def test_no_flipped_bit_passes(data: st.DataObject) -> None:
    """Wherever it is, an error names the damage; nothing wrong is returned."""
    packed = data.draw(st.booleans())
    header = replace(_HEADER, end_offset=45, flags=fmt.ZSTD if packed else 0)
    whole, _ = _object(header, [b"hello", b"x" * 50, b""])
    at = data.draw(st.integers(0, len(whole) * 8 - 1))
    flipped = bytearray(whole)
    flipped[at // 8] ^= 1 << at % 8
    with pytest.raises(FormatError):
        _messages(bytes(flipped))


@given(st.binary(max_size=200))
def test_any_bytes_are_an_object_or_an_error(data: bytes) -> None:
    """Nothing but FormatError comes out of the decoders."""
    for decode in (fmt.decode_header, fmt.decode_block_head, fmt.decode_descriptor):
        with pytest.raises(FormatError):
            decode(data[:20])


def test_large_messages_close_their_block() -> None:
    """A block ends with the message that fills it, so memory stays bounded."""
    header = replace(_HEADER, end_offset=42 + 5)
    _, encoder = _object(header, [b"x" * (300 * 1024)] * 5)
    assert [offset for offset, _ in encoder.index] == [42, 44, 46]


def test_gaps_are_recorded() -> None:
    """What is missing at the beginning, between and at the end counts as lost."""
    encoder = ObjectEncoder(replace(_HEADER, end_offset=60))
    blocks = [*encoder.add(45, [b"a", b"b"]), *encoder.add(50, [b"c"]), *encoder.finish()]
    assert encoder.lost == [(42, 45), (47, 50), (51, 60)]
    assert [fmt.decode_block_head(block).first_offset for block in blocks] == [45, 50]
    assert encoder.messages == 3


def test_equal_messages_make_equal_bytes() -> None:
    """An object that is written twice is the same object."""
    assert _object(_HEADER, [b"a", b"b"])[0] == _object(_HEADER, [b"a", b"b"])[0]


def test_frames_of_another_object_do_not_pass() -> None:
    """Every checksum continues from the header's."""
    data, _ = _object(_HEADER, [b"hello", b""])
    other = replace(_HEADER, epoch=2).encode()
    with pytest.raises(Damaged):
        _messages(other + data[_HEADER.size :])


def test_a_newer_object_is_refused() -> None:
    """Its version says how long its header is, so it is looked at first."""
    newer = bytearray(_HEADER.encode())
    newer[8] = 9
    with pytest.raises(UnsupportedVersion):
        fmt.decode_header(bytes(newer))


def test_object_ids_say_their_range() -> None:
    """They sort as their offsets do, and other names are none."""
    name = fmt.object_id(3, 7, 9)
    assert name == "e0000000003/data-00000000000000000007-00000000000000000009.frames"
    assert fmt.parse_object_id(name) == (3, 7, 9)
    assert fmt.parse_object_id("archive") is None


def test_descriptors_are_json() -> None:
    """The documented fields, and back."""
    text = fmt.encode_descriptor(_DESCRIPTOR)
    fields = json.loads(text)
    named = "object_id start_offset end_offset size etag checksum created_at completed offset_index"
    assert set(named.split()) <= set(fields)
    assert fields["offset_index"] == [[42, 80]]
    assert (fields["version"], fields["source"]) == (2, str(_SOURCE))
    assert fmt.decode_descriptor(text) == _DESCRIPTOR


@pytest.mark.parametrize(
    "change",
    [
        {"start_offset": 44},
        {"start_offset": "x"},
        {"offset_index": 3},
        {"lost": [[1]]},
        {"source": "x"},
        {"source": None},
        {"log_id": 3},
        {"version": 1},
    ],
)
def test_a_descriptor_of_nonsense_is_damaged(change: dict[str, object]) -> None:
    """Types and ranges are looked at."""
    fields = {**json.loads(fmt.encode_descriptor(_DESCRIPTOR)), **change}
    with pytest.raises(Damaged):
        fmt.decode_descriptor(json.dumps(fields).encode())


def test_a_newer_descriptor_is_refused_and_unknown_fields_are_not() -> None:
    """Fields may be added; a version says that old ones changed."""
    fields = json.loads(fmt.encode_descriptor(_DESCRIPTOR))
    assert fmt.decode_descriptor(json.dumps({**fields, "new": 1}).encode()) == _DESCRIPTOR
    with pytest.raises(UnsupportedVersion):
        fmt.decode_descriptor(json.dumps({**fields, "version": 3}).encode())


def test_checkpoints_say_whether_they_are_whole() -> None:
    """A place and back; a changed one is damaged."""
    place = fmt.Place("00000000000000000000.wal", 4200, 44, 7)
    text = fmt.encode_checkpoint(place, _DESCRIPTOR.object_id, "2025-01-01T00:00:00+00:00")
    assert fmt.decode_checkpoint(text) == place
    with pytest.raises(Damaged):
        fmt.decode_checkpoint(text.replace(b"4200", b"4201"))


def test_the_documented_example_is_the_object() -> None:
    """The hex in the documentation, without its remarks."""
    page = (Path(__file__).parents[2] / "docs/formats/archive.md").read_text()
    lines = page.partition("```hex\n")[2].partition("```")[0].splitlines()
    written = "".join("".join(line[:44].split()) for line in lines)
    assert bytes.fromhex(written) == _object(_HEADER, [b"hello", b""])[0]
