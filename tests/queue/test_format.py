"""The bytes of batches, manifests and chunks; damage is found wherever it is."""

from __future__ import annotations

import contextlib
import re
import struct
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import Damaged, FormatError, InvalidArgument, UnsupportedVersion
from penstock.queue.batch import CompressionType, decode_batch, encode_batch
from penstock.queue.changes import NewEntry, appended
from penstock.queue.entry import Extent, Metadata, decode_entries, encode_body
from penstock.queue.format import (
    ChunkHead,
    Manifest,
    decode_chunk,
    decode_chunk_head,
    decode_manifest,
    encode_chunk,
    encode_manifest,
)
from penstock.queue.ulid import ulid_text

BATCH_ID = bytes(range(16))
QUEUE_ID = b"Q" * 16
WRITER = b"W" * 16
LIMIT = 10_000
METADATA = (Metadata(0, 1_750_000_000_000, b"m1"), Metadata(2, -1, b""))
BODY = encode_body("ingest/1.batch", METADATA)
NEW = NewEntry(BATCH_ID, "ingest/1.batch", BODY, 51, 3, 0xDDCCBBAA)
EMPTY_1 = Manifest(version=1, epoch=3, next_sequence=5, first_sequence=5)
EMPTY_2 = Manifest(
    version=2,
    epoch=3,
    next_sequence=5,
    first_sequence=5,
    queue_id=QUEUE_ID,
    first_chunk=1,
    next_chunk=2,
    enqueued_bytes=100,
    dequeued_bytes=60,
    floor=b"F" * 16,
)
versions = pytest.mark.parametrize("version", [1, 2])
packings = pytest.mark.parametrize("packing", list(CompressionType))


def one_entry(manifest: Manifest) -> Manifest:
    """The manifest with one entry."""
    return appended(manifest, [NEW], WRITER, 9)


# --- golden bytes ------------------------------------------------------------------------------

GOLDEN_BATCH_1 = "01000000 610000000003000000 62636300 03000000 0100"
GOLDEN_BATCH_2 = (
    "01000000 61" "00000000" "03000000 626363"
    "000102030405060708090a0b0c0d0e0f 1000000000000000 f6f7f411 0d402ebe"
    "00 03000000 0200"
)  # fmt: skip
GOLDEN_BODY = (
    "0e00 696e676573742f312e6261746368 02000000"
    "00000000 00dc207497010000 02000000 6d31"
    "02000000 ffffffffffffffff 00000000"
)  # fmt: skip
GOLDEN_MANIFEST_1 = (
    f"3e000000 0500000000000000 {GOLDEN_BODY}"
    "01000000 0600000000000000 0300000000000000 0100"
)  # fmt: skip
GOLDEN_MANIFEST_2 = (
    f"56000000 0500000000000000 {GOLDEN_BODY} 3300000000000000 03000000 aabbccdd 9700000000000000"
    "57575757575757575757575757575757 0900000000000000"
    "504e53544b515545 51515151515151515151515151515151 0500000000000000 0100000000000000"
    "0200000000000000 9700000000000000 3c00000000000000 46464646464646464646464646464646 0100"
    "36bc4910"
    "01000000 0600000000000000 0300000000000000 0200"
)  # fmt: skip
GOLDEN_CHUNK = (
    "504e53544b514348 0200 0000 01000000 51515151515151515151515151515151"
    "0200000000000000 0500000000000000 000102030405060708090a0b0c0d0e0f b2dee126"
    f"56000000 0500000000000000 {GOLDEN_BODY} 3300000000000000 03000000 aabbccdd 9700000000000000"
    "c2bd3c96"
)  # fmt: skip


def test_batch_of_version_1_has_the_bytes_of_the_document() -> None:
    """Other implementations read them."""
    data = encode_batch([b"a", b"", b"bcc"], BATCH_ID, version=1).data
    assert data == bytes.fromhex(GOLDEN_BATCH_1)


def test_batch_of_version_2_has_these_bytes() -> None:
    """What is stored today must be readable tomorrow."""
    data = encode_batch([b"a", b"", b"bcc"], BATCH_ID).data
    assert data.hex() == bytes.fromhex(GOLDEN_BATCH_2).hex()


def test_packed_batch_of_another_implementation_is_read() -> None:
    """One whose compressor did not know the size, as a streaming one does not."""
    stream = zstandard.ZstdCompressor(level=3).compressobj()
    block = stream.compress(bytes.fromhex("0100000061")) + stream.flush()
    data = block + bytes.fromhex("01 01000000 0100")
    assert decode_batch(data, max_record_bytes=LIMIT) == [b"a"]


