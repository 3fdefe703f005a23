"""Bundles of telemetry go through a segment file and are still the requests that came."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.model.settings import SegmentSettings
from penstock.model.slots import OTAP
from penstock.otel import Signal, decode_requests, encode_bundle
from penstock.segment import SegmentReader, segment_name
from penstock.storage import LocalFiles
from tests.otel.samples import canonical, encoded, full_request
from tests.segment.helpers import SEQ, fill, seal

SETTINGS = SegmentSettings(max_streams=1000)


@pytest.mark.parametrize("signal", Signal, ids=lambda signal: signal.value)
def test_requests_come_back_from_a_segment(signal: Signal, tmp_path: Path) -> None:
    """Whose tables have different columns, and dictionaries that are unified."""
    messages = [encoded(full_request(signal, seed, share=0.7)) for seed in range(12)]
    bundles = [decode_requests(signal, messages[at : at + 3])[0].bundle for at in range(0, 12, 3)]
    segment = fill([bundle for bundle in bundles if bundle], SETTINGS, OTAP)
    seal(tmp_path, segment, SETTINGS, OTAP)
    reader = SegmentReader.open(LocalFiles(), tmp_path / segment_name(SEQ))
    assert len(reader) == 4
    for number in range(4):
        found = encode_bundle(signal, reader.bundle(number).bundle)
        expected = messages[3 * number : 3 * number + 3]
        assert canonical(signal, found) == canonical(signal, *expected)
