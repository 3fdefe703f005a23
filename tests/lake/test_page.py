"""docs/formats/lake.md says what is so."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path

from penstock.lake.columns import PROPERTY as COLUMNS
from penstock.lake.layout import batch_key, data_path, replacement_key
from penstock.lake.parquet import ROW_GROUP_ROWS
from penstock.lake.positions import (
    POSITION_PREFIX,
    VERSION_NAME,
    WRITER_EPOCH,
    encode_positions,
)
from penstock.lake.promoted import PROPERTY
from penstock.lake.properties import new_table_properties
from penstock.lake.schemas import SPANS
from penstock.model.positions import Reached, SourcePartition

PAGE = (Path(__file__).parents[2] / "docs" / "formats" / "lake.md").read_text()


def test_the_table_of_properties_is_the_code_s() -> None:
    """Every property with its value, but those that differ from table to table."""
    rows = re.findall(r"^\| `([a-z][^`]*)` \| (?:`([^`]+)`|[^|]+) \|", PAGE, re.MULTILINE)
    listed = {name: value for name, value in rows if "." in name or name == "format-version"}
    code = new_table_properties(SPANS.names, [], kept=20)
    bounds = "write.metadata.metrics.column."
    fixed = {name: value for name, value in code.items() if not name.startswith(bounds)}
    assert {name: value for name, value in listed.items() if name in fixed} == fixed
    assert set(listed) - set(fixed) == {
        f"{bounds}<name>",
        "schema.name-mapping.default",
        f"{WRITER_EPOCH}.<source>",
        PROPERTY,
        COLUMNS,
        VERSION_NAME,
        f"{POSITION_PREFIX}<source><topic>.<partition>",
    }


def test_the_example_is_what_the_code_writes() -> None:
    """Positions and the names made of them."""
    examples = re.findall(r"^```json\n(.+?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
    place = SourcePartition("b26c5b50-3f5a-4c0b-942d-90d16a4a41bc", "/default/traces", 0)
    start, end = ({place: Reached(**json.loads(each))} for each in examples)
    [name] = encode_positions(start)
    assert f"```text\n{name}\n```" in PAGE
    day = dt.date(2025, 11, 15)
    first = data_path("/lake/spans", day, batch_key(start, end, 7), 3, "5f0c21a97be4")
    second = data_path("/lake/spans", day, replacement_key([first]), 0, "c00e8d1f6a2b")
    assert f"```text\n{first}\n{second}\n```" in PAGE


def test_the_size_of_row_groups_is_the_code_s() -> None:
    """A number that people plan with."""
    assert f"row groups of\n{ROW_GROUP_ROWS} rows" in PAGE
