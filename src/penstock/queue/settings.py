"""Typed, frozen settings of producers, consumers and the garbage collector."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated, Final

from penstock.model.errors import InvalidSetting
from penstock.model.fields import Count, Duration, OrNone, Settings, Size, Text, setting, words
from penstock.model.settings import GIB, KIB, MIB

DATA_PATH_PREFIX: Final = "ingest"
MANIFEST_PATH: Final = "ingest/manifest"


class CompressionType(enum.IntEnum):
    """How the records of a batch are packed."""

    NONE = 0
    """As they are."""

    ZSTD = 1
    """Zstandard at level 3, all records as one unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings(Settings):
    """Where a queue is. Its producers and its consumer must agree."""

    data_path_prefix: Text = setting(
        DATA_PATH_PREFIX,
        "What the keys of batches begin with. No other queue may use it: the garbage collector "
        "removes every batch there that this queue does not need.",
    )
    manifest_path: Text = setting(
        MANIFEST_PATH,
        "The key of the manifest; its identity and its chunks have keys that begin with it.",
    )
    manifest_version: Count = setting(
        2,
        "For a queue that does not exist yet. 1 is for other implementations: it has no checksums, "
        "and each append rewrites the whole manifest. A queue that exists keeps its version.",
        least=1,
        most=2,
    )

    def check(self) -> None:
        """A key with empty parts is another one to some stores."""
        for name in ("data_path_prefix", "manifest_path"):
            parts = getattr(self, name).split("/")
            if not all(parts) or {".", ".."} & set(parts):
                raise InvalidSetting("{} is a path without empty parts", name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(QueueSettings):
    """How a producer gathers, stores and enqueues."""

    flush_interval_s: Duration = setting(
        0.1,
        "A batch is stored at the latest so long after its first entry. Longer means larger and "
        "fewer objects, and a later acknowledgement.",
        key="flush_interval",
        least=0,
    )
    flush_size_bytes: Size = setting(
        64 * MIB, "A batch is stored at once when its entries exceed this.", least=0
    )
    max_buffered_inputs: Count = setting(
        1000,
        "Most calls of `produce` whose entries are not durable yet; the next one waits.",
        over=0,
    )
    max_buffered_bytes: Size = setting(
        256 * MIB,
        "Most bytes of such entries; over it `produce` waits, or fails where told not to wait, and "
        "requests are put off.",
        over=0,
    )
    batch_compression: Annotated[
        CompressionType, words(none=CompressionType.NONE, zstd=CompressionType.ZSTD)
    ] = setting(
        CompressionType.NONE,
        "How batches are packed. zstd costs time of the processor and saves bytes stored and sent.",
    )
    max_uploads: Count = setting(4, "So many batches are stored at a time.", over=0)
    tail_bytes: Size = setting(
        32 * KIB,
        "When the manifest's entries exceed this, they are put aside as a chunk. Less makes "
        "appends cheaper and chunks more.",
        key="tail_size",
        least=0,
    )
    retry_s: Duration = setting(
        30.0,
        "How long a batch is tried, from its flush on, before its handles fail.",
        key="retry",
        over=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageSettings(QueueSettings):
    """When the garbage collector looks, and what it leaves alone."""

    gc_interval_s: OrNone[Duration] = setting(
        300.0, "How often it looks. None: a consumer does not run it.", key="gc_interval", over=0
    )
    gc_grace_period_s: Duration = setting(
        600.0,
        "The least age of what it deletes. A producer that takes longer than this from storing a "
        "batch to enqueuing it has to store it again.",
        key="gc_grace_period",
        least=0,
    )
    retry_s: Duration = setting(
        30.0,
        "How long a change of the manifest is tried while the store does not answer.",
        key="retry",
        least=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(GarbageSettings):
    """How a consumer reads."""

    acks_per_dequeue: Count = setting(
        100,
        "The manifest is rewritten after so many acknowledgements. A consumer that fails may get "
        "so many again, unless the caller stores the sequence with the data.",
        over=0,
    )
    read_ahead_batches: Count = setting(
        4, "Batches fetched before they are asked for, at the same time.", least=0
    )
    read_ahead_bytes: Size = setting(
        256 * MIB, "No more are fetched ahead while those that are there hold this much.", over=0
    )
    max_batch_bytes: Size = setting(
        1 * GIB, "A batch that unpacks to more is refused as damaged.", over=0
    )
