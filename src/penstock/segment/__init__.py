"""Immutable files of many bundles: Arrow IPC streams, a directory of them and a manifest.

In come bundles, into an `OpenSegment` in memory; sealing makes a file of them (`write_segment`);
out come bundles, slots and columns (`SegmentReader`), each verified before it is decoded. A sealed
segment has one description, `SegmentInfo`: its trailer says it, ack.log repeats it, listings show
it. Read `format` (header, trailer) and `tables` (footer) first; then `open_segment` → `writer` →
`sink`, with `schemas`, `widening` and `unification` for batches that differ; then `reader` →
`stream_reader`; `verify` finds damage.
"""

from penstock.segment.format import SegmentInfo
from penstock.segment.inventory import StoredBundle, read_info, segment_name, segment_seq_of
from penstock.segment.open_segment import OpenSegment
from penstock.segment.reader import SegmentReader
from penstock.segment.writer import write_segment

__all__ = [
    "OpenSegment",
    "SegmentInfo",
    "SegmentReader",
    "StoredBundle",
    "read_info",
    "segment_name",
    "segment_seq_of",
    "write_segment",
]
