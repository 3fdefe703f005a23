"""Typed, frozen settings of logs, segments and stores. Each field says its consequence."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from penstock.model.errors import InvalidSetting
from penstock.model.fields import Count, Duration, Hours, OrNone, Settings, Size, setting

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
_FRAME_BYTES: Final = 16
"""What a message takes of the queue beside its own bytes."""


class Durability(enum.Enum):
    """When `Append.durable` resolves, and what that leaves to lose."""

    SYNC = "sync"
    """After fdatasync. A power loss costs nothing that was acknowledged."""

    INTERVAL = "interval"
    """After the write. A killed process loses nothing; a power loss costs what was acknowledged
    in the last `sync_interval_s` or `sync_bytes`, whichever came first."""

    BUFFER = "buffer"
    """At once. A killed process loses what was still queued; a power loss costs what the kernel
    had not written by itself. Synced at rotation, `flush` and `close` only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WalSettings(Settings):
    """How a log writes, rotates and caches: what is left to who runs it."""

    durability: Durability = setting(Durability.SYNC, "What an acknowledgement means.")
    commit_delay_s: Duration = setting(
        0.0,
        "How long a commit gathers messages before it starts. 0: it takes what waits when the disk "
        "is free, which already groups under load; more trades latency for fewer syncs.",
        key="commit_delay",
        least=0,
    )
    commit_bytes: Size = setting(
        8 * MIB,
        "A gathering commit starts at once when this much waits.",
        key="commit_size",
        over=0,
    )
    sync_interval_s: Duration = setting(
        0.025,
        "With `interval`: the longest time between a write and its fdatasync.",
        key="flush_interval",
        over=0,
    )
    sync_bytes: Size = setting(
        10 * MIB,
        "With `interval`: fdatasync at once when this much was written without.",
        key="flush_size",
        over=0,
    )
    rotate_bytes: Size = setting(
        64 * MIB,
        "A file is closed before it would grow over this. Retention and repair work on whole "
        "files: small ones are forgotten sooner, large ones cost fewer file operations.",
        key="rotate_size",
        least=64 * KIB,
    )
    rotate_s: OrNone[Duration] = setting(
        3600.0,
        "A file is closed when this old, also on an idle topic. None: by size alone.",
        key="rotate_interval",
        over=0,
    )
    cache_bytes: Size = setting(
        4 * MIB,
        "The newest messages kept in memory for readers near the end. 0: none.",
        key="cache_size",
        least=0,
    )
    cache_idle_s: Duration = setting(
        30.0,
        "The cache of a topic without appends for this long is dropped.",
        key="cache_idle",
        least=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings(WalSettings):
    """How one topic log writes, rotates, caches and forgets."""

    queue_bytes: Size = setting(
        32 * MIB,
        "Most bytes waiting for the disk. Over it `append` waits, or fails where told not to wait.",
        over=0,
    )
    max_message_bytes: Size = setting(
        16 * MIB,
        "Larger messages are refused. At most `queue_bytes`.",
        over=0,
        most=2 * GIB - 1,  # a frame's length has 32 bits
    )
    retention_s: OrNone[Duration] = setting(
        None,
        "Files older than this go, if they lie below the floor. None: age removes nothing.",
        least=0,
    )
    retention_bytes: OrNone[Size] = setting(
        None,
        "The oldest files go until the log is this small, if they lie below the floor. 0: "
        "everything below the floor goes; None: size removes nothing.",
        least=0,
    )

    def check(self) -> None:
        """A message that the queue cannot hold would wait for ever."""
        if self.max_message_bytes + _FRAME_BYTES > self.queue_bytes:
            text = f"{{}} and its frame of {_FRAME_BYTES} bytes do not fit into {{}}"
            raise InvalidSetting(text, "max_message_bytes", "queue_bytes")


class Compression(enum.Enum):
    """How the buffers of a segment's columns are packed."""

    NONE = "none"
    """Not at all: a reader maps the file and copies nothing."""

    LZ4 = "lz4"
    """About half the size; reading costs a copy."""

    ZSTD = "zstd"
    """About a third of the size; writing costs several times the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSettings(Settings):
    """When the open segment is sealed, and how it is written."""

    target_bytes: Size = setting(
        32 * MIB,
        "Sealed when its bundles are this large in memory. Bounds the memory of one partition.",
        key="target_size",
        least=64 * KIB,
    )
    max_open_s: Duration = setting(
        5.0,
        "Sealed when its first bundle is this old. Subscribers get a bundle when it is sealed.",
        key="max_open_duration",
        over=0,
    )
    max_streams: Count = setting(
        256,
        "Sealed before it would have more streams (pairs of slot and schema).",
        least=64,
        most=65_535,
    )
    dictionary_values: Count = setting(
        65_536,
        "Sealed when a column's dictionary has grown to this many values; a column that has more "
        "within one bundle is stored plain.",
        least=0,
        most=2**31 - 1,
    )
    compression: Compression = setting(Compression.NONE, "How column buffers are packed.")


class SizePolicy(enum.Enum):
    """What happens when the disk budget is used up and nothing may be deleted."""

    BACKPRESSURE = "backpressure"
    """`append` waits, or fails with StoreFull. Nothing is lost."""

    DROP_OLDEST = "drop_oldest"
    """The oldest segment goes, delivered or not; what it held is recorded as `dropped`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings(Settings):
    """Which segments stay."""

    max_age_s: OrNone[Hours] = setting(
        None,
        "Segments whose newest bundle is older go, delivered or not. None: age removes nothing.",
        key="max_retain_after_ingestion_hours",
        over=0,
    )
    size_policy: SizePolicy = setting(
        SizePolicy.BACKPRESSURE,
        "What happens at the limit of size, and when the disk is full.",
        key="size_cap_policy",
    )
    headroom_bytes: Size = setting(
        0,
        "This many bytes of the newest fully acknowledged segments are kept all the same.",
        key="steady_state_headroom",
        least=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings(RetentionSettings):
    """How one store seals, delivers and forgets."""

    log: LogSettings = setting(
        LogSettings(retention_bytes=0),
        "The log's own settings. `retention_bytes` 0: a file goes as soon as it is in segments.",
    )
    segment: SegmentSettings = setting(SegmentSettings(), "The segments' own settings.")
    budget_bytes: OrNone[Size] = setting(
        None,
        "Most bytes on disk for log and segments together; a seal may exceed it by one segment. "
        "None: no limit.",
    )
    max_log_bytes: OrNone[Size] = setting(
        4 * GIB,
        "Most bytes of one log that wait to be sealed; appends wait beyond, and requests are put "
        "off. None: no limit.",
        key="max_size",
    )
    max_in_flight: Count = setting(
        64,
        "Bundles that one subscriber may hold unanswered; `next_bundle` waits beyond.",
        over=0,
    )
    claim_s: OrNone[Duration] = setting(
        300.0,
        "A bundle that was handed out and not answered for this long is delivered again. None: "
        "only when its holder is gone.",
        over=0,
    )
    retry_first_s: Duration = setting(
        0.1,
        "The pause after a first nack; it doubles with each further one, with jitter.",
        over=0,
    )
    retry_most_s: Duration = setting(60.0, "The longest pause after a nack.")
    ack_log_bytes: Size = setting(
        4 * MIB,
        "ack.log is compacted when it has grown to this size, which bounds what a restart replays.",
        least=64 * KIB,
    )
    seal_retries: Count = setting(
        5,
        "A seal that failed is tried again this often before the store stops. A full disk does not "
        "count: it is tried again until there is space.",
        least=0,
    )

    def check(self) -> None:
        """Under four segments nothing could be sealed and delivered at the same time."""
        for name in ("budget_bytes", "max_log_bytes"):
            bound = getattr(self, name)
            if bound is not None and bound < 4 * self.segment.target_bytes:
                raise InvalidSetting("{} must be at least four times {}", name, "target_bytes")
        if not self.retry_first_s <= self.retry_most_s:
            raise InvalidSetting("{} must be at least {}", "retry_most_s", "retry_first_s")
