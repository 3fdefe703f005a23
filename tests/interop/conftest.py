"""Everything here is `interop`: it needs parts that others wrote and PyPI does not have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

_HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks them before anything is chosen by a mark."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.interop)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The last line says what was not reached, so that nobody takes a skip for a pass."""
    stats = terminalreporter.stats
    if not any(_here(stats.get(outcome, ())) for outcome in ("passed", "failed", "skipped")):
        return
    # A report of a skip keeps (file, line, reason).
    reasons = {
        str(r.longrepr[2]).removeprefix("Skipped: ") for r in _here(stats.get("skipped", ()))
    }
    missing = "; ".join(sorted(reasons)) if reasons else "nothing"
    terminalreporter.write_line(f"interop: not reached: {missing}")


def _here(reports: Iterable[Any]) -> list[Any]:
    return [report for report in reports if report.nodeid.startswith("tests/interop/")]
