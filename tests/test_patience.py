"""Tests wait as long as one place says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import patience
from tests.patience import until

TESTS = Path(__file__).parent
BUILDS = TESTS / "interop"
"""Programs that others wrote are fetched and built there, which takes as long as it takes."""


def test_no_other_file_has_a_limit() -> None:
    """A second one would be too short on somebody's machine."""
    own = re.compile(r"^_?(PATIENCE|WAIT)_S\b.*= *[0-9]|mark\.timeout\([0-9]{1,2}\)", re.MULTILINE)
    files = [path for path in TESTS.rglob("*.py") if BUILDS not in path.parents]
    assert [each.name for each in files if own.search(each.read_text())] == ["patience.py"]


def test_what_never_happens_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what does is returned."""
    monkeypatch.setattr(patience, "PATIENCE_S", 0.0)
    with pytest.raises(AssertionError, match="the answer did not happen"):
        until(lambda: None, "the answer")
    assert until(lambda: "found") == "found"
