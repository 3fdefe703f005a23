"""Where sealed segments come from. One seam: what Spark reads does not know what is behind it.

`DirectorySegments` is the data directory of this machine; `queue_segments` and `archive_segments`
are object storage.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from penstock.model.errors import (
    Damaged,
    InvalidArgument,
    OffsetUnavailable,
    UnsupportedVersion,
)
from penstock.model.positions import SourcePartition
from penstock.model.topics import Topic
from penstock.otel.signals import Signal
from penstock.segment import SegmentReader, read_info, segment_name, segment_seq_of
from penstock.storage import DataDirectory
from penstock.storage.files import LocalFiles
from penstock.store.verify import is_store, survey_store

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from penstock.model.positions import Positions, Reached
    from penstock.segment import SegmentInfo, StoredBundle
    from penstock.segment.tables import ManifestEntry
    from penstock.storage import Partition


class State(enum.StrEnum):
    """What there is of a segment."""

    SEALED = "sealed"
    """A file that says what it holds."""

    DAMAGED = "damaged"
    """A file that does not; what it held is not known."""

    GONE = "gone"
    """No file where one should be: this segment, and perhaps others until the next one's."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A sealed segment, as a listing knows it; or the rest of one."""

    place: SourcePartition
    """Its partition; the source is who gave its messages their offsets."""
    segment_seq: int
    """Of its file. It says nothing of what is in it."""
    path: str
    first_offset: int | None
    """None, as `end_offset`, where it is not known."""
    end_offset: int | None
    bytes: int
    bundles: int
    items: int
    sealed_at_ns: int
    signal: Signal | None
    """What the topic's name says that it carries; None for topics of other names."""
    state: State = State.SEALED
    problem: str | None = None
    """Why it cannot be read, with the name of its file."""
    detail: str | None = None
    """What else its source needs to open it."""
    begin: int | None = None
    """Of the rest of a segment: the first message that is meant; see `cut`."""

    def is_behind(self, reached: Reached) -> bool:
        """Whether whoever has come so far is done with all of it.

        By offsets; by its number alone where nobody says where it ends.
        """
        if self.end_offset is None:
            return self.segment_seq <= reached.segment_seq
        return self.end_offset <= reached.offset


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which topics are read."""

    topics: frozenset[str] | None = None
    """`/namespace/name`, or `name`; None: all."""
    namespaces: frozenset[str] | None = None
    signal: Signal | None = None
    """Topics that are named after another one are left out."""

    def has(self, topic: Topic) -> bool:
        """Whether the topic is read."""
        if self.namespaces is not None and topic.namespace not in self.namespaces:
            return False
        if self.signal is not None and signal_of_topic(topic) not in (None, self.signal):
            return False
        return self.topics is None or not self.topics.isdisjoint({str(topic), topic.name})


class Bundles(Protocol):
    """The bundles of a segment."""

    @property
    def name(self) -> str:
        """What the segment is called."""
        ...

    @property
    def slots(self) -> tuple[int, ...]:
        """Every slot that one of them has."""
        ...

    def __len__(self) -> int:
        """How many there are."""
        ...

    def manifest(self, index: int) -> ManifestEntry:
        """What a bundle is; no data are read."""
        ...

    def bundle(self, index: int, slots: Collection[int] | None = None) -> StoredBundle:
        """The bundle, or these slots of it; Damaged where it cannot be read."""
        ...


class Segments(Protocol):
    """A source of sealed segments. Goes to Spark's workers by pickling."""

    def since(self, positions: Positions) -> list[Segment]:
        """What is there now at or after these positions, by partition and segment_seq.

        Partitions are named without their source. One without a position is listed from its first
        segment. A segment that cannot be read is listed with its problem.
        """
        ...

    def open(self, segment: Segment) -> Bundles:
        """OffsetUnavailable: it is gone. Damaged: it cannot be read. Both name the segment."""
        ...

    def gone(self, key: SourcePartition, start: Reached, end_offset: int) -> Segment:
        """What stands for the segments behind `start` that should be there and are not."""
        ...

    def arrived_ns(self, segment: Segment) -> int:
        """When its messages came, in nanoseconds since 1970, or little later; 0: not known."""
        ...


