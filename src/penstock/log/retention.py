"""Which files a log may forget: one pure rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.log.inventory import LogFile
    from penstock.model.settings import LogSettings


def removable(
    files: Sequence[LogFile], floor: int, total_bytes: int, now_ns: int, settings: LogSettings
) -> int:
    """How many of the oldest files go.

    A file goes if all its offsets lie below `floor` *and* it is older than `retention_s` or the
    log (`total_bytes`, the file being written included) is over `retention_bytes`. Files go from
    the oldest on and never past one that stays. A clock that went back only keeps files longer.
    """
    count = 0
    for file in files:
        too_old = settings.retention_s is not None and (
            now_ns - file.sealed_at_ns > settings.retention_s * 1e9
        )
        too_much = settings.retention_bytes is not None and total_bytes > settings.retention_bytes
        if file.end_offset > floor or not (too_old or too_much):
            break
        total_bytes -= file.size
        count += 1
    return count
