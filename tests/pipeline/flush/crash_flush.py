"""A process whose children flush a data directory and are killed where they are told.

    python -m tests.pipeline.flush.crash_flush DATA

Reads `POINT NTH UNTIL` from stdin, line by line. A child claims the lake and flushes the segments
before UNTIL, and kills itself before the NTH operation at that POINT, in the middle of it if it is
a write. Answers `killed`, or `done` where it was not reached. Children are forked from a process
that has imported everything and opened nothing, so that a life costs little.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from penstock.pipeline.flush import batch
from penstock.storage.files import LocalFiles
from tests.pipeline.flush.helpers import Plain, call_in_place
from tests.pipeline.helpers import Data

POINTS = ("data", "metadata", "commit", "delivered", "progress")
BATCH_SEGMENTS = 3
_OPERATIONS = ("make_folder", "rename", "link", "remove", "sync_folder")


class Trap:
    """Counts operations at a point, and springs at one of them."""

    def __init__(self, point: str, nth: int) -> None:
        self._point = point
        self._left = nth

    def step(self, point: str | None) -> bool:
        """Whether this is the one."""
        if point == self._point:
            self._left -= 1
        return point == self._point and self._left == 0

    def pass_by(self, point: str | None) -> None:
        """Kills this process if it is."""
        if self.step(point):
            kill()


def kill() -> None:
    """No handler, no `finally`, no flush."""
    os.kill(os.getpid(), signal.SIGKILL)


def point_of(path: Path) -> str | None:
    """What an operation on the file belongs to."""
    text = str(path)
    for point in ("data", "metadata"):
        if f"/lake/spans/{point}" in text or f"/lake/logs/{point}" in text:
            return point
    return next((point for point in POINTS if path.name.startswith(point)), None)


class TrappedFile:
    """A file that is being written when the end comes."""

    def __init__(self, inner: Any, path: Path, trap: Trap) -> None:
        self._inner = inner
        self._path = path
        self._trap = trap

    def pwrite(self, pieces: list[bytes], position: int) -> None:
        """All of it, or half and no more."""
        if self._trap.step(point_of(self._path)):
            data = b"".join(pieces)
            self._inner.pwrite([data[: len(data) // 2]], position)
            kill()
        self._inner.pwrite(pieces, position)

    def __getattr__(self, name: str) -> Any:
        self._trap.pass_by(point_of(self._path))
        return getattr(self._inner, name)


def set_trap(trap: Trap) -> None:
    """In all files that are made from now on, and in the catalog."""
    create, commit_table = LocalFiles.create, SqlCatalog.commit_table

    def trapped_create(self: LocalFiles, path: Path) -> Any:
        trap.pass_by(point_of(path))
        return TrappedFile(create(self, path), path, trap)

    def trapped_commit(self: SqlCatalog, *parts: Any, **named: Any) -> Any:
        trap.pass_by("commit")
        answer = commit_table(self, *parts, **named)
        trap.pass_by("commit")
        return answer

    for name in _OPERATIONS:
        setattr(LocalFiles, name, _trapped(getattr(LocalFiles, name), trap))
    LocalFiles.create = trapped_create  # type: ignore[method-assign] # that is the trap
    SqlCatalog.commit_table = trapped_commit  # type: ignore[method-assign]


def _trapped(operation: Any, trap: Trap) -> Any:
    def trapped(self: LocalFiles, *paths: Path) -> Any:
        trap.pass_by(point_of(paths[-1]))
        return operation(self, *paths)

    return trapped


def flush(data: Data, until: int) -> None:
    """What a pipeline does from its start on; spans that are written twice stay written twice."""
    batch.run_in_tasks = call_in_place
    pipeline = Plain(data, repeat_window_s=0)
    pipeline.flush.acknowledge()
    pipeline.run(batch_segments=BATCH_SEGMENTS, until=until)


def live(data: Data, point: str, nth: int, until: int) -> str:
    """The life of a child, and how it ended."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            set_trap(Trap(point, nth))
            flush(data, until)
            code = 0
        except BaseException:  # noqa: BLE001 - the child ends here in any case
            traceback.print_exc()
        os._exit(code)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {0: "done", -signal.SIGKILL: "killed"}.get(ended, "failed")


def main() -> None:
    """One child for each line."""
    data = Data(Path(sys.argv[1]))
    for line in sys.stdin:
        point, nth, until = line.split()
        os.write(1, f"{live(data, point, int(nth), int(until))}\n".encode())


if __name__ == "__main__":
    main()
