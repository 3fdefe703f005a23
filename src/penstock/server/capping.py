"""`retention.size_cap`: what it must be at least, and what follows from it for each store."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from penstock.model.errors import InvalidSetting
from penstock.model.settings import KIB, MIB
from penstock.model.units import show_size
from penstock.otel.signals import Signal
from penstock.storage.files import OUT_OF_SPACE
from penstock.store.budget import begin_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.model.settings import StoreSettings
    from penstock.server.configuration.config import Config
    from penstock.storage import DataDirectory

_LOG = logging.getLogger(__name__)
LEDGER: Final = "budget"
"""In the data directory: what every store has of the cap."""
_SEGMENTS: Final = 64
_LOG_FILES: Final = 256
"""Segments and log files are at most such parts of the cap, for each worker: they go as a whole,
and a segment stands beside the log that it comes from while it is sealed."""

_TABLES: Final = 16
"""Such a part of the cap is for the requests that are remembered; the rest is for the stores."""
_ROUNDING_BYTES: Final = 32 * KIB
"""What heads and last pages of these tables take."""


def check_cap(config: Config) -> None:
    """InvalidSetting where one namespace alone could not work."""
    cap = config.retention.size_cap
    least = len(Signal) * config.workers * MIB  # `LEAST_STORE_BYTES`, and its part of the tables
    if cap is not None and cap < least:
        raise InvalidSetting(
            f"retention.size_cap must be at least {show_size(least)} with {config.workers} "
            "workers: 1MiB for each signal of each of them"
        )


def capped_settings(config: Config) -> StoreSettings:
    """Those of a store: whatever goes as a whole is a small part of the cap."""
    settings, cap = config.store_settings(), config.retention.size_cap
    if cap is None:
        return settings
    segment = min(settings.segment.target_bytes, _part(cap, _SEGMENTS * config.workers))
    log_file = _part(cap, _LOG_FILES * config.workers)
    return replace(
        settings,
        segment=replace(settings.segment, target_bytes=segment),
        log=replace(settings.log, rotate_bytes=min(settings.log.rotate_bytes, log_file)),
        ack_log_bytes=min(settings.ack_log_bytes, log_file),
    )


def stores_cap(config: Config) -> int | None:
    """What all stores may take together."""
    cap = config.retention.size_cap
    return None if cap is None else cap - cap // _TABLES


def tables_cap(config: Config) -> int | None:
    """What the tables of remembered requests may take together; the rest is for the stores."""
    cap = config.retention.size_cap
    return None if cap is None else cap // _TABLES - _ROUNDING_BYTES


def _part(cap: int, parts: int) -> int:
    return max(64 * KIB, cap // parts)


def survey(directory: DataDirectory) -> None:
    """Notes what every store takes, before one is opened: also those that nobody will open."""
    used = {f"{each.topic}/{each.number}": _size(each.folder) for each in directory.partitions()}
    try:
        begin_ledger(directory.root / LEDGER, used)
    except OSError as error:  # a full disk: stores take nothing before they have noted their part
        if error.errno not in OUT_OF_SPACE:
            raise
        _LOG.warning("what each store has of the cap is noted later: %s", error)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
