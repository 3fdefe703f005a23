"""Where the files of a table are, and what their names say.

    <table>/data/<day>/b00000007-<start>-<end>-00003-<attempt>.parquet   of a batch
    <table>/data/<day>/r<replaced>-00000-<attempt>.parquet               of a replacement
    <table>/data/<none>/<either>-past-20251115.parquet                   of rows of far-off days
    <table>/metadata/…                                                   Iceberg's

<day> is year=2025/month=11/day=15, <none> the same with null for each. The key, up to the part,
says what the file is for: a batch's range of positions is committed once and replaced files are
gone afterwards, so the names of a key can enter the table once only. The attempt is another one
whenever a file is begun, so that nobody meets the half of a file that an earlier attempt at the
same part has left, or that another one is just writing. (0.1 wrote names without an attempt.) Pure:
no files, no Iceberg.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from datetime import date
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import uuid4

from penstock.lake.positions import encode_positions
from penstock.model.positions import of_sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.model.positions import Positions

NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
"""What readers of `name=value` folders take for null."""
_DIGEST_BYTES: Final = 6
_REPLACED_BYTES: Final = 12
_ATTEMPT_DIGITS: Final = 12
_NAME: Final = re.compile(
    r"(?P<key>b(?P<epoch>[0-9]{8,})-(?P<start>[0-9a-f]{12})-[0-9a-f]{12}|r[0-9a-f]{24})"
    r"-[0-9]{5,}(-[0-9a-f]{12})?(-(?P<side>past|future)-(?P<came>[0-9]{8}))?\.parquet"
)


class Side(enum.StrEnum):
    """Where the times of rows are, as seen from their arrival."""

    PAST = "past"
    FUTURE = "future"


@dataclass(frozen=True, slots=True, order=True)
class FarOff:
    """What stands in the place of a day for rows of many days, all far from when they came.

    They are kept by the day on which they came, so that they have an age whatever their times say.
    """

    came: date
    side: Side

    def __str__(self) -> str:
        """For people."""
        return f"far in the {self.side} of {self.came}"


Day: TypeAlias = date | FarOff | None
"""What the rows of a data file have in common; None: they have no time."""


def batch_key(start: Positions, end: Positions, epoch: int) -> str:
    """What the names of a batch's files begin with.

    The epoch is part of it so that a writer that was fenced, and may not know yet, never writes
    the files of its successor; and no two sources that are written side by side have the same one.
    """
    return f"b{epoch:08d}-{_digest_of(start)}-{_digest_of(end)}"


def replacement_key(replaced: Iterable[str]) -> str:
    """What the names of the files begin with that take the place of those paths."""
    text = "\n".join(sorted(replaced))
    return f"r{blake2b(text.encode(), digest_size=_REPLACED_BYTES).hexdigest()}"


def day_folder(day: Day) -> str:
    """The folder of a day below `data`; null for rows that have none, or many."""
    if not isinstance(day, date):
        return f"year={NO_DAY}/month={NO_DAY}/day={NO_DAY}"
    return f"year={day.year:04d}/month={day.month:02d}/day={day.day:02d}"


def data_folder(location: str) -> str:
    """Where the data files of the table at `location` are."""
    return f"{location.rstrip('/')}/data"


def metadata_folder(location: str) -> str:
    """Where Iceberg keeps what it knows of the table at `location`."""
    return f"{location.rstrip('/')}/metadata"


def data_path(location: str, day: Day, key: str, part: int, attempt: str) -> str:
    """The file of a day that an attempt at part `part` of a batch or a replacement writes."""
    far = f"-{day.side}-{day.came:%Y%m%d}" if isinstance(day, FarOff) else ""
    return f"{data_folder(location)}/{day_folder(day)}/{key}-{part:05d}-{attempt}{far}.parquet"


def new_attempt() -> str:
    """A name that no other attempt has, at this part or at another."""
    return uuid4().hex[:_ATTEMPT_DIGITS]


def key_of(path: str) -> str | None:
    """What the file was written for; None where its name says nothing."""
    match = _NAME.fullmatch(path.rpartition("/")[2])
    return match["key"] if match else None


def far_off_of(path: str) -> FarOff | None:
    """What a file of no day has rows of; None where its name does not say."""
    match = _NAME.fullmatch(path.rpartition("/")[2])
    try:
        return FarOff(date.fromisoformat(match["came"]), Side(match["side"])) if match else None
    except (TypeError, ValueError):
        return None


def may_be_in_flight(path: str, positions: Positions, epochs: Mapping[str, int]) -> bool:
    """Whether the file may be of a batch that a writer has yet to commit.

    True of no file of a writer that was fenced, nor of a batch that began elsewhere than where its
    sources now are: neither can be committed any more. A writer that is newer than all that the
    table knows may have claimed it since.
    """
    match = _NAME.fullmatch(path.rpartition("/")[2])
    if match is None or match["epoch"] is None:
        return False
    epoch = int(match["epoch"])
    if epoch > max(epochs.values(), default=0):
        return True
    claimed = {source for source, newest in epochs.items() if newest == epoch}
    return bool(claimed) and match["start"] == _digest_of(of_sources(positions, claimed))


def _digest_of(positions: Positions) -> str:
    text = "\n".join(f"{name}={value}" for name, value in encode_positions(positions).items())
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
