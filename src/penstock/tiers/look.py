"""One look at a table: where each of its messages is at one moment.

Data move from the log to segments to the lake, and are deleted behind. So the tiers are looked at
in that order: what moves meanwhile is seen twice, and the later tier has it; nothing is missed.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.lake.glance import NOTHING, Glance, glance, glance_at_positions
from penstock.lake.schemas import signal_of
from penstock.model.errors import Damaged, DataMoved, ForeignPosition, OffsetUnavailable
from penstock.model.positions import SourcePartition, of_sources, sources_in
from penstock.storage import DataDirectory
from penstock.store.outside import read_given
from penstock.tiers.adoption import DirectoryAdoption, adopted
from penstock.tiers.cut import check_own, ends, rest_of
from penstock.tiers.findings import Findings
from penstock.tiers.holes import look_at_logs, missing_files
from penstock.tiers.segments import DirectorySegments
from penstock.tiers.warm import open_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.lake.settings import LakeSettings
    from penstock.model.positions import Positions
    from penstock.storage import Partition
    from penstock.store.holes import Missing
    from penstock.tiers.cut import Ends
    from penstock.tiers.segments import Segment
    from penstock.tiers.warm import Opened

LOOKS: Final = 4
"""What is not there is looked for so often before it counts as missing: data move."""
PAUSE_S: Final = 0.02
Found = TypeVar("Found")


def looked(once: Callable[[Findings], Found]) -> tuple[Found, Findings]:
    """What a look found, and had to say, when data stood still long enough for it.

    Data that move while they are looked at are looked for again; DataMoved where they always do.
    What cannot be read by the last of several looks is missing.
    """
    for number in range(1, LOOKS + 1):
        said = Findings()
        try:
            found = once(said)
        except OffsetUnavailable as error:
            if number == LOOKS:
                raise DataMoved(f"it was moved each time: {error}") from error
        else:
            if number == LOOKS or not said.missing:
                return found, said
        time.sleep(PAUSE_S * 2**number)
    raise AssertionError("the last look returns or raises")


@dataclass(frozen=True, slots=True)
class Behind:
    """What there is behind the log: segments, and the lake."""

    cold: Glance
    warm: list[Opened]
    """What the lake does not have of segments. A mapped file can be read though it is deleted."""
    ends: Ends
    """From where on the log alone has messages."""
    gone: list[Missing]
    """Files that had what nobody has any more."""


class Look:
    """One look at what a data directory and its lake have of a table: `logs` first, then `behind`.

    `namespaces` are those that are seen; None: all.
    """

    def __init__(
        self,
        data_dir: Path,
        lake: LakeSettings,
        table: str,
        namespaces: frozenset[str] | None,
        said: Findings,
    ) -> None:
        self._data_dir = data_dir
        self._lake = lake
        self._table = table
        self._topic = signal_of(table).value
        self._namespaces = namespaces
        self._directory = DataDirectory(data_dir)
        self._source = DirectorySegments(data_dir, frozenset({self._topic}), namespaces)
        self._said = said

    def logs(self) -> Iterator[tuple[SourcePartition, Partition, int]]:
        """The partitions, and from which offset on the log of each has to be read."""
        sealed = _sealed_ends(self._data_dir, self._lake, self._table, self._source)
        identity = self._directory.identity()
        for partition in self._partitions():
            place = SourcePartition(identity, str(partition.topic), partition.number)
            yield place, partition, sealed.get(place, 0)

    def behind(self) -> Behind:
        """OffsetUnavailable: a segment was deleted that the lake does not have, so look again."""
        logs = look_at_logs(self._directory.identity(), self._partitions())
        opened = [open_segment(self._source, each) for each in self._source.since({})]
        listed = [each.segment for each in opened]
        where = self._data_dir, self._lake, self._table
        cold = _glance_at_lake(*where, listed, self._said, self._namespaces)
        rests = [(rest_of(each.segment, cold.positions), each) for each in opened]
        warm = [replace(each, segment=rest) for rest, each in rests if rest is not None]
        for each in warm:
            if isinstance(each.problem, OffsetUnavailable):
                raise each.problem
        gone = list(missing_files(logs, listed, cold.positions))
        return Behind(cold, warm, ends(cold.positions, listed), gone)

    def _partitions(self) -> Iterator[Partition]:
        for partition in self._directory.partitions():
            topic = partition.topic
            if topic.name == self._topic and _is_of(str(topic), self._namespaces):
                yield partition


def _sealed_ends(data_dir: Path, lake: LakeSettings, table: str, source: DirectorySegments) -> Ends:
    """From where on the log is read: what was sealed a moment ago still is."""
    positions: Positions = {}
    segments = source.since({})
    # What is wrong with the lake, the look at it says afterwards.
    with contextlib.suppress(Damaged, ForeignPosition):
        found = glance_at_positions(lake, table)
        check_own(data_dir, segments, found)
        positions = found
    return ends(positions, segments)


def _glance_at_lake(
    data_dir: Path,
    lake: LakeSettings,
    table: str,
    segments: list[Segment],
    said: Findings,
    namespaces: frozenset[str] | None,
) -> Glance:
    """What the lake has, with positions as the directory's pipeline finds them.

    Nothing where it was never there, and missing where it cannot be read. Where its positions
    cannot be those of the directory, which has these segments, it has nothing of that. Positions
    are those of the namespaces alone, and so is what is said: nobody reads of others' topics.
    """
    try:
        found = glance(lake, table)
        if not found.is_there:
            _check_never_given(data_dir, lake, table, namespaces)
    except Damaged as error:
        said.lack(str(error))
        return NOTHING
    own = DirectoryAdoption(data_dir, lake)
    everywhere = adopted(found.positions, found.claims, own)
    positions = {
        place: position for place, position in everywhere.items() if _is_of(place.topic, namespaces)
    }
    try:
        check_own(data_dir, segments, positions)
    except ForeignPosition as error:
        said.lack(str(error))
        positions = of_sources(positions, sources_in(positions) - {own.source})
    return replace(found, positions=positions)


def _is_of(topic: str, namespaces: frozenset[str] | None) -> bool:
    return namespaces is None or topic.removeprefix("/").partition("/")[0] in namespaces


def _check_never_given(
    data_dir: Path, lake: LakeSettings, table: str, namespaces: frozenset[str] | None
) -> None:
    """Damaged where a lake has had segments of the table's topics: they were deleted here."""
    topic = signal_of(table).value
    given = sorted(
        name
        for name in read_given(data_dir)
        if name.split("/")[-2] == topic and _is_of(name.rpartition("/")[0], namespaces)
    )
    if given:
        text = f"the lake at {lake.warehouse} has no table {table}"
        raise Damaged(f"{text}, though a lake was given segments of {', '.join(given)}")
