"""Has another process read Parquet files, so that a damaged one cannot end this one."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType
    from typing import Self

_COMMAND: Final = ["-m", "penstock.lake.pages"]


@dataclass(frozen=True, slots=True)
class PageDamage:
    """A row group that cannot be read to its end."""

    position: int
    """Where the first column begins that cannot be read."""
    detail: str
    rows: int
    """Of the row group."""


@dataclass(slots=True)
class PagesRead:
    """What a Parquet file holds, as far as it can be read."""

    rows: int = 0
    """As the footer says."""
    row_groups: int = 0
    created_by: str | None = None
    columns: list[str] = field(default_factory=list)
    damage: list[PageDamage] = field(default_factory=list)
    unreadable: str | None = None
    """Why it cannot be read at all, or not to its end."""


class PageReader:
    """Reads files to their last page. For one thread; the process ends with the block."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def read(self, path: Path, progress: Callable[[int], object] | None = None) -> PagesRead:
        """Whatever is in the file, this returns. `progress` gets the bytes of each column."""
        found = PagesRead()
        for answer in self._answers(path):
            if "read" in answer and progress is not None:
                progress(answer["read"])
            elif "damage" in answer:
                found.damage.append(PageDamage(**answer["damage"]))
            elif "footer" in answer:
                footer = answer["footer"]
                found.rows, found.row_groups = footer["rows"], footer["row_groups"]
                found.created_by, found.columns = footer["created_by"], footer["columns"]
            elif "unreadable" in answer:
                found.unreadable = answer["unreadable"]
        return found

    def close(self) -> None:
        """Ends the process; idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes it."""
        self.close()

    def _answers(self, path: Path) -> Iterator[dict[str, Any]]:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(str(path.absolute())) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            answer: dict[str, Any] = json.loads(line)
            if "end" in answer:
                return
            yield answer
        self.close()
        yield {"unreadable": f"what reads it is ended by it (exit code {process.returncode})"}

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, *_COMMAND],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        return self._process


def one_line(error: BaseException) -> str:
    """What an error says, in one line that is not too long."""
    return " ".join(str(error).split())[:200] or type(error).__name__
