"""Rows whose own time is far from when they came: those are kept together, not day by day.

A file of its own for each day is worth it for days that many rows are of. Clocks that are wrong,
and clients that mean it, name thousands of days in one request. So a day gets a file when it is
within a window around the rows' arrival, and when it is one of the few nearest to it that their
namespace names beside the usual ones. Rows of all other days keep their times and share a file,
one for those before and one for those after, so that neither is read for a question about the
present.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.layout import FarOff, Side
from penstock.model.errors import InvalidSetting

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.lake.layout import Day

_EPOCH: Final = date(1970, 1, 1).toordinal()
_PAST: Final = np.iinfo(np.int32).min
_FUTURE: Final = np.iinfo(np.int32).max
"""Stand for days that have no file of their own: no time is so far away."""
_USUAL_DAYS: Final = 1
"""So far from their arrival most rows are, at midnight and a little late: they are not counted."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """When the rows of a batch came, and how far from that a day may be. Pickled to tasks."""

    first: date
    last: date
    """Days on which rows came."""
    window_days: int
    """Days that are further away have no files."""
    most_days: int
    """That have some, for the rows of a namespace that are written together, beside the usual."""

    def __post_init__(self) -> None:
        """Refuses what cannot be."""
        if self.last < self.first or self.window_days < 0 or self.most_days < 0:
            raise InvalidSetting(f"no rows come like {self}")

    def parted(self, rows: pa.Table, time: str = "time") -> pa.ChunkedArray:
        """For each row the number of the day whose file it goes to; null without a time.

        Rises as `day_of` does: rows that share a file in the past come first.
        """
        days = _numbers(rows[time])
        away = self._away(days)
        if (pc.max(away).as_py() or 0) <= min(_USUAL_DAYS, self.window_days):
            return days
        distance = away.fill_null(0).to_numpy()
        is_past = pc.less(days, _number(self.first)).fill_null(False)
        far = distance > self.window_days
        far |= self._too_many(distance, far, is_past.to_numpy(), rows)
        side = pc.if_else(is_past, _scalar(_PAST), _scalar(_FUTURE))
        return pc.if_else(pa.chunked_array([far]), side, days)

    def day_of(self, number: int | None) -> Day:
        """What a number of `parted` stands for."""
        if number == _PAST:
            return FarOff(self.last, Side.PAST)
        if number == _FUTURE:
            return FarOff(self.last, Side.FUTURE)
        return day_of_number(number)

    def counted(self, rows: pa.Table) -> tuple[tuple[str, int], ...]:
        """How many rows of each namespace have no file of their day."""
        parts = self.parted(rows)
        far = pc.or_(pc.equal(parts, _PAST), pc.equal(parts, _FUTURE)).fill_null(False)
        if not pc.any(far).as_py():
            return ()
        found = pc.value_counts(rows["namespace"].filter(far).cast(pa.string()))
        return tuple(sorted((each["values"] or "", each["counts"]) for each in found.to_pylist()))

    def _away(self, days: pa.ChunkedArray) -> pa.ChunkedArray:
        """In days; 0 for those on which rows came."""
        before = pc.subtract(_number(self.first), days)
        after = pc.subtract(days, _number(self.last))
        return pc.max_element_wise(before, after, _scalar(0), skip_nulls=False)

    def _too_many(
        self,
        distance: NDArray[np.int32],
        far: NDArray[np.bool_],
        is_past: NDArray[np.bool_],
        rows: pa.Table,
    ) -> NDArray[np.bool_]:
        """The rows of days beyond the nearest `most_days` that their namespace names."""
        found = np.zeros(len(distance), bool)
        at = np.flatnonzero((distance > _USUAL_DAYS) & ~far)
        if not len(at):
            return found
        # Namespace, distance and side in one number each: that is sorted in a tenth of the time.
        keys = (_codes(rows)[at] << 33) | (distance[at].astype(np.int64) << 1) | is_past[at]
        named, which = np.unique(keys, return_inverse=True)
        namespaces = named >> 33
        begins = np.searchsorted(namespaces, namespaces)  # where each one's days begin
        found[at] = (np.arange(len(named)) - begins >= self.most_days)[which]
        return found


def by_day(rows: pa.Table, time: str) -> pa.ChunkedArray:
    """As `Arrival.parted`, where every day has a file."""
    return _numbers(rows[time])


def day_of_number(number: int | None) -> date | None:
    """A day of `by_day`."""
    return None if number is None else date.fromordinal(_EPOCH + number)


def _numbers(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return times.cast(pa.date32()).cast(pa.int32())


def _number(day: date) -> pa.Scalar:
    return _scalar(day.toordinal() - _EPOCH)


def _scalar(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.int32())


def _codes(rows: pa.Table) -> NDArray[np.int64]:
    """A number for the namespace of each row."""
    encoded = rows["namespace"].combine_chunks()
    if not pa.types.is_dictionary(encoded.type):
        encoded = encoded.dictionary_encode()
    found: NDArray[np.int64] = encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy()
    return found + 1
