r"""What readers have found out about a table, kept beside it so that the next one need not.

    <warehouse>/<table>/seen/<kind>.json

    head := {"penstock": "seen <kind>", "version": 1, "table": <uuid>, "crc32": <of the body>} "\n"
    body := JSON

Nothing depends on it. What is missing, torn, damaged or of another table is found out again, and
whoever may not write there writes nothing. It becomes visible by a rename and is not synced: a file
that a power loss cut short is known by its checksum.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from isal.isal_zlib import crc32

from penstock.model.errors import Damaged, FormatError
from penstock.storage.files import LocalFiles, read_whole

if TYPE_CHECKING:
    from penstock.lake.settings import LakeSettings

FOLDER: Final = "seen"
VERSION: Final = 1


def seen_path(settings: LakeSettings, table: str, kind: str) -> Path | None:
    """Where it is kept; None where the warehouse is no folder."""
    if "://" in settings.warehouse:
        return None
    return Path(settings.warehouse) / table / FOLDER / f"{kind}.json"


def read_seen(settings: LakeSettings, table: str, kind: str, identity: str) -> Any:
    """What was found out of the table of that identity; None where there is nothing to rely on."""
    path = seen_path(settings, table, kind)
    try:
        data = b"" if path is None else read_whole(LocalFiles(), path)
        found_kind, found_identity, found = decode_seen(data)
    except (OSError, FormatError):
        return None
    return found if (found_kind, found_identity) == (kind, identity) else None


def decode_seen(data: bytes) -> tuple[str, str, Any]:
    """Of what kind it is, of which table, and what was found out; Damaged where it is not whole."""
    head, _, body = data.partition(b"\n")
    try:
        known = json.loads(head)
        kind, identity = known["penstock"].removeprefix("seen "), known["table"]
        if known == _head(kind, identity, body):
            return kind, identity, json.loads(body)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Damaged("not what readers found out about a table") from None
    raise Damaged("the checksum of what readers found out does not match")


def write_seen(settings: LakeSettings, table: str, kind: str, identity: str, found: Any) -> None:
    """Replaces it, or leaves it as it was."""
    path = seen_path(settings, table, kind)
    if path is None or not path.parents[1].is_dir():
        return
    body = json.dumps(found, separators=(",", ":")).encode()
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with contextlib.suppress(OSError):  # it may not be written to, or is full
        path.parent.mkdir(exist_ok=True)
        try:
            scratch.write_bytes(json.dumps(_head(kind, identity, body)).encode() + b"\n" + body)
            # Whoever reads sees all of the old one or all of the new one.
            scratch.replace(path)
        finally:
            scratch.unlink(missing_ok=True)


def _head(kind: str, identity: str, body: bytes) -> dict[str, Any]:
    checksum = f"{crc32(body):08x}"
    return {
        "penstock": f"seen {kind}",
        "version": VERSION,
        "table": identity,
        "crc32": checksum,
    }
