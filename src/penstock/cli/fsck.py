"""`penstock fsck`: verifies what is on disk, and repairs it."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from penstock.cli.common import human_bytes, json_option, print_json
from penstock.log.inventory import SUFFIX
from penstock.log.survey import survey_log
from penstock.log.verify import LogReport, repair_log, verify_file, verify_log
from penstock.model import SystemClock
from penstock.model.errors import PenstockError
from penstock.storage import DataDirectory, LocalFiles
from penstock.storage.directory import IDENTITY


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--repair", is_flag=True, help="Rebuild what is damaged from what is readable.")
@json_option
def fsck(path: Path, repair: bool, as_json: bool) -> None:
    """Verify a data directory, one log's folder or one log file.

    Exit code 0: sound; 1: damage was found. Verifying is safe beside a running server; repairing
    needs it stopped. A repair records what was lost, so that the next fsck is clean, and keeps a
    file with damaged messages beside its replacement as FILE.damaged.

    Example: penstock fsck --repair data
    """
    if not path.exists():
        raise PenstockError(f"there is nothing at {path}")
    damaged_identity = _check_identity(path)
    reports = _verify(path)
    if not reports and not (path / IDENTITY).exists():
        raise PenstockError(f"{path} holds nothing that Penstock wrote")
    found = _summary(path, reports, damaged_identity)
    if repair and not found["sound"]:
        _repair(path, reports)
        after = _summary(path, _verify(path), damaged_identity)
        found = {**found, "repaired": True, "after": after}
    if as_json:
        print_json(found)
    else:
        _print(found)
    if not found["sound"]:
        raise click.exceptions.Exit(1 if not repair or not found["after"]["sound"] else 0)


def _verify(path: Path) -> list[LogReport]:
    files = LocalFiles()
    if path.is_file():
        return [verify_file(files, path)] if path.suffix == SUFFIX else []
    folders = log_folders(path)
    size = sum(survey_log(files, folder).bytes for folder in folders)
    hidden = not sys.stderr.isatty()
    with click.progressbar(length=size, label="verifying", hidden=hidden, file=sys.stderr) as bar:
        return [verify_log(files, folder, bar.update) for folder in folders]


def _repair(path: Path, reports: list[LogReport]) -> None:
    if path.is_file():
        raise PenstockError("repair works on a log's folder or a data directory, not on one file")
    for report in reports:
        if not report.sound:
            repair_log(LocalFiles(), Path(report.folder), SystemClock())


def _check_identity(path: Path) -> list[dict[str, Any]]:
    if not (path / IDENTITY).exists():
        return []
    try:
        DataDirectory(path).identity()
    except PenstockError as error:
        return [_damage_row(IDENTITY, str(error))]
    return []


def _damage_row(file: str, detail: str) -> dict[str, Any]:
    row = {"file": file, "position": 0, "kind": "identity", "detail": detail}
    return {**row, "first_offset": None, "messages_lost": 0}


def log_folders(path: Path) -> list[Path]:
    """Every folder at or below `path` that holds log files or a log's checkpoint."""
    found: dict[Path, Path] = {}  # by where it really is: links may lead in circles
    for folder, folders, names in os.walk(path, onerror=_raise, followlinks=True):
        here = Path(folder)
        if here.resolve() in found:
            folders.clear()
            continue
        found[here.resolve()] = here
        if not any(name.endswith(SUFFIX) or name == "log.ckpt" for name in names):
            found[here.resolve()] = Path()
    return sorted(here for here in found.values() if here != Path())


def _raise(error: OSError) -> None:
    raise error


def _summary(
    path: Path, reports: list[LogReport], damaged_identity: list[dict[str, Any]]
) -> dict[str, Any]:
    damage = [
        {**asdict(damage), "file": str(Path(report.folder) / damage.file)}
        for report in reports
        for damage in report.damage
    ] + damaged_identity
    return {
        "path": str(path),
        "sound": not damage,
        "logs": len(reports),
        "files_checked": sum(report.files_checked for report in reports),
        "bytes_checked": sum(report.bytes_checked for report in reports),
        "messages": sum(report.messages for report in reports),
        "messages_lost": sum(row["messages_lost"] for row in damage),
        "damage": damage,
        "known_losses": [
            {"folder": report.folder, "first_offset": first, "messages_lost": end - first}
            for report in reports
            for first, end in report.known_losses
        ],
        "notes": [f"{report.folder}: {note}" for report in reports for note in report.notes],
    }


def _print(found: dict[str, Any]) -> None:
    size = human_bytes(found["bytes_checked"])
    click.echo(
        f"{found['path']}: {found['files_checked']} files, {size}, {found['messages']} messages"
    )
    for row in found["damage"]:
        lost = f", {_messages(row)} lost" if row["messages_lost"] else ""
        where = f"{row['file']} at byte {row['position']}"
        click.echo(f"  damaged: {where}: {row['detail']}{lost}")
    for row in found["known_losses"]:
        click.echo(f"  lost earlier: {_messages(row)} in {row['folder']}")
    for note in found["notes"]:
        click.echo(f"  note: {note}")
    if found["sound"]:
        click.echo("sound")
    elif "after" in found:
        after = found["after"]
        state = "sound now" if after["sound"] else f"{len(after['damage'])} still damaged"
        click.echo(f"repaired: {after['messages']} messages readable; {state}")
    else:
        places, lost = len(found["damage"]), found["messages_lost"]
        click.echo(f"{_counted(places, 'damaged place')}, {_counted(lost, 'message')} lost")


def _messages(row: dict[str, Any]) -> str:
    count, first = row["messages_lost"], row["first_offset"]
    return f"1 message (offset {first})" if count == 1 else f"{count} messages from offset {first}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
