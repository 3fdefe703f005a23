"""Sizes and durations as people write them: `32MB`, `4GiB`, `25ms`, `1h30m`."""

from __future__ import annotations

import math
import re
from typing import Final

from penstock.model.errors import InvalidSetting

DAY_S: Final = 86_400.0

_SIZE = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*")
_SIZES: Final = {
    "": 1,
    "b": 1,
    "k": 1000,
    "kb": 1000,
    "m": 1000**2,
    "mb": 1000**2,
    "g": 1000**3,
    "gb": 1000**3,
    "t": 1000**4,
    "tb": 1000**4,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
    "tib": 1024**4,
}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h|d)")
_SECONDS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": DAY_S,
}


def parse_size(text: object) -> int:
    """Bytes. `MB` is a million, `MiB` is 2^20; a bare number is bytes."""
    if isinstance(text, int) and not isinstance(text, bool) and text >= 0:
        return text
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    factor = _SIZES.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise InvalidSetting(f"{text!r} is no size; write it like 32MB or 4GiB")
    if match[1].isdigit():
        return int(match[1]) * factor
    from decimal import Decimal  # rare, and 5 ms

    return int(Decimal(match[1]) * factor)


def parse_duration(text: object) -> float:
    """Seconds. A bare number is seconds."""
    if isinstance(text, int | float) and not isinstance(text, bool) and 0 <= text < math.inf:
        return float(text)
    compact = re.sub(r"\s+", "", text) if isinstance(text, str) else ""
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", compact):
        return float(compact)
    parts = _DURATION.findall(compact)
    if not parts or "".join(a + b for a, b in parts) != compact:
        raise InvalidSetting(f"{text!r} is no duration; write it like 25ms, 3s or 1h30m")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def show_size(size: int) -> str:
    """The shortest way to write it exactly."""
    for unit in ("TiB", "TB", "GiB", "GB", "MiB", "MB", "KiB", "kB"):
        factor = _SIZES[unit.lower()]
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def show_duration(seconds: float) -> str:
    """The shortest way to write it exactly, to the nanosecond."""
    nanoseconds = round(seconds * 1e9)
    for unit in ("d", "h", "m", "s", "ms", "us"):
        factor = round(_SECONDS[unit] * 1e9)
        if nanoseconds and nanoseconds % factor == 0:
            return f"{nanoseconds // factor}{unit}"
    return f"{nanoseconds}ns" if nanoseconds else "0s"
