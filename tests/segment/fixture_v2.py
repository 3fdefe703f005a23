"""The segment in tests/fixtures/segment-v2, whose slot has no representative schema.

`python -m tests.segment.fixture_v2 FOLDER` wrote it. It is not written again: a new version gets a
folder of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

from penstock.model.bundle import Bundle
from penstock.model.settings import SegmentSettings
from penstock.model.slots import LOGS, OTAP
from penstock.segment import OpenSegment, write_segment
from penstock.storage import LocalFiles
from tests.segment.fixture_v1 import SEALED_AT_NS, STORE_ID

SEGMENT_SEQ = 3


def bundles() -> list[Bundle]:
    """Whole numbers, halves, whole numbers again, and a narrower one that fits the first."""
    columns = [
        pa.array([1, 2**62], pa.int64()),
        pa.array([0.5]),
        pa.array([3], pa.int64()),
        pa.array([4], pa.int16()),
    ]
    return [Bundle({LOGS: pa.record_batch({"number": column})}) for column in columns]


def write(folder: Path) -> None:
    """Writes the one segment."""
    settings = SegmentSettings()
    segment = OpenSegment(settings, OTAP)
    for number, bundle in enumerate(bundles()):
        segment.add(bundle, first_offset=number, messages=1, ingested_at_ns=number)
    write_segment(
        LocalFiles(),
        folder,
        SEGMENT_SEQ,
        STORE_ID,
        segment,
        sealed_at_ns=SEALED_AT_NS,
        settings=settings,
        slots=OTAP,
    )


if __name__ == "__main__":
    write(Path(sys.argv[1]))
