"""The bytes of a segment."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import Damaged, UnsupportedVersion
from penstock.segment import SegmentReader, tables
from penstock.segment import format as fmt
from penstock.segment.tables import ManifestEntry, Part, Ref, StreamEntry
from tests.segment.helpers import STORE_ID, flipped

PAGE = Path(__file__).parent.parent.parent / "docs" / "formats" / "segment.md"
HEADER = fmt.Header(STORE_ID, 5, 6)
INFO = fmt.SegmentInfo(5, 10, 20, 0, 30, 64 + 128, -40, 50, 60)
TRAILER = fmt.Trailer(64, 0, 0, 0, 0, 0, 0, STORE_ID, INFO)
U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)


# --- header and trailer ------------------------------------------------------------------------


def test_header_survives_a_round_trip() -> None:
    """In 64 bytes."""
    data = fmt.encode_header(HEADER)
    assert len(data) == fmt.HEADER_BYTES
    assert fmt.decode_header(data) == HEADER


def test_trailer_survives_a_round_trip() -> None:
    """In 128 bytes, for the size that it says."""
    data = fmt.encode_trailer(TRAILER)
    assert len(data) == fmt.TRAILER_BYTES
    assert fmt.decode_trailer(data, 64 + 128) == TRAILER
    with pytest.raises(Damaged, match="size"):
        fmt.decode_trailer(data, 64 + 129)


def test_every_flipped_bit_of_header_and_trailer_is_detected() -> None:
    """The reserved bytes included."""
    header, trailer = fmt.encode_header(HEADER), fmt.encode_trailer(TRAILER)
    for bit in range(8 * len(header)):
        with pytest.raises(Damaged):
            fmt.decode_header(flipped(header, bit))
    for bit in range(8 * len(trailer)):
        with pytest.raises(Damaged):
            fmt.decode_trailer(flipped(trailer, bit), 192)


def test_a_newer_version_is_refused_by_name() -> None:
    """A file from the future is not guessed at."""
    header = fmt.encode_header(replace(HEADER, version=3))
    trailer = fmt.encode_trailer(replace(TRAILER, version=3))
    with pytest.raises(UnsupportedVersion, match="version 3"):
        fmt.decode_header(header)
    with pytest.raises(UnsupportedVersion, match="version 3"):
        fmt.decode_trailer(trailer, 192)


def test_golden_bytes() -> None:
    """The format as released; a change here needs a new version."""
    assert fmt.encode_header(HEADER).hex() == (
        "504e53544b534547"
        "0100"
        "0000"
        "00000000"
        "00112233445566778899aabbccddeeff"
        "0500000000000000"
        "0600000000000000"
        "000000000000000000000000" + GOLDEN_HEADER_CRC
    )
    assert fmt.encode_trailer(TRAILER).hex() == GOLDEN_TRAILER


# --- footer ------------------------------------------------------------------------------------

STREAM = StreamEntry(0, 30, b"f" * 16, 64, 192, 7, 1, 99, 0, 9, (0, 8), (-5, 5))
PARTS = [Part(64, 1), Part(128, 2), Part(192, 3)]
MANIFEST = [
    ManifestEntry(10, 2, 7, -1, (Ref(30, 0, 0),)),
    ManifestEntry(12, 1, 0, 5, ()),
    ManifestEntry(13, 1, 0, 5, (Ref(1, 65_535, 2**32 - 1), Ref(30, 0, 0))),
]


def footer_of(
    streams: list[StreamEntry], parts: list[Part], manifest: list[ManifestEntry], schema: bytes
) -> tables.Footer:
    """The tables, encoded and decoded."""
    data = tables.encode_footer(streams, parts, manifest, [(30, schema)])
    assert len(data) % 8 == 0
    trailer = replace(
        TRAILER,
        footer_position=256,
        footer_length=len(data),
        footer_crc=fmt.crc32(data),
        streams=len(streams),
        parts=len(parts),
        info=replace(INFO, bundles=len(manifest)),
        refs=sum(len(entry.refs) for entry in manifest),
        schemas=1,
    )
    return tables.Footer(memoryview(data), trailer)


def test_footer_survives_a_round_trip() -> None:
    """Every table of it."""
    footer = footer_of([STREAM], PARTS, MANIFEST, b"a schema")
    assert footer.streams() == [STREAM]
    assert [footer.part(STREAM, number) for number in range(3)] == [
        (0, 64, 1),
        (64, 128, 2),
        (128, 192, 3),
    ]
    assert [footer.manifest(index) for index in range(3)] == MANIFEST
    assert {slot: bytes(schema) for slot, schema in footer.schemas().items()} == {30: b"a schema"}


@settings(deadline=None)
@given(U64, U32, U64, st.integers(-(2**63), 2**63 - 1), st.integers(0, 64))
def test_any_bundle_survives_a_round_trip(
    offset: int, messages: int, items: int, time_ns: int, refs: int
) -> None:
    """With any values that fit their fields."""
    entry = ManifestEntry(
        offset, messages, items, time_ns, tuple(Ref(slot, slot, slot) for slot in range(refs))
    )
    footer = footer_of([], [], [MANIFEST[2], entry, MANIFEST[0]], b"")
    assert footer.manifest(1) == entry


@settings(deadline=None)
@given(st.integers(0, 70), st.data())
def test_any_bitmap_survives_a_round_trip(columns: int, data: st.DataObject) -> None:
    """Of any number of columns, none included."""
    some = st.sets(st.integers(0, columns - 1)) if columns else st.just(set())
    omitted = tuple(sorted(data.draw(some)))
    stream = replace(STREAM, columns=columns, omitted=omitted, event_times_ns=None)
    assert footer_of([stream], PARTS, MANIFEST, b"x").streams() == [stream]


def test_the_crc_of_a_stream_is_that_of_its_parts_together() -> None:
    """It needs no second look at the bytes."""
    pieces = [b"prelude", b"", b"chunk", b"footer" * 1000]
    parts, end = [], 0
    for piece in pieces:
        end += len(piece)
        parts.append(Part(end, fmt.crc32(piece)))
    assert tables.joined_crc(parts) == fmt.crc32(b"".join(pieces))


# --- the page ----------------------------------------------------------------------------------


def example() -> bytes:
    """The bytes of the page's worked example."""
    lines = re.findall(r"^([0-9a-f]{4})  ((?:[0-9a-f]{2} ){1,16})", PAGE.read_text(), re.MULTILINE)
    data = bytearray()
    for position, row in lines:
        data += bytes(int(position, 16) - len(data))  # a star: rows of zeros
        data += bytes.fromhex(row)
    return bytes(data)


