"""Columns that other engines added or renamed, whatever they are called, in every tier."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import StringType

from penstock.lake.columns import NUMBER
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
from penstock.model.errors import NotHonoured, PenstockError
from tests.pipeline.helpers import Data, spans
from tests.query.helpers import answer, cold, hot, values, warm
from tests.query.test_promoted import promote

if TYPE_CHECKING:
    from pyiceberg.table import Table

HOSTILE = [
    '"',
    'x"; DROP VIEW spans; --',
    '"" AS name, 1 AS "',
    "it's",
    "';--",
    "a\nb",
    "été ☃",
    "a.b",
    "--",
    "/*",
    "{x}",
    "%s",
    "select",
    "c1",
    "filename",
]


@contextlib.contextmanager
def spans_table(data: Data) -> Iterator[Table]:
    """The table as another engine has it."""
    with Lake.open(LakeSettings.of(data.root)) as lake:
        yield lake.table("spans")


def add(data: Data, *columns: str) -> dict[str, int]:
    """Another engine adds columns of texts, and a file with the span 9 that has them all."""
    with spans_table(data) as table, table.update_schema() as update:
        for name in columns:
            update.add_column((name,), StringType())
    before = set(data.root.rglob("*.parquet"))
    cold(data, spans(9))
    [path] = set(data.root.rglob("*.parquet")) - before
    with spans_table(data) as table:
        numbers = {name: table.schema().find_field(name).field_id for name in columns}
    rows = pq.read_table(path)
    for name, number in numbers.items():
        field = pa.field(name, pa.string(), metadata={NUMBER: str(number)})
        rows = rows.append_column(field, pa.array([f"of {name}"]))
    pq.write_table(rows, path)
    return numbers


def quoted(name: str) -> str:
    """As somebody writes it who asks for it."""
    return '"' + name.replace('"', '""') + '"'


def test_whatever_a_column_is_called_it_is_a_name(data: Data) -> None:
    """Quotes, semicolons, comments, new lines: a name is never a part of a statement."""
    cold(data, spans(1))
    add(data, *HOSTILE)
    warm(data, spans(2))
    chosen = ", ".join(map(quoted, HOSTILE))
    with hot(data, spans(3)):
        sql = f"SELECT name, {chosen} FROM spans ORDER BY name"  # noqa: S608 - that is tried
        found = values(data, sql)
        assert found[-1] == ("span 9", *(f"of {name}" for name in HOSTILE))
        nothing = (None,) * len(HOSTILE)
        assert found[:-1] == [(f"span {number}", *nothing) for number in (1, 2, 3)]
        assert len(values(data, "SELECT * FROM otel_traces")) == 4


@pytest.mark.parametrize("name", ["file_row_number", "File_Row_Number", "Name", "ATTRIBUTES"])
def test_a_name_that_sql_has_already_is_asked_for_with_its_number(data: Data, name: str) -> None:
    """SQL does not tell it from another one; every question is answered beside it."""
    cold(data, spans(1))
    number = add(data, name)[name]
    warm(data, spans(2))
    sql = f'SELECT name, "{name}_{number}" FROM spans ORDER BY 1'  # noqa: S608 - its own names
    expected = [("span 1", None), ("span 2", None), ("span 9", f"of {name}")]
    assert values(data, sql) == expected
    assert len(answer(data, "SELECT * FROM spans").rows) == 3


def test_a_renamed_column_is_there_in_every_tier_by_both_names(data: Data) -> None:
    """Promoted ones too, whose values fresh rows have in their attributes alone."""
    cold(data, spans(1))
    promote(data, "number:int", "resource:service.name")
    cold(data, spans(2))
    with spans_table(data) as table, table.update_schema() as update:
        update.rename_column("attr_number", "Number")
        update.rename_column("resource_service_name", "Service")
        update.rename_column("status_message", "said")
        update.rename_column("attributes", "Tags")
        update.rename_column("name", "NAME")
    warm(data, spans(3))
    with hot(data, spans(4)):
        assert values(data, "SELECT number FROM spans ORDER BY 1") == [(2,), (3,), (4,), (None,)]
        for column in ("number", "attr_number"):
            sql = f"SELECT name FROM spans WHERE {column} >= 2 ORDER BY 1"  # noqa: S608 - its own names
            assert values(data, sql) == [("span 2",), ("span 3",), ("span 4",)]
        for column in ("service", "resource_service_name"):
            sql = f"SELECT count({column}) FROM spans"  # noqa: S608 - its own names
            assert values(data, sql) == [(3,)]
        for column in ("tags", "attributes"):
            sql = f"SELECT {column}['number'] FROM spans ORDER BY 1"  # noqa: S608 - its own names
            assert values(data, sql) == [("1",), ("2",), ("3",), ("4",)]


def test_a_field_that_was_renamed_inside_of_a_column_keeps_its_name_here(data: Data) -> None:
    """In structs, in lists of structs; in files from before and in the views, as in fresh rows."""
    cold(data, spans(1))
    with spans_table(data) as table, table.update_schema() as update:
        update.rename_column("resource.attributes", "attrs")
        update.rename_column("events.name", "what")
        update.rename_column("instrumentation_scope", "scope")
        update.rename_column("instrumentation_scope.name", "called")
    with spans_table(data) as table, table.update_schema() as update:
        update.add_column(("resource", "attributes"), StringType())
        update.add_column(("resource", "extra"), StringType())
    warm(data, spans(2))
    with hot(data, spans(3)):
        every = [("shop", "done")] * 3
        sql = "SELECT resource.attributes['service.name'], events[1].name FROM spans"
        assert values(data, sql) == every
        sql = "SELECT ResourceAttributes['service.name'], \"Events.Name\"[1] FROM otel_traces"
        assert values(data, sql) == every
        sql = "SELECT count(scope.name IS NULL), count(resource.extra) FROM spans"
        assert values(data, sql) == [(3, 0)]
        for field in ("resource.attrs", "events[1].what", "scope.called"):
            with pytest.raises(PenstockError, match=field.rpartition(".")[2]):
                values(data, f"SELECT {field} FROM spans")  # noqa: S608 - its own names


def test_fields_that_cannot_be_told_apart_are_not_null_but_named(data: Data) -> None:
    """Another engine renamed one and forgot the schemas from before: that question fails."""
    cold(data, spans(1))
    with spans_table(data) as table, table.update_schema() as update:
        update.rename_column("resource.attributes", "attrs")
    newest = max(data.root.rglob("*.metadata.json"), key=lambda path: path.name)
    metadata = json.loads(newest.read_bytes())
    metadata["schemas"] = metadata["schemas"][-1:]
    newest.write_text(json.dumps(metadata))
    assert values(data, "SELECT name FROM spans") == [("span 1",)]
    for sql in ("SELECT resource FROM spans", "SELECT ResourceAttributes FROM otel_traces"):
        with pytest.raises(NotHonoured, match="the column resource of the table spans"):
            values(data, sql)
