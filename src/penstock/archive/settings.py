"""When and how the archive takes what the log holds."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.errors import InvalidSetting

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """How one topic partition is archived."""

    upload_bytes: int = 64 * _MIB
    """An object is uploaded when so many bytes wait. Small: sooner safe elsewhere; large: fewer
    objects. An object grows to about this and at most one log file more."""

    upload_interval_s: float = 60.0
    """An object is uploaded when a message has waited this long, however few there are."""

    compression: bool = False
    """Whether blocks are packed with zstd: less to store and to carry, more to compute."""

    retention_s: float | None = None
    """Objects written longer ago than this are removed. None: age removes nothing."""

    retention_bytes: int | None = None
    """The oldest objects are removed until the rest is this small. None: size removes nothing."""

    upkeep_interval_s: float = 600.0
    """How often retention is applied and what interrupted uploads left behind is removed."""

    poll_s: float = 1.0
    """How often the uploader looks whether an upload is due."""

    retry_s: float = 5.0
    """The pause after a store did not answer; it doubles up to a minute."""

    def __post_init__(self) -> None:
        """Refuses settings that cannot work."""
        for name in (
            *("upload_bytes", "upload_interval_s", "upkeep_interval_s"),
            *("poll_s", "retry_s"),
        ):
            if getattr(self, name) <= 0:
                raise InvalidSetting(f"{name} must be over 0")
        for name in ("retention_s", "retention_bytes"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise InvalidSetting(f"{name} must not be negative")