def test_manifest_of_version_1_has_the_bytes_of_the_document() -> None:
    """Other implementations read and write them."""
    data = bytes.fromhex(GOLDEN_MANIFEST_1)
    assert encode_manifest(one_entry(EMPTY_1)) == data
    manifest = decode_manifest(data)
    assert manifest == one_entry(EMPTY_1)
    (entry,) = decode_entries(manifest.tail, 1, 5, 1)
    assert (entry.sequence, entry.location, entry.metadata) == (5, "ingest/1.batch", METADATA)


def test_empty_manifest_of_version_1_is_its_footer() -> None:
    """Twenty-two bytes."""
    data = bytes.fromhex("00000000 0500000000000000 0300000000000000 0100")
    assert encode_manifest(EMPTY_1) == data
    assert decode_manifest(data) == EMPTY_1


def test_manifest_of_version_2_has_these_bytes() -> None:
    """The last 22 have the shape of version 1, so that its readers see the version."""
    data = bytes.fromhex(GOLDEN_MANIFEST_2)
    assert encode_manifest(one_entry(EMPTY_2)).hex() == data.hex()
    manifest = decode_manifest(data)
    assert manifest == one_entry(EMPTY_2)
    (entry,) = decode_entries(manifest.tail, 1, 5, 2)
    assert entry.extent == Extent(51, 3, 0xDDCCBBAA, 151)


def test_chunk_has_these_bytes() -> None:
    """Its head can be verified alone."""
    data = bytes.fromhex(GOLDEN_CHUNK)
    assert encode_chunk(one_entry(EMPTY_2), BATCH_ID).hex() == data.hex()
    chunk = decode_chunk(data)
    assert chunk.head == ChunkHead(QUEUE_ID, 2, 5, 1, BATCH_ID, chunk.head.crc)
    assert decode_chunk_head(data[:68]) == chunk.head
    assert chunk.entries == one_entry(EMPTY_2).tail


# --- round trips -------------------------------------------------------------------------------


@versions
@packings
@given(records=st.lists(st.binary(max_size=50), max_size=20))
def test_records_come_back(version: int, packing: CompressionType, records: list[bytes]) -> None:
    """In their order, empty ones too."""
    encoded = encode_batch(records, BATCH_ID, version=version, compression=packing)
    assert decode_batch(encoded.data, max_record_bytes=LIMIT) == records
    assert encoded.record_count == len(records)


metadata = st.builds(
    Metadata,
    st.integers(0, 2**32 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.binary(max_size=20),
)
bodies = st.builds(encode_body, st.text("aé/1", min_size=1, max_size=20), st.lists(metadata))


@versions
@given(found=st.lists(bodies, max_size=5))
def test_manifest_comes_back(version: int, found: list[bytes]) -> None:
    """With every entry, from any sequence on."""
    empty = EMPTY_1 if version == 1 else EMPTY_2
    manifest = appended(empty, [replace(NEW, body=body) for body in found], WRITER, 1)
    decoded = decode_manifest(encode_manifest(manifest))
    assert decoded == manifest
    run = manifest.tail, manifest.tail_count, manifest.tail_first, version
    assert [entry.sequence for entry in decode_entries(*run, begin=6)] == list(
        range(6, 5 + len(found))
    )


# --- damage ------------------------------------------------------------------------------------


def flips(data: bytes) -> list[bytes]:
    """The data with each of its bytes changed in turn."""
    return [data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :] for at in range(len(data))]


@packings
def test_flipped_byte_in_a_batch_of_version_2_is_found(packing: CompressionType) -> None:
    """Wherever it is."""
    data = encode_batch([b"some", b"records"], BATCH_ID, compression=packing).data
    for flipped in flips(data):
        with pytest.raises(FormatError):
            decode_batch(flipped, max_record_bytes=LIMIT, batch_id=BATCH_ID)


def test_flipped_byte_in_a_manifest_of_version_2_is_found() -> None:
    """Wherever it is."""
    for flipped in flips(encode_manifest(one_entry(one_entry(EMPTY_2)))):
        with pytest.raises(FormatError):
            decode_manifest(flipped)


def test_flipped_byte_in_a_chunk_is_found() -> None:
    """Wherever it is; in its first 68 bytes also when they are read alone."""
    data = encode_chunk(one_entry(EMPTY_2), BATCH_ID)
    for at, flipped in enumerate(flips(data)):
        with pytest.raises(FormatError):
            decode_chunk(flipped)
        if at < 68:
            with pytest.raises(FormatError):
                decode_chunk_head(flipped[:68])


