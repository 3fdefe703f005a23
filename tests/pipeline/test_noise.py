"""What reaches the terminal of all that Java prints."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.pipeline.noise import Relay, write_log_settings
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

WAIT_S = PATIENCE_S
NOISE = b"WARNING: Using incubator modules: jdk.incubator.vector\n\n"


def test_noise_is_dropped_and_errors_are_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Also those that came before the start had succeeded; whatever their bytes are."""
    relay = Relay()
    os.write(relay.write_end, NOISE + b"early\n")
    writer = os.dup(relay.write_end)
    relay.started()
    os.write(writer, NOISE + b"late \xff\n")
    os.close(writer)
    relay.wait(WAIT_S)
    assert capsys.readouterr().err == "early\nlate \N{REPLACEMENT CHARACTER}\n"


def test_process_that_does_not_start_is_heard_once(capsys: pytest.CaptureFixture[str]) -> None:
    """In the error, in one line, and not on the terminal."""
    relay = Relay()
    os.write(relay.write_end, NOISE + b"Error: no such agent\n  in the library path\n")
    assert relay.given_up(WAIT_S) == "Error: no such agent in the library path"
    assert capsys.readouterr().err == ""


def test_process_that_says_nothing_gives_nothing() -> None:
    """Then Spark's own error has to do."""
    assert Relay().given_up(WAIT_S) == ""


def test_log_settings_keep_errors(tmp_path: Path) -> None:
    """Only loggers whose errors are raised as well are off."""
    lines = write_log_settings(tmp_path).read_text().splitlines()
    assert "rootLogger.level = error" in lines
    off = [line.partition(".level")[0] for line in lines if line.endswith("level = off")]
    assert all(any(line.startswith(f"{name}.name = org.apache.") for line in lines) for name in off)
    assert len(off) == 6
