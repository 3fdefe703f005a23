"""What cannot be read is named, and everything else is found."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.lake import glance as glancing
from penstock.lake import metadata
from penstock.model.errors import AnswerIncomplete, InvalidArgument
from penstock.query import engine
from penstock.storage import DataDirectory
from penstock.tiers.cut import Tier
from tests.cli.running import run
from tests.pipeline.flush.helpers import lake_files
from tests.pipeline.helpers import TRACES, Data, spans
from tests.query.helpers import answer, cold, hot, named, names, warm

NAMES = "SELECT name FROM spans ORDER BY name"


def found(data: Data, sql: str = NAMES, **options: Any) -> tuple[list[str], list[str]]:
    """Names of spans in a partial answer, and warnings. A whole one is given only without them."""
    asked = answer(data, sql, partial=True, **options)
    if asked.partial:
        with pytest.raises(AnswerIncomplete):
            answer(data, sql, **options)
    else:
        assert answer(data, sql, **options).rows == asked.rows
    return asked.rows["name"].to_pylist(), asked.warnings


def three_files(data: Data) -> list[Path]:
    """Of the lake, with the spans 1, 2 and 3."""
    for number in (1, 2, 3):
        cold(data, spans(number))
    return [Path(path) for path in lake_files(data, "spans")]


def number_in(path: Path) -> int:
    """Of the span in a file."""
    import pyarrow.parquet as pq

    return int(pq.read_table(path, partitioning=None)["name"][0].as_py().split()[1])


def overwrite(path: Path, content: bytes) -> None:
    """Files of the lake are not written to, so they may not be writable."""
    path.chmod(0o600)
    path.write_bytes(content)


def _no_end(content: bytes) -> bytes:
    return content[:-100]


def _no_footer(content: bytes) -> bytes:
    return content[:-600] + bytes(300) + content[-300:]


def _no_pages(content: bytes) -> bytes:
    return content[:4] + b"\xff" * 3000 + content[3004:]


def _no_magic(content: bytes) -> bytes:
    return content[:-4] + b"XXXX"


def _nothing(_: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("damage", [_no_end, _no_footer, _no_pages, _no_magic, _nothing])
def test_damaged_file_of_the_lake_is_named_and_the_rest_found(
    data: Data, damage: Callable[[bytes], bytes]
) -> None:
    """Whatever is wrong with it, and whenever that is noticed."""
    paths = three_files(data)
    lost = number_in(paths[1])
    overwrite(paths[1], damage(paths[1].read_bytes()))
    with hot(data, spans(4)):
        rows, warnings = found(data, "SELECT * FROM spans ORDER BY name")
    assert rows == named({1, 2, 3, 4} - {lost})
    assert [paths[1].name in warning for warning in warnings] == [True]


def test_several_damaged_files_are_all_named(data: Data) -> None:
    """One after the other."""
    paths = three_files(data)
    left = number_in(paths[0])
    for path in paths[1:]:
        overwrite(path, b"nothing that can be read")
    rows, warnings = found(data)
    assert rows == named([left])
    assert len(warnings) == 2


def test_file_that_is_gone_is_named(data: Data) -> None:
    """The table has it, and nobody knows where it is."""
    paths = three_files(data)
    lost = number_in(paths[2])
    paths[2].unlink()
    rows, warnings = found(data)
    assert rows == named({1, 2, 3} - {lost})
    assert [paths[2].name in warning for warning in warnings] == [True]


def test_damaged_file_of_another_namespace_is_no_way_to_learn_of_it(data: Data) -> None:
    """It is not read for a caller who may not see it."""
    paths = three_files(data)
    overwrite(paths[0], b"")
    assert found(data, namespaces={"other"}) == ([], [])


def test_mistake_in_a_statement_is_no_damage(data: Data) -> None:
    """An error that speaks of a file leaves it in."""
    paths = three_files(data)
    for text in (str(paths[0]), "nothing"):
        with pytest.raises(InvalidArgument):
            answer(data, f"FROM spans SELECT error('{text}')")
    assert found(data) == (named([1, 2, 3]), [])


def test_files_that_are_replaced_under_a_query_are_looked_for_again(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was listed a moment ago is deleted, and what took its place has the rows."""
    paths = three_files(data)
    elsewhere = paths[0].with_name("elsewhere")
    paths[0].rename(elsewhere)
    looks: list[int] = []
    original = engine.unreadable

    def came_back(error: Exception, files: Any) -> dict[str, str]:
        looks.append(1)
        problems = original(error, files)
        elsewhere.rename(paths[0])  # as the next look at the table would find it
        return problems

    monkeypatch.setattr(engine, "unreadable", came_back)
    assert found(data) == (named([1, 2, 3]), [])
    assert looks == [1]


