"""A bundle that is durable and has no rows costs its own rows, and nobody else's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.model.bundle import Bundle
from penstock.otel import Signal
from tests.cli.running import run
from tests.pipeline.helpers import Data, spans
from tests.query.helpers import hot

if TYPE_CHECKING:
    from pathlib import Path


def test_a_bundle_in_the_log_that_has_no_rows_stops_no_question(tmp_path: Path) -> None:
    """It is named in a warning, and the requests on both sides of it are answered."""
    data = Data(tmp_path / "data")
    raw = pa.record_batch({"data": pa.array([b"\xff\xff"], pa.binary())})
    other = Bundle({Signal.TRACES.raw_slot: raw})
    with hot(data, spans(1)) as store:
        store.append_durable(other)
        store.append_durable(spans(2))
        asked = ("SELECT name FROM spans ORDER BY name", "--format", "json")
        answer = run("query", "--data-dir", data.root, *asked)
    assert answer.code == 0, answer.err
    assert [row["name"] for row in json.loads(answer.out)] == ["span 1", "span 2"]
    assert "the bundle at offset 1 has no rows" in answer.err
