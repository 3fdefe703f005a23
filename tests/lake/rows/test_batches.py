"""What many rows share is written out in batches of a bounded size."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.lake.rows import batches, row_batches, rows_of
from penstock.lake.rows.batches import cut, fit
from penstock.model.positions import Position
from penstock.otel import Signal
from tests.lake.rows.comparable import ORIGIN, check
from tests.lake.rows.samples import span_request
from tests.otel.samples import bundle_of, full_request

TRACES = Signal.TRACES
SIGNALS = pytest.mark.parametrize("signal", Signal, ids=lambda signal: signal.value)


def test_a_large_resource_is_not_written_out_at_once() -> None:
    """Its spans are in several batches, none of which has more of it than the limit."""
    request = span_request(200, service_name="x" * 1_000_000)
    bundle = bundle_of(TRACES, request)
    sizes = [batch.nbytes for batch in row_batches([(bundle, ORIGIN)], TRACES)]
    assert len(sizes) > 3
    assert max(sizes) < 1.1 * batches.BATCH_BYTES


@SIGNALS
@pytest.mark.parametrize("limit", [1, 300, 2000])
def test_the_size_of_batches_does_not_change_rows(
    signal: Signal, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Down to one row in each."""
    monkeypatch.setattr(batches, "BATCH_BYTES", limit)
    requests = [full_request(signal, seed, share=0.8) for seed in range(6)]
    check(signal, bundle_of(signal, *requests), requests)


def test_few_batches_are_cut_where_many_resources_are_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of them together are large, but no row has more than one."""
    monkeypatch.setattr(batches, "BATCH_BYTES", 20_000)
    requests = [span_request(1, service_name=f"service {number}") for number in range(100)]
    bundle = bundle_of(TRACES, *requests)
    assert rows_of(bundle, TRACES, Position("s", "/n/t", 0, 0))["time"].num_chunks == 1


def test_a_batch_has_the_columns_of_the_schema_in_its_order() -> None:
    """Without dictionaries, also within structs."""
    shared = pa.array(["x", "y", "x", None]).dictionary_encode()
    struct = pa.StructArray.from_arrays(
        [shared], names=["inner"], mask=pa.array([False, False, True, False])
    )
    schema = pa.schema([("b", pa.struct([("inner", pa.string())])), ("a", pa.string())])
    [batch] = cut({"a": shared, "b": struct, "c": shared}, schema)
    assert batch.schema == schema
    assert batch.column("a").to_pylist() == ["x", "y", "x", None]
    assert batch.column("b").to_pylist() == [{"inner": "x"}, {"inner": "y"}, None, {"inner": None}]


def test_a_slice_is_fitted_as_such() -> None:
    """The nulls of a struct move with it."""
    inner = pa.array(["x", "y", "z"]).dictionary_encode()
    struct = pa.StructArray.from_arrays(
        [inner], names=["inner"], mask=pa.array([False, True, False])
    )
    fitted = fit(struct.slice(1), pa.struct([("inner", pa.string())]))
    assert fitted.to_pylist() == [None, {"inner": "z"}]
