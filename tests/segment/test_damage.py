"""Whatever happens to a segment's bytes: never a crash, never wrong data, and no needless loss."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.model.bundle import Bundle
from penstock.model.errors import Damaged
from penstock.segment import SegmentReader, read_info, segment_name
from penstock.segment import format as fmt
from penstock.segment.tables import Ref
from penstock.storage import LocalFiles
from tests.segment.helpers import SEQ, contents, fill, flipped, seal

BUNDLES = [
    Bundle({0: pa.record_batch({"d": pa.array(["x", "y"]).dictionary_encode()})}),
    Bundle({0: pa.record_batch({"d": pa.array(["y", None]).dictionary_encode()})}),
    Bundle({1: pa.record_batch({"a": pa.array([1, 2], pa.int16())})}),
    Bundle({}),
]
"""Bundles 0 and 1 share a stream, 2 has its own, 3 has none."""


@pytest.fixture(name="data", scope="module")
def segment_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small segment."""
    folder = tmp_path_factory.mktemp("segment")
    seal(folder, fill(BUNDLES))
    return (folder / segment_name(SEQ)).read_bytes()


def reader_of(data: bytes) -> SegmentReader:
    """A reader of the bytes."""
    return SegmentReader(memoryview(data), "in memory")


def parts_of(data: bytes) -> list[tuple[range, set[int]]]:
    """Every part of every stream, and the bundles that need it."""
    reader = reader_of(data)
    found = []
    for entry in reader.streams:
        users = [
            {index for index in range(4) if Ref(entry.slot, entry.id, chunk) in refs(reader, index)}
            for chunk in range(entry.chunks)
        ]
        whole = set().union(*users)
        for part, needed_by in enumerate([whole, *users, whole]):
            start, end, _ = reader._footer.part(entry, part)
            found.append((range(entry.position + start, entry.position + end), needed_by))
    return found


def refs(reader: SegmentReader, index: int) -> tuple[Ref, ...]:
    """Where the bundle's slots are."""
    return reader.manifest(index).refs


