"""A request that a client sends again is stored once: minutes later, and after a kill."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.otel import Signal
from tests.edges.hooks import hooked
from tests.server.running import serving, stored_names
from tests.server.samples import traces

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

_LATER = """
inner = module.SystemClock.wall_ns
module.SystemClock.wall_ns = lambda self: inner(self) + MINUTES * 60 * 10**9
"""


def test_request_that_is_sent_again_after_a_kill_is_stored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To another worker of another server process, nine minutes later; after eleven it is new."""
    data, request = tmp_path / "data", traces("one")
    for minutes, count in ((0, 1), (9, 1), (11, 2)):
        hook = hooked(
            tmp_path / f"clock-{minutes}", "penstock.model.clock", f"MINUTES = {minutes}\n{_LATER}"
        )
        with monkeypatch.context() as patch:
            for name, value in hook.items():
                patch.setenv(name, value)
            with serving(data) as server:
                assert server.post(Signal.TRACES, request).status == 200
                if minutes:
                    assert server.stop() == 0
                    assert stored_names(data, Signal.TRACES) == ["one"] * count
