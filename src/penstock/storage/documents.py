"""Small JSON documents that say by themselves whether they are whole.

The CRC covers the document without it, as JSON with sorted keys and no spaces.
"""

from __future__ import annotations

import json
from typing import Any

from isal.isal_zlib import crc32

from penstock.model.errors import Damaged, UnsupportedVersion


def encode_document(kind: str, version: int, fields: dict[str, Any]) -> bytes:
    """The text of the file."""
    document = {"penstock": kind, "version": version, **fields}
    document["crc32"] = _checksum(document)
    return (json.dumps(document, indent=1) + "\n").encode()


def decode_document(kind: str, version: int, data: bytes) -> dict[str, Any]:
    """The fields; Damaged where the file is anything but what was written."""
    named, written, fields = read_document(data, kind)
    if named != kind:
        raise Damaged(f"the checksum of the {kind} does not match")
    if written != version:
        raise UnsupportedVersion(f"{kind} version {written}, this Penstock reads {version}")
    return fields


def read_document(data: bytes, kind: str = "document") -> tuple[str, int, dict[str, Any]]:
    """Of any kind: that, its version, and the fields. `kind` is what an error calls it."""
    try:
        document: dict[str, Any] = json.loads(data)
        found = document.pop("crc32")
        named, written = document.pop("penstock"), document.pop("version")
        whole = found == _checksum({"penstock": named, "version": written, **document})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Damaged(f"not a {kind}") from None
    if not whole:
        raise Damaged(f"the checksum of the {kind} does not match")
    return named, written, document


def _checksum(document: dict[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return f"{crc32(text.encode()):08x}"
