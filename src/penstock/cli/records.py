"""The small files in which servers, pipelines and queries note things, for `inspect` and `fsck`.

    server.json, registrations.json,
    delivered.json, progress.json, archive.ckpt     documents with a checksum
    <warehouse>/<table>/seen/<kind>.json            what readers found out
    repeats.tbl, repeats-<n>.tbl                    requests that a receiver has stored
    pipeline/repeats/<table>/<…>.run                rows that the pipeline has committed
    budget                                          the size cap's ledger
    .lock, <any name>.lock                          who uses what stands beside it
    <any name>.tmp                                  a file that has not got its name yet
    pipeline/checkpoints/…, sockets/<worker>.sock,
    <database>-wal, -shm, -journal                  Spark's, the system's, and SQLite's

All but the last three say by themselves whether they are whole: describing one verifies it.
"""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.archive.uploader import CHECKPOINT_NAME as ARCHIVED
from penstock.cli.feeds import installed
from penstock.cli.inspect_store import describe_budget, time_text
from penstock.client.server_file import FILE as SERVER_FILE
from penstock.model.errors import Damaged, FormatError, LogLocked, PenstockError
from penstock.server.keeping.capping import LEDGER
from penstock.server.keeping.registrations import FILE as REGISTRATIONS_FILE
from penstock.storage import DataDirectory, LocalFiles
from penstock.storage.documents import read_document
from penstock.store.outside import EARLIER_FILE
from penstock.store.outside import FILE as DELIVERED_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.model.positions import Positions

_PROGRESS_FILE: Final = "pipeline/progress.json"
_OF_SERVER: Final = (SERVER_FILE, REGISTRATIONS_FILE)
_DOCUMENTS: Final = (*_OF_SERVER, DELIVERED_FILE, EARLIER_FILE, _PROGRESS_FILE)
_NAMES: Final = frozenset(Path(name).name for name in (*_DOCUMENTS, ARCHIVED))
_OF_SQLITE: Final = re.compile(r"(.+\.db)-(wal|shm|journal)")
_CHECKPOINTS: Final = "checkpoints"
_REQUESTS: Final = re.compile(r"repeats(-[0-9]+)?\.tbl")


def describe_record(path: Path) -> dict[str, Any] | None:
    """What such a file says; None for any other. FormatError: it is one, and it is damaged."""
    try:
        found = _describe(path, path.name.partition(".damaged")[0])
    except FormatError as error:
        raise type(error)(f"{path}: {error}") from None
    known = {"path": str(path), "kind": "", "bytes": path.stat().st_size}
    return None if found is None else {**known, **found}


def records_of(data: Path) -> Iterator[Path]:
    """Those of a data directory that can be verified."""
    yield from filter(Path.is_file, (data / name for name in (*_DOCUMENTS, LEDGER)))
    folders = [partition.folder for partition in DataDirectory(data).partitions()]
    yield from filter(Path.is_file, (folder / ARCHIVED for folder in folders))
    for folder in (data, *sorted({folder.parent for folder in folders})):  # 0.1 had them by topic
        yield from (path for path in sorted(folder.iterdir()) if _REQUESTS.fullmatch(path.name))
    yield from sorted(data.glob("pipeline/repeats/*/*.run"))
    yield from sorted(data.glob("lake/*/seen/*.json"))


def is_verified(path: Path) -> bool:
    """Whether such a file says by itself if it is whole."""
    is_in_folder = path.suffix == ".run" or _is_seen(path, path.name)
    return path.name in {*_NAMES, LEDGER} or is_in_folder or bool(_REQUESTS.fullmatch(path.name))


def set_aside(data: Path, records: Iterable[Path]) -> None:
    """Renames them to FILE.damaged: whoever relies on one does without it, and makes it anew.

    PenstockError where a server or a pipeline runs, which may be about to replace them.
    """
    with contextlib.ExitStack() as held:
        for folder in filter(Path.is_dir, (data, data / "pipeline")):
            try:
                held.callback(LocalFiles().lock(folder / ".lock").release)
            except LogLocked as error:
                raise PenstockError(
                    f"repairing needs servers and pipelines stopped: {error}"
                ) from None
        for path in records:
            # Nobody writes now, so this is the damaged one and not its successor.
            LocalFiles().rename(path, path.with_name(f"{path.name}.damaged"))
            LocalFiles().sync_folder(path.parent)


def _describe(path: Path, name: str) -> dict[str, Any] | None:
    if path.is_socket():
        return {"kind": "socket of a server's worker"}
    if _CHECKPOINTS in [each.name for each in path.absolute().parents]:
        return {"kind": "file of Spark's checkpoint, of no use after its run"}
    if (sqlite := _OF_SQLITE.fullmatch(name)) is not None:
        return {"kind": "SQLite's own file", "of": sqlite[1]}
    if name.endswith(".lock"):
        return _lock(path)
    if name.endswith(".tmp"):
        return {"kind": "unfinished file", "of": name.removesuffix(".tmp").lstrip(".")}
    if name.endswith(".run"):
        return _run(path)
    if _REQUESTS.fullmatch(name):
        return _requests(path)
    if _is_seen(path, name):
        return _seen(path)
    if name in _NAMES:
        kind, version, fields = read_document(path.read_bytes())
        return {"kind": kind, "format_version": version, "checksum": "good", **fields}
    return _budget(path, name)


def _is_seen(path: Path, name: str) -> bool:
    return path.parent.name == "seen" and name.endswith(".json")


def _budget(path: Path, name: str) -> dict[str, Any] | None:
    """By what it is: stores outside of a server have theirs under any name."""
    described = describe_budget(path)
    if described is None and name == LEDGER:
        raise Damaged("not a disk budget")
    return described


def _seen(path: Path) -> dict[str, Any]:
    from penstock.lake.seen import VERSION, decode_seen

    kind, table, found = decode_seen(path.read_bytes())
    counts = {key: len(value) for key, value in found.items()} if isinstance(found, dict) else {}
    known = {"kind": f"what readers found out: {kind}", "format_version": VERSION}
    return {**known, "checksum": "good", "table_uuid": table, **counts}


def _lock(path: Path) -> dict[str, Any]:
    """Not tried: whoever wants the lock at the same moment would be refused."""
    beside = path.with_suffix("") if path.name != ".lock" else path.parent
    described: dict[str, Any] = {"kind": "lock file", "locks": str(beside)}
    with contextlib.suppress(ValueError):
        described["last_process"] = int(path.read_text())
    return described


# --- what is sent again ------------------------------------------------------------------------


def _run(path: Path) -> dict[str, Any]:
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


def _requests(path: Path) -> dict[str, Any]:
    from penstock.server.receiving.repeats import VERSION, survey_table

    found = survey_table(path)
    described: dict[str, Any] = {"kind": "requests that are stored", "format_version": VERSION}
    described |= {"entries": found.entries, "requests": found.requests}
    if found.requests:
        described |= {"oldest": _time(found.oldest_ms), "newest": _time(found.newest_ms)}
    return described


def _time(ms: int) -> str:
    return time_text(ms * 10**6)
