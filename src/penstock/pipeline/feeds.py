"""Where a flush takes segments from, and whom it tells that the lake has them.

DirectoryFeed   the data directory; its server lets go of what the lake has
QueueFeed       the queue on object storage, as its one consumer
ArchiveFeed     the archive, from its beginning; nobody waits to hear
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.archive.settings import DEFAULT_ROOT
from penstock.log.survey import log_files, log_owners
from penstock.model.errors import OffsetUnavailable, PenstockError
from penstock.model.positions import UNKNOWN, SourcePartition
from penstock.queue import Consumer, ConsumerSettings
from penstock.queue.blocking import run_blocking
from penstock.queue.settings import DATA_PATH_PREFIX, MANIFEST_PATH
from penstock.storage import DataDirectory
from penstock.storage.files import LocalFiles, write_atomically
from penstock.storage.objects import open_objects
from penstock.store.outside import LAKE, Delivered, Taken, write_delivered
from penstock.tiers.adoption import DirectoryAdoption, OldPositions, QueueAdoption
from penstock.tiers.archive_segments import ArchiveSegments
from penstock.tiers.cut import check_own, rest_of
from penstock.tiers.queue_segments import OFFSETS_PER_BATCH, QueueSegments
from penstock.tiers.segments import DirectorySegments, State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.lake.commit import Adoption
    from penstock.lake.settings import LakeSettings
    from penstock.model.positions import Positions
    from penstock.tiers.segments import Segment, Segments

_LOG = logging.getLogger(__name__)
ASIDE: Final = "pipeline/aside"
"""Where segments are kept that could not be read whole."""


class Feed(Protocol):
    """A source and its way back. Goes to where the driver runs by pickling."""

    @property
    def numbers_segments(self) -> bool:
        """Whether the lake remembers the numbers of its segments beside offsets."""
        ...

    @property
    def goes_on(self) -> bool:
        """Whether it has one source, so that one offset of a partition says where to go on."""
        ...

    def sources(self) -> frozenset[str]:
        """Whose messages it gives: what is claimed in the lake, and asked for there."""
        ...

    @property
    def options(self) -> Mapping[str, str]:
        """Of the format `penstock`, its path included."""
        ...

    def segments(self) -> Segments:
        """What there is to read."""
        ...

    def identified(self, segment: Segment) -> Segment:
        """With the source that `sources` names: what it is listed with may be less certain."""
        ...

    def adoption(self, lake: LakeSettings) -> Adoption | None:
        """What decides which positions without a source are its own; None: none of them."""
        ...

    def check_positions(self, positions: Positions) -> None:
        """ForeignPosition, OffsetUnavailable: what the lake has of it does not go on there.

        Asked before anything is claimed, and again after, before anything is acknowledged.
        """
        ...

    def claim(self, positions: Positions) -> None:
        """From now on nobody else is told anything."""
        ...

    def check(self) -> None:
        """Fenced: somebody else has claimed it since. Nothing is committed after that."""
        ...

    def acknowledge(self, positions: Positions) -> None:
        """Says that everything up to these positions is durable in the lake; safe to repeat."""
        ...

    def set_aside(self, segment: Segment) -> None:
        """Keeps what could not be read whole; after `acknowledge` it is deleted where it was."""
        ...


@dataclass(frozen=True)
class DirectoryFeed:
    """Sealed segments of a data directory, with or without a server."""

    data_dir: Path
    old_positions: OldPositions = OldPositions.DECIDE
    numbers_segments = True
    goes_on = True

    def sources(self) -> frozenset[str]:
        """Its own identity."""
        return frozenset({DataDirectory(self.data_dir).identity()})

    @property
    def options(self) -> Mapping[str, str]:
        """The directory alone."""
        return {"path": str(self.data_dir)}

    def segments(self) -> DirectorySegments:
        """Those of all topics."""
        return DirectorySegments(self.data_dir)

    def identified(self, segment: Segment) -> Segment:
        """They are all its own."""
        return segment

    def adoption(self, lake: LakeSettings) -> Adoption | None:
        """By what the directory and the lake show, or as it was told."""
        return DirectoryAdoption(self.data_dir, lake, self.old_positions)

    def check_positions(self, positions: Positions) -> None:
        """As for everybody who cuts by them."""
        check_own(self.data_dir, self._listing.since({}), positions)

    def claim(self, positions: Positions) -> None:
        """The lake's own claim is enough. The last run may have ended before it said how far."""
        self.acknowledge(positions)

    def check(self) -> None:
        """Nobody can take a directory away."""

    def acknowledge(self, positions: Positions) -> None:
        """In a file that the server looks at, or finds when it starts.

        Up to the last segment before the first that the lake does not have.
        """
        through: dict[str, Taken] = {}
        sealed_at_ns: dict[str, int] = {}
        ended: set[str] = set()
        for segment in self._listing.since({}):
            key = str(segment.place.unsourced)
            if rest_of(segment, positions) is None:
                if key not in ended:
                    latest = max(sealed_at_ns.get(key, 0), segment.sealed_at_ns)
                    sealed_at_ns[key] = latest
                    offset = positions[segment.place].offset
                    through[key] = Taken(segment.segment_seq, offset, latest)
            else:
                ended.add(key)
        # Whoever reads it deletes: every message below these offsets is committed, and the
        # identity says of which directory.
        [source] = self.sources()
        write_delivered(self.data_dir, Delivered(LAKE, through, source))

    @cached_property
    def _listing(self) -> DirectorySegments:
        """Kept: what it has listed once it does not read again."""
        return self.segments()

    def set_aside(self, segment: Segment) -> None:
        """Under another name in the same file system."""
        path, files, folder = Path(segment.path), LocalFiles(), self.data_dir / ASIDE
        try:
            files.make_folder(folder)
            files.link(path, folder / _name_aside(segment, path.name))
            files.sync_folder(folder)  # so that one of its names survives
        except (FileExistsError, FileNotFoundError):
            return  # it is there already, or was deleted unread
        except OSError as error:
            _LOG.error("%s could not be set aside: %s", path, error)


