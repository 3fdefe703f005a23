"""What `penstock status` sees on disk: the tiers, their sizes, and who lags."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.lake.glance import NOTHING, Glance, glance
from penstock.lake.reader import counted
from penstock.lake.schemas import signal_of, table_of
from penstock.log.survey import survey_log
from penstock.model.clock import SystemClock
from penstock.model.errors import Damaged, ForeignPosition, PenstockError
from penstock.pipeline.flush.progress import read_progress
from penstock.storage import DataDirectory, LocalFiles
from penstock.store.status import subscriber_status
from penstock.store.verify import is_store, survey_store
from penstock.tiers.adoption import DirectoryAdoption, adopted
from penstock.tiers.cut import check_own, rest_of
from penstock.tiers.segments import DirectorySegments

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.lake.reader import Counted
    from penstock.lake.settings import LakeSettings
    from penstock.storage import Partition

TABLES = ("spans", "logs", "metrics")


def disk_status(root: Path, lake: LakeSettings, size_cap: int | None) -> dict[str, Any]:
    """Safe beside a running server; what is damaged is named in `problems`."""
    look = _Look(lake)
    tiers = {table: look.at_lake(table) for table in TABLES}
    for partition in DataDirectory(root).partitions():
        look.at_partition(partition, tiers)
    look.at_segments(root, tiers)
    tables = sum(path.stat().st_blocks * 512 for path in root.glob("repeats*.tbl"))
    used = look.log_bytes + look.segment_bytes + tables
    sizes = {"log": look.log_bytes, "segments": look.segment_bytes, "lake": look.lake_bytes}
    return {
        "tiers": tiers,
        "sizes": sizes,
        "budget": {"used_bytes": used, "limit_bytes": size_cap},
        "lag": look.lag,
        "pipeline": _pipeline(root),
        "problems": look.problems,
    }


class _Look:
    """Adds up what it sees."""

    def __init__(self, lake: LakeSettings) -> None:
        self._lake = lake
        self._files = LocalFiles()
        self._cold: dict[str, Glance] = {}
        self.log_bytes = 0
        self.segment_bytes = 0
        self.lake_bytes = 0
        self.lag: dict[str, Any] | None = None
        self.problems: list[str] = []

    def at_lake(self, table: str) -> dict[str, Any]:
        """The cold part of a table; the others are still empty."""
        tier: dict[str, Any] = {"hot_messages": 0, "warm_segments": 0, "warm_bytes": 0}
        self._cold[signal_of(table).value] = found = self._glance(table)
        size = sum(file.bytes for file in found.files)
        self.lake_bytes += size
        live = self._counted(table, found)
        tier |= {"cold_rows": live.rows, "cold_files": len(found.files), "cold_bytes": size}
        return {**tier, "cold_deleted": live.deleted, "cold_delete_files": live.delete_files}

    def _counted(self, table: str, found: Glance) -> Counted:
        try:
            return counted(found.files)
        except (PenstockError, OSError) as error:
            self.problems.append(f"{table}: deleted rows are counted, too: {error}")
            return counted(replace(file, deletes=None) for file in found.files)

    def _glance(self, table: str) -> Glance:
        try:
            return glance(self._lake, table)
        except ImportError as error:
            self.problems.append(f"the lake is not shown: pip install {error.name}")
        except Damaged as error:
            self.problems.append(str(error))
        return NOTHING

    def at_partition(self, partition: Partition, tiers: dict[str, dict[str, Any]]) -> None:
        """Adds a partition of a topic, whatever it carries."""
        log = survey_log(self._files, partition.log_folder)
        self.log_bytes += log.bytes
        if not is_store(self._files, partition.folder):
            return
        found = survey_store(self._files, partition.folder)
        self.problems += [f"{partition.folder}: {problem}" for problem in found.problems]
        state = found.state
        self.segment_bytes += state.segment_bytes
        self._at_subscribers(partition, state)
        if partition.topic.name not in self._cold:
            return
        table = next(table for table in TABLES if signal_of(table).value == partition.topic.name)
        tiers[table]["hot_messages"] += max(0, log.end_offset - state.sealed_offset)

    def at_segments(self, root: Path, tiers: dict[str, dict[str, Any]]) -> None:
        """Adds those that the lake does not have, or has in part."""
        own = DirectoryAdoption(root, self._lake)
        positions = {
            name: adopted(found.positions, found.claims, own) for name, found in self._cold.items()
        }
        segments = DirectorySegments(root).since({})
        for name, known in positions.items():
            try:
                check_own(root, segments, known)
            except ForeignPosition as error:
                self.problems.append(str(error))
                positions[name] = {}
        for segment in segments:
            if segment.signal is not None:
                table = table_of(segment.signal)
                if rest_of(segment, positions[segment.signal.value]) is not None:
                    tiers[table]["warm_segments"] += 1
                    tiers[table]["warm_bytes"] += segment.bytes

    def _at_subscribers(self, partition: Partition, state: Any) -> None:
        for each in state.subscribers.values():
            known = subscriber_status(state, each, 0, SystemClock().wall_ns())
            if self.lag is None or known.lag_bundles > self.lag["lag_bundles"]:
                self.lag = {
                    "subscriber": known.name,
                    "topic": str(partition.topic),
                    "partition": partition.number,
                    "lag_bundles": known.lag_bundles,
                    "oldest_unacked_s": round(known.oldest_unacked_s, 3),
                }


def _pipeline(root: Path) -> dict[str, Any] | None:
    found = read_progress(root)
    if found is None:
        return None
    [last] = found["recent"][-1:] or [{"at": 0.0, "lag_s": 0.0}]
    return {
        "batches": found["batches"],
        "rows": found["rows"],
        "last_batch_at": last["at"],
        "last_lag_s": last["lag_s"],
    }
