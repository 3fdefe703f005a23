"""`penstock pipeline compact | rollup | expire`: jobs that keep the lake in order."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.cli.common import (
    data_dir_option,
    existing_data_directory,
    human_bytes,
    json_option,
    print_json,
    say,
    settings_options,
)
from penstock.cli.pipeline import master_option, pipeline, remote_option, spark
from penstock.cli.serve import config_option, read_config
from penstock.model.errors import PenstockError
from penstock.pipeline.jobs.settings import CompactSettings, ExpireSettings, RollupSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime
    from pathlib import Path

    from penstock.lake.tables import Lake
    from penstock.pipeline.jobs.compact import DayReport
    from penstock.pipeline.jobs.expire import ExpireReport
    from penstock.pipeline.jobs.rollup import RollupReport

DATA: Final = ("spans", "logs", "metrics")
ROLLUPS: Final = ("service_red_1m", "service_edges_1h", "traces")


def table_option(*names: str) -> Callable[[Any], Any]:
    """`--table`, which may stand there several times."""
    return click.option(
        *("--table", "tables"),
        type=click.Choice(names),
        multiple=True,
        help="Only this table; may be repeated.",
    )


day_option = click.option(
    *("--day", "days"),
    type=click.DateTime(["%Y-%m-%d"]),
    multiple=True,
    metavar="YYYY-MM-DD",
    help="Only this day; may be repeated.",
)


@pipeline.command()
@data_dir_option
@config_option
@table_option(*DATA)
@day_option
@settings_options(CompactSettings, "target_bytes", "min_files")
@master_option
@remote_option
@json_option
def compact(
    data_dir: Path,
    file: Path | None,
    tables: tuple[str, ...],
    days: tuple[datetime, ...],
    settings: CompactSettings,
    master: str,
    remote: str | None,
    as_json: bool,
) -> None:
    """Merge the lake's small files, and remove rows that are there twice.

    Day by day, and safe beside a running pipeline. It may be killed at any time and run again;
    where nothing is to be done, nothing is started.

    Example: penstock pipeline compact --data-dir data
    """
    from penstock.pipeline.jobs import compact as job

    with _lake(file, data_dir) as lake:
        due = list(job.due_days(lake, settings, tables=tables or DATA, days=_dates(days)))
        said = _Said("days", _compacted, as_json)
        if due:
            with spark(master, remote) as session:
                said.all(job.compact_day(session, *each, settings) for each in due)
        said.end()


@pipeline.command()
@data_dir_option
@config_option
@table_option(*ROLLUPS)
@day_option
@settings_options(RollupSettings, "trace_max_s")
@master_option
@remote_option
@json_option
def rollup(
    data_dir: Path,
    file: Path | None,
    tables: tuple[str, ...],
    days: tuple[datetime, ...],
    settings: RollupSettings,
    master: str,
    remote: str | None,
    as_json: bool,
) -> None:
    """Sum spans up: requests by service and minute, calls between services, traces.

    Only days whose spans have changed are computed, late spans included. Safe beside a running
    pipeline; it may be killed at any time and run again.

    Example: penstock pipeline rollup --data-dir data
    """
    from penstock.pipeline.jobs import rollup as job

    with _lake(file, data_dir) as lake:
        work = job.due_work(lake, settings, tables=tables or ROLLUPS, days=_dates(days))
        said = _Said("days", _rolled_up, as_json)
        if work.days:
            with spark(master, remote) as session:
                said.all(job.roll_up(session, work))
        said.end()


@pipeline.command()
@data_dir_option
@config_option
@table_option(*DATA, *ROLLUPS)
@settings_options(ExpireSettings, "rows_s", "rollups_s", "snapshots_s", "orphan_grace_s")
@click.option("--dry-run", is_flag=True, help="Say what would go, and let nothing go.")
@json_option
def expire(
    data_dir: Path,
    file: Path | None,
    tables: tuple[str, ...],
    settings: ExpireSettings,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Let go of what is too old: rows by their event time, snapshots, files of no use.

    Without --older-than all rows stay. Safe beside a running pipeline; it may be killed at any
    time and run again. Files go when their time of grace is over, with a later run.

    Example: penstock pipeline expire --older-than 30d --data-dir data
    """
    from penstock.pipeline.jobs import expire as job

    with _lake(file, data_dir) as lake:
        said = _Said("tables", _would_expire if dry_run else _expired, as_json)
        said.all(job.expire(lake, settings, tables=tables or (*DATA, *ROLLUPS), dry_run=dry_run))
        said.end()


def _lake(file: Path | None, data_dir: Path) -> Lake:
    from penstock.lake.tables import Lake

    config = read_config(file, data_dir.absolute())
    existing_data_directory(config.data_dir)
    return Lake.open(config.lake_settings())


def _dates(days: Sequence[datetime]) -> list[date] | None:
    return [day.date() for day in days] or None


class _Said:
    """Reports: a line for each as it comes, or one JSON document at the end."""

    def __init__(self, name: str, line: Callable[[Any], str], as_json: bool) -> None:
        self._name = name
        self._line = line
        self._as_json = as_json
        self._reports: list[Any] = []

    def all(self, reports: Iterable[Any]) -> None:
        """Says each."""
        for report in reports:
            self._reports.append(report)
            if not self._as_json:
                problem = f"; {report.problem}" if report.problem else ""
                say(self._line(report) + problem)

    def end(self) -> None:
        """One sentence if something went wrong."""
        if self._as_json:
            print_json({self._name: [_document(report) for report in self._reports]})
        elif not self._reports:
            say("nothing to do")
        failed = sum(report.problem is not None for report in self._reports)
        if failed:
            raise PenstockError(f"{failed} of {len(self._reports)} {self._name} have a problem")


def _document(report: Any) -> dict[str, Any]:
    document = asdict(report)
    if "day" in document:
        is_day = isinstance(report.day, date)
        document["day"] = report.day.isoformat() if is_day else None
        if not is_day and report.day is not None:
            document["far_off"] = str(report.day)
    return document


def _compacted(report: DayReport) -> str:
    repeats = f", {report.repeats:,} of them twice before" if report.repeats else ""
    return (
        f"{report.table} {report.day or 'without a time'}: {report.files_before} files "
        f"({human_bytes(report.bytes_before)}) are now {report.files_after} "
        f"({human_bytes(report.bytes_after)}) with {report.rows:,} rows{repeats}"
    )


def _rolled_up(report: RollupReport) -> str:
    return (
        f"{report.table} {report.day}: {report.rows:,} rows of {report.rows_read:,} spans "
        f"in {report.files_read} files"
    )


def _expired(report: ExpireReport, verb: str = "went") -> str:
    return (
        f"{report.table}: {report.rows:,} rows in {report.files} files, {report.snapshots} "
        f"snapshots and {report.orphans} unused files ({human_bytes(report.orphan_bytes)}) {verb}"
    )


def _would_expire(report: ExpireReport) -> str:
    return _expired(report, "would go")
