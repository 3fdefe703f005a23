"""Makes system calls fail by strace, where it is installed and may trace."""

from __future__ import annotations

import shutil
import subprocess

import pytest

STRACE = shutil.which("strace") or ""


def _problem() -> str | None:
    """Why no system call can be made to fail here; None where it can."""
    if not STRACE:
        return "strace is not installed"
    inject = ["-f", "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO"]
    tried = subprocess.run([STRACE, *inject, "true"], capture_output=True, text=True, check=False)
    return f"strace may not trace here: {tried.stderr.strip()}" if tried.returncode else None


_PROBLEM = _problem()
needs_strace = pytest.mark.skipif(_PROBLEM is not None, reason=_PROBLEM or "")
