"""`log.ckpt`: what opening the log would otherwise have to read from each file. Never needed.

{"penstock": "log checkpoint", "version": 1, "log_id": …, "start_offset": …, "next_offset": …,
 "written_at": …, "files": [{"first_offset", "end_offset", "bytes", "sealed_at_ns", "lost"}, …],
 "crc32": "…"}
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from penstock.log.inventory import LogFile, file_name
from penstock.model.errors import Damaged
from penstock.storage.documents import decode_document, encode_document

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NAME: Final = "log.ckpt"
KIND: Final = "log checkpoint"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The log as it was at some moment; files found since are simply not in it."""

    log_id: uuid.UUID
    start_offset: int
    next_offset: int
    """Every offset below it was in a finished file, and so durable."""
    files: tuple[LogFile, ...]


def encode_checkpoint(
    log_id: uuid.UUID, next_offset: int, files: Sequence[LogFile], written_at_ns: int
) -> bytes:
    written_at = datetime.fromtimestamp(written_at_ns // 10**9, UTC)
    fields: dict[str, Any] = {
        "log_id": str(log_id),
        "start_offset": files[0].first_offset if files else next_offset,
        "next_offset": next_offset,
        "written_at": written_at.isoformat(),
        "files": [
            {
                "first_offset": file.first_offset,
                "end_offset": file.end_offset,
                "bytes": file.size,
                "sealed_at_ns": file.sealed_at_ns,
                "lost": [list(span) for span in file.lost],
            }
            for file in files
        ],
    }
    return encode_document(KIND, VERSION, fields)


def decode_checkpoint(data: bytes, folder: Path) -> Checkpoint:
    """The checkpoint; Damaged where it is anything but what was written."""
    document = decode_document(KIND, VERSION, data)
    try:
        files = tuple(
            LogFile(
                folder / file_name(entry["first_offset"]),
                entry["first_offset"],
                entry["end_offset"],
                entry["bytes"],
                entry["sealed_at_ns"],
                tuple((first, end) for first, end in entry["lost"]),
            )
            for entry in document["files"]
        )
        log_id = uuid.UUID(document["log_id"])
        return Checkpoint(log_id, document["start_offset"], document["next_offset"], files)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Damaged("the checkpoint is not readable") from None
