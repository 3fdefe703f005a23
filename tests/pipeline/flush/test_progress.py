"""What the flush writes down about itself."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from penstock.pipeline.flush.progress import FILE, BatchReport, ProgressFile, Reports, read_progress


def report(number: int, spans: int = 3, faults: tuple[str, ...] = ()) -> BatchReport:
    """Of a batch of two segments."""
    return BatchReport(
        batch=number,
        segments=2,
        segment_bytes=100,
        rows={"spans": spans, "logs": 0},
        files=1,
        bytes=50,
        repeated=1,
        faults=[*faults],
        seconds=0.25,
        lag_s=1.5,
        at=10.0,
    )


def test_totals_go_on_over_restarts(tmp_path: Path) -> None:
    """Batches are counted from the first run on."""
    ProgressFile(tmp_path).add(report(0))
    again = ProgressFile(tmp_path)
    again.add(report(0, 4, ("broken",)))
    again.add(report(1))
    found = read_progress(tmp_path)
    assert found is not None
    totals = {"batches": 3, "segments": 6, "rows": 10, "files": 3, "bytes": 150}
    assert {name: found[name] for name in totals} == totals
    assert (found["repeated"], found["faults"]) == (3, 1)
    assert found["recent"][1] == asdict(report(0, 4, ("broken",)))


def test_only_the_last_batches_are_kept(tmp_path: Path) -> None:
    """A pipeline that runs for months does not write ever more."""
    progress = ProgressFile(tmp_path)
    for number in range(50):
        progress.add(report(number))
    found = read_progress(tmp_path)
    assert found is not None
    assert found["batches"] == 50
    assert [each["batch"] for each in found["recent"]] == [*range(30, 50)]


def test_reports_come_once_each(tmp_path: Path) -> None:
    """Those of earlier runs do not come at all."""
    progress = ProgressFile(tmp_path)
    progress.add(report(7))
    reports = Reports(tmp_path)
    assert reports.new() == []
    progress.add(report(0))
    progress.add(report(1))
    assert reports.new() == [report(0), report(1)]
    assert reports.new() == []


def test_damaged_progress_starts_anew(tmp_path: Path) -> None:
    """It is for people: losing it loses no data, and stops nothing."""
    progress = ProgressFile(tmp_path)
    progress.add(report(0))
    reports = Reports(tmp_path)
    (tmp_path / FILE).write_bytes(b"{")
    assert read_progress(tmp_path) is None
    assert reports.new() == []
    ProgressFile(tmp_path).add(report(1))
    assert reports.new() == [report(1)]


def test_line_says_what_a_batch_did() -> None:
    """In words; repeats and faults only where there are some."""
    assert str(report(3, 12345, ("a", "b"))) == (
        "batch 3: 12,345 spans, 1 repeated, 2 FAULTS; 2 segments to 1 files, 0.0 MB, in 0.25 s, "
        "1.5 s after sealing"
    )
    assert str(report(4, 0)).startswith("batch 4: no rows, 1 repeated; ")


def test_far_off_rows_are_added_up_by_namespace(tmp_path: Path) -> None:
    """Also behind what an earlier version wrote down, which did not count them."""
    progress = ProgressFile(tmp_path)
    progress.add(replace(report(0), far_off={"a": 2}))
    ProgressFile(tmp_path).add(replace(report(1), far_off={"a": 1, "b": 5}))
    found = read_progress(tmp_path)
    assert found is not None
    assert found["far_off"] == {"a": 3, "b": 5}
    assert "7 of far-off days" in str(replace(report(0), far_off={"a": 2, "b": 5}))
    older = {name: value for name, value in asdict(report(0)).items() if name != "far_off"}
    assert BatchReport(**older) == report(0)
