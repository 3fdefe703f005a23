"""System calls that really fail, by strace's hand: the acknowledgements still hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.log import Environment, Log
from penstock.metrics import Metrics
from penstock.model.settings import Durability
from tests.patience import PATIENCE_S
from tests.simulation.crash_writer import digest_of, is_whole, settings
from tests.simulation.strace import STRACE, needs_strace

ROOT = Path(__file__).parents[2]
MESSAGES = 60
"""Enough for two rotations."""
WRITE = "pwritev,pwritev2"


pytestmark = needs_strace


class Run:
    """What a writer said whose system calls failed."""

    def __init__(self, folder: Path, inject: str) -> None:
        call = inject.partition(":")[0]  # several, where systems differ in which one they use
        trace = [STRACE, "-f", "-qq", "-e", f"trace={call}", "-e", f"inject={inject}"]
        writer = [sys.executable, "-m", "tests.simulation.crash_writer", str(folder)]
        command = [*trace, "-o", str(folder) + ".trace", *writer, "--messages", str(MESSAGES)]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stderr
        self.folder = folder
        self.injected = Path(str(folder) + ".trace").read_text().count("INJECTED")
        self.words = [line.split() for line in done.stdout.splitlines()]
        self.acks = {int(word[1]): word[2] for word in self.words if word[0] == "ack"}
        self.outcome = self.words[-1][0]

    def said(self, word: str) -> int:
        """How often the writer said it."""
        return sum(words[0] == word for words in self.words)

    def check(self) -> int:
        """Everything acknowledged is there, and nothing twice; returns how many messages are."""
        with Log.open(
            self.folder, settings(Durability.SYNC), env=Environment(metrics=Metrics())
        ) as log:
            found = dict(log.read())
            assert {offset: digest_of(found[offset]) for offset in self.acks} == self.acks
            assert all(map(is_whole, found.values()))
            assert found.keys() == set(range(log.end_offset))
            assert log.lost == ()
            return len(found)


@pytest.mark.parametrize("when", ["7", "7+", "40"])
def test_failed_fdatasync_poisons_and_no_acknowledgement_is_false(
    tmp_path: Path, when: str
) -> None:
    """EIO once or for ever: the writer stops, and what it had acknowledged is there."""
    run = Run(tmp_path / "log", f"fdatasync:error=EIO:when={when}")
    assert run.outcome == "poisoned"
    assert 0 < len(run.acks) < MESSAGES
    assert run.check() - len(run.acks) in (0, 1)


@pytest.mark.parametrize("inject", ["fsync:error=EIO:when=4+", "rename:error=EIO:when=3+"])
def test_rotation_that_cannot_finish_poisons_and_no_acknowledgement_is_false(
    tmp_path: Path, inject: str
) -> None:
    """The new file gets no durable name: nothing is acknowledged in it."""
    run = Run(tmp_path / "log", inject)  # from the first rotation on; before it opens the log
    assert run.outcome == "poisoned"
    assert run.check() == len(run.acks) > 0


@pytest.mark.parametrize("when", ["4", "5..9", "10+7"])
@pytest.mark.parametrize("error", ["ENOSPC", "EDQUOT"])
def test_full_disk_is_tried_again_and_nothing_is_there_twice(
    tmp_path: Path, error: str, when: str
) -> None:
    """Writes that find no space delay the writer; then all of its messages are there, once."""
    run = Run(tmp_path / "log", f"{WRITE}:error={error}:when={when}")
    assert run.outcome == "done"
    assert run.said("full") > 0
    assert run.check() == len(run.acks) == MESSAGES


@pytest.mark.parametrize("call", [WRITE, "fdatasync", "fsync"])
def test_interrupted_calls_are_repeated(tmp_path: Path, call: str) -> None:
    """EINTR from every second call goes unnoticed."""
    run = Run(tmp_path / "log", f"{call}:error=EINTR:when=1+2")
    assert run.injected > 0
    assert run.outcome == "done"
    assert run.said("full") == 0
    assert run.check() == MESSAGES


def test_failed_write_poisons(tmp_path: Path) -> None:
    """EIO from a write: the writer stops, and what it had acknowledged is there."""
    run = Run(tmp_path / "log", f"{WRITE}:error=EIO:when=20")
    assert run.outcome == "poisoned"
    assert run.check() == len(run.acks) > 0
