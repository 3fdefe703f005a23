"""When what was stored goes to the lake, and how much at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.model.errors import InvalidSetting
from penstock.model.settings import MIB

DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushSettings:
    """The cold flush."""

    flush_max_bytes: int = 25_000_000
    """A batch begins when sealed segments of this size wait."""

    flush_max_age_s: float = 3600.0
    """Or when the oldest of them has waited for this long. Until then queries find them in their
    segments; less makes smaller files."""

    batch_bytes: int = 256 * MIB
    """The most that one batch takes. One segment is taken in any case."""

    check_interval_s: float = 1.0
    """How often it is looked whether a batch is due."""

    repeat_window_s: float = 600.0
    """What is sent again within this time is not written again. 0: only rows within one batch are
    compared."""

    repeat_rows: int = 80_000_000
    """The most rows of a table that are remembered for that: 120,000 a second for eleven minutes.
    18 bytes of disk each, of which the 2 of the filter want to be in the page cache."""

    day_window_s: float = 1826 * DAY_S
    """Rows whose time is further than this from their arrival have no file of their day: they share
    one. Less bounds how many days wrong clocks can bring to the lake in the long run."""

    days_per_batch: int = 32
    """The most days other than those of arrival for which the rows of one namespace that are
    written together get files; of more, the nearest. The others share one as well."""

    def __post_init__(self) -> None:
        """Refuses what cannot work."""
        for name in ("flush_max_bytes", "batch_bytes", "check_interval_s"):
            if getattr(self, name) <= 0:
                raise InvalidSetting(f"{name} must be over 0")
        not_negative = ("flush_max_age_s", "repeat_window_s", "repeat_rows", "day_window_s")
        for name in (*not_negative, "days_per_batch"):
            if getattr(self, name) < 0:
                raise InvalidSetting(f"{name} must not be negative")
