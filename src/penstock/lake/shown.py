"""By which names the columns of a table can be asked for. Pure: no files, no Iceberg.

SQL does not tell `Name` from `name`, has no empty names, and `file_row_number` is what the engine
calls the number of a row. Others may name columns so; such a one is asked for by its name with its
number, as `Name_75`, and so is one that has the name of a column of Penstock's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ROW: Final = "file_row_number"
"""What DuckDB calls the number of a row in its file."""


def can_be_asked_for(names: Iterable[str]) -> bool:
    """Whether each is a name in SQL, and not the same as another there."""
    names = set(names)
    return len({name.lower() for name in names}) == len(names) and all(map(_is_name, names))


def _is_name(name: str) -> bool:
    return bool(name) and "\0" not in name and name.lower() != ROW


def shown_names(current: Sequence[Mapping[str, Any]], own: Mapping[str, int]) -> dict[int, str]:
    """By number, what each column is called: Penstock's as it calls them, all different."""
    by_number = {number: name for name, number in own.items()}
    taken = {name.lower() for name in own}
    shown = {}
    for field in current:
        number, name = field["id"], field["name"]
        if number in by_number:
            shown[number] = by_number[number]
            continue
        if name.lower() in taken or not _is_name(name):
            name = f"{name}_{number}".replace("\0", "_")
        while name.lower() in taken:
            name += "_"
        taken.add(name.lower())
        shown[number] = name
    return shown
