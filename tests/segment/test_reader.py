"""Reading segments: any bundle, any slot, and nothing besides."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.model.bundle import Bundle
from penstock.model.errors import Damaged
from penstock.model.settings import Compression, SegmentSettings
from penstock.segment import OpenSegment, SegmentReader, segment_name
from penstock.segment.stream_reader import StreamReader
from penstock.storage import LocalFiles
from tests.segment.arrow_samples import NAMES, random_batch, random_type, similar_type
from tests.segment.helpers import SEQ, TABLE, column, contents, seal, sealed, values_of
from tests.segment.test_widening import as_wide


def two_slots(count: int) -> list[dict[int, pa.RecordBatch]]:
    """Bundles that have both slots."""
    return [
        {0: pa.record_batch({"a": [number]}), 1: pa.record_batch({"b": [f"{number}"]})}
        for number in range(count)
    ]


def test_a_bundle_is_found_by_its_index(tmp_path: Path) -> None:
    """With its place in log and segment."""
    reader = sealed(tmp_path, two_slots(5))
    stored = reader.bundle(3)
    assert contents(stored.bundle) == {0: {"a": [3]}, 1: {"b": ["3"]}}
    assert (stored.first_offset, stored.end_offset, stored.messages) == (106, 108, 2)
    assert (stored.ingested_at_ns, stored.bundle_index, stored.bundle.items) == (1003, 3, 1)
    entry = reader.manifest(3)
    assert (entry.first_offset, entry.messages, entry.items) == (106, 2, 1)


@pytest.mark.parametrize("index", [-1, 5, 10**9])
def test_other_indexes_are_none_of_its_bundles(tmp_path: Path, index: int) -> None:
    """Negative ones do not count from the end."""
    reader = sealed(tmp_path, two_slots(5))
    with pytest.raises(IndexError):
        reader.bundle(index)


def test_only_the_slots_that_are_asked_for_are_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither read nor verified: the other stream may be damaged."""
    verified = []
    verify = StreamReader.verify_part
    monkeypatch.setattr(
        StreamReader,
        "verify_part",
        lambda self, part: verified.append((self.entry.slot, part)) or verify(self, part),
    )
    reader = sealed(tmp_path, two_slots(5))
    assert contents(reader.bundle(2, slots={1}).bundle) == {1: {"b": ["2"]}}
    assert contents(reader.bundle(2, slots=[]).bundle) == {}
    assert contents(reader.bundle(2, slots=[7]).bundle) == {}
    assert verified == [(1, 0), (1, 6), (1, 3)]
    reader.bundle(2, slots={1})
    reader.bundle(3, slots={1})
    assert verified[3:] == [(1, 4)]


def test_batches_are_memory_of_the_file(tmp_path: Path) -> None:
    """Nothing is copied where nothing is compressed."""
    seal(tmp_path, fill_large := _large())
    data = LocalFiles().map(tmp_path / segment_name(SEQ))
    start = pa.py_buffer(data).address
    reader = SegmentReader(data, "mapped")
    array = reader.bundle(0).bundle[0].column(0)
    assert start <= array.buffers()[1].address < start + len(data)
    assert fill_large.bundles == 1


def _large() -> OpenSegment:
    segment = OpenSegment(SegmentSettings(), TABLE)
    bundle = Bundle(column(pa.array(range(10_000)))[0])
    segment.add(bundle, first_offset=0, messages=1, ingested_at_ns=0)
    return segment


def test_batches_outlive_the_file_and_the_reader(tmp_path: Path) -> None:
    """Retention may remove what someone still reads."""
    reader = sealed(tmp_path, two_slots(3))
    first = reader.bundle(0).bundle
    (tmp_path / segment_name(SEQ)).unlink()
    second = reader.bundle(1).bundle
    del reader
    gc.collect()
    assert contents(first) == {0: {"a": [0]}, 1: {"b": ["0"]}}
    assert contents(second) == {0: {"a": [1]}, 1: {"b": ["1"]}}


@pytest.mark.parametrize("compression", list(Compression))
def test_threads_may_share_a_reader(tmp_path: Path, compression: Compression) -> None:
    """All of them get what they ask for."""
    some = SegmentSettings(compression=compression)
    texts = [pa.array([f"{n}", "x"]).dictionary_encode() for n in range(50)]
    for _ in range(5):
        reader = sealed(tmp_path, column(*texts), some)
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(values_of, [reader] * 400, list(range(50)) * 8))
        assert found == [{0: {"d": [f"{n % 50}", "x"]}} for n in range(400)]


