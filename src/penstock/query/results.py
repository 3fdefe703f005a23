"""Rows as people and programs want them."""

from __future__ import annotations

import base64
import datetime
import decimal
import io
import json
import math
from typing import IO, TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.model.printable import printable, printable_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_CELL_CHARACTERS: Final = 60


def write_json(rows: pa.Table, out: IO[bytes]) -> None:
    """One array of objects, one a line; of what is not printable a terminal gets escapes."""
    lines = (json.dumps(_plain_row(row), ensure_ascii=False) for row in rows.to_pylist())
    out.write(b"[")
    for number, line in enumerate(lines):
        out.write(b",\n " if number else b"\n ")
        out.write(printable_json(line).encode())
    out.write(b"\n]\n" if rows.num_rows else b"]\n")


def write_csv(rows: pa.Table, out: IO[bytes]) -> None:
    """With a line of names; what is nested stands as JSON."""
    import csv

    text = io.TextIOWrapper(out, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text)
    writer.writerow(rows.column_names)
    for row in rows.to_pylist():
        writer.writerow([_csv_cell(plain(value)) for value in row.values()])
    text.detach()


def write_arrow(rows: pa.Table, out: IO[bytes]) -> None:
    """A stream of Arrow IPC."""
    with pa.ipc.new_stream(out, rows.schema) as writer:
        writer.write_table(rows)


def write_parquet(rows: pa.Table, out: IO[bytes]) -> None:
    """One file."""
    import pyarrow.parquet as pq

    pq.write_table(rows, pa.PythonFile(out, mode="w"), compression="zstd")


FORMATS: Final[Mapping[str, Callable[[pa.Table, IO[bytes]], None]]] = {
    "json": write_json,
    "csv": write_csv,
    "arrow": write_arrow,
    "parquet": write_parquet,
}
"""Those for programs; the table on a terminal is the command's own."""


def cells(rows: pa.Table) -> list[list[str]]:
    """For a table on a terminal; long values are cut."""
    return [[_cell(plain(value)) for value in row.values()] for row in rows.to_pylist()]


def plain(value: Any) -> Any:
    """A value as JSON has it: times in ISO 8601, bytes in base64, maps as objects."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case datetime.timedelta():
            return value.total_seconds()
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(name): plain(each) for name, each in value.items()}
        case [*items] if items and all(
            isinstance(item, tuple) and len(item) == 2 for item in items
        ):
            return {str(plain(name)): plain(each) for name, each in items}
        case [*items]:
            return [plain(item) for item in items]
        case decimal.Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case _:
            return str(value)


def _plain_row(row: dict[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in row.items()}


def _csv_cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value


def _cell(value: Any) -> str:
    text = "" if value is None else printable(str(_csv_cell(value)))
    return text if len(text) <= _CELL_CHARACTERS else text[: _CELL_CHARACTERS - 1] + "…"
