"""Positions that 0.1 left in a lake, without a source: the directory they came from goes on there.

A directory that takes them for its own and they are another's would pass over what it has
acknowledged; one that does not, and they are its own, would write it a second time. So there has to
be a reason for either, and where there is none the operator decides (`--old-positions`).

    the lake lies in the directory                        they are its own
    its pipeline ran under 0.1 and had no lake in it      they are its own, if its log agrees
    nothing of the partition was ever let go of           they are another's: it begins at its own
    the lake is further than its log                      nobody knows
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.lake.metadata import CATALOG
from penstock.lake.settings import FOLDER
from penstock.model.errors import ForeignPosition, InvalidTopic
from penstock.model.positions import QUEUE_PARTITION, UNKNOWN, of_sources
from penstock.model.topics import Topic
from penstock.storage import DataDirectory
from penstock.store.outside import read_delivered
from penstock.tiers.extent import extent_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from penstock.lake.commit import Adoption
    from penstock.lake.settings import LakeSettings
    from penstock.model.positions import Positions, Reached, SourcePartition
    from penstock.store.outside import Delivered
    from penstock.tiers.extent import Extent


class OldPositions(enum.StrEnum):
    """What to do with them."""

    DECIDE = "decide"
    """By what the directory and the lake show; ForeignPosition where that is not enough."""
    ADOPT = "adopt"
    """They are the directory's."""
    LEAVE = "leave"
    """They are another's."""


@dataclass(frozen=True)
class QueueAdoption:
    """Of a lake's old positions by a queue: those that came from one. Its sequences check them."""

    source: str

    def __call__(self, positions: Positions) -> dict[SourcePartition, SourcePartition]:
        """Which of them become which of the queue's."""
        return {
            place: place._replace(source=self.source)
            for place in of_sources(positions, {UNKNOWN})
            if place.partition == QUEUE_PARTITION
        }


@dataclass(frozen=True)
class DirectoryAdoption:
    """Of a lake's old positions by one data directory."""

    data_dir: Path
    lake: LakeSettings
    told: OldPositions = OldPositions.DECIDE

    @property
    def source(self) -> str:
        """Its identity."""
        return DataDirectory(self.data_dir).identity()

    def __call__(self, positions: Positions) -> dict[SourcePartition, SourcePartition]:
        """Which of them become which of the directory's."""
        source = self.source
        return {
            place: place._replace(source=source)
            for place, position in of_sources(positions, {UNKNOWN}).items()
            if place.partition != QUEUE_PARTITION and self._is_own(place, position)
        }

    def _is_own(self, place: SourcePartition, position: Reached) -> bool:
        extent = self._extent(place)
        if extent is None or self.told is OldPositions.LEAVE:
            return False
        if self.told is OldPositions.ADOPT:
            return True
        delivered = read_delivered(self.data_dir)
        if self._is_inside() or self._went_here(delivered, place, position):
            if position.offset <= extent.end:
                return True
            raise self._unclear(place, f"the lake has offset {position.offset}", extent)
        if extent.first == 0 and delivered is None:
            return False
        raise self._unclear(place, "nothing tells whether they are this directory's", extent)

    def _extent(self, place: SourcePartition) -> Extent | None:
        try:
            topic = Topic.parse(place.topic)
        except InvalidTopic:
            return None
        return extent_of(DataDirectory(self.data_dir).partition(topic, place.partition))

    def _is_inside(self) -> bool:
        """A lake that lies in a data directory was made by its pipeline."""
        if self.lake.catalog or "://" in self.lake.warehouse:
            return False
        return Path(self.lake.warehouse).resolve().is_relative_to(self.data_dir.resolve())

    def _went_here(
        self, delivered: Delivered | None, place: SourcePartition, position: Reached
    ) -> bool:
        """Its pipeline ran under 0.1, took no more than the lake has, and to no lake of its own."""
        if delivered is None or delivered.source is not None:
            return False
        taken = delivered.through.get(f"{place.topic}/{place.partition}")
        if taken is not None and taken.segment_seq > position.segment_seq:
            return False
        return not (self.data_dir / FOLDER / CATALOG).exists()

    def _unclear(self, place: SourcePartition, reason: str, extent: Extent) -> ForeignPosition:
        text = f"the lake's position of {place.topic}/{place.partition} does not say its source"
        return ForeignPosition(
            f"{text}, and {reason} (its log: {extent.first} to {extent.end}); "
            "say --old-positions adopt or --old-positions leave"
        )


def adopted(
    positions: Positions, claims: Collection[str], adopt: Adoption
) -> dict[SourcePartition, Reached]:
    """The positions of a table as the source finds them that claims it next."""
    taken = {} if adopt.source in claims else adopt(positions)
    return {taken.get(place, place): position for place, position in positions.items()}
