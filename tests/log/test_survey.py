"""A quick look finds offsets and sizes without reading the messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.log import Environment, Log
from penstock.log.survey import Survey, survey_log
from penstock.metrics import Metrics
from penstock.model import LogSettings
from penstock.storage import LocalFiles
from tests.log.small_logs import (
    QUICK,
    InterruptedFiles,
    append,
    flip,
    wal,
    write_killed_log,
    write_log,
)

if TYPE_CHECKING:
    from pathlib import Path

FILES = LocalFiles()


def test_closed_log_is_surveyed_from_its_seals(tmp_path: Path) -> None:
    """Offsets, files and bytes as they are on disk."""
    folder = write_log(tmp_path / "log")
    size = sum(path.stat().st_size for path in folder.glob("*.wal"))
    assert survey_log(FILES, folder) == Survey(0, 60, 3, size)


def test_unfinished_file_is_read_for_its_end(tmp_path: Path) -> None:
    """Only the last file can be one."""
    found = survey_log(FILES, write_killed_log(tmp_path / "log"))
    assert (found.start_offset, found.end_offset, found.files) == (0, 60, 3)


def test_open_log_is_surveyed_without_a_lock(tmp_path: Path) -> None:
    """The server may be running."""
    with Log.open(tmp_path, QUICK, env=Environment(metrics=Metrics())) as log:
        assert survey_log(FILES, tmp_path).end_offset == 0
        append(log, 7)
        assert survey_log(FILES, tmp_path).end_offset == 7


def test_log_that_retention_emptied_keeps_its_offsets(tmp_path: Path) -> None:
    """Earliest and end are where they were."""
    folder = write_log(tmp_path / "log")
    with Log.open(
        folder, LogSettings(retention_bytes=0), env=Environment(metrics=Metrics())
    ) as log:
        log.set_floor(60)
        log.enforce_retention()
    found = survey_log(FILES, folder)
    assert (found.start_offset, found.end_offset, found.files) == (60, 60, 1)


def test_missing_folder_holds_nothing(tmp_path: Path) -> None:
    """Looking at it makes no folder."""
    assert survey_log(FILES, tmp_path / "missing") == Survey(0, 0, 0, 0)
    assert list(tmp_path.iterdir()) == []


def test_unreadable_last_file_ends_where_it_begins(tmp_path: Path) -> None:
    """A damaged header is for fsck to report."""
    folder = write_log(tmp_path / "log")
    for position in (20, 2068):
        flip(wal(folder, 50), position)
    assert survey_log(FILES, folder).end_offset == 50


@pytest.mark.parametrize("kept", [50, 60])
def test_files_that_retention_removes_meanwhile_are_passed_over(tmp_path: Path, kept: int) -> None:
    """Also when that was the last one of those listed."""
    folder = write_log(tmp_path / "log")

    def go_on() -> None:
        with Log.open(
            folder, LogSettings(retention_bytes=0), env=Environment(metrics=Metrics())
        ) as log:
            append(log, 5)
            log.set_floor(kept)
            log.enforce_retention()

    assert survey_log(InterruptedFiles("names", go_on), folder).end_offset in {60, 65}
