"""Runs benchmarks and writes their tables to RESULTS.md beside it: `make bench` runs all."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from harness import HEADINGS, Row, Table, describe, interruptible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BENCHMARKS = ["log", "store", "otel", "ingest", "lake", "query", "objects"]
FOLDER = Path(__file__).parent
RESULTS = FOLDER / "RESULTS.md"

INTRODUCTION = """\
# Benchmark results

Written by `make bench`, or for some of them by `bench/run.py NAME …`.

Baselines run in the same process of measurement, in turns with what they are compared with; each
figure is the median of its rounds. A target is about the ratio where a baseline is named.
"""


def main() -> None:
    """Runs them one after the other, each in a process of its own; others keep their tables."""
    options = _parse()
    description = describe(options.quick, options.dir or Path(tempfile.gettempdir()))
    print(description)
    sections = _sections(RESULTS.read_text(encoding="utf-8"))
    with interruptible():
        for benchmark in options.names or BENCHMARKS:
            sections[benchmark] = _run(benchmark, options, _capitalised(description))
            kept = [sections[name] for name in BENCHMARKS if name in sections]
            RESULTS.write_text("\n".join([INTRODUCTION, *kept]), encoding="utf-8")


def _sections(page: str) -> dict[str, str]:
    """The tables that are there, by the names of their benchmarks."""
    parts = re.split(r"^(?=## )", page, flags=re.MULTILINE)[1:]
    return {part.split()[1]: part.rstrip("\n") + "\n" for part in parts}


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, epilog="example: bench/run.py --quick")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--quick", action="store_true", help="less work, a minute each")
    parser.add_argument("--dir", type=Path, help="a folder on the disk to measure")
    return parser.parse_args()


def _run(benchmark: str, options: argparse.Namespace, description: str) -> str:
    """Shows a benchmark's rows as they come; returns its section."""
    table = Table()
    table.begin(benchmark)
    rows = []
    for row in _rows(benchmark, options):
        table.print(row)
        rows.append(row)
    return f"## {benchmark}\n\n{description}.\n\n{_markdown(rows)}"


def _rows(benchmark: str, options: argparse.Namespace) -> Iterator[Row]:
    command = [sys.executable, str(FOLDER / f"{benchmark}.py"), "--json"]
    command += ["--quick"] if options.quick else []
    command += ["--dir", str(options.dir)] if options.dir else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield from map(Row.from_json, process.stdout)
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        sys.exit(f"the benchmark {benchmark!r} failed with exit code {process.returncode}")


def _markdown(rows: Sequence[Row]) -> str:
    lines = [HEADINGS, ("---", "---:", "---", "---", "---"), *(row.cells for row in rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


if __name__ == "__main__":
    main()
