"""Typed, frozen settings of producers, consumers and the garbage collector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.model.errors import InvalidSetting
from penstock.model.settings import GIB, KIB, MIB
from penstock.queue.batch import CompressionType

DATA_PATH_PREFIX: Final = "ingest"
MANIFEST_PATH: Final = "ingest/manifest"


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidSetting(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """Where a queue is. Its producers and its consumer must agree."""

    data_path_prefix: str = DATA_PATH_PREFIX
    """Batches are stored below it. No other queue may use it: the garbage collector removes every
    batch there that this queue does not need."""

    manifest_path: str = MANIFEST_PATH
    """The key of the manifest; its identity and its chunks have keys that begin with it."""

    manifest_version: int = 2
    """For a queue that does not exist yet. 1 is for other implementations: it has no checksums,
    and each append rewrites the whole manifest. A queue that exists keeps its version."""

    def __post_init__(self) -> None:
        """Refuses settings that cannot work together."""
        for name in ("data_path_prefix", "manifest_path"):
            path = getattr(self, name)
            parts = path.split("/")
            sound = all(parts) and not {".", ".."} & set(parts)
            _require(sound, f"{name} is a path without empty parts, not {path!r}")
        _require(self.manifest_version in {1, 2}, "manifest_version is 1 or 2")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(QueueSettings):
    """How a producer gathers, stores and enqueues."""

    flush_interval_s: float = 0.1
    """A batch is stored at the latest so long after its first entry. Longer means larger and
    fewer objects, and a later acknowledgement."""

    flush_size_bytes: int = 64 * MIB
    """A batch is stored at once when its entries exceed this."""

    max_buffered_inputs: int = 1000
    """Most calls of `produce` whose entries are not durable yet; the next one waits."""

    max_buffered_bytes: int = 256 * MIB
    """Most bytes of such entries; over it `produce` waits, or fails where told not to wait."""

    batch_compression: CompressionType = CompressionType.NONE
    """How batches are packed. ZSTD costs time of the processor and saves bytes stored and sent."""

    max_uploads: int = 4
    """So many batches are stored at a time."""

    tail_bytes: int = 32 * KIB
    """When the manifest's entries exceed this, they are put aside as a chunk. Less makes appends
    cheaper and chunks more."""

    retry_s: float = 30.0
    """How long a batch is tried, from its flush on, before its handles fail."""

    def __post_init__(self) -> None:
        """Refuses settings that cannot work together."""
        QueueSettings.__post_init__(self)
        try:  # a number from a file is as good; anything else would pack nothing
            compression = CompressionType(self.batch_compression)
        except ValueError:
            raise InvalidSetting("batch_compression is 0 (none) or 1 (zstd)") from None
        object.__setattr__(self, "batch_compression", compression)
        for name in ("max_buffered_inputs", "max_buffered_bytes", "max_uploads", "retry_s"):
            _require(getattr(self, name) > 0, f"{name} must be over 0")
        for name in ("flush_interval_s", "flush_size_bytes", "tail_bytes"):
            _require(getattr(self, name) >= 0, f"{name} must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageSettings(QueueSettings):
    """When the garbage collector looks, and what it leaves alone."""

    gc_interval_s: float | None = 300.0
    """How often it looks. None: a consumer does not run it."""

    gc_grace_period_s: float = 600.0
    """The least age of what it deletes. A producer that takes longer than this from storing a
    batch to enqueuing it has to store it again."""

    retry_s: float = 30.0
    """How long a change of the manifest is tried while the store does not answer."""

    def __post_init__(self) -> None:
        """Refuses settings that cannot work together."""
        QueueSettings.__post_init__(self)
        interval = self.gc_interval_s
        _require(interval is None or interval > 0, "gc_interval_s must be over 0, or None")
        _require(self.gc_grace_period_s >= 0, "gc_grace_period_s must not be negative")
        _require(self.retry_s >= 0, "retry_s must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(GarbageSettings):
    """How a consumer reads."""

    acks_per_dequeue: int = 100
    """The manifest is rewritten after so many acknowledgements. A consumer that fails may get so
    many again, unless the caller stores the sequence with the data."""

    read_ahead_batches: int = 4
    """Batches fetched before they are asked for, at the same time."""

    read_ahead_bytes: int = 256 * MIB
    """No more are fetched ahead while those that are there hold this much."""

    max_batch_bytes: int = 1 * GIB
    """A batch that unpacks to more is refused as damaged."""

    def __post_init__(self) -> None:
        """Refuses settings that cannot work together."""
        GarbageSettings.__post_init__(self)
        for name in ("acks_per_dequeue", "read_ahead_bytes", "max_batch_bytes"):
            _require(getattr(self, name) > 0, f"{name} must be over 0")
        _require(self.read_ahead_batches >= 0, "read_ahead_batches must not be negative")
