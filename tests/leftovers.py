"""What a test may leave behind: nothing. The next one begins as if it were the first.

All tests of a process share its loggers, environment, working folder, signal handlers, threads and
children. A test that changes one of these for good makes another one fail, some day, in some order.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from tests.patience import PATIENCE_S

GRACE_S: Final = PATIENCE_S / 10
"""For threads and children on their way out; whoever left one pays it, nobody else."""
SIGNALS: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD)
OURS: Final = {"penstock", "tests", "threading"}
"""Where what runs in a thread was written, if not in a library, which has its own for good."""
OF_THE_PROCESS: Final = "penstock-"
"""How our own are named that begin with the first use and end with the process."""
SHARED: Final = set[int]()
"""Children that outlive a test: servers of the session, started or started again by whoever needs
them first."""
_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Settings:
    """Of this process, as one test leaves them to the next."""

    log_level: int
    log_handlers: list[logging.Handler]
    logging_disabled: int
    loggers: dict[str, tuple[int, bool, bool]]
    environment: dict[str, str]
    folder: str
    umask: str
    signals: dict[int, Any]
    import_path: list[str]

    @classmethod
    def now(cls) -> Settings:
        """Those of this moment."""
        root = logging.getLogger()
        return cls(
            log_level=root.level,
            log_handlers=[each for each in root.handlers if not _is_pytests(each)],
            logging_disabled=root.manager.disable,
            loggers=_own_loggers(),
            environment={k: v for k, v in os.environ.items() if not k.startswith(_NOT_OURS)},
            folder=str(Path.cwd()),
            umask=_umask(),
            signals={number: _handler(number) for number in SIGNALS},
            import_path=[each for each in sys.path if "/spark-" not in each],
        )

    def restore(self) -> None:
        """Nobody else suffers from what one test did."""
        root = logging.getLogger()
        root.setLevel(self.log_level)
        root.handlers[:] = [each for each in root.handlers if _is_pytests(each)]
        root.handlers += self.log_handlers
        logging.disable(self.logging_disabled)
        for name in {**self.loggers, **_own_loggers()}:
            logger = logging.getLogger(name)
            level, logger.propagate, logger.disabled = self.loggers.get(name, _UNTOUCHED)
            logger.setLevel(level)
        for name in set(os.environ) - set(self.environment):
            if not name.startswith(_NOT_OURS):
                del os.environ[name]
        os.environ.update(self.environment)
        os.chdir(self.folder)
        os.umask(int(self.umask, 8))
        for number, handler in self.signals.items():
            signal.signal(number, handler)
        sys.path[:] = [each for each in sys.path if "/spark-" in each] + self.import_path

    def changes_to(self, other: Settings) -> list[str]:
        """One line for each that is not as it was."""
        return [
            f"{field.name.replace('_', ' ')}: {_difference(was, is_now)}"
            for field in fields(self)
            if (was := getattr(self, field.name)) != (is_now := getattr(other, field.name))
        ]


_UNTOUCHED: Final = (logging.NOTSET, True, False)
_NOT_OURS: Final = ("PYTEST_", "SPARK_")
"""Variables of pytest, and of Spark: a context sets some for good, as it does with Ctrl-C."""


@contextmanager
def unchanged_settings(fail: Callable[[str], Any]) -> Iterator[None]:
    """Around a test, or the tests of a module with their fixtures."""
    before = Settings.now()
    yield
    if changes := before.changes_to(Settings.now()):
        before.restore()
        fail("it leaves to the next test " + "; ".join(changes))


@contextmanager
def nothing_running(fail: Callable[[str], Any]) -> Iterator[None]:
    """Around a test: threads and children that it started are over."""
    threads, began = set(threading.enumerate()), time.clock_gettime(time.CLOCK_BOOTTIME)
    yield
    end = time.monotonic() + GRACE_S
    while left := [*_threads_beside(threads), *_children_since(began)]:
        if time.monotonic() > end:
            fail("it leaves running " + "; ".join(left))
            return
        time.sleep(0.01)


def _threads_beside(others: set[threading.Thread]) -> list[str]:
    found = [each for each in threading.enumerate() if each not in others and _is_ours(each)]
    return [repr(each) for each in found if not each.name.startswith(OF_THE_PROCESS)]


def _is_ours(thread: threading.Thread) -> bool:
    if isinstance(thread, threading._DummyThread):  # a library's, which called us
        return False
    runs = getattr(thread, "_target", None) or type(thread).run
    return str(getattr(runs, "__module__", "")).partition(".")[0] in OURS


def _children_since(began: float) -> list[str]:
    """The system counts in ticks, so a child of that very tick is nobody's."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # a thread, or a child, that has just ended
            for pid in {*(task / "children").read_text().split()} - {*map(str, SHARED)}:
                started = (Path("/proc") / pid / "stat").read_text().rpartition(")")[2].split()[19]
                if int(started) > began * _TICKS_A_SECOND:
                    command = (Path("/proc") / pid / "cmdline").read_text().replace("\0", " ")
                    found.append(f"process {pid} {command[:100]}")
    return found


def _own_loggers() -> dict[str, tuple[int, bool, bool]]:
    """Those of ours that somebody has touched; others belong to their libraries."""
    found = {
        name: (each.level, each.propagate, each.disabled)
        for name, each in logging.root.manager.loggerDict.items()
        if name.startswith("penstock") and isinstance(each, logging.Logger)
    }
    return {name: state for name, state in found.items() if state != _UNTOUCHED}


def _handler(number: int) -> Any:
    found = signal.getsignal(number)
    is_sparks = str(getattr(found, "__module__", "")).startswith("pyspark")
    return signal.default_int_handler if is_sparks else found


def _is_pytests(handler: logging.Handler) -> bool:
    return type(handler).__module__.startswith("_pytest.")


def _umask() -> str:
    """Without setting it, as `os.umask` would."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(line for line in lines if line.startswith("Umask:")).split()[1]


def _difference(was: Any, is_now: Any) -> str:
    if isinstance(was, dict):
        names = [name for name in {**was, **is_now} if was.get(name) != is_now.get(name)]
        return ", ".join(f"{name} was {was.get(name)!r}, is {is_now.get(name)!r}" for name in names)
    return f"was {was!r}, is {is_now!r}"
