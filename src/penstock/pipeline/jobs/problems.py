"""What went wrong, in one sentence."""

from __future__ import annotations

import re
from typing import Final

_RAISED: Final = re.compile(r"(?:penstock\.model\.errors\.)?([A-Za-z_][\w.]*: .+)")
"""The last line of a Python traceback."""


def problem_of(error: Exception) -> str:
    """Of an error of ours, its own words; of one in a task, what was raised there."""
    lines = [line.rstrip() for line in str(error).splitlines() if line.strip()]
    if "Traceback (most recent call last):" in lines:
        raised = [match[1] for line in lines if (match := _RAISED.fullmatch(line))]
        lines = raised[-1:] or lines
    return lines[0] if lines else type(error).__name__
