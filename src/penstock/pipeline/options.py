"""The options of the format `penstock`, checked before anything is read.

| option | default | meaning |
|---|---|---|
| `path` | | the data directory, or a URL of object storage; what `load` is given |
| `source` | `directory` | what is there: `directory`, `queue` or `archive` |
| `manifest` | `ingest/manifest` | of a queue: the key of its manifest |
| `metadata` | | of an archive: the URL of its descriptors |
| `root` | `penstock` | of an archive: what its keys begin with |
| `objects.…` | | keys of the object store, as in its environment: `objects.aws_endpoint_url` |
| `rows` | `table` | `table`: rows of the lake's table; `descriptors`: a row for each segment |
| `table` | `spans` | `spans`, `logs` or `metrics` |
| `tiers` | all | of a data directory, in a batch query: some of `hot,warm,cold` |
| `topics` | all | names with commas between them: `/namespace/name`, or `name` in every namespace |
| `namespaces` | all | names with commas between them |
| `startingOffsets` | `earliest` | of a new stream: `earliest`, `latest` or offsets as JSON |
| `maxSegmentsPerTrigger` | | most segments in a batch of a stream |
| `maxBytesPerTrigger` | | most bytes in a batch of a stream; one segment comes in any case |
| `minBytesPerTrigger` | | a batch of a stream waits for so many bytes, |
| `maxTriggerDelay` | | unless a segment was sealed so long ago: `90s`; without it, for ever |
| `failOnDataLoss` | `true` | whether a segment that is gone or damaged ends the query |
| `partitionBytes` | 8 MiB | small segments share a task up to this size |
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.lake.schemas import TABLES
from penstock.model.errors import InvalidArgument
from penstock.model.settings import MIB
from penstock.pipeline.batches import Admission
from penstock.pipeline.offsets import parse_offsets
from penstock.tiers.cut import ALL, Tier

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SECONDS: Final = re.compile(r"[0-9]+(\.[0-9]+)?s?")
_OBJECTS: Final = "objects."
NAMES: Final = (
    "path",
    "source",
    "manifest",
    "metadata",
    "root",
    "rows",
    "table",
    "tiers",
    "topics",
    "namespaces",
    "startingOffsets",
    "maxSegmentsPerTrigger",
    "maxBytesPerTrigger",
    "minBytesPerTrigger",
    "maxTriggerDelay",
    "failOnDataLoss",
    "partitionBytes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a query asks of the source."""

    path: str
    """A data directory, absolute, or a URL."""
    source: str
    manifest: str
    metadata: str
    root: str
    objects: Mapping[str, str]
    rows: str
    table: str
    tiers: frozenset[Tier]
    topics: frozenset[str] | None
    namespaces: frozenset[str] | None
    starting_offsets: str
    admission: Admission
    fail_on_data_loss: bool
    partition_bytes: int

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """From what Spark was given, in names of any case; InvalidArgument says what is wrong."""
        given = _Given(options)
        return cls(
            path=given.path(),
            source=given.choice("source", ("directory", "queue", "archive")),
            manifest=given.text("manifest", "ingest/manifest"),
            metadata=given.text("metadata", ""),
            root=given.text("root", "penstock"),
            objects=given.objects(),
            rows=given.choice("rows", ("table", "descriptors")),
            table=given.choice("table", tuple(TABLES)),
            tiers=given.tiers(),
            topics=given.names("topics"),
            namespaces=given.names("namespaces"),
            starting_offsets=given.start(),
            admission=Admission(
                given.count("maxSegmentsPerTrigger"),
                given.count("maxBytesPerTrigger"),
                given.count("minBytesPerTrigger"),
                given.seconds("maxTriggerDelay"),
            ),
            fail_on_data_loss=given.choice("failOnDataLoss", ("true", "false")) == "true",
            partition_bytes=given.count("partitionBytes") or 8 * MIB,
        )


class _Given:
    """The options as text."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._texts = {name.lower(): text for name, text in options.items()}
        others = {name for name in self._texts if not name.startswith(_OBJECTS)}
        unknown = others - {name.lower() for name in NAMES}
        if unknown:
            known = ", ".join(NAMES)
            raise InvalidArgument(f"no option of penstock: {min(unknown)}; there are {known}")

    def path(self) -> str:
        text = self._texts.get("path")
        if not text:
            raise InvalidArgument("which data directory? load(PATH) says so")
        if self._texts.get("source", "directory").lower() != "directory":
            return text
        return str(Path(text.removeprefix("file://")).absolute())

    def text(self, name: str, default: str) -> str:
        return self._texts.get(name, default)

    def objects(self) -> dict[str, str]:
        """Those of the object store, without their prefix."""
        return {
            name.removeprefix(_OBJECTS): text
            for name, text in self._texts.items()
            if name.startswith(_OBJECTS)
        }

    def choice(self, name: str, choices: Sequence[str]) -> str:
        text = self._texts.get(name.lower(), choices[0])
        if text.lower() not in choices:
            raise InvalidArgument(f"{name} is {' or '.join(choices)}, not {text!r}")
        return text.lower()

    def names(self, name: str) -> frozenset[str] | None:
        text = self._texts.get(name)
        names = frozenset(part.strip() for part in (text or "").split(",")) - {""}
        if text is not None and not names:
            raise InvalidArgument(f"{name} names none")
        return names or None

    def tiers(self) -> frozenset[Tier]:
        found = self.names("tiers") or ALL
        if not found <= ALL:
            raise InvalidArgument(f"tiers are hot, warm and cold, not {min(found - ALL)!r}")
        return frozenset(map(Tier, found))

    def count(self, name: str) -> int | None:
        text = self._texts.get(name.lower())
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and int(text) > 0):
            raise InvalidArgument(f"{name} is a number over 0, not {text!r}")
        return int(text)

    def seconds(self, name: str) -> float | None:
        text = self._texts.get(name.lower())
        if text is None:
            return None
        if not _SECONDS.fullmatch(text):
            raise InvalidArgument(f"{name} is a number of seconds like 90s, not {text!r}")
        return float(text.removesuffix("s"))

    def start(self) -> str:
        text = self._texts.get("startingoffsets", "earliest")
        if text not in {"earliest", "latest"}:
            parse_offsets(text)
        return text
