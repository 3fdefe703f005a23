"""Which files a day is computed from, and whether they are still the same."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from penstock.lake.files import LiveFile
from penstock.pipeline.jobs.basis import Basis, day_of, final_before, name_of
from penstock.pipeline.jobs.days import DAY_US, DatedFile, DayFiles, microseconds
from tests.lake.helpers import DAY, NEXT_DAY, Flush, spans
from tests.pipeline.jobs.helpers import filled, nanos, span

if TYPE_CHECKING:
    from penstock.lake.tables import Lake

DAY_BEFORE = DAY - dt.timedelta(days=1)
HOUR_US = 3_600_000_000
LATE = 23 * HOUR_US + 1


def file(path: str, day: dt.date | None, first_us: int = 0, last_us: int = 0) -> DatedFile:
    """One with rows between those times of its day."""
    begin = microseconds(day) if day else 0
    return DatedFile(LiveFile(path, 1, 1, day, 1), begin + first_us, begin + last_us)


def names(files: Any) -> list[str]:
    """Of files."""
    return [each.path for each in files]


def test_window_has_the_neighbours_that_reach_into_the_margin() -> None:
    """By the times of their rows, not by their days alone."""
    files = DayFiles(
        [
            file("own", DAY),
            file("early before", DAY_BEFORE, 0, LATE - 2),
            file("late before", DAY_BEFORE, 0, LATE),
            file("early after", NEXT_DAY, HOUR_US - 1, LATE),
            file("late after", NEXT_DAY, HOUR_US, LATE),
            file("without a time", None),
        ]
    )
    window = files.window(DAY, HOUR_US)
    assert names(window.before) == ["late before"]
    assert names(window.after) == ["early after"]
    assert names(window.files) == ["late before", "own", "early after"]
    assert window.end_us - window.begin_us == DAY_US
    assert files.days() == [DAY_BEFORE, DAY, NEXT_DAY]


def test_times_of_files_come_from_the_manifests(lake: Lake) -> None:
    """No data file is opened for them."""
    table = filled(lake, "spans", [span("a", "1", at_ns=nanos(DAY, 3))], [])
    Flush(table).flush(spans([1], None))
    files = DayFiles.of(table)
    assert files.window(NEXT_DAY, 20 * HOUR_US).before == ()
    assert len(files.window(NEXT_DAY, 21 * HOUR_US).before) == 1
    assert len(files.window(DAY_BEFORE, 4 * HOUR_US).after) == 1
    assert files.window(DAY_BEFORE, 3 * HOUR_US).after == ()


def test_basis_is_current_while_the_files_are_the_same() -> None:
    """In whichever order; one more, one fewer or another margin is another basis."""
    first, second = file("1", DAY), file("2", DAY)
    basis = Basis.of(DayFiles([first, second]).window(DAY, 0))
    assert basis.is_current(DayFiles([second, first]).window(DAY, 0))
    assert not basis.is_current(DayFiles([first]).window(DAY, 0))
    assert not basis.is_current(DayFiles([first, second, file("3", DAY)]).window(DAY, 0))
    assert not basis.is_current(DayFiles([first, second]).window(DAY, 1))


def test_neighbours_count_while_their_day_has_rows() -> None:
    """A day without any is expired, and what was computed from it stays."""
    own, before = file("own", DAY), file("before", DAY_BEFORE, 0, LATE)
    basis = Basis.of(DayFiles([own, before]).window(DAY, HOUR_US))
    assert basis.is_current(DayFiles([own]).window(DAY, HOUR_US))
    compacted = file("compacted", DAY_BEFORE, 0, LATE)
    assert not basis.is_current(DayFiles([own, compacted]).window(DAY, HOUR_US))
    after = file("after", NEXT_DAY)
    assert not basis.is_current(DayFiles([own, before, after]).window(DAY, HOUR_US))


def test_basis_is_read_as_it_was_written() -> None:
    """What is no basis is none."""
    basis = Basis("a", "b", "c")
    assert Basis.read({name_of(DAY): basis.encoded()}, DAY) == basis
    for text in ("", "{", "[]", "null", '{"own": "a"}'):
        assert Basis.read({name_of(DAY): text}, DAY) is None
    assert Basis.read({}, DAY) is None


def test_days_are_told_from_other_properties() -> None:
    """By their names."""
    assert day_of(name_of(DAY)) == DAY
    assert day_of("penstock.rollup.soon") is None
    assert day_of("owner") is None
    assert final_before({}) == final_before({"penstock.rollup-final-before": "?"}) == dt.date.min
