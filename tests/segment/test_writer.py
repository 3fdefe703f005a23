"""Sealing: what is durable, what an error leaves, and that the bytes are always the same."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from penstock.model.bundle import Bundle
from penstock.model.errors import Damaged
from penstock.model.settings import Compression, SegmentSettings
from penstock.segment import OpenSegment, SegmentReader, segment_name
from penstock.segment import sink as sink_module
from penstock.storage import LocalFiles
from tests.segment.helpers import (
    SEALED_AT_NS,
    SEQ,
    SETTINGS,
    STORE_ID,
    TABLE,
    contents,
    fill,
    seal,
    sealed,
    values_of,
)
from tests.simulation.faults import FaultyFiles
from tests.simulation.power_loss import PowerLossFiles, PowerLost

FOLDER = Path("/store/segments")
NAME = segment_name(SEQ)


def some_bundles() -> list[Bundle]:
    """A few bundles with plain and dictionary columns in two slots."""
    return [
        Bundle(
            {
                0: pa.record_batch(
                    {
                        "time": pa.array(range(number, number + 5)),
                        "word": pa.array([f"{number}", "x", None, "x", "y"]).dictionary_encode(),
                    }
                ),
                1: pa.record_batch({"data": pa.array([b"%d" % number * 50])}),
            }
        )
        for number in range(4)
    ]


def assert_holds(reader: SegmentReader, bundles: list[Bundle]) -> None:
    """The segment has exactly these bundles."""
    assert len(reader) == len(bundles)
    for index, bundle in enumerate(bundles):
        assert values_of(reader, index) == contents(bundle)
    assert reader.verify() == []


# --- what is written ---------------------------------------------------------------------------


def test_the_info_says_what_the_segment_holds(tmp_path: Path) -> None:
    """The reader and the writer agree."""
    info = seal(tmp_path, fill(some_bundles()))
    assert (info.segment_seq, info.first_offset, info.end_offset) == (SEQ, 100, 108)
    assert (info.bundles, info.items, info.sealed_at_ns) == (4, 20, SEALED_AT_NS)
    assert (info.first_ingested_at_ns, info.last_ingested_at_ns) == (1000, 1003)
    assert info.size == (tmp_path / NAME).stat().st_size
    reader = SegmentReader.open(LocalFiles(), tmp_path / NAME)
    assert (reader.info, reader.store_id) == (info, STORE_ID)


def test_the_ingestion_times_are_the_earliest_and_the_latest(tmp_path: Path) -> None:
    """Whatever the clock did between the bundles."""
    segment = OpenSegment(SETTINGS, TABLE)
    for offset, time_ns in enumerate((50, 20, 90, 30)):
        segment.add(Bundle({}), first_offset=offset, messages=1, ingested_at_ns=time_ns)
    info = seal(tmp_path, segment)
    assert (info.first_ingested_at_ns, info.last_ingested_at_ns) == (20, 90)


def test_the_file_is_read_only_and_alone(tmp_path: Path) -> None:
    """Nothing else is left in the folder."""
    seal(tmp_path, fill(some_bundles()))
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    assert (tmp_path / NAME).stat().st_mode & 0o222 == 0


def test_the_same_bundles_make_the_same_bytes(tmp_path: Path) -> None:
    """Given the same number, store and time."""
    files = []
    for name in "ab":
        (tmp_path / name).mkdir()
        seal(tmp_path / name, fill(some_bundles()))
        files.append((tmp_path / name / NAME).read_bytes())
    assert files[0] == files[1]


def test_any_arrow_reader_opens_a_stream(tmp_path: Path) -> None:
    """The slice that the directory names is a complete IPC file, aligned to 64 bytes."""
    reader = sealed(tmp_path, some_bundles())
    data = (tmp_path / NAME).read_bytes()
    for entry in reader.streams:
        assert entry.position % 64 == 0
        arrow = pa.ipc.open_file(data[entry.position : entry.position + entry.length])
        assert arrow.num_record_batches == entry.chunks
        assert arrow.read_all().num_rows == entry.rows


@pytest.mark.parametrize("compression", list(Compression))
def test_every_compression_reads_back(tmp_path: Path, compression: Compression) -> None:
    """The reader needs no setting."""
    settings = SegmentSettings(compression=compression)
    bundles = some_bundles()
    reader = sealed(tmp_path, bundles, settings)
    assert_holds(reader, bundles)


def test_compression_makes_segments_smaller(tmp_path: Path) -> None:
    """It reaches the buffers."""
    sizes = []
    for compression in Compression:
        settings = SegmentSettings(compression=compression)
        bundle = Bundle({0: pa.record_batch({"a": pa.array([7] * 10_000)})})
        sizes.append(seal(tmp_path, fill([bundle], settings), settings).size)
    assert max(sizes[1:]) < sizes[0] / 2


@pytest.mark.parametrize("run_bytes", [1, 1000])
def test_runs_of_any_size_make_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_bytes: int
) -> None:
    """How the bytes are gathered does not show."""
    seal(tmp_path, fill(some_bundles()))
    expected = (tmp_path / NAME).read_bytes()
    monkeypatch.setattr(sink_module, "RUN_BYTES", run_bytes)
    seal(tmp_path, fill(some_bundles()))
    assert (tmp_path / NAME).read_bytes() == expected


def test_large_buffers_are_written_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """What reaches the file is the memory of the batch itself."""
    array = pa.array(range(100_000))
    written: list[int] = []

    def note(_file: object, pieces: list[memoryview], _position: int) -> None:
        written.extend(pa.py_buffer(piece).address for piece in pieces)

    files = PowerLossFiles()
    files.make_folder(FOLDER)
    monkeypatch.setattr("tests.simulation.power_loss.MemoryFile.pwrite", note)
    seal(FOLDER, fill([{0: pa.record_batch({"a": array})}]), files=files)
    assert array.buffers()[1].address in written


def test_sealing_holds_no_second_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where every dictionary column is rewritten."""
    monkeypatch.setattr(sink_module, "RUN_BYTES", 10_000)
    rows = pa.array([str(row % 900) for row in range(10_000)]).dictionary_encode()
    bundles = [
        {
            0: pa.record_batch(
                {"d": pa.concat_arrays([pa.array([f"{n}"]).dictionary_encode(), rows])}
            )
        }
        for n in range(1000, 1050)
    ]
    segment = fill(bundles)
    before = pa.total_allocated_bytes()
    held: list[int] = []
    monkeypatch.setattr(
        "tests.simulation.power_loss.MemoryFile.pwrite",
        lambda *_: held.append(pa.total_allocated_bytes() - before),
    )
    files = PowerLossFiles()
    files.make_folder(FOLDER)
    seal(FOLDER, segment, files=files)
    assert len(held) >= 50
    assert max(held) < segment.nbytes / 8


