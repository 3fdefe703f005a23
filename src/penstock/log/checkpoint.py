"""`log.ckpt`: what opening the log would otherwise have to read from each file. Never needed.

    {"penstock": "log checkpoint", "version": 1, "log_id": …, "start_offset": …, "next_offset": …,
     "written_at": …, "files": [{"first_offset", "end_offset", "bytes", "sealed_at_ns", "lost"}, …],
     "crc32": "…"}

The CRC covers the document without it, as JSON with sorted keys and no spaces.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from isal.isal_zlib import crc32

from penstock.log.inventory import LogFile, file_name
from penstock.model.errors import Damaged, UnsupportedVersion

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NAME: Final = "log.ckpt"
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
    """The text of the file."""
    written_at = datetime.fromtimestamp(written_at_ns // 10**9, UTC)
    document: dict[str, Any] = {
        "penstock": "log checkpoint",
        "version": VERSION,
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
    document["crc32"] = _checksum(document)
    return (json.dumps(document, indent=1) + "\n").encode()


def decode_checkpoint(data: bytes, folder: Path) -> Checkpoint:
    """The checkpoint; Damaged where it is anything but what was written."""
    try:
        document = json.loads(data)
        found = document.pop("crc32")
        version = document["version"]
        if found != _checksum(document):
            raise Damaged("the checkpoint's checksum does not match")
        if version != VERSION:
            raise UnsupportedVersion(f"checkpoint version {version}, this Penstock reads {VERSION}")
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
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Damaged("the checkpoint is not readable") from None


def _checksum(document: dict[str, Any]) -> str:
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return f"{crc32(canonical.encode()):08x}"
