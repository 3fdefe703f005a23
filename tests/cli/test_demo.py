"""`penstock demo` shows what it promises and ends by itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.cli.running import finish, start

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_demo_loses_nothing_and_tidies_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is killed, Spark runs, every tier has spans; none is lost, none there twice."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    answer = finish(start("demo", "--seconds", "0.5", "--json"))
    assert (answer.code, answer.err) == (0, "")
    found = json.loads(answer.out)
    assert found["acknowledged"] == found["sent"] > 0
    assert found["cold"] > 0
    assert found["warm"] > 0
    assert found["hot"] > 0
    assert (found["lost"], found["twice"]) == (0, 0)
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []
