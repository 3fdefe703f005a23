"""What every benchmark shares: the command line, interleaved rounds, rows, and how they are shown.

A benchmark is a list of cases. A case is a function that takes a `Run`, measures, and yields rows.
A row's target is about its ratio where it names a baseline, and about its value where it does not.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Literal, TypeVar

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

Result = TypeVar("Result")
Measure = Callable[[], float]
"""Measures for one slice of time and returns one figure, usually a rate."""

OPEN_FILES = 4096


def event_loop() -> asyncio.Runner:
    """Where coroutines are measured, Penstock's and the baselines' alike: uvloop if it is there."""
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


class BaselineAbsent(Exception):
    """Raised on starting a baseline that is not installed; says what would bring it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    name: str
    value: float
    unit: str
    baseline: str | None = None
    baseline_value: float | None = None
    """None with a baseline named: it was skipped."""
    target: float | None = None
    better: Literal["higher", "lower"] = "higher"

    @property
    def ratio(self) -> float | None:
        """The value against the baseline's."""
        return self.value / self.baseline_value if self.baseline_value else None

    @property
    def reached(self) -> bool | None:
        """Whether the target was; None where there is none, or nothing to compare with."""
        figure = self.value if self.baseline is None else self.ratio
        if self.target is None or figure is None:
            return None
        return figure >= self.target if self.better == "higher" else figure <= self.target

    def to_json(self) -> str:
        """The row as INTERFACE promises it, and `better`: which way its target lies."""
        fields = ("name", "value", "unit", "baseline", "baseline_value", "ratio", "target")
        record = {field: _rounded(getattr(self, field)) for field in fields}
        return json.dumps({**record, "reached": self.reached, "better": self.better})

    @classmethod
    def from_json(cls, line: str) -> Row:
        """The row that `to_json` wrote."""
        record = json.loads(line)
        return cls(**{key: record[key] for key in cls.__slots__})

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        """Name, value, comparison, target and verdict, for people."""
        return (
            self.name,
            f"{_figure(self.value)} {self.unit}",
            self._comparison,
            self._wanted,
            {True: "reached", False: "MISSED", None: ""}[self.reached],
        )

    @property
    def _comparison(self) -> str:
        if self.baseline is None:
            return ""
        if self.baseline_value is None:
            return f"{self.baseline}: skipped"
        return f"{self.ratio:.3g}x {self.baseline} ({_figure(self.baseline_value)})"

    @property
    def _wanted(self) -> str:
        if self.target is None:
            return ""
        sign = "≥" if self.better == "higher" else "≤"
        return f"{sign} {_figure(self.target)}{'' if self.baseline is None else 'x'}"


HEADINGS = ("case", "value", "against", "target", "")
WIDTHS = (39, 18, 57, 11, 8)


@dataclass(frozen=True, slots=True)
class Run:
    """How much to measure, where, and how to say something beside the table."""

    scratch: Path
    quick: bool
    say: Callable[[str], None]

    @property
    def rounds(self) -> int:
        """How often every measure is taken."""
        return 3 if self.quick else 7

    @property
    def slice_s(self) -> float:
        """How long one measure that counts what happens in a time takes."""
        return 0.4 if self.quick else 1.0

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """A new folder on the disk that is measured, gone at the end."""
        folder = Path(tempfile.mkdtemp(dir=self.scratch))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def medians(self, measures: Mapping[str, Measure]) -> dict[str, float]:
        """Each measure's median. They take turns, to and fro, so that what disturbs hits all."""
        figures: dict[str, list[float]] = {name: [] for name in measures}
        order = list(measures)
        for _ in range(self.rounds):
            for name in order:
                figures[name].append(measures[name]())
            order.reverse()
        return {name: median(values) for name, values in figures.items()}

    def start(
        self,
        stack: contextlib.ExitStack,
        baselines: Mapping[str, contextlib.AbstractContextManager[Measure]],
    ) -> dict[str, Measure]:
        """Starts those that are installed, to end with `stack`; says which are not."""
        started: dict[str, Measure] = {}
        for name, baseline in baselines.items():
            try:
                started[name] = stack.enter_context(baseline)
            except BaselineAbsent as absent:
                self.say(f"skipped: {name}: {absent}")
        return started


Case = Callable[[Run], Iterable[Row]]


