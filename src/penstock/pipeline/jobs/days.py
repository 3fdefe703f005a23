"""The data files of a table by their days, and which of them reach into the days beside."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.conversions import from_bytes
from pyiceberg.types import TimestamptzType

from penstock.lake.files import data_entries, delete_index_of, live_file, own_columns
from penstock.model.errors import NotHonoured

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from penstock.lake.files import LiveFile

DAY_US: Final = 86_400_000_000
ONE_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class DatedFile:
    """A file, and the times of its first and last row, in microseconds since 1970."""

    file: LiveFile
    first_us: int
    last_us: int


@dataclass(frozen=True, slots=True)
class Window:
    """The files of a day, and those beside it that may have rows within a margin of it."""

    day: date
    begin_us: int
    """Of the day."""
    margin_us: int
    own: tuple[LiveFile, ...]
    before: tuple[LiveFile, ...]
    after: tuple[LiveFile, ...]
    has_day_before: bool
    """Whether the table has any rows of the day before; if not, they may be expired."""
    has_day_after: bool

    @property
    def files(self) -> tuple[LiveFile, ...]:
        """All of them."""
        return (*self.before, *self.own, *self.after)

    @property
    def end_us(self) -> int:
        """Of the day."""
        return self.begin_us + DAY_US


class DayFiles:
    """The files of a table at one time, by day.

    Rows without a time are in no window, nor are those of far-off days: each of their thousand
    days would be computed for a row or two of a clock that is wrong.
    """

    def __init__(self, files: Iterable[DatedFile]) -> None:
        self._days: dict[date, list[DatedFile]] = defaultdict(list)
        for each in files:
            if isinstance(each.file.day, date):
                self._days[each.file.day].append(each)

    @classmethod
    def of(cls, table: Table) -> DayFiles:
        """As the table was last loaded; reads all its manifests.

        NotHonoured where some of it is not parted by days.
        """
        number = own_columns(table, ["time"])["time"]
        deletes = delete_index_of(table)
        found = []
        for entry in data_entries(table):
            file = live_file(table, entry, deletes)
            if file is None:
                raise NotHonoured(
                    f"{entry.data_file.file_path} is of another partition spec of the table"
                    f" {table.name()[-1]}, which is rolled up by days"
                )
            if isinstance(file.day, date):
                found.append(_dated(file, file.day, entry.data_file, number))
        return cls(found)

    def days(self) -> list[date]:
        """Those that have files, in order."""
        return sorted(self._days)

    def window(self, day: date, margin_us: int) -> Window:
        """The files for that day with so much of the days before and after."""
        begin_us = microseconds(day)
        before, after = self._days.get(day - ONE_DAY, []), self._days.get(day + ONE_DAY, [])
        return Window(
            day,
            begin_us,
            margin_us,
            own=_files(self._days.get(day, [])),
            before=_files(f for f in before if f.last_us >= begin_us - margin_us),
            after=_files(f for f in after if f.first_us < begin_us + DAY_US + margin_us),
            has_day_before=bool(before),
            has_day_after=bool(after),
        )


def microseconds(day: date) -> int:
    """Since 1970, at its begin."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return int(midnight.timestamp()) * 1_000_000


def _files(dated: Iterable[DatedFile]) -> tuple[LiveFile, ...]:
    return tuple(sorted((each.file for each in dated), key=lambda file: file.path))


def _dated(file: LiveFile, day: date, described: DataFile, number: int) -> DatedFile:
    """By the manifest's bounds; the whole day where it has none."""
    begin_us = microseconds(day)
    first = _bound(described.lower_bounds, number)
    last = _bound(described.upper_bounds, number)
    end_us = begin_us + DAY_US - 1
    return DatedFile(file, begin_us if first is None else first, end_us if last is None else last)


def _bound(bounds: Mapping[int, bytes] | None, number: int) -> Any:
    data = (bounds or {}).get(number)
    return None if data is None else from_bytes(TimestamptzType(), data)