def test_empty_data_directory_has_no_warnings(data: Data) -> None:
    """Nothing was sent, so nothing is missing."""
    assert found(data) == ([], [])


@pytest.mark.parametrize("tier", [Tier.WARM, Tier.HOT])
def test_tier_that_is_not_there_is_no_error(data: Data, tier: Tier) -> None:
    """No segments, or no log: another one has the rows too, or has them still."""
    cold(data, spans(1))
    warm(data, spans(2))
    folder = data.segment(0).parents[1]
    shutil.rmtree(folder / ("segments" if tier is Tier.WARM else "log"))
    assert found(data) == (named([1, 2]), [])


def test_lake_that_was_given_rows_and_is_gone_is_named(data: Data) -> None:
    """Its folder, or the catalog in it; what is elsewhere is found all the same."""
    cold(data, spans(1))
    warm(data, spans(2))
    (data.root / "lake" / "catalog.db").unlink()
    rows, warnings = found(data)
    assert "span 2" in rows
    assert [("catalog.db is gone" in each) for each in warnings] == [True]
    shutil.rmtree(data.root / "lake")
    rows, warnings = found(data)
    assert "span 2" in rows
    assert [("a lake was given segments" in each) for each in warnings] == [True]


def test_lake_that_was_given_rows_under_an_earlier_identity_is_named(data: Data) -> None:
    """A new identity has given it nothing yet, and rows that were deleted here are gone with it."""
    cold(data, spans(1))
    assert run("identity", "--new", "--data-dir", data.root).code == 0
    shutil.rmtree(data.root / "lake")
    _, warnings = found(data)
    assert [("a lake was given segments" in each) for each in warnings] == [True]


def test_table_that_the_catalog_has_lost_is_named(data: Data) -> None:
    """Its files are there, so it was not always so."""
    cold(data, spans(1))
    with contextlib.closing(sqlite3.connect(data.root / "lake" / "catalog.db")) as catalog:
        catalog.execute("DELETE FROM iceberg_tables WHERE table_name = 'spans'")
        catalog.commit()
    _, warnings = found(data)
    assert any("has no table spans" in each for each in warnings)


@pytest.mark.parametrize("content", [b"", b"no database at all, but as long as one" * 100])
def test_damaged_catalog_is_named(data: Data, content: bytes) -> None:
    """What is not in the lake is found all the same."""
    cold(data, spans(1))
    (data.root / "lake" / "catalog.db").write_bytes(content)
    with hot(data, spans(2)):
        rows, warnings = found(data)
    assert "span 2" in rows
    assert any("catalog.db" in warning for warning in warnings)


def test_locked_catalog_is_named(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """After waiting for a while."""
    cold(data, spans(1))
    monkeypatch.setattr(metadata, "LOCK_WAIT_S", 0.05)
    catalog = sqlite3.connect(data.root / "lake" / "catalog.db")
    try:
        catalog.execute("BEGIN EXCLUSIVE")
        with hot(data, spans(2)):
            rows, warnings = found(data)
    finally:
        catalog.rollback()
        catalog.close()
    assert "span 2" in rows
    assert any("locked" in warning for warning in warnings)
    assert names(data) == named([1, 2])


@pytest.mark.parametrize("kind", ["*.metadata.json", "snap-*.avro", "*-m*.avro"])
@pytest.mark.parametrize("content", [b"", b"{nothing", None])
def test_damaged_metadata_is_named(data: Data, kind: str, content: bytes | None) -> None:
    """Of whichever kind; a file that is gone too."""
    cold(data, spans(1))
    for path in (data.root / "lake" / "spans" / "metadata").glob(kind):
        path.unlink() if content is None else path.write_bytes(content)
    glancing.forget()
    warm(data, spans(2))
    rows, warnings = found(data)
    assert "span 2" in rows
    assert any("the table spans" in warning for warning in warnings)


def test_what_is_behind_damage_in_the_log_is_found(data: Data) -> None:
    """The rest of the log, with a warning that says how much is missing."""
    with hot(data, *(spans(number) for number in range(1, 9))):
        [path] = (DataDirectory(data.root).partition(TRACES, 0).log_folder).glob("*.wal")
        content = path.read_bytes()
        at = content.index(b"span 3")
        path.write_bytes(content[:at] + b"spin" + content[at + 4 :])
        left, warnings = found(data)
    assert left == [f"span {number}" for number in (1, 2, 4, 5, 6, 7, 8)]
    assert any("1 messages cannot be read" in warning for warning in warnings)