def test_a_slot_reads_as_one_table(tmp_path: Path) -> None:
    """In the order of bundles, over all its streams, with the representative schema."""
    reader = sealed(
        tmp_path,
        [
            {0: pa.record_batch({"a": pa.array([1], pa.int8())})},
            {0: pa.record_batch({"b": ["x"], "a": pa.array([2], pa.int64())})},
            {1: pa.record_batch({"c": [1]})},
            {0: pa.record_batch({"a": pa.array([3], pa.int8())})},
        ],
    )
    assert reader.slots == (0, 1)
    assert reader.schema(0) == pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert reader.read_all(0).to_pydict() == {"a": [1, 2, 3], "b": [None, "x", None]}
    assert [entry.omitted for entry in reader.streams] == [(1,), (), ()]


def test_a_slot_that_no_bundle_has_is_unknown(tmp_path: Path) -> None:
    """There is no schema to read it with."""
    reader = sealed(tmp_path, two_slots(1))
    with pytest.raises(KeyError):
        reader.schema(5)
    with pytest.raises(KeyError):
        list(reader.batches(5))


def test_more_columns_than_a_byte_has_bits_can_be_missing(tmp_path: Path) -> None:
    """The bitmap is as long as it must be."""
    wide = pa.record_batch({f"c{number}": [number] for number in range(100)})
    narrow = wide.select(["c8", "c64", "c99"])
    reader = sealed(tmp_path, [{0: wide}, {0: narrow}])
    assert reader.streams[0].omitted == ()
    assert reader.streams[1].omitted == tuple(n for n in range(100) if n not in (8, 64, 99))


def test_what_is_no_segment_is_damaged(tmp_path: Path) -> None:
    """Empty files, garbage and zeros; the message names the file."""
    for content in (b"", b"garbage", bytes(10_000), Random(1).randbytes(10_000)):
        (tmp_path / "bad.seg").write_bytes(content)
        with pytest.raises(Damaged, match=r"bad\.seg"):
            SegmentReader.open(LocalFiles(), tmp_path / "bad.seg")


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    """That is no damage."""
    with pytest.raises(FileNotFoundError):
        SegmentReader.open(LocalFiles(), tmp_path / "missing.seg")


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32))
def test_what_was_put_in_comes_out(tmp_path: Path, seed: int) -> None:
    """Random bundles of drifting, nested schemas, sealed where the segment asks for it."""
    random = Random(seed)
    some = SegmentSettings(
        dictionary_values=random.choice([0, 5, 65_536]),
        compression=random.choice(list(Compression)),
    )
    schemas = _drifting(random)
    segment = OpenSegment(some, TABLE)
    for _ in range(6):
        bundle = _random_bundle(random, schemas)
        if not segment.accepts(bundle):
            _check(tmp_path, segment, some)
            segment = OpenSegment(some, TABLE)
        segment.add(bundle, first_offset=segment.end_offset, messages=1, ingested_at_ns=5)
    _check(tmp_path, segment, some)


def _drifting(random: Random) -> list[pa.Schema]:
    """A few schemas that resemble each other."""
    first = pa.schema([(name, random_type(random, 2)) for name in NAMES[:3]])
    return [first] + [
        pa.schema(
            [(field.name, similar_type(random, field.type)) for field in first][
                : random.randrange(4)
            ]
        )
        for _ in range(2)
    ]


def _random_bundle(random: Random, schemas: list[pa.Schema]) -> Bundle:
    slots = [*random.sample(range(64), random.randrange(3)), 0]
    return Bundle(
        {slot: random_batch(random, random.choice(schemas), random.randrange(4)) for slot in slots}
    )


def _check(folder: Path, segment: OpenSegment, some: SegmentSettings) -> None:
    seal(folder, segment, some)
    reader = SegmentReader.open(LocalFiles(), folder / segment_name(SEQ))
    for index, stored in enumerate(segment):
        again = reader.bundle(index)
        assert contents(again.bundle) == contents(stored.bundle)
        for slot, batch in stored.bundle.slots.items():
            for field in again.bundle[slot].schema:
                before = batch.schema.field(field.name).type
                assert field.type == before or "dictionary" in str(before)
    for slot in reader.slots:
        rows = [
            row for one in segment if slot in one.bundle for row in one.bundle[slot].to_pylist()
        ]
        batches = list(reader.batches(slot))
        assert as_wide([row for each in batches for row in each.to_pylist()]) == as_wide(rows)
        assert all(batch.schema in reader.schemas(slot) for batch in batches)
        if len(reader.schemas(slot)) == 1:
            assert reader.read_all(slot).num_rows == len(rows)
    assert reader.verify() == []
