"""`penstock status`: one screen about a data directory and its server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.common import (
    data_dir_option,
    existing_data_directory,
    human_bytes,
    json_option,
    print_json,
    print_table,
    say,
)
from penstock.cli.serve import config_option, read_config

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@data_dir_option
@config_option
@json_option
def status(data_dir: Path, file: Path | None, as_json: bool) -> None:
    """Show rates, tiers, sizes, lag and budget.

    Works with the server running or stopped. Hot is what is in the log and in no segment, warm what
    is in segments and not in the lake, cold what is in the lake. The lag is that of the subscriber
    that lags most. The budget is retention.size_cap of the configuration.

    Example: penstock status --data-dir data
    """
    from penstock.cli.status_disk import disk_status

    existing_data_directory(data_dir)
    config, root = read_config(file, data_dir), data_dir.absolute()
    found: dict[str, Any] = {"data_dir": str(root), "server": server_status(root)}
    found |= disk_status(root, config.lake_settings(), config.retention.size_cap)
    if as_json:
        print_json(found)
    else:
        _show(found)


def server_status(root: Path) -> dict[str, Any]:
    """Whether one runs, and how it is. Asked through its own sockets: no token is needed."""
    from penstock.client.server_file import running_server
    from penstock.client.workers import reports_of

    server = running_server(root)
    if server is None:
        return {"running": False}
    ports = {name: getattr(server, f"{name}_port") for name in ("grpc", "http", "flight", "web")}
    reports, problems = reports_of(root, server)
    for report in reports:
        problems += [*report["failures"], *([report["pressure"]] if report["pressure"] else [])]
    rates = [report["rates"]["requests_per_second"] for report in reports]
    return {
        "running": True,
        "pid": server.pid,
        "host": server.host,
        **ports,
        "workers": server.workers,
        "requests_per_second": round(sum(rates), 3),
        "open_bytes": sum(topic["open_bytes"] for r in reports for topic in r["topics"]),
        "problems": problems,
    }


# --- for people --------------------------------------------------------------------------------


def _show(found: dict[str, Any]) -> None:
    server = found["server"]
    if server["running"]:
        ports = ", ".join(f"{name} {server[name]}" for name in ("grpc", "http", "flight", "web"))
        workers = f"{server['workers']} workers" if server["workers"] > 1 else "1 worker"
        _line("server", f"running on {server['host']}, pid {server['pid']}, {workers}; {ports}")
        rate = f"{server['requests_per_second']:,.1f} requests/s over the last ten seconds"
        _line("rate", f"{rate}; {human_bytes(server['open_bytes'])} in open segments")
    else:
        _line("server", "stopped")
    say()
    _show_tiers(found["tiers"])
    say()
    sizes, budget = found["sizes"], found["budget"]
    parts = ", ".join(f"{name} {human_bytes(size)}" for name, size in sizes.items())
    _line("disk", parts)
    used = human_bytes(budget["used_bytes"])
    cap = budget["limit_bytes"]
    _line(
        "budget",
        f"{used} of {human_bytes(cap)} ({budget['used_bytes'] / cap:.0%})"
        if cap
        else f"{used}, no limit",
    )
    _line("lag", _lag(found["lag"]))
    _line("pipeline", _pipeline(found["pipeline"]))
    for problem in [*server.get("problems", ()), *found["problems"]]:
        _line("problem", problem)


def _show_tiers(tiers: dict[str, dict[str, Any]]) -> None:
    rows = []
    for table, tier in tiers.items():
        warm = f"{tier['warm_segments']:,} segments, {human_bytes(tier['warm_bytes'])}"
        cold = f"{tier['cold_rows']:,} rows in {tier['cold_files']:,} files, "
        cold += human_bytes(tier["cold_bytes"])
        if tier["cold_delete_files"]:
            cold += f"; {tier['cold_deleted']:,} deleted by {tier['cold_delete_files']:,} files"
        rows.append([table, f"{tier['hot_messages']:,} requests", warm, cold])
    print_table(["table", "hot", "warm", "cold"], rows)


def _lag(lag: dict[str, Any] | None) -> str:
    if lag is None:
        return "no subscribers"
    place = f"{lag['subscriber']} at {lag['topic']} partition {lag['partition']}"
    return f"{lag['lag_bundles']:,} bundles, {lag['oldest_unacked_s']:.0f} s: {place}"


def _pipeline(pipeline: dict[str, Any] | None) -> str:
    if pipeline is None:
        return "has not run"
    ago = max(0.0, time.time() - pipeline["last_batch_at"])
    text = (
        f"{pipeline['rows']:,} rows in {pipeline['batches']:,} batches; the last {ago:,.0f} s ago"
    )
    return f"{text}, {pipeline['last_lag_s']:.0f} s after sealing"


def _line(name: str, text: str) -> None:
    say(f"{name:<9} {text}")
