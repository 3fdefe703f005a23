"""The identities of what was committed lately, on disk, to recognise what is sent again.

    DATA/pipeline/repeats/<table's uuid>/<newest_ms>-<random>.run

A run is written before the commit of its rows and says where the table is after it. Whoever opens
the window believes a run only if the table has come that far: then its rows are in the table,
whoever committed them. So a kill at any point forgets nothing, and a table that was restored or
begun anew is not taken for one that has the rows.

Memory: sorted runs are mapped, and a filter in each of them, 2 bytes a row, keeps nearly all
questions away from the rest, 16 bytes a row. What the filter lets through is compared with all 128
bits, so its errors cost a look and never a row.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import shutil
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.lake.positions import decode_positions, encode_positions
from penstock.lake.window import in_order, is_in
from penstock.model.errors import FormatError, InvalidArgument
from penstock.model.positions import check_forward
from penstock.pipeline.flush.run_format import (
    Asked,
    Head,
    decode_head,
    encode_head,
    filter_of,
    may_have,
    words_for,
)
from penstock.storage.files import OUT_OF_SPACE, LocalFiles

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from penstock.lake.hashing import Hashes
    from penstock.model.positions import Positions
    from penstock.storage.files import Files

_LOG = logging.getLogger(__name__)
FOLDER: Final = "pipeline/repeats"
SUFFIX: Final = ".run"
MERGED_KEYS: Final = 2_000_000
"""Smaller runs are merged up to this size: the most that is in memory, several times over."""
SEALING_S: Final = 60.0
"""So long before its segment was sealed a row may have come, at most."""
_RUNS: Final = 10
"""So many of the window, at least, are removed one after another."""
_FORGOTTEN_S: Final = 86_400.0


class Run:
    """A file of the window, mapped."""

    def __init__(self, files: Files, path: Path) -> None:
        data = files.map(path)
        self.path = path
        self.head = decode_head(data)
        numbers = np.frombuffer(data, np.uint64, offset=self.head.filter_at)
        self._filter = numbers[: self.head.words]
        self.first, self.second = numbers[self.head.words :].reshape(2, -1)

    def __len__(self) -> int:
        return self.head.keys

    @property
    def newest_s(self) -> float:
        """When the last segment of its rows was sealed."""
        return self.head.newest_ms / 1000

    @property
    def positions(self) -> Positions:
        """Where the table is that has its rows."""
        return decode_positions(json.loads(self.head.note))

    @property
    def keys(self) -> Hashes:
        """All of them, in memory."""
        return np.stack([self.first, self.second], axis=1)

    def knows(self, asked: Asked) -> NDArray[np.bool_]:
        """Which of the keys; what the filter lets through is compared with the keys themselves."""
        found = may_have(self._filter, asked)
        perhaps = np.flatnonzero(found)
        found[perhaps] = is_in(asked.keys[perhaps], self.first, self.second)
        return found


class RepeatWindow:
    """Rows of one table that came within `seconds`, at most `most` of them."""

    def __init__(
        self,
        folder: Path,
        positions: Positions,
        *,
        seconds: float,
        most: int,
        files: Files | None = None,
    ) -> None:
        self._folder = folder
        self._seconds = seconds
        self._most = most
        self._files = files or LocalFiles()
        self._horizon_s = 0.0
        self._said = False
        self.is_new = not folder.exists()
        self._files.make_folder(folder)
        self._runs = self._opened(positions)

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def knows(self, keys: Hashes) -> NDArray[np.bool_]:
        """Which of the rows are in it."""
        order = np.argsort(keys[:, 0])  # neighbours are then looked up in the same memory
        asked = Asked(keys[order])
        known = np.zeros(len(keys), bool)
        for run in self._runs:
            known |= run.knows(asked)
        found = np.empty(len(keys), bool)
        found[order] = known
        return found

    def forget(self, oldest_s: float) -> None:
        """What came too long before rows whose segments were sealed at or after that time.

        By when segments were sealed, not by when they were committed: a batch may wait for an hour.
        """
        self._horizon_s = oldest_s - self._seconds - SEALING_S
        self._drop([run for run in self._runs if run.newest_s < self._horizon_s])

    def write(self, keys: Sequence[Hashes], end: Positions, newest_s: float) -> Run | None:
        """Before the commit that moves the table to `end`; durable. None where there are no rows.

        The window has them when the commit has succeeded: `keep`. None, too, where the disk has no
        room for them: that may cost repeats, and a batch that waited would never make room.
        """
        joined = np.concatenate([*keys, np.empty((0, 2), np.uint64)])[-self._most :]
        note = json.dumps(encode_positions(end)).encode()
        sealed_ms = int(newest_s * 1000)
        try:
            found = in_order(joined)
            return self._written(found, note, sealed_ms, sealed_ms) if len(joined) else None
        except OSError as error:
            if error.errno not in OUT_OF_SPACE:
                raise
            text = "%s has no room to remember %d rows: if they are sent again, they are repeated"
            _LOG.warning(text, self._folder, len(joined))
            return None

    def keep(self, run: Run) -> None:
        """After the commit."""
        self._runs.append(run)
        while len(self._runs) > 1 and len(self) > self._most:
            self._say_if_young(self._runs[0])
            self._drop(self._runs[:1])
        self._merge()

    # --- files ---------------------------------------------------------------------------------

    def _opened(self, positions: Positions) -> list[Run]:
        runs = []
        for name in self._files.names(self._folder):
            path = self._folder / name
            run = _believed(self._files, path, positions) if path.suffix == SUFFIX else None
            if run is not None:
                runs.append(run)
            else:  # of a batch that was not committed, or cut off while it was written
                self._files.remove(path)
        return sorted(runs, key=lambda run: run.head.newest_ms)

    def _written(self, keys: Hashes, note: bytes, oldest_ms: int, newest_ms: int) -> Run:
        head = Head(len(keys), words_for(len(keys)), oldest_ms, newest_ms, note)
        path = self._folder / f"{newest_ms:020d}-{secrets.token_hex(6)}{SUFFIX}"
        scratch = path.with_suffix(".tmp")
        columns = [filter_of(keys, head.words), *np.ascontiguousarray(keys.T)]
        file = self._files.create(scratch)
        try:
            file.pwrite([encode_head(head), *(memoryview(each).cast("B") for each in columns)], 0)
            file.sync()
        except OSError:
            with contextlib.suppress(OSError):
                self._files.remove(scratch)  # a part of it would take the room that there is
            raise
        finally:
            file.close()
        # Whole and on disk before it has its name, and has it before the commit relies on it.
        self._files.rename(scratch, path)
        self._files.sync_folder(self._folder)
        return Run(self._files, path)

    def _merge(self) -> None:
        """Each run is at least twice the next, or as large or as long as merged ones become."""
        runs = self._runs
        while len(runs) > 1 and self._are_small(*runs[-2:]):
            older, newer = runs[-2:]
            both = in_order(np.concatenate([older.keys, newer.keys]))
            times_ms = [older.head.oldest_ms, newer.head.newest_ms]
            try:
                runs.append(self._written(both, newer.head.note, min(times_ms), max(times_ms)))
            except OSError as error:
                if error.errno in OUT_OF_SPACE:  # two of them do as well
                    return
                raise
            self._drop([older, newer])  # only now: the merged one is durable

    def _are_small(self, older: Run, newer: Run) -> bool:
        lasted_ms = newer.head.newest_ms - older.head.oldest_ms
        return (
            len(older) < 2 * len(newer)
            and len(older) + len(newer) <= MERGED_KEYS
            and lasted_ms <= self._seconds * 1000 / _RUNS
        )

    def _drop(self, runs: Sequence[Run]) -> None:
        for run in runs:
            self._runs.remove(run)
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(run.path)

    def _say_if_young(self, run: Run) -> None:
        if run.newest_s >= self._horizon_s and not self._said:
            self._said = True
            _LOG.warning(
                "%d rows are remembered to recognise what is sent again, which is less than %g s "
                "of them; raise pipeline.repeat_rows, at 18 bytes of disk each",
                *(self._most, self._seconds),
            )


def forget_other_tables(root: Path, own: Sequence[str], now_s: float) -> None:
    """Windows of tables that nobody has written to for a day: another lake, or none any more."""
    for folder in root.iterdir() if root.exists() else ():
        if folder.name not in own:
            times = [path.stat().st_mtime for path in (folder, *folder.iterdir())]
            if max(times) < now_s - _FORGOTTEN_S:
                shutil.rmtree(folder, ignore_errors=True)


def _believed(files: Files, path: Path, positions: Positions) -> Run | None:
    """The run, if the table has its rows."""
    try:
        run = Run(files, path)
        check_forward(run.positions, positions)
    except InvalidArgument:
        return None
    except (FormatError, ValueError) as error:
        _LOG.warning("%s is forgotten: %s", path, error)
        return None
    return run
