"""What went wrong, in one sentence."""

from __future__ import annotations

import re
from typing import Final

_TRACE: Final = "Traceback (most recent call last):"
_OURS: Final = re.compile(r"penstock\.model\.errors\.\w+: ")


def problem_of(error: Exception) -> str:
    """Of an error of ours, its own words; of one in a task, what was raised there last."""
    told, _, trace = str(error).rpartition(_TRACE)
    if told:
        # The first line that is not indented ends a traceback.
        for line in trace.splitlines():
            if line[:1].strip():
                return _OURS.sub("", line.rstrip(), count=1)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
