"""Tables with many files for little work: a file is written once and has many names."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from lake_routes import lake_at
from penstock.lake.commit import claim, commit
from penstock.lake.layout import batch_key, data_path, new_attempt
from penstock.lake.positions import read_positions
from penstock.lake.tables import Lake
from penstock.lake.target import Target
from penstock.lake.writer import write_rows
from penstock.model.positions import Reached, SourcePartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa
    from pyiceberg.table import Table

    from penstock.lake.files import WrittenFile

FILLING = SourcePartition("filling", "/filling/traces", 0)
FILES_A_COMMIT = 300


def written_apart(folder: Path, parts: Iterable[pa.Table]) -> list[WrittenFile]:
    """Data files of the spans, a file for each day of a part, that are in no table."""
    with Lake.open(lake_at(folder / "nowhere")) as lake:
        target = Target.of(lake.table("spans"))
    return [
        file for part, rows in enumerate(parts) for file in write_rows(rows, target, "apart", part)
    ]


def fill(table: Table, files: Sequence[WrittenFile], count: int) -> None:
    """Commits so many files: those, again and again, in few commits."""
    epoch = claim(table, [FILLING.source])
    for first in range(0, count, FILES_A_COMMIT):
        start = read_positions(table)
        end = {**start, FILLING: Reached(first + 1, first + 1)}
        key = batch_key(start, end, epoch)
        numbers = range(first, min(first + FILES_A_COMMIT, count))
        linked = [_linked(files[n % len(files)], table.location(), key, n) for n in numbers]
        commit(table, linked, start=start, end=end, epoch=epoch)


def _linked(file: WrittenFile, location: str, key: str, number: int) -> WrittenFile:
    path = data_path(location, file.day, key, number, new_attempt())
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    os.link(file.path, path)
    return dataclasses.replace(file, path=path)