@dataclass(frozen=True)
class QueueFeed:
    """A queue on object storage. `data_dir` is a folder for what the pipeline notes."""

    data_dir: Path
    url: str
    objects: Mapping[str, str] = field(default_factory=dict, repr=False)
    manifest_path: str = MANIFEST_PATH
    data_path_prefix: str = DATA_PATH_PREFIX
    consumes: bool = True
    """Else it only reads what waits, beside whoever consumes it."""
    numbers_segments = True
    goes_on = True

    def __getstate__(self) -> dict[str, Any]:
        """Whoever gets it claims the queue again."""
        kept = {"_consumer", "_listing"}
        return {name: value for name, value in self.__dict__.items() if name not in kept}

    @property
    def options(self) -> Mapping[str, str]:
        """With the keys of the object store."""
        keys = {f"objects.{name}": value for name, value in self.objects.items()}
        return {"path": self.url, "source": "queue", "manifest": self.manifest_path, **keys}

    def sources(self) -> frozenset[str]:
        """The id of the queue."""
        return frozenset({self._listing.source})

    def segments(self) -> QueueSegments:
        """One for each topic of each batch."""
        return QueueSegments(self.url, self.objects, self.manifest_path)

    def identified(self, segment: Segment) -> Segment:
        """They are all its own."""
        return segment

    def adoption(self, lake: LakeSettings) -> Adoption | None:  # noqa: ARG002 - a Feed's
        """Those of the partition that queues have; `check_positions` says whether they go on."""
        return QueueAdoption(self._listing.source)

    def check_positions(self, positions: Positions) -> None:
        """What waits must be next to what the lake has."""
        if self.consumes:
            self._check_continuity(positions)

    def claim(self, positions: Positions) -> None:
        """Fences whoever consumed before, and dequeues what the lake has already."""
        if self.consumes:
            self.acknowledge(positions)

    def check(self) -> None:
        """Asks the queue itself."""
        if self.consumes:
            self._consumer.peek(1)

    def acknowledge(self, positions: Positions) -> None:
        """The batches from the oldest on whose every topic is in the lake."""
        if not self.consumes:
            return
        last = None
        for sequence, held in self._listing.waiting().items():
            if not all(rest_of(each, positions) is None for each in held):
                break
            last = sequence
        acked = self._consumer.acked
        if last is not None and (acked is None or last > acked):
            self._consumer.ack_through(last)
        self._consumer.flush()

    def set_aside(self, segment: Segment) -> None:
        """A copy of the whole batch; the queue's own is deleted some time after it was read."""
        if segment.state is State.GONE:
            return
        folder, files = self.data_dir / ASIDE, LocalFiles()
        try:
            objects = open_objects(self.url, self.objects)
            found = run_blocking(objects.get(segment.path))
            files.make_folder(folder)
            if found is not None:
                name = _name_aside(segment, segment.path.rpartition("/")[2])
                write_atomically(files, folder / name, found.data)
        except (OSError, PenstockError) as error:
            _LOG.error("%s could not be set aside: %s", segment.path, error)

    @cached_property
    def _listing(self) -> QueueSegments:
        """Kept: an acknowledgement must not read all that waits again."""
        return self.segments()

    @cached_property
    def _consumer(self) -> Consumer:
        settings = ConsumerSettings(
            manifest_path=self.manifest_path, data_path_prefix=self.data_path_prefix
        )
        consumer = Consumer.open(self.url, settings, options=self.objects)
        consumer.initialize()
        return consumer

    def _check_continuity(self, positions: Positions) -> None:
        """What the lake has must be behind what waits, and next to it."""
        if not positions:
            return
        last = max(at.offset for at in positions.values()) // OFFSETS_PER_BATCH - 1
        status = run_blocking(self.segments().status())
        if not status.first_sequence - 1 <= last < status.next_sequence:
            text = f"the lake has the queue's batches up to {last}, and the queue holds"
            raise OffsetUnavailable(
                f"{text} {status.first_sequence} to {status.next_sequence - 1}: it is another one, "
                "or somebody else has consumed it",
                earliest=status.first_sequence,
                end=status.next_sequence,
            )