# --- odd bundles -------------------------------------------------------------------------------


def test_a_segment_without_bundles_can_be_sealed(tmp_path: Path) -> None:
    """It is of no use, but nothing breaks."""
    reader = sealed(tmp_path, [])
    assert (len(reader), reader.streams, reader.slots, reader.verify()) == (0, (), (), [])


def test_a_bundle_without_slots_is_a_bundle(tmp_path: Path) -> None:
    """It has offsets and no data."""
    reader = sealed(tmp_path, [Bundle({}), Bundle({}, items=3)])
    assert (len(reader), reader.streams) == (2, ())
    assert reader.bundle(1).bundle.items == 3
    assert len(reader.bundle(1).bundle) == 0


def test_batches_without_rows_come_back_without_rows(tmp_path: Path) -> None:
    """A slot with zero rows is not an absent one."""
    schema = pa.schema([("a", pa.int64()), ("d", pa.dictionary(pa.int8(), pa.string()))])
    empty = schema.empty_table().to_batches() or [pa.RecordBatch.from_pylist([], schema)]
    full = pa.RecordBatch.from_pylist([{"a": 1, "d": "x"}], schema)
    reader = sealed(tmp_path, [{0: empty[0]}, {0: full}, {0: empty[0]}, {}])
    assert [len(reader.bundle(index).bundle) for index in range(4)] == [1, 1, 1, 0]
    assert values_of(reader, 2) == {0: {"a": [], "d": []}}
    assert reader.read_all(0).num_rows == 1


def test_batches_without_columns_keep_their_rows(tmp_path: Path) -> None:
    """Arrow allows it."""
    batch = pa.RecordBatch.from_struct_array(pa.array([{}, {}, {}], pa.struct([])))
    reader = sealed(tmp_path, [{0: batch}, {0: batch.slice(1)}])
    assert [reader.bundle(index).bundle[0].num_rows for index in range(2)] == [3, 2]
    assert [batch.num_rows for batch in reader.batches(0)] == [3, 2]


def test_slices_store_only_their_rows(tmp_path: Path) -> None:
    """A small part of a large batch makes a small segment."""
    large = pa.record_batch({"a": pa.array(range(100_000)), "t": pa.array(["word"] * 100_000)})
    reader = sealed(tmp_path, [{0: large.slice(5000, 3)}])
    assert values_of(reader, 0) == {0: {"a": [5000, 5001, 5002], "t": ["word"] * 3}}
    assert reader.info.size < 4000


def test_all_slots_of_a_bundle_can_be_filled(tmp_path: Path) -> None:
    """Sixty-four of them."""
    bundle = Bundle({slot: pa.record_batch({f"c{slot}": [slot]}) for slot in range(64)})
    reader = sealed(tmp_path, [bundle, bundle])
    assert (len(reader.streams), reader.slots) == (64, tuple(range(64)))
    assert_holds(reader, [bundle, bundle])


def test_columns_stand_in_the_order_of_the_streams_first_batch(tmp_path: Path) -> None:
    """Batches that differ in the order of columns share a stream."""
    batch = pa.record_batch({"a": [1], "b": ["x"]})
    reader = sealed(tmp_path, [{0: batch}, {0: batch.select(["b", "a"])}])
    assert reader.bundle(1).bundle[0].schema.names == ["a", "b"]
    assert len(reader.streams) == 1


