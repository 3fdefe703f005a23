"""What the cold flush has done, for people, `/metrics` and the next run.

DATA/pipeline/progress.json    totals, and the last batch
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from penstock.model.errors import Damaged
from penstock.storage.documents import decode_document, encode_document
from penstock.storage.files import OUT_OF_SPACE, LocalFiles, read_whole, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from penstock.lake.files import WrittenFile
    from penstock.pipeline.flush.task import Fault
    from penstock.tiers.segments import Segment

_LOG = logging.getLogger(__name__)
FILE: Final = "pipeline/progress.json"
_KIND: Final = "pipeline progress"
_VERSION: Final = 1
_RECENT: Final = 20
FAR_OFF: Final = "far_off"
_TOTALS: Final = ("batches", "segments", "rows", "files", "bytes", "repeated", "faults")


@dataclass(frozen=True, slots=True)
class TableReport:
    """What a batch did to one table."""

    table: str
    files: Sequence[WrittenFile]
    repeated: int
    faults: Sequence[Fault]
    far_off: Mapping[str, int] = field(default_factory=dict)
    """Rows of far-off days, by namespace."""


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What a batch did."""

    batch: int
    segments: int
    segment_bytes: int
    rows: dict[str, int]
    files: int
    bytes: int
    repeated: int
    """Rows that the lake had already."""
    faults: list[str]
    seconds: float
    lag_s: float
    """From the sealing of its oldest segment to the commit."""
    at: float = field(default_factory=time.time)
    far_off: dict[str, int] = field(default_factory=dict)
    """Rows that are in no file of their day, by namespace."""

    @classmethod
    def of(
        cls,
        number: int,
        reports: Iterable[TableReport],
        segments: Sequence[Segment],
        seconds: float,
    ) -> BatchReport:
        """From the tables'."""
        reports = list(reports)
        files = [file for report in reports for file in report.files]
        far_off = Counter[str]()
        for report in reports:
            far_off.update(report.far_off)
        sealed = [each.sealed_at_ns for each in segments if each.sealed_at_ns]
        return cls(
            batch=number,
            segments=len(segments),
            segment_bytes=sum(each.bytes for each in segments),
            rows={report.table: sum(file.rows for file in report.files) for report in reports},
            files=len(files),
            bytes=sum(file.bytes for file in files),
            repeated=sum(report.repeated for report in reports),
            faults=[fault.problem for report in reports for fault in report.faults],
            seconds=seconds,
            lag_s=max(0.0, time.time() - min(sealed) / 1e9) if sealed else 0.0,
            far_off=dict(far_off),
        )

    def __str__(self) -> str:
        """One line for the terminal."""
        rows = ", ".join(f"{count:,} {table}" for table, count in self.rows.items() if count)
        notes = f", {self.repeated:,} repeated" if self.repeated else ""
        notes += f", {sum(self.far_off.values()):,} of far-off days" if self.far_off else ""
        notes += f", {len(self.faults)} FAULTS" if self.faults else ""
        return (
            f"batch {self.batch}: {rows or 'no rows'}{notes}; {self.segments} segments to "
            f"{self.files} files, {self.bytes / 1e6:.1f} MB, in {self.seconds:.2f} s, "
            f"{self.lag_s:.1f} s after sealing"
        )


class ProgressFile:
    """Adds up batches, over restarts."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / FILE
        self._files = LocalFiles()
        found = read_progress(data_dir) or {}
        self._totals: dict[str, int] = {name: int(found.get(name, 0)) for name in _TOTALS}
        self._far_off = Counter[str](found.get(FAR_OFF, {}))
        self._recent: list[dict[str, Any]] = found.get("recent", [])

    def add(self, report: BatchReport) -> None:
        """Writes the totals and the batch down. Losing them loses no data."""
        counted = {
            "batches": 1,
            "segments": report.segments,
            "rows": sum(report.rows.values()),
            "files": report.files,
            "bytes": report.bytes,
            "repeated": report.repeated,
            "faults": len(report.faults),
        }
        self._totals = {name: self._totals[name] + counted[name] for name in _TOTALS}
        self._recent = [*self._recent, asdict(report)][-_RECENT:]
        self._far_off.update(report.far_off)
        fields = {**self._totals, FAR_OFF: dict(self._far_off), "recent": self._recent}
        self._files.make_folder(self._path.parent)
        try:
            write_atomically(self._files, self._path, encode_document(_KIND, _VERSION, fields))
        except OSError as error:
            if error.errno not in OUT_OF_SPACE:
                raise
            _LOG.warning("%s has no room for the last batch: %s", self._path, report)


class Reports:
    """The batches of the pipeline that runs, each once, as the driver writes them down."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._seen = self._batches()

    def new(self) -> list[BatchReport]:
        """Those since the last call, as far as they are kept."""
        found = read_progress(self._data_dir) or {}
        missed = int(found.get("batches", 0)) - self._seen
        self._seen += missed
        recent = found.get("recent", [])
        return [BatchReport(**fields) for fields in recent[-missed:]] if missed > 0 else []

    def _batches(self) -> int:
        return int((read_progress(self._data_dir) or {}).get("batches", 0))


def read_progress(data_dir: Path) -> dict[str, Any] | None:
    """The totals by name, and the `recent` batches; None where there are none, or in doubt."""
    try:
        return decode_document(_KIND, _VERSION, read_whole(LocalFiles(), data_dir / FILE))
    except (FileNotFoundError, Damaged):
        return None
