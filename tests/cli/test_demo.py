"""`penstock demo` shows what it promises and ends by itself."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

from tests.cli.running import finish, run, start

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_demo_loses_nothing_and_tidies_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer is killed, a byte flipped; the last row of the summary ends with 0 lost."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    answer = finish(start("demo", "--kills", "2", "--seconds", "0.2"))
    assert (answer.code, answer.err) == (0, "")
    _, acknowledged, found, wrong, lost = map(int, answer.out.splitlines()[-1].split())
    assert 0 < acknowledged <= found
    assert (wrong, lost) == (0, 0)
    assert "repaired:" in answer.out
    assert list(tmp_path.iterdir()) == []


def test_kept_demo_can_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands that it suggests work on what it left."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    answer = run("demo", "--keep", "--kills", "1", "--seconds", "0.2")
    assert answer.code == 0
    lines = [line.split() for line in answer.out.splitlines()]
    suggested = [line[1:] for line in lines if line[:1] == ["penstock"]]
    assert [line[0] for line in suggested] == ["topics", "tail", "fsck"]
    assert [run(*line).code for line in suggested] == [0, 0, 0]