def test_the_example_is_the_segment_that_the_page_describes() -> None:
    """One bundle: message 42, slot 30, three numbers."""
    data = example()
    assert len(data) == 1032
    reader = SegmentReader(memoryview(data), "the example")
    assert reader.verify() == []
    assert (reader.info.segment_seq, reader.store_id) == (7, STORE_ID)
    stored = reader.bundle(0)
    assert stored.bundle[30].to_pydict() == {"n": [1, 2, 3]}
    assert (stored.first_offset, stored.messages, stored.bundle.items) == (42, 1, 3)
    assert stored.ingested_at_ns + 10**9 == reader.info.sealed_at_ns == 1_735_689_601 * 10**9


def test_the_example_is_what_is_encoded() -> None:
    """Header, footer and trailer, byte by byte, from what they say."""
    data = example()
    header, trailer, footer = tables.decode_segment(memoryview(data))
    (stream,) = footer.streams()
    parts = [Part(*footer.part(stream, number)[1:]) for number in range(3)]
    schemas = [(slot, bytes(schema)) for slot, schema in footer.schemas().items()]
    again = tables.encode_footer([stream], parts, [footer.manifest(0)], schemas)
    assert fmt.encode_header(header) == data[:64]
    assert again + fmt.encode_trailer(trailer) == data[trailer.footer_position :]
    assert tables.joined_crc(parts) == stream.crc == 0x240058A4


def test_the_places_of_the_example_are_those_of_the_page() -> None:
    """Where each table begins and ends."""
    rows = re.findall(r"^\| `([0-9a-f]{4})`.`([0-9a-f]{4})` \|", PAGE.read_text(), re.MULTILINE)
    places = [(int(first, 16), int(last, 16) + 1) for first, last in rows]
    _, trailer, footer = tables.decode_segment(memoryview(example()))
    (stream,) = footer.streams()
    ends = [stream.position + footer.part(stream, number)[1] for number in range(3)]
    start = trailer.footer_position
    widths = [80, 3 * 16, 40, 8, 16, 8, 128, fmt.TRAILER_BYTES]
    starts = [start + sum(widths[:number]) for number in range(9)]
    expected = [(0, 64), (64, ends[0]), (ends[0], ends[1]), (ends[1], ends[2]), *pairwise(starts)]
    assert places == expected


def test_the_field_tables_add_up() -> None:
    """Each field begins where the one before it ends, and the last ends with the structure."""
    ends = []
    for table in re.findall(r"(?:^\| +\d+ \| +\d+ \|.*\n)+", PAGE.read_text(), re.MULTILINE):
        pairs = re.findall(r"^\| +(\d+) \| +(\d+) \|", table, re.MULTILINE)
        fields = [(int(at), int(width)) for at, width in pairs]
        assert all(at + width == after for (at, width), (after, _) in pairwise(fields))
        ends.append(sum(fields[-1]))
    assert ends == [64, 80, 16, 40, 8, 16, 128]


GOLDEN_HEADER_CRC = "b323bbe8"
GOLDEN_TRAILER = (
    "4000000000000000" + "0000000000000000" + "00000000" * 6 + "0500000000000000"
    "00112233445566778899aabbccddeeff"
    "0a00000000000000" + "1400000000000000" + "1e00000000000000"
    "d8ffffffffffffff" + "3200000000000000" + "3c00000000000000"
    "0100" + "0000" + "4eb0b8aa" + "504e53544b454e44"
)
