"""A table over all tiers, divided into shares that others read side by side, as Spark does.

Whoever plans looks at the tiers once and decides which rows count; whoever reads a share needs
nothing but that. A file of the lake is a share, a sealed segment is one, and hot rows go along.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.lake.identity import of_messages, repeated
from penstock.lake.reader import deleted_rows
from penstock.tiers.cut import ALL, Tier
from penstock.tiers.doubles import DOUBLES
from penstock.tiers.findings import Findings
from penstock.tiers.repeats import compare
from penstock.tiers.table import Asked, table_tiers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from penstock.lake.glance import ColdFile
    from penstock.lake.hashing import Hashes
    from penstock.lake.settings import LakeSettings
    from penstock.tiers.pieces import Piece
    from penstock.tiers.segments import Segment


@dataclass(frozen=True, slots=True)
class Shares:
    """What a table consists of at one moment."""

    cold: tuple[ColdFile, ...]
    warm: tuple[Segment, ...]
    hot: tuple[pa.Table, ...]
    """Those that count."""
    unwanted: Mapping[str, NDArray[np.int64]]
    """By file or segment: the numbers of its rows that do not count."""
    counts: Mapping[str, int]
    """By segment: how many of its rows count."""
    repeats: Mapping[str, Hashes]
    """By segment: what the rows are, within their messages, that do not count."""


def share(
    data_dir: Path,
    lake: LakeSettings,
    table: str,
    *,
    tiers: Collection[Tier] = ALL,
    namespaces: frozenset[str] | None = None,
    partial: bool = False,
    warn: Callable[[str], None],
) -> Shares:
    """The shares of a table. Every row that was acknowledged before is in one of them, once.

    AnswerIncomplete where something cannot be read, unless `partial`: then it is warned of.
    """
    said = Findings()
    asked = Asked(table, tiers, namespaces, slim=lambda _: True)
    found = table_tiers(data_dir, lake, asked, said)
    said.check(partial=partial)
    for warning in said.warnings:
        warn(warning)
    files = found.cold.files
    warm, hot = (found.fresh.get(tier, []) for tier in (Tier.WARM, Tier.HOT))
    doubles = DOUBLES.rows(lake, found.cold, files) if table == "spans" else {}
    if table == "spans" and files:
        compare([piece for piece in (*warm, *hot) if piece.rows.num_rows], files)
    unwanted = {path: np.array(sorted(rows), np.int64) for path, rows in doubles.items()}
    for file in files:
        deleted = deleted_rows(file)
        if len(deleted):
            unwanted[file.path] = np.union1d(unwanted.get(file.path, deleted), deleted)
    masks = _unwanted([*warm, *hot])
    counts, repeats = {}, {}
    for segment, piece, mask in zip(found.segments, warm, masks, strict=False):
        counts[segment.path] = int((~mask).sum())
        if mask.any():
            unwanted[segment.path] = np.flatnonzero(mask)
            out = piece.rows.filter(pa.array(mask))
            repeats[segment.path] = of_messages(out, piece.keys[mask])
    left = [
        piece.rows.filter(pa.array(~mask))
        for piece, mask in zip(hot, masks[len(warm) :], strict=True)
    ]
    return Shares(
        files,
        tuple(found.segments),
        tuple(rows for rows in left if rows.num_rows),
        unwanted,
        counts,
        repeats,
    )


def _unwanted(pieces: list[Piece]) -> list[NDArray[np.bool_]]:
    """Which rows of each an older tier has, or an earlier piece."""
    held = [piece for piece in pieces if piece.rows.num_rows]
    if not held:
        return [np.zeros(0, bool) for _ in pieces]
    common = set.intersection(*(set(piece.rows.column_names) for piece in held))
    names = [name for name in held[0].rows.column_names if name in common]
    rows = pa.concat_tables([piece.rows.select(names) for piece in held])
    mask = repeated(held[0].table, rows, np.concatenate([piece.keys for piece in held]))
    mask |= np.concatenate([piece.in_lake for piece in held])
    ends = np.cumsum([piece.rows.num_rows for piece in pieces])[:-1]
    return np.split(mask, ends)
