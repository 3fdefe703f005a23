"""System calls that really fail, by strace's hand: what the store acknowledged still holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.simulation.strace import STRACE, needs_strace
from tests.store.test_kill import Oracle, check_complete, drain, life

if TYPE_CHECKING:
    from pathlib import Path

MESSAGES = 60
"""Enough for two rotations of the log, and for several segments that come and go."""
WRITE = "pwritev,pwritev2"
FIRST, SECOND = (f"segments/{number:020d}.seg" for number in range(2))


pytestmark = needs_strace


def run(
    folder: Path, inject: str, path: str | None = None, *, may_pass: bool = False
) -> tuple[Oracle, str]:
    """A life in which system calls fail and one in which none does; what stopped the first one.

    With a `path`, relative to the folder, only calls on that file fail. Each thread counts its
    calls by itself, so that sometimes nothing fails: that `may_pass`, or not.
    """
    calls = inject.partition(":")[0]  # several, where systems differ in which one they use
    trace = folder.with_name(folder.name + ".trace")
    where = ["-P", str(folder / path)] if path is not None else []
    strace = [STRACE, "-f", "-qq", *where, "-e", f"trace={calls}", "-e", f"inject={inject}"]
    oracle = Oracle(may_fail=True)
    with life(
        folder, oracle, "--messages", str(MESSAGES), prefix=[*strace, "-o", str(trace)]
    ) as it:
        it.end()
    oracle.may_fail = False
    drain(folder, oracle)
    check_complete(oracle)
    assert may_pass or "INJECTED" in trace.read_text()
    return oracle, "\n".join(line for line in it.lines if line.startswith(("stopped", "again")))


@pytest.mark.parametrize(
    ("call", "path", "when"),
    [
        ("fdatasync", SECOND + ".tmp", "1"),
        ("rename", SECOND + ".tmp", "1"),
        ("fsync", "segments", "2"),  # the first one opens the store
        ("unlink", FIRST, "1"),
    ],
)
def test_seal_or_removal_that_fails_is_tried_again(
    tmp_path: Path, call: str, path: str, when: str
) -> None:
    """EIO stops nothing when it does not come again, and nobody hears of it."""
    oracle, said = run(tmp_path / "store", f"{call}:error=EIO:when={when}", path)
    assert len(oracle.acks) == MESSAGES
    assert "stopped" not in said


def test_seal_that_never_succeeds_stops_the_store(tmp_path: Path) -> None:
    """The process ends by itself, and the next one seals what this one could not."""
    _, said = run(tmp_path / "store", "rename:error=EIO:when=1+", SECOND + ".tmp")
    assert "stopped" in said


@pytest.mark.parametrize(("path", "when"), [("ack.log", 1), (f"log/{0:020d}.wal", 5)])
def test_failed_log_stops_the_store_and_no_acknowledgement_is_false(
    tmp_path: Path, path: str, when: int
) -> None:
    """EIO: nobody knows what the file holds, so nothing more is taken; what was is delivered."""
    oracle, said = run(tmp_path / "store", f"fdatasync:error=EIO:when={when}", path)
    assert "stopped" in said
    assert oracle.acks


@pytest.mark.parametrize("path", [SECOND + ".tmp", "ack.log"])
def test_full_disk_delays_and_loses_nothing(tmp_path: Path, path: str) -> None:
    """Writes that find no space are tried again until every message is in."""
    oracle, said = run(tmp_path / "store", f"{WRITE}:error=ENOSPC:when=1..2", path)
    assert len(oracle.acks) == MESSAGES
    assert "stopped" not in said


@pytest.mark.soak
@pytest.mark.parametrize("call", ["fdatasync", "fsync", "rename", "unlink", WRITE])
@pytest.mark.parametrize("error", ["EIO", "ENOSPC", "EDQUOT"])
@pytest.mark.parametrize("when", ["1", "2", "3", "4", "6", "8", "2..9", "3+3", "4..6"])
def test_any_failed_call_stops_or_is_tried_again(
    tmp_path: Path, call: str, error: str, when: str
) -> None:
    """Whatever each thread calls: what was acknowledged comes, in this life or the next."""
    run(tmp_path / "store", f"{call}:error={error}:when={when}", may_pass=True)


def test_interrupted_calls_are_repeated(tmp_path: Path) -> None:
    """EINTR from every second call goes unnoticed."""
    calls = f"{WRITE},fdatasync,fsync"
    oracle, said = run(tmp_path / "store", f"{calls}:error=EINTR:when=1+2")
    assert len(oracle.acks) == MESSAGES
    assert "again" not in said
    assert "stopped" not in said
