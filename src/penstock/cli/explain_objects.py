"""What `penstock inspect` says of the files of a queue and of an archive."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from isal.isal_zlib import crc32

from penstock.archive import format as archive_format
from penstock.archive.encoder import open_block
from penstock.cli.common import time_text, told
from penstock.cli.explain_records import explain_budget
from penstock.cli.tail import preview
from penstock.model.errors import Damaged, FormatError
from penstock.queue import format as queue_format
from penstock.queue.batch import batch_version, decode_batch
from penstock.queue.entry import decode_entries
from penstock.queue.fetch import MAX_BATCH_BYTES
from penstock.queue.keys import batch_id_of
from penstock.queue.ulid import ulid_ms, ulid_text
from penstock.storage.documents import decode_document

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader
    from pathlib import Path

    from penstock.queue.entry import Entry
    from penstock.queue.ulid import Ulid

_MAX_MANIFEST_BYTES: Final = 256 * 1024 * 1024
_HEAD_BYTES: Final = 64


def by_its_content(path: Path, shown: int) -> dict[str, Any] | None:
    """An object of a queue or of an archive, or a budget, under any name; None for another file.

    FormatError: it is one, and it is damaged.
    """
    if (shared := explain_budget(path)) is not None:
        return shared
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith(archive_format.MAGIC):
        return _archive_object(path, shown)
    if head.startswith(queue_format.CHUNK_MAGIC):
        return _chunk(path.read_bytes(), shown)
    if (batch_id := batch_id_of(_key(path))) is not None:
        return _batch(path, batch_id, shown)
    if head.lstrip().startswith(b"{"):
        return _document(path)
    return _manifest(path, shown)


# --- the archive -------------------------------------------------------------------------------


def _archive_object(path: Path, shown: int) -> dict[str, Any]:
    """Reads it block by block; every checksum is verified on the way."""
    blocks = messages = 0
    frames: list[dict[str, Any]] = []
    with path.open("rb") as file:
        data = file.read(archive_format.LEAST_HEADER_BYTES)
        data += file.read(archive_format.header_bytes(data) - len(data))
        checksum, header = crc32(data), archive_format.decode_header(data)
        for block in _blocks(file):
            head = archive_format.decode_block_head(block)
            stored = block[archive_format.BLOCK_BYTES :]
            found = open_block(head, stored, header.flags, header.seed)
            frames += _frames(found[: shown - len(frames)], head.first_offset)
            checksum = crc32(block, checksum)
            blocks, messages = blocks + 1, messages + len(found)
    return {
        "kind": "archive object",
        "format_version": header.version,
        **{name: value for name, value in told(header).items() if name != "flags"},
        "compression": "zstd" if header.flags & archive_format.ZSTD else None,
        "checksum": f"crc32:{checksum:08x}",
        "blocks": blocks,
        "messages": messages,
        "messages_lost": header.end_offset - header.start_offset - messages,
        "frames": frames,
    }


def _blocks(file: BufferedReader) -> Iterator[bytes]:
    while start := file.read(archive_format.BLOCK_BYTES):
        size = archive_format.decode_block_head(start).stored_bytes
        stored = file.read(size)
        if len(stored) < size:
            raise Damaged(f"it ends within a block, {size - len(stored)} bytes too early")
        yield start + stored


def _frames(messages: list[bytes], first: int, name: str = "offset") -> list[dict[str, Any]]:
    return [
        {name: number, "bytes": len(message), "preview": preview(message)}
        for number, message in enumerate(messages, first)
    ]


# --- the queue ---------------------------------------------------------------------------------


def _key(path: Path) -> str:
    """The end of the key; a copy that was set aside has its partition before that."""
    return ".".join(path.name.split(".")[-2:])


def _batch(path: Path, batch_id: Ulid, shown: int) -> dict[str, Any]:
    data = path.read_bytes()
    records = decode_batch(data, max_record_bytes=MAX_BATCH_BYTES, batch_id=batch_id)
    return {
        "kind": "queue batch",
        "format_version": batch_version(data),
        "batch_id": ulid_text(batch_id),
        "named_at": time_text(ulid_ms(batch_id) * 1_000_000),
        "records": len(records),
        "record_bytes": sum(map(len, records)),
        "frames": _frames(records[:shown], 0, "index"),
    }


def _chunk(data: bytes, shown: int) -> dict[str, Any]:
    chunk = queue_format.decode_chunk(data)
    head = chunk.head
    run = decode_entries(chunk.entries, head.entry_count, head.first_sequence, 2)
    return {
        "kind": "queue manifest chunk",
        "format_version": 2,
        "queue_id": head.queue_id.hex(),
        "chunk": head.chunk,
        "first_sequence": head.first_sequence,
        "end_sequence": head.end_sequence,
        "lowest_batch": ulid_text(head.lowest_id),
        "entries": _entries(run, shown),
    }


def _manifest(path: Path, shown: int) -> dict[str, Any] | None:
    """None where the file cannot be one: version 1 has no mark to know it by, but its footer."""
    if path.stat().st_size > _MAX_MANIFEST_BYTES:
        return None
    data = path.read_bytes()
    is_named_so = path.name == "manifest" or path.with_name(f"{path.name}.id").exists()
    try:
        manifest = queue_format.decode_manifest(data)
    except FormatError:
        if is_named_so or queue_format.MAGIC in data[-256:]:
            raise
        return None
    run = manifest.tail, manifest.tail_count, manifest.tail_first
    return {
        "kind": "queue manifest",
        "format_version": manifest.version,
        "queue_id": manifest.queue_id.hex() if manifest.version > 1 else None,
        "epoch": manifest.epoch,
        "first_sequence": manifest.first_sequence,
        "next_sequence": manifest.next_sequence,
        "waiting": manifest.waiting,
        "waiting_bytes": manifest.enqueued_bytes - manifest.dequeued_bytes,
        "first_chunk": manifest.first_chunk,
        "next_chunk": manifest.next_chunk,
        "floor": ulid_text(manifest.floor),
        "writers": [
            {"writer": writer.writer_id.hex(), "append": writer.append_no}
            for writer in manifest.writers
        ],
        "tail": manifest.tail_count,
        "entries": _entries(decode_entries(*run, manifest.version), shown),
    }


def _entries(run: Iterator[Entry], shown: int) -> list[dict[str, Any]]:
    """The first ones; the others are decoded too, so that damage in them is found."""
    found: list[dict[str, Any]] = []
    for entry in run:
        if len(found) < shown:
            extent = entry.extent
            found.append(
                {
                    "sequence": entry.sequence,
                    "location": entry.location,
                    "calls": len(entry.metadata),
                    "records": None if extent is None else extent.record_count,
                    "batch_bytes": None if extent is None else extent.batch_bytes,
                }
            )
    return found


# --- documents ---------------------------------------------------------------------------------

_CHECKED: Final = {
    "queue": ("queue identity", 1),
    "queue-owner": ("owner of a queue's batches", 1),
    archive_format.CHECKPOINT: (archive_format.CHECKPOINT, archive_format.CHECKPOINT_VERSION),
}
"""Kinds of documents with a checksum: what they are called, and their version."""


def _document(path: Path) -> dict[str, Any] | None:
    data = path.read_bytes()
    try:
        document = json.loads(data)
        kind = document.get("penstock")
    except (ValueError, AttributeError, RecursionError):
        return None
    if kind in _CHECKED:
        name, version = _CHECKED[kind]
        fields = decode_document(kind, version, data)
        return {"kind": name, "format_version": version, "checksum": "good", **fields}
    if kind == "archive":
        return {"kind": "archive identity", "id": document.get("id")}
    if "offset_index" not in document:
        return None
    descriptor = archive_format.decode_descriptor(data)
    index = len(descriptor.offset_index)
    return {"kind": "archive descriptor", **told(descriptor), "offset_index": index}
