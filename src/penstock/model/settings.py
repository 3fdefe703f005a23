"""Typed, frozen settings. Each field says its default's consequence."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from penstock.model.errors import InvalidSetting

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


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


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidSetting(message)
