"""The tests' own rule: whoever changes what others use is named."""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import leftovers
from tests.conftest import LONG, pytest_collection_modifyitems
from tests.leftovers import Settings, nothing_running, unchanged_settings

CHANGES: dict[str, Callable[[], Any]] = {
    "log level": lambda: logging.getLogger().setLevel(logging.INFO),
    "log handlers": lambda: logging.getLogger().addHandler(logging.NullHandler()),
    "logging disabled": lambda: logging.disable(logging.ERROR),
    "loggers": lambda: logging.getLogger("penstock.log").setLevel(logging.DEBUG),
    "environment": lambda: os.environ.update(PENSTOCK_WORKERS="3"),
    "folder": lambda: os.chdir("/"),
    "umask": lambda: os.umask(0o077),
    "signals": lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "import path": lambda: sys.path.append("/elsewhere"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_whatever_a_test_changes_is_named_and_restored(kind: str) -> None:
    """The next test finds what this one found."""
    before, said = Settings.now(), list[str]()
    with unchanged_settings(said.append):
        CHANGES[kind]()
    assert len(said) == 1
    assert said[0].startswith(f"it leaves to the next test {kind}: ")
    assert Settings.now() == before


def test_whatever_is_restored_is_no_change(tmp_path: Path) -> None:
    """As most tests do, by fixtures."""
    said = list[str]()
    with unchanged_settings(said.append), pytest.MonkeyPatch.context() as patched:
        patched.setenv("PENSTOCK_WORKERS", "3")
        patched.chdir(tmp_path)
    assert said == []


def test_threads_and_processes_left_behind_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were there before are somebody else's."""
    monkeypatch.setattr(leftovers, "GRACE_S", 0.0)
    said, over = list[str](), threading.Event()
    thread = threading.Thread(target=over.wait, name="forgotten")
    sleep = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(sleep, stdin=subprocess.PIPE) as other, nothing_running(said.append):
        assert other.poll() is None
        leftovers.time.sleep(0.02)  # two ticks of the system's clock
        thread.start()
        process = subprocess.Popen(sleep, stdin=subprocess.PIPE)
    with process:
        over.set()
        thread.join()
    assert len(said) == 1
    assert "forgotten" in said[0]
    assert f"process {process.pid} " in said[0]
    assert f"process {other.pid} " not in said[0]


def test_a_seed_is_an_order() -> None:
    """Always the same one, in which a file's tests stand together."""

    def ordered(seed: int) -> list[str]:
        items: Any = [SimpleNamespace(nodeid=f"{f}::{n}") for f in "abcdefgh" for n in range(9)]
        config: Any = SimpleNamespace(option=SimpleNamespace(seed=seed))
        pytest_collection_modifyitems(config, items)
        return [each.nodeid for each in items]

    seed = random.randrange(1, 10**6)
    once = ordered(seed)
    assert once == ordered(seed) != ordered(seed + 1)
    assert sorted(once) == ordered(0)
    files = [each.partition("::")[0] for each in once]
    assert [*dict.fromkeys(files)] == files[::9]


def test_long_files_begin_first() -> None:
    """Those that there are."""
    root = Path(__file__).parents[1]
    assert [file for file in LONG if not (root / file).exists()] == []
    items: Any = [SimpleNamespace(nodeid=f"{f}::{n}") for f in (*"abc", *LONG) for n in range(2)]
    pytest_collection_modifyitems(SimpleNamespace(option=SimpleNamespace(seed=1)), items)  # type: ignore[arg-type] # as much of it as is looked at
    assert {each.nodeid.partition("::")[0] for each in items[: 2 * len(LONG)]} == LONG
