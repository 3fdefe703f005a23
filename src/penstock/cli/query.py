"""`penstock query`: SQL over all that was acknowledged."""

from __future__ import annotations

import io
import sys
import time
from typing import TYPE_CHECKING

import click

from penstock.cli.common import data_dir_option, existing_data_directory, print_table, say
from penstock.cli.serve import config_option, read_config
from penstock.model.errors import AnswerIncomplete, PenstockError

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.query.engine import Answer

_TIERS = ("hot", "warm", "cold")
_FORMATS = ("table", "json", "csv", "arrow", "parquet")


@click.command()
@click.argument("sql")
@data_dir_option
@config_option
@click.option("--tier", default=",".join(_TIERS), show_default=True, help="Where to look.")
@click.option("--format", "shown", type=click.Choice(_FORMATS), default="table", show_default=True)
@click.option("--json", "shown", flag_value="json", help="The same as --format json.")
@click.option("--partial", is_flag=True, help="Answer without what cannot be read, and name it.")
@click.option("--explain", is_flag=True, help="Say on stderr what each tier had, and when.")
def query(
    sql: str,
    data_dir: Path,
    file: Path | None,
    tier: str,
    shown: str,
    partial: bool,
    explain: bool,
) -> None:
    """Ask one question over hot, warm and cold.

    Tables: spans, logs, metrics, and after `penstock pipeline rollup` service_red_1m,
    service_edges_1h, traces; views in the ClickHouse convention: otel_traces, otel_logs,
    otel_metrics_*. Works with the server running or stopped, and sees what was acknowledged before
    it began: all of it, or an error that names what cannot be read, unless --partial.

    Example: penstock query "SELECT name, count(*) FROM spans GROUP BY ALL"
    """
    try:
        from penstock.query.engine import ask
        from penstock.query.results import FORMATS, cells
        from penstock.tiers.cut import Tier
    except ImportError as error:
        raise PenstockError(f"{error.name} is missing: pip install 'penstock[query]'") from None
    chosen = {Tier(name) for name in _names(tier)}
    existing_data_directory(data_dir)
    config = read_config(file, data_dir)
    started = time.perf_counter()
    try:
        answer = ask(
            data_dir.absolute(), config.lake_settings(), sql, tiers=chosen, partial=partial
        )
    except AnswerIncomplete as error:
        raise PenstockError(f"{error}; --partial answers without it") from None
    seconds = time.perf_counter() - started
    for warning in answer.warnings:
        say(f"penstock: {warning}", err=True)
    if explain:
        _explain(answer, seconds)
    if shown == "table":
        print_table(answer.rows.column_names, cells(answer.rows))
    elif shown == "csv" and sys.stdout.isatty():
        text = io.BytesIO()
        FORMATS[shown](answer.rows, text)
        say(text.getvalue().decode().replace("\r\n", "\n"), nl=False)
    else:
        FORMATS[shown](answer.rows, sys.stdout.buffer)


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or not set(names) <= set(_TIERS):
        raise click.BadParameter(f"{text!r} is no list of {', '.join(_TIERS)}", param_hint="--tier")
    return names


def _explain(answer: Answer, seconds: float) -> None:
    for table, found in answer.tables.items():
        say(f"{table}:", err=True)
        for tier, spent in found.seconds.items():
            files = f" in {len(found.cold.files)} files" if tier == "cold" else ""
            rows = f"{found.rows(tier):,} rows{files}"
            say(f"  {tier:4}  {rows}, looked at in {spent * 1000:.0f} ms", err=True)
    say(f"{answer.rows.num_rows:,} rows in {seconds * 1000:.0f} ms", err=True)
