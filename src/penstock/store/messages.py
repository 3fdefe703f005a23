"""A bundle as a message of the log, and back.

    message := bytes that do not begin with 0                     what a client sent, as it is
             | 0 "R" bytes                                        the same, if it does begin with 0
             | 0 "B" version:u8 slots:u8 reserved:u32 items:i64 { entry } { padding stream }
    entry   := slot:u8 reserved[3] length:u32                     of each stream
    stream  := an Arrow IPC stream with one batch, at a multiple of 64 bytes from its start

A valid protobuf message never begins with 0 (field number 0), so what OTLP clients send is kept
byte for byte.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import pyarrow as pa

from penstock.model.bundle import Bundle
from penstock.model.errors import Damaged, InvalidBundle, PenstockError, UnsupportedVersion
from penstock.segment.dictionaries import holds_dictionary

if TYPE_CHECKING:
    from penstock.log.group_commit import Buffer

Piece: TypeAlias = bytes | memoryview
VERSION: Final = 1
_MARK: Final = 0
_RAW: Final = b"\0R"
_BUNDLE: Final = b"\0B"
_HEAD = struct.Struct("<2sBBIq")
_ENTRY = struct.Struct("<B3xI")
_MESSAGE = struct.Struct("<iI")  # of Arrow IPC: a continuation mark and the metadata's length
_ALIGNMENT: Final = 64


def encode_raw(data: Buffer) -> bytes:
    """The message of what a client sent."""
    data = bytes(data)
    return _RAW + data if data[:1] == b"\0" else data


def encode_bundle(bundle: Bundle) -> bytes:
    """The message of a bundle; InvalidBundle where its arrays are not valid Arrow."""
    try:
        for batch in bundle.slots.values():
            batch.validate(full=True)  # or it would stop the seal, after its acknowledgement
        streams = [_encode_batch(batch) for batch in bundle.slots.values()]
    except pa.ArrowException as error:
        raise InvalidBundle(f"not valid Arrow: {error}") from error
    lengths = [sum(map(len, stream)) for stream in streams]
    items = -1 if bundle.items is None else bundle.items
    pieces: list[Piece] = [_HEAD.pack(_BUNDLE, VERSION, len(streams), 0, items)]
    pieces += map(_ENTRY.pack, bundle, lengths)
    position = _HEAD.size + _ENTRY.size * len(streams)
    for stream, length in zip(streams, lengths, strict=True):
        padding = -position % _ALIGNMENT
        pieces += [bytes(padding), *stream]
        position += padding + length
    return b"".join(pieces)


def decode_raw(message: bytes) -> bytes | None:
    """What a client sent; None for a message that is a bundle."""
    if message[:1] != b"\0":
        return message
    return message[len(_RAW) :] if message[:2] == _RAW else None


def decode_bundle(message: bytes | memoryview) -> Bundle:
    """The bundle in a message whose CRC was verified, without copying; Damaged otherwise."""
    try:
        return _decode_bundle(message)
    except PenstockError:
        raise
    except (struct.error, ValueError, OSError, EOFError, StopIteration, pa.ArrowException) as error:
        raise Damaged(f"not a bundle: {error}") from error


def _decode_bundle(message: bytes | memoryview) -> Bundle:
    mark, version, count, _, items = _HEAD.unpack_from(message)
    if mark != _BUNDLE:
        raise Damaged("not a bundle: it begins with another mark")
    if version != VERSION:
        raise UnsupportedVersion(f"bundle version {version}, this Penstock reads {VERSION}")
    buffer = pa.py_buffer(message)
    position = _HEAD.size + _ENTRY.size * count
    slots = {}
    for number in range(count):
        slot, length = _ENTRY.unpack_from(message, _HEAD.size + _ENTRY.size * number)
        position += -position % _ALIGNMENT
        if position + length > len(message):
            raise Damaged("not a bundle: a stream goes beyond its end")
        slots[slot] = _decode_batch(message, buffer, position, length)
        position += length
    return Bundle(slots, items=None if items < 0 else items)


def _encode_batch(batch: pa.RecordBatch) -> list[Piece]:
    """A schema message and a batch message, which is a stream; with dictionaries a longer one."""
    schema = batch.schema.serialize().to_pybytes()
    if not _known_schema(schema).has_dictionary:
        return [schema, memoryview(batch.serialize())]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return [memoryview(sink.getvalue())]


def _decode_batch(
    message: bytes | memoryview, buffer: pa.Buffer, position: int, length: int
) -> pa.RecordBatch:
    """The batch of a stream. Most schemas were seen before, and need not be read again."""
    _, metadata_bytes = _MESSAGE.unpack_from(message, position)
    schema_end = position + _MESSAGE.size + metadata_bytes
    known = _known_schema(bytes(message[position:schema_end]))
    if not known.has_dictionary:
        rest = buffer.slice(schema_end, position + length - schema_end)
        return pa.ipc.read_record_batch(rest, known.schema)
    with pa.ipc.open_stream(buffer.slice(position, length)) as reader:
        return reader.read_next_batch()


class _Schema(NamedTuple):
    schema: pa.Schema
    has_dictionary: bool


@functools.lru_cache(4096)
def _known_schema(message: bytes) -> _Schema:
    schema = pa.ipc.read_schema(pa.py_buffer(message))
    return _Schema(schema, any(holds_dictionary(field.type) for field in schema))
