"""The fields inside of Penstock's columns by its own names, whatever others call them now.

A field is known by its number, and Penstock's name of it is the first that it had. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Field = Mapping[str, Any]


def first_names(fields: Iterable[Field]) -> dict[int, str]:
    """Of all fields inside of these columns, which are in the order of their schemas."""
    found: dict[int, str] = {}
    for field in fields:
        _note(field["type"], found)
    return found


def _note(described: Any, found: dict[int, str]) -> None:
    if isinstance(described, str):
        return
    for field in described.get("fields", ()):
        found.setdefault(field["id"], field["name"])
        _note(field["type"], found)
    for part in ("element", "key", "value"):
        _note(described.get(part, ""), found)


def with_own_names(described: Any, ours: pa.DataType, first: Mapping[int, str]) -> Any:
    """A type as Iceberg's JSON has it, with Penstock's names where they were Penstock's first."""
    if isinstance(described, str):
        return described
    if described["type"] == "struct":
        if not pa.types.is_struct(ours):
            return described
        return {**described, "fields": _own_fields(described["fields"], ours, first)}
    if described["type"] == "list" and pa.types.is_list(ours):
        return {
            **described,
            "element": with_own_names(described["element"], ours.value_type, first),
        }
    if described["type"] == "map" and pa.types.is_map(ours):
        return {**described, "value": with_own_names(described["value"], ours.item_type, first)}
    return described


def is_unsure(described: Any, ours: pa.DataType) -> bool:
    """Whether one of our fields may be there by a name that is not known to be its."""
    if isinstance(described, str):
        return False
    if described["type"] == "struct" and pa.types.is_struct(ours):
        types = {field.name: field.type for field in ours}
        named = {field["name"]: field["type"] for field in described["fields"]}
        if types.keys() - named.keys() and named.keys() - types.keys():
            return True
        return any(is_unsure(named[name], types[name]) for name in types.keys() & named.keys())
    if described["type"] == "list" and pa.types.is_list(ours):
        return is_unsure(described["element"], ours.value_type)
    return False


def _own_fields(fields: Iterable[Field], ours: pa.StructType, first: Mapping[int, str]) -> Any:
    types = {field.name: field.type for field in ours}
    taken: set[str] = set()
    named = {}
    # A name that was given again is still that of the field which had it first.
    for field in sorted(fields, key=lambda field: int(field["id"])):
        began = first[field["id"]]
        name = began if began in types else field["name"]
        while name.lower() in taken:
            name = f"{name}_{field['id']}"
        taken.add(name.lower())
        inner = with_own_names(field["type"], types.get(name, pa.null()), first)
        named[field["id"]] = {**field, "name": name, "type": inner}
    return [named[field["id"]] for field in fields]