def test_every_flipped_bit_is_found_and_costs_only_what_it_must(data: bytes) -> None:
    """Bundles that do not use the damaged part read as before; the others raise Damaged."""
    streams_end = reader_of(data)._trailer.footer_position
    needed_by = {byte: bundles for places, bundles in parts_of(data) for byte in places}
    for bit in range(8 * len(data)):
        damaged = flipped(data, bit)
        if not fmt.HEADER_BYTES <= bit // 8 < streams_end:
            with pytest.raises(Damaged):
                reader_of(damaged)
            continue
        reader = reader_of(damaged)
        lost = needed_by.get(bit // 8, set())
        for index, bundle in enumerate(BUNDLES):
            if index in lost:
                with pytest.raises(Damaged):
                    reader.bundle(index)
            else:
                assert contents(reader.bundle(index).bundle) == contents(bundle)


def test_verify_names_the_damage_and_what_it_costs(data: bytes) -> None:
    """One bit in each part: its place, its length, its bundles."""
    assert reader_of(data).verify() == []
    for places, bundles in parts_of(data):
        for byte in (places.start, places.stop - 1):
            (damage,) = reader_of(flipped(data, 8 * byte)).verify()
            assert (damage.position, damage.length) == (places.start, len(places))
            assert damage.bundles == tuple(sorted(bundles))
            assert str(places.start) in damage.reason


def test_verify_finds_damage_in_parts_that_were_read_before(data: bytes) -> None:
    """It looks at the bytes as they are now."""
    memory = bytearray(data)
    reader = SegmentReader(memoryview(memory), "in memory")
    reader.bundle(2)
    memory[parts_of(data)[-2][0].start] ^= 1
    assert [damage.bundles for damage in reader.verify()] == [(2,)]


def test_damaged_padding_costs_nothing_but_is_found(data: bytes) -> None:
    """Every byte of the file is covered."""
    parts = {byte for places, _ in parts_of(data) for byte in places}
    reader = reader_of(data)
    padding = sorted(set(range(64, reader._trailer.footer_position)) - parts)
    assert padding
    for byte in padding:
        (damage,) = reader_of(flipped(data, 8 * byte)).verify()
        assert damage.bundles == ()
        assert damage.position <= byte < damage.position + damage.length


def test_a_damaged_chunk_is_damaged_for_readers_of_its_slot(data: bytes) -> None:
    """And for no other slot."""
    reader = reader_of(flipped(data, 8 * parts_of(data)[1][0].start))
    with pytest.raises(Damaged, match="in memory: chunk 0 of stream 0"):
        reader.read_all(0)
    assert reader.read_all(1).num_rows == 2


def test_a_segment_cut_anywhere_is_damaged(data: bytes, tmp_path: Path) -> None:
    """At every length, for both ways of looking at it."""
    path = tmp_path / segment_name(SEQ)
    for length in range(len(data)):
        with pytest.raises(Damaged):
            reader_of(data[:length])
    for length in range(0, len(data), 7):
        path.write_bytes(data[:length])
        with pytest.raises(Damaged):
            read_info(LocalFiles(), path)


def test_bytes_behind_the_trailer_are_damage(data: bytes) -> None:
    """The trailer is the file's end."""
    with pytest.raises(Damaged):
        reader_of(data + bytes(128))
    with pytest.raises(Damaged, match="size"):
        reader_of(data[:-128] + bytes(8) + data[-128:])


def test_zeroed_blocks_are_found(data: bytes) -> None:
    """A disk that lost a block gives zeros."""
    for start in range(0, len(data), 512):
        zeroed = data[:start] + bytes(min(512, len(data) - start)) + data[start + 512 :]
        try:
            assert reader_of(zeroed).verify()
        except Damaged:
            continue


def test_header_and_trailer_of_different_segments_do_not_pass(data: bytes) -> None:
    """Two halves are no whole."""
    other = fmt.encode_header(fmt.Header(reader_of(data).store_id, SEQ + 1, 0))
    with pytest.raises(Damaged, match="different segments"):
        reader_of(other + data[64:])


# --- tables with valid CRCs and wrong contents -------------------------------------------------


def forged(data: bytes, at: int, changed: bytes, **fields: int) -> bytes:
    """The segment with other bytes in its footer or trailer, and valid CRCs."""
    trailer = reader_of(data)._trailer
    start = trailer.footer_position
    footer = bytearray(data[start : start + trailer.footer_length])
    footer[at : at + len(changed)] = changed
    held = (
        {"info": replace(trailer.info, bundles=fields.pop("bundles"))}
        if "bundles" in fields
        else {}
    )
    new = replace(trailer, footer_crc=fmt.crc32(footer), **fields, **held)
    return data[:start] + footer + fmt.encode_trailer(new)


PARTS_AT = 2 * 80
MANIFEST_AT = PARTS_AT + (4 + 3) * 16
REFS_AT = MANIFEST_AT + 4 * 40
SCHEMAS_AT = REFS_AT + 3 * 8


@pytest.mark.parametrize(
    ("at", "changed"),
    [
        pytest.param(0, b"\x05", id="number"),
        pytest.param(2, b"\x40", id="slot"),
        pytest.param(4, b"\xff\xff\xff\xff", id="chunks"),
        pytest.param(24, bytes(8), id="in the header"),
        pytest.param(24, b"\xff" * 8, id="position"),
        pytest.param(32, b"\xff" * 8, id="length"),
        pytest.param(68, b"\xff" * 4, id="parts"),
        pytest.param(72, b"\xff" * 4, id="bitmap"),
        pytest.param(76, b"\xff" * 4, id="columns"),
        pytest.param(SCHEMAS_AT + 4, b"\xff" * 4, id="length of a schema"),
        pytest.param(SCHEMAS_AT + 8, b"\xff" * 8, id="position of a schema"),
    ],
)
def test_tables_that_lead_out_of_the_segment_are_refused(
    data: bytes, at: int, changed: bytes
) -> None:
    """No count and no position is trusted, whatever the CRC says."""
    with pytest.raises(Damaged):
        reader_of(forged(data, at, changed))


@pytest.mark.parametrize("table", ["streams", "parts", "bundles", "refs", "schemas"])
def test_counts_that_exceed_the_footer_are_refused(data: bytes, table: str) -> None:
    """A table cannot be longer than what holds it."""
    with pytest.raises(Damaged):
        reader_of(forged(data, 0, b"", **{table: 2**32 - 1}))


@pytest.mark.parametrize(
    ("at", "changed", "lost"),
    [
        pytest.param(PARTS_AT, b"\xff" * 8, (0, 1), id="end of the prelude"),
        pytest.param(PARTS_AT + 16, b"\xff" * 8, (0, 1), id="end of a chunk"),
        pytest.param(MANIFEST_AT + 28, b"\xff" * 4, (0,), id="first ref"),
        pytest.param(MANIFEST_AT + 32, b"\xff" * 4, (0,), id="count of refs"),
        pytest.param(REFS_AT, b"\x01", (0,), id="slot of a ref"),
        pytest.param(REFS_AT + 2, b"\xff\xff", (0,), id="stream of a ref"),
        pytest.param(REFS_AT + 4, b"\xff" * 4, (0,), id="chunk of a ref"),
    ],
)
def test_entries_that_lead_out_of_the_segment_cost_their_bundles(
    data: bytes, at: int, changed: bytes, lost: tuple[int, ...]
) -> None:
    """Both for readers and for `verify`."""
    reader = reader_of(forged(data, at, changed))
    for index, bundle in enumerate(BUNDLES):
        if index in lost:
            with pytest.raises(Damaged):
                reader.bundle(index)
        else:
            assert contents(reader.bundle(index).bundle) == contents(bundle)
    assert {index for damage in reader.verify() for index in damage.bundles} == set(lost)


def test_a_stream_that_is_not_what_the_directory_says_is_found(data: bytes) -> None:
    """Though every part is right."""
    (damage,) = reader_of(forged(data, 64, b"1234")).verify()
    assert damage.bundles == ()
    assert "directory" in damage.reason


def test_a_stream_with_another_number_of_chunks_is_damaged(data: bytes) -> None:
    """What the IPC file says and what the directory says must agree."""
    reader = reader_of(forged(data, 80 + 4, b"\0\0\0\0"))
    with pytest.raises(Damaged):
        reader.bundle(2)


def test_bytes_that_arrow_cannot_decode_are_damaged(data: bytes) -> None:
    """Also where their CRC is right."""
    entry = reader_of(data).streams[1]
    start, end, _ = reader_of(data)._footer.part(entry, 2)
    bad = data[: entry.position + start] + bytes(end - start) + data[entry.position + end :]
    crc = fmt.crc32(bytes(end - start)).to_bytes(4, "little")
    reader = reader_of(forged(bad, PARTS_AT + (4 + 2) * 16 + 8, crc))
    with pytest.raises(Damaged, match="cannot be decoded"):
        reader.bundle(2)
    assert contents(reader.bundle(0).bundle) == contents(BUNDLES[0])
    assert [damage.bundles for damage in reader.verify()] == [(2,)]
