"""Questions over rows of far-off days."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.lake.schemas import SPANS
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
from penstock.query.engine import ask
from penstock.storage import DataDirectory
from penstock.tiers import doubles
from tests.lake.helpers import DAY, Flush, span, spans
from tests.lake.test_far_off import around, flushed

if TYPE_CHECKING:
    import pytest

DAYS = [DAY - dt.timedelta(days=100 * number) for number in range(1, 7)]


def test_a_file_of_many_days_is_compared_by_the_rows_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the one file that may have a span of it, and not with all that the table has."""
    DataDirectory(tmp_path).create()
    settings = LakeSettings.of(tmp_path)
    again = pa.Table.from_pylist([span(43, DAYS[3])], schema=SPANS)
    with Lake.open(settings) as lake:
        table = lake.table("spans")
        for number, day in enumerate(DAYS, 40):
            Flush(table).flush(spans([number], day))
        far = pa.concat_tables([around(range(-1000, -50), first=4000), again])
        flushed(table, far)
    compared: list[str] = []
    inner = doubles._has  # what it reads is what the test is about

    def has(file: Any, *others: Any) -> Any:
        compared.append(file.path)
        return inner(file, *others)

    monkeypatch.setattr(doubles, "_has", has)
    sql = "SELECT count(*), count(DISTINCT span_id) FROM spans"
    found = ask(tmp_path, settings, sql).rows.to_pylist()
    assert [[*row.values()] for row in found] == [[len(DAYS) + 950] * 2]
    assert [f"month={DAYS[3]:%m}/day={DAYS[3]:%d}/" in path for path in compared] == [True]