@versions
def test_cut_off_object_is_damaged(version: int) -> None:
    """However little is missing at its end."""
    manifest = encode_manifest(one_entry(EMPTY_1 if version == 1 else EMPTY_2))
    batch = encode_batch([b"some", b"records"], BATCH_ID, version=version).data
    for end in range(len(manifest)):
        with pytest.raises(FormatError):
            decode_manifest(manifest[:end])
    for end in range(len(batch)):
        with pytest.raises(FormatError):
            decode_batch(batch[:end], max_record_bytes=LIMIT)


def test_cut_off_chunk_is_damaged() -> None:
    """However little is missing at its end."""
    data = encode_chunk(one_entry(EMPTY_2), BATCH_ID)
    for end in range(len(data)):
        with pytest.raises(Damaged):
            decode_chunk(data[:end])


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read_without_harm(data: bytes) -> None:
    """No count and no length in them is trusted."""
    manifest = data + struct.pack("<IQQH", 2**31, 2**40, 1, 1)
    batch = data + struct.pack("<BIH", 1, 2**31, 1)
    for decode in (
        lambda: decode_manifest(manifest),
        lambda: decode_batch(batch, max_record_bytes=LIMIT),
        lambda: decode_batch(data, max_record_bytes=LIMIT),
        lambda: decode_manifest(data),
        lambda: decode_chunk(data),
    ):
        with contextlib.suppress(FormatError):  # any other error fails
            decode()


def test_false_sequence_in_a_manifest_of_version_1_is_found() -> None:
    """It has no checksums, but its sequences are contiguous."""
    manifest = one_entry(one_entry(EMPTY_1))
    data = bytearray(encode_manifest(manifest))
    data[4] ^= 1
    with pytest.raises(Damaged, match="sequence"):
        decode_manifest(bytes(data))


@pytest.mark.parametrize("size_known", [True, False])
def test_decompression_is_bounded(size_known: bool) -> None:
    """A few bytes that unpack to a gigabyte cost nothing."""
    packer = zstandard.ZstdCompressor(level=3, write_content_size=size_known)
    block = packer.compress(struct.pack("<I", 50_000_000) + bytes(50_000_000))
    with pytest.raises(Damaged, match="more than"):
        decode_batch(block + bytes.fromhex("01 01000000 0100"), max_record_bytes=LIMIT)


def test_batch_over_the_bound_is_refused() -> None:
    """Also where nothing is packed."""
    data = encode_batch([bytes(LIMIT)], BATCH_ID).data
    with pytest.raises(Damaged, match="limit"):
        decode_batch(data, max_record_bytes=LIMIT)


def test_batch_in_anothers_place_is_found() -> None:
    """It is whole, but the manifest says another name, or another checksum."""
    encoded = encode_batch([b"a"], BATCH_ID)
    with pytest.raises(Damaged, match="another batch"):
        decode_batch(encoded.data, max_record_bytes=LIMIT, batch_id=bytes(16))
    with pytest.raises(Damaged, match="another batch"):
        decode_batch(encoded.data, max_record_bytes=LIMIT, crc=encoded.crc ^ 1)


def test_newer_versions_are_refused_as_such() -> None:
    """With another error than damage: another Penstock can read them."""
    for refused in (
        lambda: decode_manifest(struct.pack("<IQQH", 0, 0, 0, 3)),
        lambda: decode_batch(struct.pack("<BIH", 0, 0, 3), max_record_bytes=LIMIT),
        lambda: decode_batch(struct.pack("<BIH", 2, 0, 1), max_record_bytes=LIMIT),
    ):
        with pytest.raises(UnsupportedVersion):
            refused()


def test_location_that_does_not_fit_is_refused() -> None:
    """Its length has 16 bits, and it must name something."""
    for location in ("", "x" * 65_536):
        with pytest.raises(InvalidArgument, match="location"):
            encode_body(location, ())


# --- the page ----------------------------------------------------------------------------------


def test_examples_on_the_page_are_the_bytes() -> None:
    """docs/formats/queue.md shows what is stored."""
    page = (Path(__file__).parents[2] / "docs" / "formats" / "queue.md").read_text()
    text = page.partition("## An example")[2].partition("## The torn-tail rule")[0]
    blocks = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    shown = [bytes.fromhex("".join(re.findall(r"^[0-9a-f ]+?(?=  +\D|$)", block, re.MULTILINE)))
             for block in blocks]  # fmt: skip
    records = [b"a", b"", b"bcc"]
    assert shown == [
        encode_batch(records, BATCH_ID, version=1).data,
        encode_batch(records, BATCH_ID).data,
        encode_manifest(one_entry(EMPTY_1)),
    ]
    assert ulid_text(BATCH_ID) in text
