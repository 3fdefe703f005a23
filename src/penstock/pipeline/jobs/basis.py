"""What a day of a rollup was computed from, as properties of its table.

    penstock.rollup.2026-01-31       = {"own": …, "before": …, "after": …}   digests of file lists
    penstock.rollup-final-before     = 2026-01-01

They are changed together with the rows that they speak of, in one Iceberg commit. A day is
computed again when the files of `spans` are others than those.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import date
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from penstock.lake.transaction import commit_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyiceberg.table import Table
    from pyiceberg.table.update.snapshot import _SnapshotProducer

    from penstock.lake.files import LiveFile
    from penstock.lake.transaction import SnapshotTransaction
    from penstock.pipeline.jobs.days import Window

PREFIX: Final = "penstock.rollup."
FINAL_BEFORE: Final = "penstock.rollup-final-before"
_VERSION: Final = 1
"""Of what the rollups compute; another one has all days computed again."""
_DIGEST_BYTES: Final = 9


@dataclass(frozen=True, slots=True)
class Basis:
    """The files of a day, and of its margins before and after."""

    own: str
    before: str = ""
    after: str = ""

    @classmethod
    def of(cls, window: Window) -> Basis:
        """What would be read now."""
        salt = f"{_VERSION} {window.margin_us}"
        lists = (window.own, window.before, window.after)
        return cls(*(_digest(salt, files) for files in lists))

    @classmethod
    def read(cls, properties: Mapping[str, str], day: date) -> Basis | None:
        """What the day was computed from; None where it was not, or that is not understood."""
        try:
            document = json.loads(properties.get(name_of(day), ""))
            return cls(*(str(document[part]) for part in ("own", "before", "after")))
        except (ValueError, KeyError, TypeError):
            return None

    def encoded(self) -> str:
        """The property's value."""
        return json.dumps(asdict(self))

    def is_current(self, window: Window) -> bool:
        """Whether computing the day again would read the same files.

        Days beside it that have no rows any more are expired; what was computed from them stays.
        """
        now = Basis.of(window)
        return (
            self.own == now.own
            and (self.before == now.before or not window.has_day_before)
            and (self.after == now.after or not window.has_day_after)
        )


def name_of(day: date) -> str:
    """Of the day's property."""
    return f"{PREFIX}{day.isoformat()}"


def day_of(name: str) -> date | None:
    """The day that a property is of; None of another property."""
    try:
        return date.fromisoformat(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
    except ValueError:
        return None


def final_before(properties: Mapping[str, str]) -> date:
    """Days before this one stay as they are: their spans are expired, at least in part."""
    try:
        return date.fromisoformat(properties.get(FINAL_BEFORE, ""))
    except ValueError:
        return date.min


def mark_final(table: Table, before: date) -> None:
    """Has the days before that one stay as they are, and forgets what they were computed from."""

    def stage(transaction: SnapshotTransaction) -> _SnapshotProducer[Any]:
        days = {name: day_of(name) for name in table.properties}
        forgotten = [name for name, day in days.items() if day is not None and day < before]
        transaction.set_properties({FINAL_BEFORE: before.isoformat()})
        transaction.remove_properties(*forgotten)
        summary = {"penstock.operation": "final"}
        with transaction.update_snapshot(summary).fast_append() as append:
            return append

    table.refresh()
    commit_snapshot(table, stage)


def _digest(salt: str, files: Iterable[LiveFile]) -> str:
    text = "\n".join([salt, *sorted(_text(file) for file in files)])
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _text(file: LiveFile) -> str:
    """A file with what was deleted of it: with other deletes it has other rows."""
    deletes = file.deletes.files if file.deletes is not None else ()
    return " ".join([file.path, *sorted(f"{each.path} {each.vector}" for each in deletes)])
