"""Seals an open segment: writes it to a file that never changes again."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from isal.isal_zlib import crc32
from pyarrow import types

from penstock.model.settings import Compression
from penstock.segment import format as fmt
from penstock.segment import tables
from penstock.segment.format import SegmentInfo
from penstock.segment.inventory import segment_name
from penstock.segment.schemas import omitted_columns, representative
from penstock.segment.sink import Sink
from penstock.segment.unification import Unification

if TYPE_CHECKING:
    import uuid
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from penstock.model.settings import SegmentSettings
    from penstock.model.slots import SlotTable
    from penstock.segment.open_segment import OpenSegment, OpenStream
    from penstock.storage.files import Files


def write_segment(
    files: Files,
    folder: Path,
    segment_seq: int,
    store_id: uuid.UUID,
    open_segment: OpenSegment,
    *,
    sealed_at_ns: int,
    settings: SegmentSettings,
    slots: SlotTable,
) -> SegmentInfo:
    """Writes the segment; when this returns it is durable under its name.

    An error leaves no file of that name, and the same call may be made again. A segment that
    stands there already is replaced.
    """
    path = folder / segment_name(segment_seq)
    scratch = path.with_name(path.name + ".tmp")
    _remove(files, scratch)  # one that a crash left is read-only
    standing = scratch
    try:
        header = fmt.Header(store_id, segment_seq, sealed_at_ns, _version(open_segment))
        info = _write_file(files, scratch, header, open_segment, settings, slots)
        files.protect(scratch)
        # Whoever finds the name relies on a whole segment behind it: it is written and synced.
        files.rename(scratch, path)
        standing = path
        files.sync_folder(folder)  # so that the rename survives
    except BaseException:
        with contextlib.suppress(OSError):
            _remove(files, standing)
        raise
    return info


def _version(open_segment: OpenSegment) -> int:
    """Who knows only slots with a representative schema must not open one where a slot has none."""
    of_slot: dict[int, list[pa.Schema]] = {}
    for stream in open_segment.streams:
        of_slot.setdefault(stream.slot, []).append(stream.schema)
    mixed = any(representative(schemas) is None for schemas in of_slot.values())
    return fmt.MIXED if mixed else fmt.PLAIN


def _remove(files: Files, path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        files.remove(path)


def _write_file(
    files: Files,
    path: Path,
    header: fmt.Header,
    open_segment: OpenSegment,
    settings: SegmentSettings,
    slots: SlotTable,
) -> SegmentInfo:
    file = files.create(path)
    try:
        sink = Sink(file)
        sink.put(fmt.encode_header(header))
        written = [_put_stream(sink, stream, settings) for stream in open_segment.streams]
        info = _put_end(sink, header, open_segment, written, slots)
        sink.flush()
        file.sync()
    finally:
        file.close()
    return info


@dataclass(frozen=True, slots=True)
class _Written:
    """A stream that is in the file."""

    stream: OpenStream
    schema: pa.Schema
    position: int
    parts: list[tables.Part]


def _put_stream(sink: Sink, stream: OpenStream, settings: SegmentSettings) -> _Written:
    unified = Unification(stream.schema, stream.batches, settings.dictionary_values)
    packing = settings.compression
    compression = None if packing is Compression.NONE else packing.value
    sink.align()
    position = sink.position
    return _Written(
        stream, unified.schema, position, sink.put_stream(unified.schema, unified, compression)
    )


def _put_end(
    sink: Sink,
    header: fmt.Header,
    open_segment: OpenSegment,
    written: list[_Written],
    slots: SlotTable,
) -> SegmentInfo:
    schemas = _representatives(written)
    manifest = open_segment.manifest
    parts = [part for stream in written for part in stream.parts]
    footer = tables.encode_footer(
        _directory(written, schemas, slots),
        parts,
        manifest,
        [(slot, schema.serialize().to_pybytes()) for slot, schema in sorted(schemas.items())],
    )
    sink.align()
    arrived = [entry.ingested_at_ns for entry in manifest]
    info = SegmentInfo(
        header.segment_seq,
        open_segment.first_offset,
        open_segment.end_offset,
        bundles=len(manifest),
        items=sum(entry.items for entry in manifest),
        size=sink.position + len(footer) + fmt.TRAILER_BYTES,
        first_ingested_at_ns=min(arrived, default=0),
        last_ingested_at_ns=max(arrived, default=0),
        sealed_at_ns=header.sealed_at_ns,
    )
    trailer = fmt.Trailer(
        footer_position=sink.position,
        footer_length=len(footer),
        footer_crc=crc32(footer),
        streams=len(written),
        parts=len(parts),
        refs=sum(len(entry.refs) for entry in manifest),
        schemas=len(schemas),
        store_id=header.store_id,
        info=info,
        version=header.version,
    )
    sink.put(footer)
    sink.put(fmt.encode_trailer(trailer))
    return info


def _representatives(written: list[_Written]) -> dict[int, pa.Schema]:
    """The representative schema of each slot that has one."""
    of_slot: dict[int, list[pa.Schema]] = {}
    for stream in written:
        of_slot.setdefault(stream.stream.slot, []).append(stream.schema)
    unions = {slot: representative(schemas) for slot, schemas in of_slot.items()}
    return {slot: union for slot, union in unions.items() if union is not None}


def _directory(
    written: list[_Written], schemas: Mapping[int, pa.Schema], slots: SlotTable
) -> list[tables.StreamEntry]:
    entries: list[tables.StreamEntry] = []
    first_part = 0
    for one in written:
        union = schemas.get(one.stream.slot, one.schema)
        entries.append(_entry(len(entries), one, first_part, union, slots))
        first_part += len(one.parts)
    return entries


def _entry(
    number: int, written: _Written, first_part: int, union: pa.Schema, slots: SlotTable
) -> tables.StreamEntry:
    stream, parts = written.stream, written.parts
    return tables.StreamEntry(
        id=number,
        slot=stream.slot,
        fingerprint=stream.fingerprint,
        position=written.position,
        length=parts[-1].end,
        rows=sum(batch.num_rows for batch in stream.batches),
        chunks=len(stream.batches),
        crc=tables.joined_crc(parts),
        first_part=first_part,
        columns=len(union),
        omitted=omitted_columns(written.schema, union),
        event_times_ns=event_times_ns(stream.batches, slots.event_times.get(stream.slot)),
    )


_UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_LEAST, _MOST = -(2**63), 2**63 - 1


def event_times_ns(batches: Sequence[pa.RecordBatch], column: str | None) -> tuple[int, int] | None:
    """The earliest and latest time in the column; None without one.

    Times that nanoseconds in 64 bits cannot hold count as the nearest that they can.
    """
    schema = batches[0].schema
    if column not in schema.names:
        return None
    unit_ns = _nanoseconds_per_unit(schema.field(column).type)
    if unit_ns is None:
        return None
    ranges = [_range(batch.column(column)) for batch in batches]
    found = [times for times in ranges if times is not None]
    if not found:
        return None
    earliest, latest = min(low for low, _ in found), max(high for _, high in found)
    return _held(earliest * unit_ns), _held(latest * unit_ns)


def _nanoseconds_per_unit(type_: pa.DataType) -> int | None:
    if types.is_timestamp(type_):
        return _UNIT_NS[type_.unit]
    return 1 if types.is_int64(type_) else None


def _range(times: pa.Array) -> tuple[int, int] | None:
    ends = pc.min_max(times.cast(pa.int64()))
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return None if low is None else (low, high)


def _held(time_ns: int) -> int:
    return max(_LEAST, min(time_ns, _MOST))
