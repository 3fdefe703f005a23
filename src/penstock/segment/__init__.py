"""Immutable files of many bundles: Arrow IPC streams, a directory of them and a manifest."""

from penstock.segment.inventory import SegmentInfo, read_info, segment_name, segment_seq_of
from penstock.segment.open_segment import OpenSegment
from penstock.segment.reader import SegmentReader
from penstock.segment.stored import StoredBundle
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
