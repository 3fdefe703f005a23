"""Which tier has which message, by offset."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.lake.schemas import SPANS
from penstock.model.positions import KEPT_SEALS, Reached
from penstock.tiers.cut import beyond, ends, in_rest, is_another, rest_of, seal_of, seals_after
from penstock.tiers.segments import bounded
from tests.pipeline.listing import damaged, segment

SEGMENT = segment(4)
"""Offsets 40 to 49."""


def rows(*offsets: int) -> pa.Table:
    """Rows of these messages."""
    source, topic, partition = SEGMENT.place
    place = {"_source": source, "_topic": topic, "_topic_partition": partition}
    return pa.Table.from_pylist([{**place, "_offset": each} for each in offsets], schema=SPANS)


@pytest.mark.parametrize(
    ("offset", "left"), [(0, range(40, 50)), (40, range(40, 50)), (43, range(43, 50)), (50, None)]
)
def test_a_segment_that_the_lake_has_in_part_gives_its_rest(
    offset: int, left: range | None
) -> None:
    """Whatever the number says: a replay of the archive moves offsets alone."""
    rest = rest_of(SEGMENT, {SEGMENT.place: Reached(0, offset)})
    if left is None:
        assert rest is None
    else:
        assert rest is not None
        assert in_rest(rest, rows(*range(40, 50)))["_offset"].to_pylist() == list(left)


def test_positions_of_another_source_say_nothing() -> None:
    """Its offsets count from 0, too."""
    other = SEGMENT.place._replace(source="there")
    assert rest_of(SEGMENT, {other: Reached(9, 900)}) is SEGMENT


def test_a_damaged_segment_lies_below_its_neighbour() -> None:
    """The last one is known by its number alone."""
    listed = bounded([segment(3), damaged(4), damaged(5), segment(6), damaged(7)])
    assert [each.end_offset for each in listed] == [40, 60, 60, 70, None]
    place = SEGMENT.place
    assert rest_of(listed[1], {place: Reached(3, 40)}) is not None
    assert rest_of(listed[1], {place: Reached(3, 60)}) is None, "the archive had it"
    assert rest_of(listed[4], {place: Reached(6, 70)}) is not None
    assert rest_of(listed[4], {place: Reached(7, 70)}) is None, "it was set aside"


def test_the_log_has_what_lies_beyond_lake_and_segments() -> None:
    """Whichever of both is further."""
    for offset, first in ((45, 50), (50, 50), (52, 52)):
        known = ends({SEGMENT.place: Reached(0, offset)}, [SEGMENT])
        assert beyond(rows(49, 50, 51, 52), known)["_offset"].to_pylist() == [
            each for each in (49, 50, 51, 52) if each >= first
        ]


def test_a_segment_that_was_sealed_after_all_that_the_lake_has_is_another() -> None:
    """Its offsets were given twice, to what the lake has and to this."""
    position = Reached(5, 60, 2_000)
    assert not is_another(replace(SEGMENT, sealed_at_ns=2_999), position), "Spark knows no ns"
    late = replace(SEGMENT, sealed_at_ns=3_000)
    assert is_another(late, position)
    assert rest_of(late, {SEGMENT.place: position}) is late
    assert not is_another(late, Reached(5, 60)), "0.1 did not say, nor does a replay"
    assert not is_another(late, Reached(3, 40, 2_000)), "the lake has come to where it begins"


def test_a_segment_is_what_the_lake_took_by_its_seal() -> None:
    """Whichever of two was sealed first, and wherever it ends."""
    taken = replace(SEGMENT, sealed_at_ns=5_000)
    position = Reached(4, 50, 5_000, seals_after((), taken))
    assert rest_of(taken, {SEGMENT.place: position}) is None
    assert not is_another(replace(taken, sealed_at_ns=5_999), position), "Spark knows no ns"
    earlier, longer = replace(taken, sealed_at_ns=2_000), replace(taken, end_offset=70)
    below = replace(segment(3, 30, 60), sealed_at_ns=2_000)
    beyond_it = replace(segment(4, 50, 60), sealed_at_ns=2_000)
    for other in (earlier, longer, below, beyond_it):
        assert is_another(other, position)
        assert rest_of(other, {SEGMENT.place: position}) is other
    assert not is_another(replace(segment(3), sealed_at_ns=2_000), position)
    assert not is_another(segment(5), position)


def test_objects_of_the_archive_are_cut_elsewhere_and_are_no_others() -> None:
    """They say no seal; and after a replay the lake knows none."""
    position = Reached(4, 45, 5_000, (seal_of(replace(SEGMENT, end_offset=45)),))
    assert not is_another(SEGMENT, position)
    assert not is_another(replace(SEGMENT, sealed_at_ns=9_000), Reached(4, 45))


def test_the_lake_remembers_the_last_few_seals() -> None:
    """A damaged segment has none."""
    seals = seals_after((), damaged(0))
    for seq in range(20):
        seals = seals_after(seals, replace(segment(seq), sealed_at_ns=1_000))
    assert [seal.segment_seq for seal in seals] == [*range(20 - KEPT_SEALS, 20)]
