"""The hot snapshot: one Parquet file of the spans that the lake does not have yet.

Seals nothing, deletes nothing, and holds up nobody: it reads what a query reads. A span is either
in the snapshot or in the lake as it was at that moment, and in both only where it was sent twice.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.lake.schemas import TABLES
from penstock.storage.files import LocalFiles
from penstock.tiers.fresh_rows import fresh_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.lake.glance import ColdFile
    from penstock.lake.settings import LakeSettings

FOLDER: Final = "snapshots"
FILE: Final = "hot_snapshot.parquet"
TABLE: Final = "spans"
RECENT_S: Final = 3600.0
MOST_RECENT: Final = 100
_GROUP_ROWS: Final = 32 * 1024


def take_snapshot(data_dir: Path, lake: LakeSettings, *, partial: bool = False) -> dict[str, Any]:
    """Writes the file and says what is in it. One at a time: the caller sees to that.

    AnswerIncomplete where something cannot be read, unless `partial`; the old file stays then.
    The file is replaced by a rename when all of it is on disk; readers of the old one keep it.
    """
    folder, files = data_dir / FOLDER, LocalFiles()
    files.make_folder(folder)
    spool, scratch = folder / f"{FILE}.log.tmp", folder / f"{FILE}.tmp"
    try:
        fresh = fresh_rows(data_dir, lake, TABLE, spool)
        rows = _write(scratch, itertools.chain(fresh.warm(), fresh.hot(spool)))
        fresh.said.check(partial=partial)
        _sync(files, scratch)
        files.rename(scratch, folder / FILE)
        files.sync_folder(folder)  # so that the rename survives
    finally:
        for path in (spool, scratch):
            path.unlink(missing_ok=True)
    return {
        "snapshot_path": str(folder / FILE),
        "row_count": rows,
        "file_size_bytes": (folder / FILE).stat().st_size,
        "recent_cold_paths": recent_paths(fresh.cold_files),
        "warnings": fresh.said.warnings,
        "partial": bool(fresh.said.missing),
    }


def _write(path: Path, batches: Iterator[pa.RecordBatch]) -> int:
    """Gathers small batches, so that row groups are worth reading; how many rows."""
    rows, waiting, count = 0, list[pa.RecordBatch](), 0
    with pq.ParquetWriter(path, TABLES[TABLE], compression="zstd", compression_level=1) as writer:
        for batch in batches:
            waiting.append(batch)
            count += batch.num_rows
            if count >= _GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(waiting))
                rows, waiting, count = rows + count, [], 0
        writer.write_table(pa.Table.from_batches(waiting, TABLES[TABLE]))
    return rows + count


def _sync(files: LocalFiles, path: Path) -> None:
    file = files.open(path)
    try:
        file.sync()
    finally:
        file.close()


def recent_paths(cold: tuple[ColdFile, ...]) -> list[str]:
    """Files of the lake that are new, newest first: whoever keeps a list may not have them yet."""
    since = time.time() - RECENT_S
    dated = []
    for file in cold:
        with contextlib.suppress(OSError):  # replaced by compaction, or on object storage
            written = Path(file.path).stat().st_mtime
            if written >= since:
                dated.append((written, file.path))
    return [path for _, path in heapq.nlargest(MOST_RECENT, dated)]
