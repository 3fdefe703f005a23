"""A store that takes longer to open than its lease lasts is opened all the same, and stays so."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.otel import Signal
from tests.server.running import PATIENCE_S, serving, until
from tests.server.samples import traces

if TYPE_CHECKING:
    import pytest

T = Signal.TRACES
_UPLOADED = "penstock_archive_messages_total"
_SLOW = """
import time
from penstock.store import Store

_open = Store.open.__func__


def open_slowly(cls, *args, **kwargs):
    time.sleep(3.5)
    return _open(cls, *args, **kwargs)


Store.open = classmethod(open_slowly)
"""
"""Stands in for a disk that is slow, or a log that takes long to recover."""


def config_of(folder: Path) -> dict[str, Any]:
    """A lease that is short."""
    archive = {"url": (folder / "objects").as_uri(), "upload_interval": "100ms", "lease": "1s"}
    return {"archive": archive, "workers": 1}


def test_store_that_opens_slowly_keeps_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new topic, and one that is recovered; both are archived."""
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sitecustomize.py").write_text(_SLOW)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "slow"))
    for count, name in enumerate(("new", "recovered"), 1):
        with serving(tmp_path / "data", config=config_of(tmp_path)) as server:
            deadline = time.monotonic() + PATIENCE_S
            while (answer := server.post(T, traces(name))).status != 200:
                assert answer.status in (429, 503)
                assert time.monotonic() < deadline, answer
            until(lambda: server.metric(_UPLOADED, topic="/default/traces/0") >= 1)
            assert server.get("/healthz").status == 200, server.get("/healthz").body
            assert server.post(T, traces(f"{name} {count}")).status == 200
            server.kill()


def test_store_that_lost_its_lease_opens_again_by_itself(tmp_path: Path) -> None:
    """A worker that slept longer than its lease; nobody sends it anything meanwhile."""
    with serving(tmp_path / "data", config=config_of(tmp_path)) as server:
        assert server.post(T, traces("before")).status == 200
        (worker,) = server.workers()
        os.kill(worker, signal.SIGSTOP)
        time.sleep(1.5)  # longer than the lease: this is what is tested
        os.kill(worker, signal.SIGCONT)
        until(lambda: "is opened again" in server.errors)
        until(lambda: server.get("/healthz").status == 200)
        assert server.post(T, traces("after")).status == 200
        assert server.stop() == 0
