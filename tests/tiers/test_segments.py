"""The listing of a data directory's segments."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from penstock.model import Topic
from penstock.model.errors import Damaged, InvalidArgument, OffsetUnavailable, UnsupportedVersion
from penstock.model.positions import Reached, SourcePartition
from penstock.otel import Signal
from penstock.pipeline.descriptors import DESCRIPTORS, descriptor_rows, segments_of
from penstock.segment import segment_name
from penstock.tiers.segments import DirectorySegments, State
from tests.pipeline.helpers import LOGS, TRACES, Data, spans
from tests.server import samples
from tests.store.helpers import flip, overwrite

KEY = SourcePartition.parse("/default/traces/0")
SHOP = Topic("shop", "traces")
OWN = Topic("default", "my own")


def listed(segments: DirectorySegments, *, since: int = 0) -> list[str]:
    """What there is, as `partition:number`."""
    positions = {KEY: Reached(since - 1, since)} if since else {}
    return [f"{each.place.unsourced}:{each.segment_seq}" for each in segments.since(positions)]


def test_segments_are_listed_by_partition_and_number(data: Data) -> None:
    """From the position on; partitions without one as a whole."""
    data.seal([spans(1)], [spans(2)], [spans(3)])
    data.seal([spans(4)], partition=1)
    segments = DirectorySegments(data.root)
    assert listed(segments) == [f"{KEY}:0", f"{KEY}:1", f"{KEY}:2", "/default/traces/1:0"]
    assert listed(segments, since=2) == [f"{KEY}:2", "/default/traces/1:0"]


def test_listing_says_what_a_segment_holds(data: Data) -> None:
    """Without opening it."""
    data.seal([spans(1)], [spans(2, 3), spans(4)])
    [_, found] = DirectorySegments(data.root).since({})
    assert found.place.unsourced == KEY
    assert (found.first_offset, found.end_offset, found.items) == (1, 3, 3)
    assert found.bytes == data.segment(1).stat().st_size
    assert Path(found.path) == data.segment(1)
    assert (found.signal, found.state, found.problem) == (Signal.TRACES, State.SEALED, None)


def test_what_comes_and_goes_is_followed(data: Data) -> None:
    """By the same object, which remembers what it has seen."""
    data.seal([spans(1)])
    segments = DirectorySegments(data.root)
    assert listed(segments) == [f"{KEY}:0"]
    data.seal([spans(2)])
    data.segment(0).unlink()
    assert listed(segments) == [f"{KEY}:1"]


@pytest.mark.parametrize(
    ("topics", "namespaces", "signal", "expected"),
    [
        (None, None, None, [LOGS, OWN, TRACES, SHOP]),
        ({"traces"}, None, None, [TRACES, SHOP]),
        ({"/shop/traces", "logs"}, None, None, [LOGS, SHOP]),
        (None, {"shop"}, None, [SHOP]),
        ({"logs"}, {"shop"}, None, []),
        (None, None, Signal.TRACES, [OWN, TRACES, SHOP]),
    ],
)
def test_topics_namespaces_and_signals_are_chosen(
    topics: set[str] | None,
    namespaces: set[str] | None,
    signal: Signal | None,
    expected: list[Topic],
    data: Data,
) -> None:
    """A topic of another name may carry any signal."""
    for topic in (TRACES, SHOP, OWN):
        data.seal([spans(1)], topic=topic)
    data.seal([samples.logs("hello")], topic=LOGS)
    chosen = (topics and frozenset(topics), namespaces and frozenset(namespaces))
    segments = DirectorySegments(data.root, *chosen, signal)
    assert [each.place.topic for each in segments.since({})] == [str(topic) for topic in expected]


def test_damaged_segment_is_listed_with_its_problem(data: Data) -> None:
    """It hides none of the others."""
    data.seal([spans(1)], [spans(2)], [spans(3)])
    flip(data.segment(1), -20)
    overwrite(data.segment(2), b"")
    whole, *broken = DirectorySegments(data.root).since({})
    assert whole.state is State.SEALED
    for number, each in enumerate(broken, 1):
        assert (each.state, each.segment_seq) == (State.DAMAGED, number)
        assert (each.first_offset, each.end_offset) == (number, number + 1), "ack.log says so"
        assert str(data.segment(number)) in (each.problem or "")


def test_segment_under_another_name_is_damage(data: Data) -> None:
    """Its messages would be read twice, or for others."""
    data.seal([spans(1)])
    data.segment(0).rename(data.segment(5))
    [found] = DirectorySegments(data.root).since({})
    assert "says that it is segment 0" in (found.problem or "")


def test_other_files_are_no_segments(data: Data) -> None:
    """Those being written, and those kept aside."""
    data.seal([spans(1)])
    for name in (f"{segment_name(1)}.tmp", f"{segment_name(0)}.damaged", "notes.txt"):
        (data.folder() / name).write_text("x")
    assert listed(DirectorySegments(data.root)) == [f"{KEY}:0"]


def test_segment_of_a_newer_version_ends_the_listing(data: Data) -> None:
    """It is no damage to be passed over."""
    data.seal([spans(1)])
    content = bytearray(data.segment(0).read_bytes())
    content[-16:-14] = (9).to_bytes(2, "little")
    from isal.isal_zlib import crc32

    content[-12:-8] = crc32(content[-128:-12]).to_bytes(4, "little")
    overwrite(data.segment(0), bytes(content))
    with pytest.raises(UnsupportedVersion, match=f"{data.segment(0)}: segment version 9"):
        DirectorySegments(data.root).since({})


def test_opening_names_the_file_that_is_gone_or_damaged(data: Data) -> None:
    """It was there when it was listed."""
    data.seal([spans(1)], [spans(2)])
    segments = DirectorySegments(data.root)
    gone, damaged = segments.since({})
    data.segment(0).unlink()
    flip(data.segment(1), 3)
    with pytest.raises(OffsetUnavailable, match=f"{data.segment(0)} is gone"):
        segments.open(gone)
    with pytest.raises(Damaged, match=f"{data.segment(1)}: the segment's header is damaged"):
        segments.open(damaged)


def test_what_is_gone_is_named_by_its_file_and_messages(data: Data) -> None:
    """Though there is nothing of it."""
    found = DirectorySegments(data.root).gone(KEY, Reached(6, 70), 90)
    assert found.state is State.GONE
    assert (found.place.unsourced, found.segment_seq, found.end_offset) == (KEY, 7, 90)
    assert found.problem == f"{data.segment(7)} is gone: messages 70 to 89 were deleted unread"


@pytest.mark.parametrize("name", ["missing", "empty", "a file"])
def test_folder_that_is_no_data_directory_is_refused(name: str, tmp_path: Path) -> None:
    """Else a stream would wait for ever for its first segment."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "a file").touch()
    with pytest.raises(InvalidArgument, match="is not a data directory"):
        DirectorySegments(tmp_path / name)


def test_listing_goes_to_the_workers(data: Data) -> None:
    """By pickling; they open what was listed here."""
    data.seal([spans(1, 2)])
    here = DirectorySegments(data.root)
    size = len(pickle.dumps(here))
    [found] = here.since({})
    assert len(pickle.dumps(here)) == size
    there = pickle.loads(pickle.dumps(here))  # noqa: S301
    assert there.open(pickle.loads(pickle.dumps(found))).info.items == 2  # noqa: S301


def test_descriptors_are_segments_again(data: Data) -> None:
    """Whoever gets their rows can open them."""
    data.seal([spans(1)], [spans(2)])
    flip(data.segment(1), -20)
    segments = DirectorySegments(data.root)
    found = [*segments.since({}), segments.gone(KEY, Reached(6, 70), 90)]
    rows = descriptor_rows(found)
    assert rows.schema == DESCRIPTORS
    assert rows.column("state").to_pylist() == ["sealed", "damaged", "gone"]
    back = segments_of(rows)
    assert [each.sealed_at_ns // 1000 for each in back] == [e.sealed_at_ns // 1000 for e in found]
    assert [descriptor_rows([each]) for each in back] == [descriptor_rows([e]) for e in found]
