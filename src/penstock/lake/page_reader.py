"""Has another process read Parquet files, so that a damaged one cannot end this one."""

from __future__ import annotations

import contextlib
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from penstock.children.asking import Child, ChildDied, ChildSilent
from penstock.children.frames import decode_document, encode_document

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path
    from types import TracebackType
    from typing import Self

MODULE: Final = "penstock.lake.pages"
_COLUMN_S: Final = 600.0
"""For one column of a row group."""


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
        self._child: Child | None = None

    def read(self, path: Path, progress: Callable[[int], object] | None = None) -> PagesRead:
        """Whatever is in the file, this returns. `progress` gets the bytes of each column."""
        found = PagesRead()
        with contextlib.closing(self._answers(path)) as answers:
            for answer in answers:
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
        if self._child is not None:
            self._child.end()
        self._child = None

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

    def _answers(self, path: Path) -> Generator[dict[str, Any]]:
        child = self._running()
        try:
            for answer in child.ask_all([encode_document(str(path.absolute()))], _COLUMN_S):
                yield decode_document(answer[0])
        except ChildSilent:
            yield {"unreadable": f"a column was not read within {_COLUMN_S:g} s"}
        except ChildDied:
            child.end()
            yield {"unreadable": f"what reads it is ended by it (exit code {child.exit_code})"}

    def _running(self) -> Child:
        if self._child is None or not self._child.is_usable:
            self.close()
            self._child = Child(MODULE, stderr=subprocess.DEVNULL)
        return self._child


def one_line(error: BaseException) -> str:
    """What an error says, in one line that is not too long."""
    return " ".join(str(error).split())[:200] or type(error).__name__
