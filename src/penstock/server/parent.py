"""A process of the server is nothing without the one that started it, and ends as if killed.

Not in order: closing writes, renames and removes by path, and whoever sees that `penstock serve` is
gone may have put another data directory there. What was acknowledged is in the log; the next server
recovers it, as after a power loss.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
from typing import Final

_SET_DEATH_SIGNAL: Final = 1
"""PR_SET_PDEATHSIG, of <linux/prctl.h>."""
_STDIN: Final = 0


def end_with_parent() -> None:
    """From now on, or at once. First of all; the parent holds the other end of stdin.

    Linux sends SIGKILL before anybody can see that the parent is gone. Elsewhere the end of stdin
    says so: whoever reads it calls `end_at_once`.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    hang_up = select.poll()
    hang_up.register(_STDIN, 0)
    if hang_up.poll(0):  # it had ended before
        end_at_once()


def end_at_once() -> None:
    """Nothing more reaches the disk."""
    os._exit(1)
