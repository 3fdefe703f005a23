"""Folders that go with their process, or with the next one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.storage import scratch
from penstock.storage.scratch import Scratch, sweep

_OWNER = """
import sys, subprocess
from penstock.storage.scratch import Scratch
made = Scratch("test")
(made.path / "deep").mkdir()
(made.path / "deep" / "file").write_bytes(b"x" * 1000)
if len(sys.argv) > 1:
    child = subprocess.Popen(["sleep", "600"], pass_fds=(made.fileno(),))
    print(child.pid)
print(made.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of the test's own, here and in its processes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def owner() -> Iterator[subprocess.Popen[str]]:
    """A process that has a folder and uses it."""
    with _owner() as process:
        yield process
        process.kill()


def _owner(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _OWNER, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    """The next line."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def left(temporary: Path) -> list[Path]:
    """What anybody has left: the folder of this user, and below it nothing."""
    return list(temporary.glob("*/*"))


def test_folder_is_new_and_one_s_own(temporary: Path) -> None:
    """Of a user's folder that nobody else may enter; gone after the block."""
    with Scratch("test") as one, Scratch("test") as two:
        assert one.path != two.path
        assert list(one.path.iterdir()) == []
        assert one.path.parent == temporary / f"penstock-{os.getuid()}"
        assert one.path.parent.stat().st_mode & 0o777 == 0o700
        assert sweep() == 0
    one.remove()
    assert left(temporary) == []


def test_folder_of_a_killed_process_is_swept_and_that_of_a_living_one_is_not(
    temporary: Path, owner: subprocess.Popen[str]
) -> None:
    """By the next one that sweeps, once."""
    folder = Path(said(owner))
    assert sweep() == 0
    assert (folder / "deep" / "file").exists()
    owner.kill()
    owner.wait()
    assert sweep() == 1
    assert sweep() == 0
    assert left(temporary) == []


def test_folder_stays_as_long_as_a_child_uses_it(temporary: Path) -> None:
    """Spark's Java, and a query that goes on, outlive the process that made the folder."""
    with _owner("with a child") as process:
        child, folder = int(said(process)), Path(said(process))
        process.kill()
        process.wait()
        assert sweep() == 0
        assert folder.exists()
        os.kill(child, 9)
        while not sweep():
            pass  # until the system has noticed
    assert left(temporary) == []


def test_removal_that_was_cut_off_is_gone_on_with(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock file is the last thing to go."""
    made = Scratch("test")
    with monkeypatch.context() as patch:
        patch.setattr(scratch.shutil, "rmtree", lambda *_, **__: None)
        made.remove()
    assert made.path.exists()
    assert sweep() == 1
    assert left(temporary) == []


def test_what_has_no_lock_is_left_alone(temporary: Path) -> None:
    """Somebody else has put it there."""
    other = temporary / f"penstock-{os.getuid()}" / "query-1234"
    Scratch("test").remove()
    other.mkdir()
    assert sweep() == 0
    assert other.exists()


def test_place_that_others_may_enter_is_not_used(temporary: Path) -> None:
    """Somebody may have made it to read along."""
    place = temporary / f"penstock-{os.getuid()}"
    place.mkdir()
    place.chmod(0o777)
    scratch._base_apart.cache_clear()
    with Scratch("test") as made:
        assert place not in made.path.parents
        assert made.path.parent.stat().st_mode & 0o077 == 0
    scratch._base_apart.cache_clear()


def test_fork_does_not_take_its_parent_s_folder_away() -> None:
    """It ends by itself, and the parent goes on."""
    with Scratch("test") as made:
        child = os.fork()
        if not child:
            made.remove()
            os._exit(0)
        os.waitpid(child, 0)
        assert made.path.exists()
