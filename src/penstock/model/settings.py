"""Typed, frozen settings. Each field says its default's consequence."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from penstock.model.errors import InvalidSetting

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidSetting(message)


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
class LogSettings:
    """How one topic log writes, rotates, caches and forgets."""

    durability: Durability = Durability.SYNC
    """What an acknowledgement means."""

    commit_delay_s: float = 0.0
    """How long a commit gathers messages before it starts. 0: a commit takes whatever waits when
    the disk is free, which already groups under load; more trades latency for fewer syncs."""

    commit_bytes: int = 8 * MIB
    """A gathering commit starts at once when this much waits."""

    sync_interval_s: float = 0.025
    """With `interval`: the longest time between a write and its fdatasync."""

    sync_bytes: int = 10 * MIB
    """With `interval`: fdatasync at once when this much was written without."""

    queue_bytes: int = 32 * MIB
    """Most bytes waiting for the disk. Over it `append` waits, or fails where told not to wait."""

    max_message_bytes: int = 16 * MIB
    """Larger messages are refused. At most `queue_bytes`."""

    rotate_bytes: int = 64 * MIB
    """A file is closed before it would grow over this. Retention and repair work on whole files:
    small ones are forgotten sooner, large ones cost fewer file operations."""

    rotate_s: float | None = 3600.0
    """A file is closed when this old, also on an idle topic. None: by size alone."""

    cache_bytes: int = 4 * MIB
    """The newest messages kept in memory for readers near the end. 0: none."""

    cache_idle_s: float = 30.0
    """The cache of a topic without appends for this long is dropped."""

    retention_s: float | None = None
    """Files older than this go, if they lie below the floor. None: age removes nothing."""

    retention_bytes: int | None = None
    """The oldest files go until the log is this small, if they lie below the floor. 0: everything
    below the floor goes; None: size removes nothing."""

    def __post_init__(self) -> None:
        """Refuses settings that cannot work together."""
        try:  # "sync" is as good as Durability.SYNC; anything else would sync nothing
            object.__setattr__(self, "durability", Durability(self.durability))
        except ValueError:
            raise InvalidSetting("durability is sync, interval or buffer") from None
        for name in ("commit_bytes", "sync_bytes", "queue_bytes", "max_message_bytes"):
            _require(getattr(self, name) > 0, f"{name} must be over 0")
        for name in ("commit_delay_s", "cache_bytes", "cache_idle_s"):
            _require(getattr(self, name) >= 0, f"{name} must not be negative")
        _require(self.sync_interval_s > 0, "sync_interval_s must be over 0")
        _require(self.rotate_bytes >= 64 * KIB, "rotate_bytes must be at least 64 KiB")
        _require(self.rotate_s is None or self.rotate_s > 0, "rotate_s must be over 0, or None")
        _require(
            self.max_message_bytes + 16 <= self.queue_bytes,
            "max_message_bytes and its frame of 16 bytes do not fit into queue_bytes",
        )
        _require(self.max_message_bytes < 2 * GIB, "max_message_bytes must be under 2 GiB")
        for name in ("retention_s", "retention_bytes"):
            value = getattr(self, name)
            _require(value is None or value >= 0, f"{name} must not be negative")


class Compression(enum.Enum):
    """How the buffers of a segment's columns are packed."""

    NONE = "none"
    """Not at all: a reader maps the file and copies nothing."""

    LZ4 = "lz4"
    """About half the size; reading costs a copy."""

    ZSTD = "zstd"
    """About a third of the size; writing costs several times the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSettings:
    """When the open segment is sealed, and how it is written."""

    target_bytes: int = 32 * MIB
    """Sealed when its bundles are this large in memory. Bounds the memory of one partition."""

    max_open_s: float = 5.0
    """Sealed when its first bundle is this old. Subscribers get a bundle when it is sealed."""

    max_streams: int = 256
    """Sealed before it would have more streams (pairs of slot and schema)."""

    dictionary_values: int = 65_536
    """Sealed when a column's dictionary has grown to this many values; a column that has more
    within one bundle is stored plain."""

    compression: Compression = Compression.NONE
    """How column buffers are packed."""

    def __post_init__(self) -> None:
        """Refuses settings that cannot work."""
        try:
            object.__setattr__(self, "compression", Compression(self.compression))
        except ValueError:
            raise InvalidSetting("compression is none, lz4 or zstd") from None
        _require(self.target_bytes >= 64 * KIB, "target_bytes must be at least 64 KiB")
        _require(self.max_open_s > 0, "max_open_s must be over 0")
        _require(64 <= self.max_streams <= 65_535, "max_streams is 64 to 65535")
        _require(0 <= self.dictionary_values < 2**31, "dictionary_values is 0 to 2^31")


class SizePolicy(enum.Enum):
    """What happens when the disk budget is used up and nothing may be deleted."""

    BACKPRESSURE = "backpressure"
    """`append` waits, or fails with StoreFull. Nothing is lost."""

    DROP_OLDEST = "drop_oldest"
    """The oldest segment goes, delivered or not; what it held is recorded as `dropped`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """How one store seals, delivers and forgets."""

    log: LogSettings = LogSettings(retention_bytes=0)
    """The log's own settings. With `retention_bytes` 0 a file goes as soon as it is in segments."""

    segment: SegmentSettings = SegmentSettings()
    """The segments' own settings."""

    budget_bytes: int | None = None
    """Most bytes on disk for log and segments together; a seal may exceed it by one segment.
    None: no limit."""

    max_log_bytes: int | None = 4 * GIB
    """Most bytes in the log that wait to be sealed; appends wait beyond. None: no limit."""

    size_policy: SizePolicy = SizePolicy.BACKPRESSURE
    """What happens at the limit of `budget_bytes`."""

    max_age_s: float | None = None
    """Segments whose newest bundle is older go, delivered or not. None: age removes nothing."""

    headroom_bytes: int = 0
    """This many bytes of the newest fully acknowledged segments are kept all the same."""

    max_in_flight: int = 64
    """Bundles that one subscriber may hold unanswered; `next_bundle` waits beyond."""

    claim_s: float | None = 300.0
    """A bundle that was handed out and not answered for this long is delivered again. None: only
    when its holder is gone."""

    retry_first_s: float = 0.1
    """The pause after a first nack; it doubles with each further one, with jitter."""

    retry_most_s: float = 60.0
    """The longest pause after a nack."""

    ack_log_bytes: int = 4 * MIB
    """ack.log is compacted when it has grown to this size, which bounds what a restart replays."""

    seal_retries: int = 5
    """A seal that failed is tried again this often before the store stops. A full disk does not
    count: it is tried again until there is space."""

    def __post_init__(self) -> None:
        """Refuses settings that cannot work together."""
        try:
            object.__setattr__(self, "size_policy", SizePolicy(self.size_policy))
        except ValueError:
            raise InvalidSetting("size_policy is backpressure or drop_oldest") from None
        _require(
            self.budget_bytes is None or self.budget_bytes >= 4 * self.segment.target_bytes,
            "budget_bytes must be at least four times target_bytes",
        )
        _require(
            self.max_log_bytes is None or self.max_log_bytes >= 4 * self.segment.target_bytes,
            "max_log_bytes must be at least four times target_bytes",
        )
        _require(self.max_age_s is None or self.max_age_s > 0, "max_age_s must be over 0, or None")
        _require(self.headroom_bytes >= 0, "headroom_bytes must not be negative")
        _require(self.max_in_flight > 0, "max_in_flight must be over 0")
        _require(self.claim_s is None or self.claim_s > 0, "claim_s must be over 0, or None")
        _require(0 < self.retry_first_s <= self.retry_most_s, "0 < retry_first_s <= retry_most_s")
        _require(self.ack_log_bytes >= 64 * KIB, "ack_log_bytes must be at least 64 KiB")
        _require(self.seal_retries >= 0, "seal_retries must not be negative")
