"""Where sealed segments come from. One seam: what Spark reads does not know what is behind it.

`DirectorySegments` is the data directory of this machine; `queue_segments` and `archive_segments`
are object storage.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from penstock.lake.rows.origin import Origin
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

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from penstock.segment import StoredBundle
    from penstock.segment.tables import ManifestEntry
    from penstock.storage import Partition
    from penstock.tiers.offsets import Position, Positions


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

    source: str
    """Who gave its messages their offsets, see `model.positions`."""
    namespace: str
    topic: str
    """`/namespace/name`."""
    partition: int
    segment_seq: int
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

    @property
    def key(self) -> str:
        """Its partition, as Spark's offsets name it."""
        return f"{self.topic}/{self.partition}"

    @property
    def place(self) -> SourcePartition:
        """Its partition, as the lake's positions name it."""
        return SourcePartition(self.source, self.topic, self.partition)

    def origin(self, first_offset: int) -> Origin:
        """Where the rows of one of its bundles come from."""
        return Origin(self.source, self.topic, self.namespace, self.partition, first_offset)


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

        A partition without a position is listed from its first segment. One that cannot be read is
        listed with its problem.
        """
        ...

    def open(self, segment: Segment) -> Bundles:
        """OffsetUnavailable: it is gone. Damaged: it cannot be read. Both name the segment."""
        ...

    def gone(self, key: str, start: Position, end_offset: int) -> Segment:
        """What stands for the segments from `start` on that should be there and are not."""
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

    def gone(self, key: str, start: Position, end_offset: int) -> Segment:
        """Named after the first that is missing."""
        name, _, number = key.rpartition("/")
        partition = self._directory.partition(Topic.parse(name), int(number))
        path = partition.segments_folder / segment_name(start.segment_seq)
        messages = f"messages {start.offset} to {end_offset - 1}"
        problem = f"{path} is gone: {messages} were deleted unread"
        missing = self._unreadable(partition, start.segment_seq, State.GONE, problem)
        return replace(missing, first_offset=start.offset, end_offset=end_offset)

    def arrived_ns(self, segment: Segment) -> int:
        """When it was sealed."""
        return segment.sealed_at_ns

    def _listed(self, partition: Partition, positions: Positions) -> Iterator[Segment]:
        start = positions.get(f"{partition.topic}/{partition.number}")
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
            if start is None or _is_from(segment, start):
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
            return self._unreadable(partition, segment_seq, State.DAMAGED, problem)
        return Segment(
            self._source,
            partition.topic.namespace,
            str(partition.topic),
            partition.number,
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
        topic, path = partition.topic, partition.segments_folder / segment_name(segment_seq)
        place = (self._source, topic.namespace, str(topic), partition.number, segment_seq)
        signal = signal_of_topic(topic)
        return Segment(*place, str(path), None, None, 0, 0, 0, 0, signal, state, problem)


def _is_from(segment: Segment, start: Position) -> bool:
    """By its number, or because it has messages that the numbers do not tell of."""
    return segment.segment_seq >= start.segment_seq or (segment.end_offset or 0) > start.offset


def bounded(listed: Sequence[Segment]) -> list[Segment]:
    """The segments of a partition, in order; a damaged one lies between its neighbours.

    It does not say its own offsets. Behind the last one nothing says where it ends.
    """
    found: list[Segment] = []
    ahead: int | None = None
    for segment in reversed(listed):
        if segment.state is State.DAMAGED:
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
