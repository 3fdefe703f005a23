"""When and how the archive takes what the log holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from penstock.model.fields import Duration, OrNone, Settings, Size, setting, words
from penstock.model.settings import MIB

DEFAULT_ROOT: Final = "penstock"
"""What the keys of an archive begin with."""


@dataclass(frozen=True, slots=True)
class ArchiveSettings(Settings):
    """How one topic partition is archived."""

    upload_bytes: Size = setting(
        64 * MIB,
        "An object is uploaded when so many bytes wait. Small: sooner safe elsewhere; large: fewer "
        "objects. An object grows to about this and at most one log file more.",
        key="upload_size",
        over=0,
    )
    upload_interval_s: Duration = setting(
        60.0,
        "An object is uploaded when a message has waited this long, however few there are.",
        key="upload_interval",
        over=0,
    )
    compression: Annotated[bool, words(none=False, zstd=True)] = setting(
        False, "Whether blocks are packed with zstd: less to store and to carry, more to compute."
    )
    retention_s: OrNone[Duration] = setting(
        None,
        "Objects written longer ago than this are removed. None: age removes nothing.",
        key="retention",
        least=0,
    )
    retention_bytes: OrNone[Size] = setting(
        None,
        "The oldest objects are removed until the rest is this small. None: size removes nothing.",
        key="retention_size",
        least=0,
    )
    upkeep_interval_s: Duration = setting(
        600.0,
        "How often retention is applied and what interrupted uploads left behind is removed.",
        key="upkeep_interval",
        over=0,
    )
    poll_s: Duration = setting(
        1.0, "How often the uploader looks whether an upload is due.", key="poll", over=0
    )
    retry_s: Duration = setting(
        5.0,
        "The longest pause after a store did not answer; it doubles up to a minute.",
        key="retry",
        over=0,
    )
