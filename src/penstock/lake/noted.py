"""What manifests list, noted beside the table: a new process need not read all of them again.

Reading ten thousand entries takes most of a second; reading this takes some hundredths of one.
Manifests never change, so a note of one stays true as long as the table is the same. Only tables of
many files are noted (`seen`).
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any, Final

from penstock.lake.seen import read_seen, seen_path, write_seen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from penstock.lake.settings import LakeSettings

    Listed = tuple[tuple[Any, ...], tuple[Any, ...]]
    """The fields of a data file, and its partition."""

KIND: Final = "manifests"
MANY_FILES: Final = 1000
"""A table of fewer is read as quickly without."""
WORTH_FILES: Final = 500
"""Notes are written when so many files were read that they lack."""
_PLAIN: Final = (int, str, bool, type(None))


class Noted:
    """The notes of one table, for one look at it."""

    def __init__(
        self, settings: LakeSettings, table: str, identity: str, numbers: tuple[int, int]
    ) -> None:
        """`numbers` are those of the columns whose bounds are noted."""
        self._table = (settings, table)
        self._identity = identity
        self._numbers = list(numbers)
        self._known: Mapping[str, Any] = {}
        self._used: dict[str, Any] = {}
        self._read = 0
        self.is_on = False

    def expect(self, files: int) -> None:
        """How many files the table has: whether notes are worth it."""
        self.is_on = files >= MANY_FILES
        if self.is_on:
            found = _notes(*self._table, self._identity)
            if isinstance(found, dict) and found.get("numbers") == self._numbers:
                self._known = found.get("manifests", {})

    def files(self, manifest: str, read: Callable[[], Sequence[Listed]]) -> Sequence[Listed]:
        """Of a manifest, as noted or as read."""
        noted = self._known.get(manifest)
        if noted is not None:
            self._used[manifest] = noted
            return [_decoded(each) for each in noted]
        found = read()
        if all(_is_plain(part) for _, part in found):
            self._used[manifest] = [_encoded(each) for each in found]
            self._read += len(found)
        return found

    def end(self) -> None:
        """All manifests were listed."""
        if self._read >= WORTH_FILES:
            noted = {"numbers": self._numbers, "manifests": self._used}
            write_seen(*self._table, KIND, self._identity, noted)


_last: Final[dict[Path, tuple[tuple[int, int, str], Any]]] = {}
"""Of this process: what was read, and of which file."""


def _notes(settings: LakeSettings, table: str, identity: str) -> Any:
    path = seen_path(settings, table, KIND)
    try:
        found = None if path is None else path.stat()
    except OSError:
        found = None
    if path is None or found is None:
        return None
    state = (found.st_mtime_ns, found.st_ino, identity)
    known = _last.get(path)
    if known is None or known[0] != state:
        known = (state, read_seen(settings, table, KIND, identity))
        _last[path] = known
    return known[1]


def _is_plain(partition: tuple[Any, ...]) -> bool:
    return all(type(value) in _PLAIN for value in partition)


def _encoded(listed: Listed) -> list[Any]:
    (path, rows, size, day, *others), partition = listed
    return [[path, rows, size, None if day is None else day.toordinal(), *others], partition]


def _decoded(noted: Any) -> Listed:
    (path, rows, size, day, times, *others), partition = noted
    on = None if day is None else date.fromordinal(day)
    return (path, rows, size, on, None if times is None else tuple(times), *others), tuple(
        partition
    )
