"""When what was stored goes to the lake, and how much at a time."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.fields import Count, Duration, Megabytes, Settings, Size, setting
from penstock.model.settings import MIB
from penstock.model.units import DAY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushSettings(Settings):
    """The cold flush."""

    flush_max_bytes: Megabytes = setting(
        25_000_000,
        "A batch begins when sealed segments of this size wait.",
        key="flush_max_mb",
        over=0,
    )
    flush_max_age_s: Duration = setting(
        3600.0,
        "Or when the oldest of them has waited for this long. Until then queries find them in "
        "their segments; less makes smaller files.",
        key="flush_max_age_secs",
        least=0,
    )
    batch_bytes: Size = setting(
        256 * MIB,
        "The most that one batch takes. One segment is taken in any case.",
        key="batch_size",
        over=0,
    )
    check_interval_s: Duration = setting(
        1.0, "How often it is looked whether a batch is due.", key="flush_interval", over=0
    )
    repeat_window_s: Duration = setting(
        600.0,
        "What is sent again within this time is not written again. 0: only rows within one batch "
        "are compared.",
        key="repeat_window",
        least=0,
    )
    repeat_rows: Count = setting(
        80_000_000,
        "The most rows of a table that are remembered for that: 120,000 a second for eleven "
        "minutes. 18 bytes of disk each, of which the 2 of the filter want to be in the page "
        "cache.",
        least=0,
    )
    day_window_s: Duration = setting(
        1826 * DAY_S,
        "Rows whose time is further than this from their arrival have no file of their day: they "
        "share one. Less bounds how many days wrong clocks can bring to the lake in the long run.",
        key="day_window",
        least=0,
    )
    days_per_batch: Count = setting(
        32,
        "The most days other than those of arrival for which the rows of one namespace that are "
        "written together get files; of more, the nearest. The others share one as well.",
        least=0,
    )
