"""Which files of a table were compared with each other, kept beside the table for everybody.

Invariant: of any two files that a record names, and that can share a span, it is known which rows
of the later one the earlier one has. A file is known by all that is known of it, deletes included:
one that was changed or replaced is another file, and is compared anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from penstock.lake.seen import read_seen, write_seen

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.lake.glance import ColdFile, Glance
    from penstock.lake.settings import LakeSettings

KIND: Final = "doubles"
TABLE: Final = "spans"
MOST_ROWS: Final = 1_000_000
"""Of doubles, in all; files with more are compared by every process, until they are compacted."""
_NAME_BYTES: Final = 10


@dataclass(slots=True)
class Record:
    """What is known of the files of one table."""

    files: set[str] = field(default_factory=set)
    """By their names."""
    rows: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    """Of a file: the numbers of its rows that another one has, by that one."""

    @classmethod
    def read(cls, lake: LakeSettings, table: Glance) -> Record:
        """An empty one where none can be relied on."""
        found = read_seen(lake, TABLE, KIND, table.identity)
        try:
            return cls(set(found["files"]), found["rows"]) if found else cls()
        except (KeyError, TypeError):
            return cls()

    def write(self, lake: LakeSettings, table: Glance, present: Iterable[str]) -> None:
        """Of the files that the table has; nothing where somebody has written as much."""
        files = self.files.intersection(present)
        if files <= Record.read(lake, table).files:
            return
        rows, left = {}, MOST_ROWS
        for name in sorted(self.rows.keys() & files):
            kept = {other: each for other, each in self.rows[name].items() if other in files}
            left -= sum(map(len, kept.values()))
            if left < 0:
                files.discard(name)
            elif kept:
                rows[name] = kept
        found: dict[str, Any] = {"files": sorted(files), "rows": rows}
        write_seen(lake, TABLE, KIND, table.identity, found)

    def doubles(self, name: str, present: frozenset[str] | set[str]) -> list[int]:
        """The rows of a file that do not count beside the files that are present."""
        held = self.rows.get(name, {})
        return [row for other, rows in held.items() if other in present for row in rows]


def names_of(lake: LakeSettings, files: Sequence[ColdFile]) -> list[str]:
    """Of files, wherever the warehouse lies."""
    return [_name(repr(file).replace(lake.warehouse, "")) for file in files]


def _name(known: str) -> str:
    """All that is known of a file: what was deleted of it makes it another."""
    return blake2b(known.encode(), digest_size=_NAME_BYTES).hexdigest()