@dataclass(frozen=True)
class ArchiveFeed:
    """All that was ever archived and not removed since."""

    data_dir: Path
    url: str
    metadata_url: str
    objects: Mapping[str, str] = field(default_factory=dict, repr=False)
    root: str = DEFAULT_ROOT
    numbers_segments = False
    goes_on = False

    def sources(self) -> frozenset[str]:
        """Of every stretch of it: a disk that was lost has a successor."""
        return frozenset(self.identified(each).place.source for each in self.segments().since({}))

    @property
    def options(self) -> Mapping[str, str]:
        """With the keys of the object store."""
        keys = {f"objects.{name}": value for name, value in self.objects.items()}
        places = {"metadata": self.metadata_url, "root": self.root}
        return {"path": self.url, "source": "archive", **places, **keys}

    def segments(self) -> ArchiveSegments:
        """One for each object."""
        return ArchiveSegments(self.url, self.objects, self.metadata_url, self.root)

    def identified(self, segment: Segment) -> Segment:
        """What 0.1 archived names its log alone: it is the directory's, if the log is there."""
        own = self._logs.get(segment.place.source) == segment.place.unsourced
        place = segment.place._replace(source=self._identity)
        return replace(segment, place=place) if own else segment

    @cached_property
    def _identity(self) -> str:
        return DataDirectory(self.data_dir).identity()

    @cached_property
    def _logs(self) -> dict[str, SourcePartition]:
        """The partition of each log that the directory has, by the log's id."""
        files = LocalFiles()
        return {
            str(owner): SourcePartition(UNKNOWN, str(each.topic), each.number)
            for each in DataDirectory(self.data_dir).partitions()
            for owner in log_owners(files, each.log_folder, log_files(files, each.log_folder))
        }

    def adoption(self, lake: LakeSettings) -> Adoption | None:
        """Those of the directory that the archive is of, before it passes them."""
        return DirectoryAdoption(self.data_dir, lake) if self._identity in self.sources() else None

    def check_positions(self, positions: Positions) -> None:
        """The lake may well have more than was archived."""

    def claim(self, positions: Positions) -> None:
        """Reading needs none."""

    def check(self) -> None:
        """Nobody can take it away."""

    def acknowledge(self, positions: Positions) -> None:
        """The archive keeps everything."""

    def set_aside(self, segment: Segment) -> None:
        """It stays where it is."""


def _name_aside(segment: Segment, name: str) -> str:
    key = str(segment.place.unsourced).strip("/").replace("/", ".")
    return f"{key}.{name}"