def main(title: str, cases: Sequence[Case]) -> None:
    """The command line of one benchmark."""
    options = _parse(title, cases)
    shown = Lines() if options.json else Table()
    _allow_open_files()
    scratch_folder = tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=options.dir)
    with interruptible(), scratch_folder as scratch:
        shown.begin(f"{title}, {describe(options.quick, Path(scratch))}")
        run = Run(Path(scratch), options.quick, shown.say)
        for case in cases:
            if not options.only or case.__name__ in options.only:
                shown.show(case, run)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Lets SIGTERM act as Ctrl-C: event loops end in order, and with them what was started."""
    # Not ignored, as a shell's background jobs have it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    except KeyboardInterrupt:
        sys.exit("interrupted")


def describe(quick: bool, folder: Path) -> str:
    """The date and the size of the machine; nothing that tells which machine it is."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = [
        f"{'quick' if quick else 'full'} run",
        time.strftime("%Y-%m-%d", time.gmtime()),
        f"{os.cpu_count()} cores",
        f"{memory:.0f} GiB of memory",
        f"{platform.system()} {platform.machine()}",
        f"Python {platform.python_version()}",
        _file_system(folder),
    ]
    return ", ".join(part for part in parts if part)


@contextlib.contextmanager
def child(function: Callable[..., object], *arguments: object) -> Iterator[BaseProcess]:
    """A fresh process that calls the function; ended with the context if not before."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def in_child(function: Callable[..., Result], *arguments: object) -> Result:
    """What the function returns in a fresh process, whose memory and threads are its own."""
    answers, answer = multiprocessing.Pipe(duplex=False)
    with child(_answer, answer, function, arguments):
        answer.close()  # so that a child which dies is noticed
        result: Result = answers.recv()
        return result


def resident_bytes() -> int:
    """The memory of this process at this moment."""
    pages = Path("/proc/self/statm").read_bytes().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class Table:
    """For people: a line a row, as soon as it is measured."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._waiting = Console(stderr=True)

    def begin(self, title: str) -> None:
        """The lines above the rows."""
        self._console.print(title, style="bold")
        self._console.print(_line(HEADINGS), style="dim")

    def say(self, text: str) -> None:
        """A line that is no row."""
        self._console.print(text, style="yellow", markup=False)

    def show(self, case: Case, run: Run) -> None:
        """Prints a case's rows; a terminal sees meanwhile which case it waits for."""
        with self._waiting.status(case.__name__.replace("_", " ")):
            for row in case(run):
                self.print(row)

    def print(self, row: Row) -> None:
        """One line."""
        style = {True: "green", False: "bold red", None: ""}[row.reached]
        self._console.print(Text(_line(row.cells), style=style))


class Lines:
    """For programs: one JSON object a row on stdout, everything else on stderr."""

    def begin(self, title: str) -> None:
        """Programs need no title."""

    def say(self, text: str) -> None:
        """A line that is no row."""
        print(text, file=sys.stderr, flush=True)

    def show(self, case: Case, run: Run) -> None:
        """Prints a case's rows."""
        for row in case(run):
            print(row.to_json(), flush=True)


def _answer(
    answer: Connection, function: Callable[..., object], arguments: tuple[object, ...]
) -> None:
    answer.send(function(*arguments))


def _parse(title: str, cases: Sequence[Case]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=f"The benchmark {title!r}.", epilog=f"example: bench/{title}.py --quick"
    )
    parser.add_argument("--quick", action="store_true", help="less work, within a minute")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--dir", type=Path, help="a folder on the disk to measure")
    names = [case.__name__ for case in cases]
    parser.add_argument("--only", nargs="+", choices=names, metavar="CASE", help=", ".join(names))
    return parser.parse_args()


def _allow_open_files() -> None:
    """Some systems allow 256 by default, fewer than hundreds of topics have open."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def _file_system(folder: Path) -> str:
    """The kind of file system a folder lies on, where the system tells."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return ""
    holding = [(at, kind) for at, kind in mounts if folder.resolve().is_relative_to(at)]
    return max(holding, key=lambda mount: len(mount[0]))[1] if holding else ""


def _line(cells: Sequence[str]) -> str:
    name, value, *others = cells
    aligned = [name.ljust(WIDTHS[0]), value.rjust(WIDTHS[1])]
    aligned += [cell.ljust(width) for cell, width in zip(others, WIDTHS[2:], strict=True)]
    return "  ".join(aligned).rstrip()


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _rounded(value: object) -> object:
    return float(f"{value:.5g}") if isinstance(value, float) else value
