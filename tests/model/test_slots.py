"""What slots mean: OTel-Arrow's table, or another project's."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.model import slots
from penstock.model.bundle import Bundle
from penstock.model.slots import OTAP, SlotTable


def batch(rows: int) -> pa.RecordBatch:
    """A batch with so many rows."""
    return pa.record_batch({"id": pa.array(range(rows), pa.int64())})


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("RESOURCE_ATTRS", 1),
        ("SCOPE_ATTRS", 2),
        ("UNIVARIATE_METRICS", 10),
        ("NUMBER_DATA_POINTS", 11),
        ("MULTIVARIATE_METRICS", 25),
        ("METRIC_ATTRS", 26),
        ("LOGS", 30),
        ("LOG_ATTRS", 31),
        ("SPANS", 40),
        ("SPAN_ATTRS", 41),
        ("SPAN_EVENTS", 42),
        ("SPAN_LINKS", 43),
        ("SPAN_EVENT_ATTRS", 44),
        ("SPAN_LINK_ATTRS", 45),
        ("MESSAGE_RECORDS", 58),
        ("REMAINDER", 59),
        ("RAW_LOGS", 60),
        ("RAW_TRACES", 61),
        ("RAW_METRICS", 62),
    ],
)
def test_slots_have_the_numbers_of_otel_arrow(name: str, number: int) -> None:
    """They are on disk, and never change."""
    assert getattr(slots, name) == number
    assert (OTAP.name(number), OTAP.number(name), OTAP.number(name.lower())) == (
        name,
        number,
        number,
    )


def test_every_name_of_the_table_is_a_slot() -> None:
    """Two names never share a number."""
    assert all(0 <= number < 64 for number in OTAP.names)
    assert len(set(OTAP.names.values())) == len(OTAP.names) == 32


def test_unknown_slot_has_a_name_all_the_same() -> None:
    """And an unknown name has no slot."""
    assert OTAP.name(63) == "SLOT_63"
    assert OTAP.number("SLOT_63") is None


def test_items_are_the_root_records() -> None:
    """Attributes are not counted."""
    bundle = Bundle({slots.SPANS: batch(3), slots.SPAN_ATTRS: batch(9), slots.LOGS: batch(2)})
    assert OTAP.count_items(bundle) == 5


def test_items_without_root_records_are_the_longest_slot() -> None:
    """An empty bundle has none."""
    assert OTAP.count_items(Bundle({60: batch(2), 61: batch(7)})) == 7
    assert OTAP.count_items(Bundle({})) == 0


def test_bundle_that_counted_itself_is_believed() -> None:
    """Also when it says none."""
    assert OTAP.count_items(Bundle({slots.SPANS: batch(3)}, items=0)) == 0


def test_event_times_are_those_of_records_that_have_one() -> None:
    """By slot, the column that holds them."""
    assert OTAP.event_times[slots.SPANS] == "start_time_unix_nano"
    assert OTAP.event_times[slots.LOGS] == "time_unix_nano"
    assert slots.SPAN_ATTRS not in OTAP.event_times


def test_project_can_bring_its_own_table() -> None:
    """An empty one knows no names and counts rows."""
    table = SlotTable(names={0: "ORDERS"}, roots=frozenset({0}))
    assert (table.name(0), table.number("orders")) == ("ORDERS", 0)
    assert table.count_items(Bundle({0: batch(4), 1: batch(9)})) == 4
    assert SlotTable().count_items(Bundle({3: batch(4)})) == 4


def test_the_table_of_otel_arrow_cannot_be_changed() -> None:
    """All stores of a process share it."""
    with pytest.raises(TypeError):
        OTAP.names[5] = "MINE"
