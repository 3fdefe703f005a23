"""The data directory: its identity, and where each topic partition lives in it."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.model.errors import Damaged, InvalidTopic, UnsupportedVersion
from penstock.model.topics import Topic, decode_part, encode_part
from penstock.storage.files import Files, LocalFiles, read_whole, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_DATA_DIR: Final = Path("data")
"""Where nobody says another."""
FORMAT_VERSION = 1
IDENTITY = "penstock.json"
METADATA = "metadata.db"
"""Where descriptors of an archive are, unless they are kept elsewhere."""


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One topic partition: `folder` holds its log, segments and acknowledgements."""

    topic: Topic
    number: int
    folder: Path

    @property
    def log_folder(self) -> Path:
        """Where the log's files are."""
        return self.folder / "log"

    @property
    def segments_folder(self) -> Path:
        """Where the sealed segments are."""
        return self.folder / "segments"


class DataDirectory:
    """The root of everything that one Penstock keeps on local disk."""

    def __init__(self, root: Path, files: Files | None = None) -> None:
        self.root = root
        self._files = files or LocalFiles()

    @property
    def metadata_url(self) -> str:
        """Of its own metadata store."""
        return (self.root.absolute() / METADATA).as_uri()

    def create(self) -> str:
        """Makes the directory where there is none, and returns its identity either way."""
        if IDENTITY in self._files.names(self.root):
            return self.identity()
        self._files.make_folder(self.root)
        identity = str(uuid.uuid4())
        self._write(identity)
        return identity

    def _write(self, identity: str, **more: str) -> None:
        document = {"penstock": "data directory", "version": FORMAT_VERSION, "id": identity, **more}
        text = json.dumps(document, indent=2) + "\n"
        write_atomically(self._files, self.root / IDENTITY, text.encode())

    def renew(self) -> str:
        """Gives it another identity, which it returns; durable. Nobody may have it open.

        For a copy of a directory: what the lake has of the original is not of this one.
        """
        before, identity = self.identity(), str(uuid.uuid4())
        self._write(identity, before=before)
        return identity

    def identity(self) -> str:
        """The id in penstock.json; Damaged or UnsupportedVersion where that cannot be relied on."""
        path = self.root / IDENTITY
        try:
            document = json.loads(read_whole(self._files, path))
            version, identity = document["version"], document["id"]
        except (ValueError, KeyError, TypeError, RecursionError):
            version, identity = None, None
        if not isinstance(version, int) or not isinstance(identity, str):
            raise Damaged(f"{path} does not describe a data directory")
        if version > FORMAT_VERSION:
            raise UnsupportedVersion(f"{path} has version {version}, this is {FORMAT_VERSION}")
        try:
            return str(uuid.UUID(identity))
        except ValueError:
            raise Damaged(f"{path}: {identity!r} is not the id of a data directory") from None

    def partition(self, topic: Topic, number: int = 0) -> Partition:
        """Where a partition is, or would be."""
        parts = ("topics", encode_part(topic.namespace), encode_part(topic.name), str(number))
        return Partition(topic, number, self.root.joinpath(*parts))

    def partitions(self) -> Iterator[Partition]:
        """Every partition there is, by topic and number; folders of other names are passed over."""
        top = self.root / "topics"
        for namespace in self._files.names(top):
            for name in self._files.names(top / namespace):
                try:
                    topic = Topic(decode_part(namespace), decode_part(name))
                except InvalidTopic:
                    continue
                numbers = self._files.names(top / namespace / name)
                for number in sorted(int(n) for n in numbers if re.fullmatch(r"0|[1-9][0-9]*", n)):
                    yield self.partition(topic, number)
