"""Types without a widest one share a segment: each bundle comes out as it went in."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import Bundle, Store
from penstock.log.environment import Environment, MemoryBound
from penstock.metrics import Metrics
from penstock.model.errors import InvalidArgument
from penstock.model.settings import SegmentSettings, StoreSettings
from penstock.model.slots import LOG_ATTRS, LOGS
from penstock.segment import SegmentReader
from penstock.storage import LocalFiles
from tests.cli.running import run
from tests.patience import PATIENCE_S

KEPT_OPEN = StoreSettings(segment=SegmentSettings(max_open_s=100_000.0))
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [1, -(2**62) - 1, None],
    pa.uint64(): [2**64 - 1],
    pa.float64(): [0.1, None],
    pa.timestamp("ns"): [1_700_000_000_000_000_001],
    pa.timestamp("us"): [1_700_000_000_000_000],
    pa.timestamp("us", "UTC"): [5],
    pa.string(): ["text", None],
    pa.bool_(): [True],
    pa.list_(pa.int64()): [[1, None]],
    pa.struct([("a", pa.float64())]): [{"a": 1.5}],
    pa.dictionary(pa.int8(), pa.string()): ["x", "y", "x"],
}
"""Few of these have a type in common."""


def opened(folder: Path) -> Store:
    """One that seals when it is asked to."""
    env = Environment(metrics=Metrics(), memory=MemoryBound())
    return Store.open(folder, KEPT_OPEN, env=env)


def batch(type_: pa.DataType) -> pa.RecordBatch:
    """A column of the type, beside one that is always the same."""
    column = pa.array(VALUES[type_], type_)
    return pa.record_batch({"value": column, "row": range(len(column))})


def seal(folder: Path, bundles: list[Bundle]) -> list[pa.RecordBatch]:
    """Appends them, seals once, and takes what a subscriber gets: slot 30 of each bundle."""
    with opened(folder) as store:
        subscription = store.subscribe("me")
        for bundle in bundles:
            store.append_durable(bundle)
        store.flush(PATIENCE_S)
        found = [subscription.next_bundle(PATIENCE_S) for _ in bundles]
        assert len(store.segments) == 1, "they were sealed one by one"
    return [delivery.bundle[LOGS] for delivery in found if delivery is not None]


def only_segment(folder: Path) -> Path:
    """The file."""
    [path] = folder.glob("segments/*.seg")
    return path


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.int64(), pa.float64()),
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.string(), pa.int64()),
    ],
)
def test_alternating_types_are_two_streams_of_one_segment(
    tmp_path: Path, one: pa.DataType, other: pa.DataType
) -> None:
    """However often they alternate; the commands read it as any other."""
    types = [one, other] * 20
    got = seal(tmp_path / "store", [Bundle({LOGS: batch(type_)}) for type_ in types])
    assert got == [batch(type_) for type_ in types]
    path = only_segment(tmp_path / "store")
    shown = run("inspect", "--json", path).json
    assert (len(shown["streams"]), len(shown["schemas"]), shown["bundles"]) == (2, 2, 40)
    assert (shown["format_version"], shown["damage"]) == (2, [])
    assert run("fsck", tmp_path / "store").code == 0
    reader = SegmentReader.open(LocalFiles(), path)
    assert list(reader.batches(LOGS)) == got
    with pytest.raises(InvalidArgument, match="without a widest one"):
        reader.read_all(LOGS)


def test_other_segments_stay_as_older_versions_read_them(tmp_path: Path) -> None:
    """Types that widen are one table, in the version that 0.1 writes."""
    types = [pa.int64(), pa.int8()]
    columns = [pa.record_batch({"value": pa.array([1], type_)}) for type_ in types]
    assert seal(tmp_path / "store", [Bundle({LOGS: each}) for each in columns]) == columns
    shown = run("inspect", "--json", only_segment(tmp_path / "store")).json
    assert (shown["format_version"], len(shown["schemas"])) == (1, 1)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.integers(0, 2**32))
def test_any_mixture_comes_out_as_it_went_in(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Delivered live, and again after a restart, each bundle with the types that it had."""
    random, folder = Random(seed), tmp_path_factory.mktemp("store")
    types = random.choices(list(VALUES), k=random.randrange(1, 12))
    bundles = [Bundle({LOGS: batch(each), LOG_ATTRS: batch(types[0])}) for each in types]
    got = seal(folder, bundles)
    assert [each.to_pylist() for each in got] == [b[LOGS].to_pylist() for b in bundles]
    assert [each.schema for each in got] == [b[LOGS].schema for b in bundles]
    with opened(folder) as store, store.subscribe("another") as subscription:
        held = [subscription.next_bundle(PATIENCE_S) for _ in bundles]
        assert [each.bundle[LOGS] for each in held if each is not None] == got
    reader = SegmentReader.open(LocalFiles(), only_segment(folder))
    assert reader.slots == (LOGS, LOG_ATTRS)
    assert reader.verify() == []
