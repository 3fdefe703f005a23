"""The segments in tests/fixtures/segment-v1, which every later version must read.

`python -m tests.segment.fixture_v1 FOLDER` wrote them. They are not written again: a new version
gets a folder of its own.
"""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import pyarrow as pa

from penstock.model.bundle import Bundle
from penstock.model.settings import Compression, SegmentSettings
from penstock.model.slots import LOG_ATTRS, LOGS, OTAP
from penstock.segment import OpenSegment, write_segment
from penstock.storage import LocalFiles

STORE_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
SEALED_AT_NS = 1_735_689_600_000_000_000
COMPRESSIONS = {3: Compression.NONE, 4: Compression.LZ4, 5: Compression.ZSTD}
"""Which segment has which."""

_WORDS = pa.dictionary(pa.uint8(), pa.string())
_NESTED = pa.list_(pa.struct([("key", _WORDS), ("value", pa.binary())]))


def logs(first: int, rows: int, *, drifted: bool = False) -> pa.RecordBatch:
    """Times, words and, drifted, a wider number and another column."""
    numbers = range(first, first + rows)
    columns = {
        "time_unix_nano": pa.array([1000 * number for number in numbers], pa.timestamp("ns")),
        "word": pa.array([f"word {number % 7}" for number in numbers], _WORDS),
        "number": pa.array(numbers, pa.int64() if drifted else pa.int16()),
    }
    if drifted:
        columns["text"] = pa.array([None] * (rows - 1) + ["last"], pa.string())
    return pa.record_batch(columns)


def attributes(first: int, rows: int) -> pa.RecordBatch:
    """Lists of structs with dictionaries in them, nulls between."""
    rows_of_values = [
        None if number % 3 == 0 else [{"key": f"key {number}", "value": b"%d" % number}]
        for number in range(first, first + rows)
    ]
    return pa.record_batch({"attributes": pa.array(rows_of_values, _NESTED)})


def bundles() -> list[Bundle]:
    """What each of the segments holds."""
    return [
        Bundle({LOGS: logs(0, 5), LOG_ATTRS: attributes(0, 3)}),
        Bundle({}, items=2),
        Bundle({LOGS: logs(5, 4, drifted=True)}),
        Bundle({LOG_ATTRS: attributes(3, 4), LOGS: logs(9, 0)}),
    ]


def write(folder: Path) -> None:
    """Writes one segment for each compression."""
    for segment_seq, compression in COMPRESSIONS.items():
        settings = SegmentSettings(compression=compression)
        segment = OpenSegment(settings, OTAP)
        for number, bundle in enumerate(bundles()):
            segment.add(
                bundle,
                first_offset=10 * number,
                messages=number + 1,
                ingested_at_ns=SEALED_AT_NS - 1000 + number,
            )
        write_segment(
            LocalFiles(),
            folder,
            segment_seq,
            STORE_ID,
            segment,
            sealed_at_ns=SEALED_AT_NS,
            settings=settings,
            slots=OTAP,
        )


if __name__ == "__main__":
    write(Path(sys.argv[1]))