class DirectorySegments:
    """The segments of a data directory. Follows it while a server writes and deletes them."""

    def __init__(
        self,
        root: Path,
        topics: frozenset[str] | None = None,
        namespaces: frozenset[str] | None = None,
        signal: Signal | None = None,
    ) -> None:
        """Other topics than those that are chosen are left out."""
        self._directory = DataDirectory(root)
        self._files = LocalFiles()
        self._chosen = Chosen(topics, namespaces, signal)
        self._known: dict[str, Segment] = {}
        self._source = _identity(self._directory)

    def __getstate__(self) -> dict[str, Any]:
        """Workers only open segments; what was listed stays here."""
        return {**self.__dict__, "_known": {}}

    def since(self, positions: Positions) -> list[Segment]:
        """Reads a few bytes of every segment that it has not listed before."""
        found: dict[str, Segment] = {}
        for partition in self._directory.partitions():
            if self._chosen.has(partition.topic):
                found |= {each.path: each for each in self._listed(partition, positions)}
        self._known = found
        return list(found.values())

    def open(self, segment: Segment) -> SegmentReader:
        """Maps the file, which may be deleted while it is read."""
        path = Path(segment.path)
        try:
            return SegmentReader.open(self._files, path)
        except FileNotFoundError:
            raise OffsetUnavailable(
                f"{path} is gone: it was deleted unread",
                earliest=segment.end_offset or 0,
            ) from None
        except Damaged as error:
            raise Damaged(f"{path.parent}/{error}") from None

    def gone(self, key: SourcePartition, start: Reached, end_offset: int) -> Segment:
        """Named after the first that is missing."""
        partition = self._directory.partition(Topic.parse(key.topic), key.partition)
        number = start.segment_seq + 1
        path = partition.segments_folder / segment_name(number)
        messages = f"messages {start.offset} to {end_offset - 1}"
        problem = f"{path} is gone: {messages} were deleted unread"
        missing = self._unreadable(partition, number, State.GONE, problem)
        return replace(missing, first_offset=start.offset, end_offset=end_offset)

    def arrived_ns(self, segment: Segment) -> int:
        """When it was sealed."""
        return segment.sealed_at_ns

    def _listed(self, partition: Partition, positions: Positions) -> Iterator[Segment]:
        start = positions.get(self._place(partition).unsourced)
        found = []
        for name in self._files.names(partition.segments_folder):
            seq = segment_seq_of(name)
            if seq is None:
                continue
            segment = self._known.get(str(partition.segments_folder / name))
            segment = segment or self._described(partition, seq)
            if segment is not None:
                found.append(segment)
        for segment in bounded(found):
            if start is None or not segment.is_behind(start):
                yield segment

    def _described(self, partition: Partition, segment_seq: int) -> Segment | None:
        """None: it was deleted since its folder was listed."""
        path = partition.segments_folder / segment_name(segment_seq)
        try:
            info = read_info(self._files, path)
            if info.segment_seq != segment_seq:
                raise Damaged(f"{path.name} says that it is segment {info.segment_seq}")
        except FileNotFoundError:
            return None
        except UnsupportedVersion as error:
            raise UnsupportedVersion(f"{path}: {error}") from None
        except Damaged as error:
            problem = f"{path.parent}/{error}"
            damaged = self._unreadable(partition, segment_seq, State.DAMAGED, problem)
            known = self._recorded(partition, segment_seq)
            if known is None:
                return damaged
            offsets = known.first_offset, known.end_offset
            return replace(damaged, first_offset=offsets[0], end_offset=offsets[1])
        return Segment(
            self._place(partition),
            segment_seq,
            str(path),
            info.first_offset,
            info.end_offset,
            info.size,
            info.bundles,
            info.items,
            info.sealed_at_ns,
            signal_of_topic(partition.topic),
        )

    def _unreadable(
        self, partition: Partition, segment_seq: int, state: State, problem: str
    ) -> Segment:
        path = str(partition.segments_folder / segment_name(segment_seq))
        place, signal = self._place(partition), signal_of_topic(partition.topic)
        return Segment(place, segment_seq, path, None, None, 0, 0, 0, 0, signal, state, problem)

    def _recorded(self, partition: Partition, segment_seq: int) -> SegmentInfo | None:
        """What ack.log says of a segment whose own file says nothing."""
        if not is_store(self._files, partition.folder):
            return None
        return survey_store(self._files, partition.folder).state.segments.get(segment_seq)

    def _place(self, partition: Partition) -> SourcePartition:
        return SourcePartition(self._source, str(partition.topic), partition.number)


def bounded(listed: Sequence[Segment]) -> list[Segment]:
    """The segments of a partition, in order; a damaged one lies before its neighbour.

    Where ack.log does not say its offsets either. Behind the last one nothing says where it ends.
    """
    found: list[Segment] = []
    ahead: int | None = None
    for segment in reversed(listed):
        if segment.state is State.DAMAGED and segment.end_offset is None:
            segment = replace(segment, end_offset=ahead)
        ahead = segment.first_offset if segment.first_offset is not None else ahead
        found.append(segment)
    found.reverse()
    return found


def signal_of_topic(topic: Topic) -> Signal | None:
    """What the topic's name says that it carries."""
    return next((signal for signal in Signal if signal.value == topic.name), None)


def _identity(directory: DataDirectory) -> str:
    try:
        return directory.identity()
    except (FileNotFoundError, NotADirectoryError):
        root = directory.root
        raise InvalidArgument(f"{root} is not a data directory: it has no penstock.json") from None
