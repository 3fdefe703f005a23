"""The columns of a table by Penstock's own names, whatever other engines call them now.

Iceberg knows a column by its number. Penstock knows those that it writes by their names; so that
both hold, a table remembers which number each of them has:

    penstock.columns = {"time": 1, "date": 2, …}

A column that was renamed is the one it was. One that was dropped stays dropped: it is null in
queries and not written, until somebody adds a column of that name again. A column that others added
is carried along. Pure: no files, no Iceberg.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.lake.inside import first_names, is_unsure, with_own_names
from penstock.lake.schemas import RENAMED, USUAL
from penstock.lake.shown import can_be_asked_for, shown_names
from penstock.model.errors import NotHonoured

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Fields = Sequence[Mapping[str, Any]]
    """Columns as Iceberg's JSON has them: `id`, `name`, `type`, `required`."""

PROPERTY: Final = "penstock.columns"
NUMBER: Final = b"PARQUET:field_id"
"""What a field's number is called in Arrow's metadata."""
_FORMER: Final = {new: old for old, new in RENAMED.items()}
_TYPES: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "string": pa.string(),
    "uuid": pa.binary(16),
    "binary": pa.binary(),
}


def recorded(properties: Mapping[str, str]) -> dict[str, int]:
    """The numbers that the table remembers; none where it is older than that."""
    try:
        found = json.loads(properties.get(PROPERTY, "{}"))
        return {str(name): int(number) for name, number in found.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def recorded_as(numbers: Mapping[str, int]) -> dict[str, str]:
    """The property that `recorded` reads."""
    return {PROPERTY: json.dumps(dict(numbers), separators=(",", ":"))}


def own_numbers(
    names: Iterable[str], properties: Mapping[str, str], history: Sequence[Fields], current: Fields
) -> dict[str, int]:
    """The number of each of Penstock's columns that the table has, or has had.

    As the table remembers it; else that of the first column that had its name. A name that was
    dropped and is there again is the new column's.
    """
    known, now = recorded(properties), {field["name"]: field["id"] for field in current}
    first: dict[str, int] = {}
    for field in (field for fields in (*history, current) for field in fields):
        first.setdefault(field["name"], field["id"])
    there = set(now.values())
    found: dict[str, int] = {}
    for name in names:
        numbers = (source.get(each) for each in _called(name) for source in (known, first))
        number = next((each for each in numbers if each is not None), None)
        if number not in there and name in now:
            number = now[name]
        if number is not None:
            found[name] = number
    return found


def _called(name: str) -> Iterator[str]:
    yield name
    if name in _FORMER:
        yield _FORMER[name]


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of a table, as files of it are read. One object for each state of a table."""

    schema: pa.Schema
    """By Penstock's names, each with its number: its own columns, then those that others added."""
    also: Mapping[str, str]
    """Names that others gave to Penstock's columns, and Penstock's for them."""
    is_plain: bool
    """Whether every file has every column by the name that it has here, and with its type."""
    names: Mapping[str, tuple[str, ...]] | None
    """By column: all names that it may have in files. None: a name may be several columns', or
    none in SQL, or columns differ inside; then only a file itself says what is what."""
    unsure: frozenset[str]
    """Penstock's columns that have a field inside which may be one of Penstock's by another name:
    the schemas that would say so are forgotten."""
    document: str
    """What it was made of."""

    def __reduce__(self) -> tuple[Any, ...]:
        """By that, also in another process."""
        return columns_of, (self.document,)

    def fields(self, names: Iterable[str]) -> pa.Schema:
        """Those of the columns that the table has."""
        return pa.schema([field for field in self.schema if field.name in set(names)])

    def called(self, stored: str) -> str | None:
        """The column that files have by that name; None where that is not certain."""
        if self.names is None:
            return None
        return next((name for name, each in self.names.items() if stored in each), None)


@lru_cache(maxsize=64)
def columns_of(document: str) -> Columns:
    """Of what `columns_document` has put together; the same object for the same text."""
    known = json.loads(document)
    own: dict[str, int] = known["own"]
    current: list[dict[str, Any]] = known["current"]
    shown = shown_names(current, own)
    taken = {name.lower() for name in (*own, *shown.values())}
    also = {
        field["name"]: shown[field["id"]]
        for field in current
        if field["id"] in own.values()
        and field["name"].lower() not in taken
        and can_be_asked_for([field["name"]])
    }
    fields = (_arrow_field({**field, "name": shown[field["id"]]}) for field in current)
    names = _names(known["history"], shown) if known["whole"] else None
    is_plain = (
        names is not None
        and not known["widened"]
        and all(each == (name,) for name, each in names.items())
    )
    schema = pa.schema([field for field in fields if field is not None])
    frozen = None if names is None else MappingProxyType(names)
    unsure = frozenset(known["unsure"])
    return Columns(schema, MappingProxyType(also), is_plain, frozen, unsure, document)


def columns_document(
    names: Iterable[str],
    properties: Mapping[str, str],
    schemas: Sequence[Mapping[str, Any]],
    current_id: int,
) -> str:
    """All that decides how files of a table are read, as a text; of Iceberg's metadata."""
    ordered = sorted(schemas, key=lambda schema: int(schema["schema-id"]))
    current = next(s["fields"] for s in ordered if s["schema-id"] == current_id)
    history = [schema["fields"] for schema in ordered]
    own = own_numbers(names, properties, history, current)
    # A schema that is not remembered any more may have had other names.
    whole = [schema["schema-id"] for schema in ordered] == list(range(len(ordered)))
    remembered = whole
    pairs, widened = set(), False
    inside: dict[int, str] = {}
    for field in (field for fields in (*history, current) for field in fields):
        pairs.add((field["id"], field["name"]))
        whole = whole and field.get("initial-default") is None
        shape = json.dumps(field["type"], sort_keys=True)
        if inside.setdefault(field["id"], shape) != shape:
            widened = True
            whole = whole and isinstance(field["type"], str)
    now = {field["id"] for field in current}
    pairs |= {(number, name) for name, number in own.items() if number in now}
    called = {number: name for name, number in own.items()}
    first = first_names(field for fields in (*history, current) for field in fields)
    current = [_named_inside(field, called.get(field["id"]), first) for field in current]
    document = {
        "own": own,
        "current": current,
        "unsure": [] if remembered else _unsure(current, called),
        "history": sorted(pairs),
        "whole": whole,
        "widened": widened,
    }
    return json.dumps(document, sort_keys=True)


def _unsure(current: Fields, called: Mapping[int, str]) -> list[str]:
    """Penstock's columns of which it is not known what is what inside."""
    ours = ((field, USUAL.get(called.get(field["id"], ""))) for field in current)
    return [
        own.name for field, own in ours if own is not None and is_unsure(field["type"], own.type)
    ]


def _named_inside(
    field: Mapping[str, Any], own: str | None, first: Mapping[int, str]
) -> Mapping[str, Any]:
    """A column, if it is Penstock's by its names inside."""
    if own is None or own not in USUAL:
        return field
    return {**field, "type": with_own_names(field["type"], USUAL[own].type, first)}


def _names(
    pairs: Iterable[tuple[int, str]], shown: Mapping[int, str]
) -> dict[str, tuple[str, ...]] | None:
    """By column, the names that it had, its own first; None where two had the same in SQL."""
    pairs = list(pairs)
    if not can_be_asked_for(name for _, name in pairs):
        return None
    owners: dict[str, int] = {}
    found: dict[str, tuple[str, ...]] = dict.fromkeys(shown.values(), ())
    for number, name in pairs:
        if owners.setdefault(name, number) != number:
            return None
        if number in shown:
            found[shown[number]] += (name,)
    return {own: tuple(sorted(each, key=own.__ne__)) for own, each in found.items()}


def _arrow_field(field: Mapping[str, Any]) -> pa.Field | None:
    """None of a type that Arrow, or nobody here, has."""
    type_ = _arrow_type(field["type"])
    if type_ is None:
        return None
    return pa.field(field["name"], type_, metadata={NUMBER: str(field["id"]).encode()})


def _arrow_type(described: Any) -> pa.DataType | None:
    if isinstance(described, str):
        return _primitive(described)
    if described["type"] == "struct":
        inner = [_arrow_field(field) for field in described["fields"]]
        return None if any(each is None for each in inner) else pa.struct(inner)
    if described["type"] == "list":
        element = _part(described, "element")
        return None if element is None else pa.list_(element)
    key, value = _part(described, "key"), _part(described, "value")
    return None if key is None or value is None else pa.map_(key.with_nullable(False), value)


def _part(described: Mapping[str, Any], name: str) -> pa.Field | None:
    field = {"id": described[f"{name}-id"], "name": name, "type": described[name]}
    return _arrow_field(field)


def _primitive(described: str) -> pa.DataType | None:
    if described.startswith("fixed["):
        return pa.binary(int(described[6:-1]))
    if described.startswith("decimal("):
        precision, scale = described[8:-1].split(",")
        return pa.decimal128(int(precision), int(scale))
    return _TYPES.get(described)


def number_of(field: pa.Field) -> int | None:
    """Of a column of a file or of a table; None where it has none."""
    found = (field.metadata or {}).get(NUMBER)
    return None if found is None else int(found)


def dropped_columns(columns: Columns) -> frozenset[str]:
    """Penstock's columns that the table had, and has no more."""
    own: dict[str, int] = json.loads(columns.document)["own"]
    return frozenset(own) - set(columns.schema.names)


def check_known(columns: Columns, current: Fields, table: str) -> None:
    """NotHonoured where the table has a column that rows could not be carried along with."""
    there = {number_of(field) for field in columns.schema}
    for field in current:
        if field["id"] not in there:
            raise NotHonoured(
                f"the table {table} has the column {field['name']} of the type {field['type']},"
                " which Penstock cannot write"
            )