def test_extension_types_and_metadata_come_back(tmp_path: Path) -> None:
    """Types, field metadata and schema metadata are what they were."""
    field = pa.field("id", pa.uuid(), nullable=False, metadata={"k": "v"})
    schema = pa.schema([field, ("j", pa.json_())], {"s": "t"})
    batch = pa.record_batch([pa.array([b"0" * 16], pa.uuid()), pa.array(["1"], pa.json_())], schema)
    reader = sealed(tmp_path, [{0: batch}, {0: batch}])
    assert reader.bundle(1).bundle[0].schema.equals(schema, check_metadata=True)
    assert reader.schema(0).equals(schema, check_metadata=True)


# --- errors ------------------------------------------------------------------------------------

OPERATIONS = ["create", "pwrite", "sync", "protect", "rename", "sync_folder"]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_failed_seal_leaves_nothing_and_can_be_repeated(
    tmp_path: Path, operation: str, error: int
) -> None:
    """Whatever fails: no file under the final name, no scratch file, and the next try succeeds."""
    files = FaultyFiles(LocalFiles())
    files.fail(operation, error, partly=100)
    segment = fill(some_bundles())
    with pytest.raises(OSError, match=os.strerror(error)):
        seal(tmp_path, segment, files=files)
    assert list(tmp_path.iterdir()) == []
    seal(tmp_path, segment, files=files)
    assert_holds(SegmentReader.open(files, tmp_path / NAME), some_bundles())


@pytest.mark.parametrize("number", range(6))
def test_any_failed_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The first, the last and those between."""
    monkeypatch.setattr(sink_module, "RUN_BYTES", 500)
    files = FaultyFiles(LocalFiles())
    fault = files.fail("pwrite", errno.ENOSPC, after=number, partly=10)
    segment = fill(some_bundles())
    with pytest.raises(OSError, match="No space"):
        seal(tmp_path, segment, files=files)
    assert fault.hits == 1
    assert list(tmp_path.iterdir()) == []
    seal(tmp_path, segment, files=files)


def test_a_scratch_file_that_cannot_be_removed_hinders_nobody(tmp_path: Path) -> None:
    """The error that is raised is the first one, and the next try replaces the scratch file."""
    files = FaultyFiles(LocalFiles())
    files.fail("rename", errno.EIO)
    files.fail("remove", errno.EACCES, after=1)
    (tmp_path / (NAME + ".tmp")).write_bytes(b"left by a crash")
    segment = fill(some_bundles())
    with pytest.raises(OSError, match="Input/output"):
        seal(tmp_path, segment, files=files)
    assert [path.name for path in tmp_path.iterdir()] == [NAME + ".tmp"]
    seal(tmp_path, segment, files=files)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_a_segment_that_stands_there_is_replaced_or_left(tmp_path: Path) -> None:
    """A failed seal before the rename does not harm it."""
    seal(tmp_path, fill([]))
    files = FaultyFiles(LocalFiles())
    files.fail("sync")
    with pytest.raises(OSError, match="Input/output"):
        seal(tmp_path, fill(some_bundles()), files=files)
    assert len(SegmentReader.open(files, tmp_path / NAME)) == 0
    seal(tmp_path, fill(some_bundles()), files=files)
    assert len(SegmentReader.open(files, tmp_path / NAME)) == 4


# --- power loss --------------------------------------------------------------------------------


def test_a_sealed_segment_survives_a_power_loss() -> None:
    """When `write_segment` has returned, and whatever the disk keeps of what was not synced."""
    for seed in range(50):
        files = PowerLossFiles()
        files.make_folder(FOLDER)
        seal(FOLDER, fill(some_bundles()), files=files)
        after = files.lose_power(Random(seed))
        assert_holds(SegmentReader.open(after, FOLDER / NAME), some_bundles())


def test_a_power_loss_while_sealing_leaves_a_whole_segment_or_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At every step: no damaged file stands under the final name."""
    monkeypatch.setattr(sink_module, "RUN_BYTES", 500)
    segment = fill(some_bundles())
    for steps in itertools.count():
        for seed in range(10):
            files = PowerLossFiles()
            files.make_folder(FOLDER)
            files.cut_after(steps)
            try:
                seal(FOLDER, segment, files=files)
            except PowerLost:
                pass
            else:
                return
            after = files.lose_power(Random(seed))
            if NAME in after.names(FOLDER):
                assert_holds(SegmentReader.open(after, FOLDER / NAME), some_bundles())
            seal(FOLDER, segment, files=after)
            assert_holds(SegmentReader.open(after, FOLDER / NAME), some_bundles())


def test_a_scratch_file_is_not_a_segment(tmp_path: Path) -> None:
    """Half of one is damaged, if anyone should open it."""
    seal(tmp_path, fill(some_bundles()))
    data = (tmp_path / NAME).read_bytes()
    (tmp_path / "half").write_bytes(data[: len(data) // 2])
    with pytest.raises(Damaged):
        SegmentReader.open(LocalFiles(), tmp_path / "half")
