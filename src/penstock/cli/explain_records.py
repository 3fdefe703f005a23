"""What `penstock inspect` says of small files, in which servers, pipelines and readers take notes.

    server.json, registrations.json,
    delivered.json, progress.json, archive.ckpt     documents with a checksum
    <warehouse>/<table>/seen/<kind>.json            what readers found out
    repeats.tbl, repeats-<n>.tbl                    requests that a receiver has stored
    pipeline/repeats/<table>/<…>.run                rows that the pipeline has committed
    budget                                          the size cap's ledger
    .lock, <any name>.lock                          who uses what stands beside it
    <any name>.tmp                                  a file that has not got its name yet
    pipeline/reserve                                zeros, given up on a full disk
    pipeline/checkpoints/…, sockets/<worker>.sock,
    <database>-wal, -shm, -journal                  Spark's, the system's, and SQLite's

The first six say by themselves whether they are whole: explaining one verifies it, for `fsck`.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.common import installed, time_text, told
from penstock.model.errors import Damaged
from penstock.storage import LocalFiles
from penstock.storage.documents import read_document
from penstock.store.budget import read_claims
from penstock.store.outside import RESERVE

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.model.positions import Positions

_OF_SQLITE: Final = re.compile(r"(.+\.db)-(wal|shm|journal)")
_CHECKPOINTS: Final = "checkpoints"


def document(path: Path, _: int) -> dict[str, Any]:
    """One with a checksum: all that it says."""
    kind, version, fields = read_document(path.read_bytes())
    known = {"kind": kind, "format_version": version, "checksum": "good"}
    return known | {f"its_{name}" if name == "bytes" else name: fields[name] for name in fields}


def budget(path: Path, _: int) -> dict[str, Any]:
    """The size cap's ledger."""
    described = explain_budget(path)
    if described is None:
        raise Damaged("not a disk budget")
    return described


def explain_budget(path: Path) -> dict[str, Any] | None:
    """Who claims how much; None for a file that is no budget: stores have theirs under any name."""
    claims = read_claims(LocalFiles(), path)
    if claims is None:
        return None
    used, held = sum(c.used_bytes for c in claims), sum(c.held_bytes for c in claims)
    known = {"kind": "disk budget", "used_bytes": used, "held_bytes": held}
    return {**known, "claims": [told(claim) for claim in claims]}


def unread(path: Path, _: int) -> dict[str, Any]:
    """A file that is another's, or is not finished: only its name speaks."""
    name = path.name.partition(".damaged")[0]
    if path.is_socket():
        return {"kind": "socket of a server's worker"}
    if (sqlite := _OF_SQLITE.fullmatch(name)) is not None:
        return {"kind": "SQLite's own file", "of": sqlite[1]}
    if path.absolute().match(RESERVE):
        return {"kind": "reserve of the pipeline, for a disk that is full"}
    if path.absolute().parent.name == "locks":
        return {"kind": "lock of objects in a folder"}
    if _CHECKPOINTS in [each.name for each in path.absolute().parents]:
        return {"kind": "file of Spark's checkpoint, of no use after its run"}
    return {"kind": "unfinished file", "of": name.removesuffix(".tmp").lstrip(".")}


def seen(path: Path, _: int) -> dict[str, Any]:
    """Of what readers found out about a table, how much."""
    from penstock.lake.seen import VERSION, decode_seen

    kind, table, found = decode_seen(path.read_bytes())
    counts = {key: len(value) for key, value in found.items()} if isinstance(found, dict) else {}
    known = {"kind": f"what readers found out: {kind}", "format_version": VERSION}
    return {**known, "checksum": "good", "table_uuid": table, **counts}


def lock(path: Path, _: int) -> dict[str, Any]:
    """Not tried: whoever wants the lock at the same moment would be refused."""
    beside = path.with_suffix("") if path.name != ".lock" else path.parent
    described: dict[str, Any] = {"kind": "lock file", "locks": str(beside)}
    with contextlib.suppress(ValueError):
        described["last_process"] = int(path.read_text())
    return described


# --- what is sent again ------------------------------------------------------------------------


def run(path: Path, _: int) -> dict[str, Any]:
    """How many rows, when they were sealed, and where the table is that has them."""
    with installed("spark"):
        from penstock.lake.positions import decode_positions
        from penstock.pipeline.flush.run_format import KEY_BYTES, VERSION, decode_head

    head = decode_head(LocalFiles().map(path))
    try:
        positions = decode_positions(json.loads(head.note))
    except ValueError as error:
        raise Damaged(f"its note is not that of a run: {error}") from None
    return {
        "kind": "run of the repeat window",
        "format_version": VERSION,
        "checksum": "good",
        "rows": head.keys,
        "row_bytes": head.keys * KEY_BYTES,
        "filter_words": head.words,
        "sealed_from": _time(head.oldest_ms),
        "sealed_to": _time(head.newest_ms),
        "table_at": positions_text(positions),
    }


def positions_text(positions: Positions) -> list[str]:
    """How far a table has come, a line for each partition."""
    return [
        f"{place.topic} partition {place.partition} of {place.source or 'an unknown source'}: "
        f"segment {position.segment_seq}, offset {position.offset}"
        for place, position in positions.items()
    ]


def requests(path: Path, _: int) -> dict[str, Any]:
    """How many it remembers, and of which time."""
    from penstock.server.receiving.repeats import VERSION, survey_table

    found = survey_table(path)
    described: dict[str, Any] = {"kind": "requests that are stored", "format_version": VERSION}
    described |= {"entries": found.entries, "requests": found.requests}
    if found.requests:
        described |= {"oldest": _time(found.oldest_ms), "newest": _time(found.newest_ms)}
    return described


def _time(ms: int) -> str:
    return time_text(ms * 10**6)
