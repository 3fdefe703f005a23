"""What went wrong, in one sentence."""

from __future__ import annotations

import re
from typing import Final

_RAISED: Final = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|[a-z]): .+")
"""The last line of a Python traceback."""


def problem_of(error: Exception) -> str:
    """Of an error of ours, its own words; of one in a task, what was raised there."""
    lines = [line.rstrip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    raised = [line for line in lines if _RAISED.fullmatch(line)]
    return raised[-1].rpartition("penstock.model.errors.")[2] if raised[1:] else lines[0]
