"""The window of rows that were committed lately."""

from __future__ import annotations

import logging
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.lake.window import in_order
from penstock.model.positions import Positions, Reached, SourcePartition
from penstock.pipeline.flush import repeat_window, run_format
from penstock.pipeline.flush.repeat_window import RepeatWindow, forget_other_tables
from tests.lake.test_window import BATCHES, KEY, Keys, keys, numbered
from tests.pipeline.flush.test_run_format import random_keys
from tests.store.helpers import flip

if TYPE_CHECKING:
    import pytest

TRACES = SourcePartition("here", "/default/traces", 0)


def at(offset: int) -> Positions:
    """A table that has come so far."""
    return {TRACES: Reached(offset, offset)}


def opened(folder: Path, offset: int = 10**9, most: int = 10**6) -> RepeatWindow:
    """By a pipeline that starts when the table is there."""
    return RepeatWindow(folder / "t", at(offset), seconds=600.0, most=most)


def add(window: RepeatWindow, rows: Keys, offset: int, now_s: float = 0.0) -> None:
    """A batch that is committed."""
    window.forget(now_s)
    run = window.write([rows], at(offset), now_s)
    if run is not None:
        window.keep(run)


@settings(max_examples=25, deadline=None)
@given(BATCHES, st.lists(KEY, max_size=20))
def test_window_knows_exactly_what_it_was_given(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[tuple[int, int]]],
    asked: list[tuple[int, int]],
) -> None:
    """However its runs were merged, whichever half of a key others share; and opened again."""
    folder = tmp_path_factory.mktemp("window")
    window, given_ = opened(folder), set()
    for number, batch in enumerate(batches):
        add(window, keys(*batch), number)
        given_ |= {*batch}
    everything = [*asked, *given_]
    for each in (window, opened(folder)):
        assert each.knows(keys(*everything)).tolist() == [one in given_ for one in everything]


def test_filter_that_lets_everything_through_loses_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its errors are found out by comparing all bits."""
    monkeypatch.setattr(repeat_window, "words_for", lambda _: 1)
    window = opened(tmp_path)
    add(window, random_keys(1000), 1)
    others = random_keys(1000, seed=1)
    half = others.copy()
    half[:, 0] = random_keys(1000)[:, 0]  # equal in one half
    assert run_format.may_have(window._runs[0]._filter, run_format.Asked(in_order(others))).all()
    assert not window.knows(others).any()
    assert not window.knows(half).any()
    assert window.knows(random_keys(1000)).all()


def test_repeat_after_nine_minutes_of_many_rows_is_known(tmp_path: Path) -> None:
    """Every one, at every time, before and after a restart; those of twenty minutes ago are not."""
    window, size = opened(tmp_path), 2000
    for number in range(120):  # ten seconds each
        add(window, random_keys(size, seed=number), number, number * 10.0)
    for each in (window, opened(tmp_path)):
        for ago in range(1, 55):
            assert each.knows(random_keys(size, seed=120 - ago)).all()
        assert not each.knows(random_keys(size, seed=0)).any()
        assert len(each) <= 80 * size


def test_batch_that_waited_for_an_hour_is_compared_by_when_it_was_sealed(tmp_path: Path) -> None:
    """Its rows came nine minutes after the others, however late it is taken."""
    window = opened(tmp_path)
    add(window, numbered(0, 10), 1, now_s=1000.0)
    window.forget(1000.0 + 540.0)
    assert window.knows(numbered(0, 10)).all()
    window.forget(1000.0 + 600.0 + repeat_window.SEALING_S + 1)
    assert not window.knows(numbered(0, 10)).any()


def test_run_is_believed_only_if_the_table_has_come_so_far(tmp_path: Path) -> None:
    """One that was written and not committed, and those of a table that was restored, are not."""
    window = opened(tmp_path, 0)
    add(window, numbered(0, 10), 10)
    window.write([numbered(10, 20)], at(20), 0.0)  # killed before the commit
    assert opened(tmp_path, 10).knows(numbered(0, 20)).tolist() == [True] * 10 + [False] * 10
    assert not opened(tmp_path, 9).knows(numbered(0, 20)).any()
    assert list((tmp_path / "t").iterdir()) == []


def test_run_whose_commit_succeeded_before_the_kill_is_believed(tmp_path: Path) -> None:
    """Nobody could say so any more; the table does."""
    opened(tmp_path, 0).write([numbered(0, 10)], at(10), 0.0)
    assert opened(tmp_path, 10).knows(numbered(0, 10)).all()


def test_merge_that_was_killed_costs_nothing(tmp_path: Path) -> None:
    """The merged run is there beside those that it was made of."""
    window = opened(tmp_path)
    add(window, numbered(0, 10), 1)
    kept = [(path, path.read_bytes()) for path in (tmp_path / "t").iterdir()]
    add(window, numbered(10, 20), 2)
    for path, data in kept:
        path.write_bytes(data)
    (tmp_path / "t" / "x.tmp").write_bytes(b"half")
    assert opened(tmp_path).knows(numbered(0, 20)).all()
    assert not [*(tmp_path / "t").glob("*.tmp")]


def test_damaged_run_is_forgotten_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is named; the worst that comes of it is a second copy."""
    window = opened(tmp_path)
    add(window, numbered(0, 10), 1)
    add(window, numbered(10, 13), 2)
    flip(next((tmp_path / "t").iterdir()), 20)
    with caplog.at_level(logging.WARNING):
        assert len(opened(tmp_path)) in (3, 10)
    assert "is forgotten" in caplog.text


def test_window_never_has_more_rows_than_it_may_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The newest stay; once it is said that the time is not reached."""
    window = opened(tmp_path, most=50)
    for number in range(30):
        added = numbered(number * 7, number * 7 + 7)
        with caplog.at_level(logging.WARNING):
            add(window, added, number)
        assert len(window) <= 50
        assert window.knows(added).all()
    add(window, numbered(1000, 1100), 100)
    assert len(window) == 50
    assert caplog.text.count("raise pipeline.repeat_rows") == 1


def test_memory_is_that_of_a_merge_and_not_of_the_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window of 3.6 MB in runs of 180 kB: what Python and numpy allocate stays far below."""
    monkeypatch.setattr(repeat_window, "MERGED_KEYS", 10_000)
    window = opened(tmp_path)
    tracemalloc.start()
    try:
        for number in range(40):
            add(window, random_keys(5000, seed=number), number)
        assert not window.knows(random_keys(5000, seed=99)).any()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(window) == 200_000
    assert sum(path.stat().st_size for path in (tmp_path / "t").iterdir()) > 3_600_000
    assert most < 1_800_000


def test_empty_batch_and_empty_question(tmp_path: Path) -> None:
    """Nothing is written, and nothing is known."""
    window = opened(tmp_path)
    add(window, keys(), 1)
    assert window.knows(keys()).tolist() == []
    assert window.knows(numbered(0, 1)).tolist() == [False]
    assert list((tmp_path / "t").iterdir()) == []


def test_windows_of_tables_that_are_gone_are_removed_after_a_day(tmp_path: Path) -> None:
    """Not those of another lake that is in use."""
    add(opened(tmp_path), numbered(0, 1), 1)
    now_s = (tmp_path / "t").stat().st_mtime
    forget_other_tables(tmp_path, ["other"], now_s + 3600)
    assert (tmp_path / "t").exists()
    forget_other_tables(tmp_path, ["t"], now_s + 100_000)
    assert (tmp_path / "t").exists()
    forget_other_tables(tmp_path, ["other"], now_s + 100_000)
    assert not (tmp_path / "t").exists()
