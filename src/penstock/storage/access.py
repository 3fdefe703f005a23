"""Who may read the files that Penstock writes: their owner alone, unless somebody says otherwise.

    owner   files 0600, finished ones 0400, folders 0700
    group   0640, 0440, 0750
    all     0644, 0444, 0755

`LocalFiles` makes files and folders so in any program. Those that others make for Penstock (SQLite,
Parquet, Spark) follow the mask of the process, which the commands set and their children inherit.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LOG = logging.getLogger(__name__)
VARIABLE: Final = "PENSTOCK_FILE_ACCESS"
"""How children of a process that chose something else hear of it."""


class Access(enum.Enum):
    """The bits that files must not have."""

    OWNER = 0o077
    GROUP = 0o027
    ALL = 0o022


def _of_environment() -> Access:
    text = os.environ.get(VARIABLE, "")
    return next((each for each in Access if each.name.lower() == text), Access.OWNER)


_chosen = _of_environment()


def file_mode() -> int:
    """Of a file that is written to."""
    return 0o666 & ~_chosen.value


def finished_mode() -> int:
    """Of one that nobody writes to any more."""
    return 0o444 & ~_chosen.value


def folder_mode() -> int:
    """Of a folder."""
    return 0o777 & ~_chosen.value


def mask() -> int:
    """What no file has."""
    return _chosen.value


def choose(name: str) -> None:
    """For this process, which it is from now on, and its children."""
    global _chosen  # noqa: PLW0603 - as the mask, it is the process's
    _chosen = Access[name.upper()]
    os.umask(_chosen.value)
    if _chosen is not _of_environment():
        os.environ[VARIABLE] = name


@contextlib.contextmanager
def masked() -> Iterator[None]:
    """Whatever is made within has no more than it may."""
    before = os.umask(_chosen.value)
    try:
        yield
    finally:
        os.umask(before)


def narrow(folder: Path) -> None:
    """Takes from others what a folder of an earlier release gave them, and with it all inside."""
    mode = folder.stat().st_mode & 0o777
    if not mode & _chosen.value:
        return
    try:
        folder.chmod(mode & ~_chosen.value)
        _LOG.warning("%s is no longer open to others; file_access says who may read it", folder)
    except PermissionError as error:
        _LOG.error("%s is open to others, and cannot be closed: %s", folder, error)
