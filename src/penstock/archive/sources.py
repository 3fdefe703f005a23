"""How far a log is safe on its own disk, which is how far the archive may follow it.

A reader of files sees messages before they are synced. A power loss may take those back, and the
log then gives their offsets to others: an archive that had been ahead would hold the wrong ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.log.inventory import file_name
from penstock.log.scan import read_header, read_seal
from penstock.log.survey import log_files
from penstock.model.errors import Damaged
from penstock.model.settings import Durability

if TYPE_CHECKING:
    import uuid
    from pathlib import Path

    from penstock.log import Log
    from penstock.storage.files import Files


PARTY = "archive"
"""Who the log keeps messages for: `Store.open(…, keep_for=[PARTY])`, `Log.keep_for(PARTY)`."""


class Source(Protocol):
    """A log that is to be archived."""

    def end_offset(self) -> int:
        """One past the last message that a power loss would leave."""
        ...

    def waiting_bytes(self, offset: int, position: int) -> int:
        """About how many bytes there are from `offset` on, which is at `position` in its file."""
        ...

    def let_go(self, offset: int) -> None:
        """Says that everything below is in the archive."""
        ...


class OpenLog:
    """The log that this process writes."""

    def __init__(self, log: Log) -> None:
        self._log = log
        log.keep_for(PARTY)

    def end_offset(self) -> int:
        """What readers see is synced, save with `buffer`: there only finished files are."""
        if self._log.settings.durability is not Durability.BUFFER:
            return self._log.end_offset
        sealed = self._log.sealed_files
        return sealed[-1].end_offset if sealed else 0

    def waiting_bytes(self, offset: int, position: int) -> int:
        """Finished files, and what was written of the present one."""
        sealed = self._log.sealed_files
        present = self._log.size - sum(file.size for file in sealed)
        waiting = sum(file.size for file in sealed if file.end_offset > offset) + present
        return max(0, waiting - position)

    def let_go(self, offset: int) -> None:
        """Raises the archive's floor in the log."""
        self._log.set_floor(offset, PARTY)


class SealedFiles:
    """The finished files of a log that nobody writes, or another process does."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._folder = folder

    def end_offset(self) -> int:
        """The end of the last finished file."""
        for first in reversed(log_files(self._files, self._folder)):
            end = _sealed_end(self._files, self._folder / file_name(first))
            if end is not None:
                return end
        return 0

    def waiting_bytes(self, offset: int, position: int) -> int:  # noqa: ARG002 - of the protocol
        """Everything that is finished is worth an upload."""
        return 2**63 if self.end_offset() > offset else 0

    def let_go(self, offset: int) -> None:
        """Its owner will learn it from the archive."""


def log_identity(files: Files, folder: Path) -> uuid.UUID | None:
    """The id of the log whose files are there, from the newest that says; None: there is none."""
    for first in reversed(log_files(files, folder)):
        try:
            file = files.open(folder / file_name(first))
        except FileNotFoundError:  # removed just now
            continue
        try:
            return read_header(file)[0].log_id
        except Damaged:
            continue
        finally:
            file.close()
    return None


def _sealed_end(files: Files, path: Path) -> int | None:
    try:
        file = files.open(path)
    except FileNotFoundError:  # removed just now
        return None
    try:
        seal = read_seal(file, read_header(file)[0])
        return seal.end_offset if seal is not None else None
    except Damaged:
        return None
    finally:
        file.close()
