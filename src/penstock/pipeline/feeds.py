"""Where a flush takes segments from, and whom it tells that the lake has them.

DirectoryFeed   the data directory; its server lets go of what the lake has
QueueFeed       the queue on object storage, as its one consumer
ArchiveFeed     the archive, from its beginning; nobody waits to hear
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.archive.catalog import DEFAULT_ROOT
from penstock.lake.positions import Source
from penstock.model.errors import OffsetUnavailable, PenstockError
from penstock.pipeline.archive_segments import ArchiveSegments
from penstock.pipeline.queue_segments import PARTITION, QueueSegments
from penstock.pipeline.segments import DirectorySegments, State, is_in_lake
from penstock.queue import Consumer, ConsumerSettings
from penstock.queue.blocking import run_blocking
from penstock.queue.settings import DATA_PATH_PREFIX, MANIFEST_PATH
from penstock.storage.files import LocalFiles, write_atomically
from penstock.storage.objects import open_objects
from penstock.store.outside import LAKE, Delivered, write_delivered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.lake.positions import Positions
    from penstock.pipeline.segments import Segment, Segments

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
    def options(self) -> Mapping[str, str]:
        """Of the format `penstock`, its path included."""
        ...

    def segments(self) -> Segments:
        """What there is to read."""
        ...

    def claim(self, positions: Positions) -> None:
        """From now on nobody else is told anything. OffsetUnavailable: it does not go on there."""
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
    numbers_segments = True

    @property
    def options(self) -> Mapping[str, str]:
        """The directory alone."""
        return {"path": str(self.data_dir)}

    def segments(self) -> DirectorySegments:
        """Those of all topics."""
        return DirectorySegments(self.data_dir)

    def claim(self, positions: Positions) -> None:
        """The lake's own claim is enough. The last run may have ended before it said how far."""
        self.acknowledge(positions)

    def check(self) -> None:
        """Nobody can take a directory away."""

    def acknowledge(self, positions: Positions) -> None:
        """In a file that the server looks at, or finds when it starts.

        Up to the last segment before the first that the lake does not have.
        """
        through: dict[str, int] = {}
        ended: set[str] = set()
        for segment in self._listing.since({}):
            if is_in_lake(segment, positions.get(Source(segment.topic, segment.partition))):
                if segment.key not in ended:
                    through[segment.key] = segment.segment_seq
            else:
                ended.add(segment.key)
        write_delivered(self.data_dir, Delivered(LAKE, through))

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

    def __getstate__(self) -> dict[str, Any]:
        """Whoever gets it claims the queue again."""
        kept = {"_consumer", "_listing"}
        return {name: value for name, value in self.__dict__.items() if name not in kept}

    @property
    def options(self) -> Mapping[str, str]:
        """With the keys of the object store."""
        keys = {f"objects.{name}": value for name, value in self.objects.items()}
        return {"path": self.url, "source": "queue", "manifest": self.manifest_path, **keys}

    def segments(self) -> QueueSegments:
        """One for each topic of each batch."""
        return QueueSegments(self.url, self.objects, self.manifest_path)

    def claim(self, positions: Positions) -> None:
        """Fences whoever consumed before, and dequeues what the lake has already."""
        if self.consumes:
            self._check_continuity(positions)
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
            if not all(is_in_lake(each, positions.get(_source(each))) for each in held):
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
        known = [at.segment_seq for source, at in positions.items() if source[1] == PARTITION]
        if not known:
            return
        status = run_blocking(self.segments().status())
        if not status.first_sequence - 1 <= max(known) < status.next_sequence:
            text = f"the lake has the queue's batches up to {max(known)}, and the queue holds"
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

    @property
    def options(self) -> Mapping[str, str]:
        """With the keys of the object store."""
        keys = {f"objects.{name}": value for name, value in self.objects.items()}
        places = {"metadata": self.metadata_url, "root": self.root}
        return {"path": self.url, "source": "archive", **places, **keys}

    def segments(self) -> ArchiveSegments:
        """One for each object."""
        return ArchiveSegments(self.url, self.objects, self.metadata_url, self.root)

    def claim(self, positions: Positions) -> None:
        """Reading needs none."""

    def check(self) -> None:
        """Nobody can take it away."""

    def acknowledge(self, positions: Positions) -> None:
        """The archive keeps everything."""

    def set_aside(self, segment: Segment) -> None:
        """It stays where it is."""


def _source(segment: Segment) -> Source:
    return Source(segment.topic, segment.partition)


def _name_aside(segment: Segment, name: str) -> str:
    return f"{segment.key.strip('/').replace('/', '.')}.{name}"
