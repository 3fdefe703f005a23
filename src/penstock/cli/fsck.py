"""`penstock fsck`: verifies what is on disk, and repairs it."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from penstock.cli.common import human_bytes, json_option, print_json, size_of
from penstock.log.inventory import SUFFIX
from penstock.log.survey import survey_log
from penstock.log.verify import LogReport, repair_log, verify_file, verify_log
from penstock.model import SystemClock
from penstock.model.errors import PenstockError
from penstock.storage import DataDirectory, LocalFiles
from penstock.storage.directory import IDENTITY

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.store.verify import StoreReport

    _Reports: TypeAlias = "list[LogReport | StoreReport]"


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--repair", is_flag=True, help="Rebuild what is damaged from what is readable.")
@json_option
def fsck(path: Path, repair: bool, as_json: bool) -> None:
    """Verify a data directory, a folder in it, or one file.

    Reads every byte of logs, segments, ack.log and ack.ckpt. Exit code 0: sound; 1: damage was
    found. Verifying is safe beside a running server; repairing needs it stopped.

    A repair records what was lost, so that the next fsck is clean, and keeps damaged files as
    FILE.damaged. A segment stays as long as one bundle in it can be read; the others are recorded
    as lost for every subscriber that lacks them.

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


def _verify(path: Path) -> _Reports:
    files = LocalFiles()
    if path.is_file():
        return _verify_file(path)
    logs, stores = log_folders(path), store_folders(path)
    size = sum(survey_log(files, folder).bytes for folder in logs)
    size += sum(_size_of_segments(folder) for folder in stores)
    hidden = not sys.stderr.isatty()
    with click.progressbar(length=size, label="verifying", hidden=hidden, file=sys.stderr) as bar:
        found: _Reports = [verify_log(files, folder, bar.update) for folder in logs]
        if stores:
            from penstock.store.verify import verify_store

            found += [verify_store(files, folder, bar.update) for folder in stores]
    return found


def _verify_file(path: Path) -> _Reports:
    if path.suffix == SUFFIX:
        return [verify_file(LocalFiles(), path)]
    if path.suffix == ".seg" or path.name in {"ack.log", "ack.ckpt"}:
        from penstock.store.verify import verify_store_file

        return [verify_store_file(LocalFiles(), path)]
    return []


def _repair(path: Path, reports: _Reports) -> None:
    if path.is_file():
        raise PenstockError("repair works on a folder or a data directory, not on one file")
    for report in reports:
        if report.sound:
            continue
        if isinstance(report, LogReport):
            repair_log(LocalFiles(), Path(report.folder), SystemClock())
        else:
            from penstock.store.repair import repair_store

            repair_store(LocalFiles(), Path(report.folder), SystemClock())


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
    return _folders(path, lambda _, names: any(_is_of_log(name) for name in names))


def store_folders(path: Path) -> list[Path]:
    """Every folder at or below `path` that holds a store; that of its segments stands for it."""
    is_inside = path.name == "segments" and any(path.glob("*.seg"))
    return [path.parent] if is_inside else _folders(path, _is_store)


def _is_of_log(name: str) -> bool:
    return name.endswith(SUFFIX) or name == "log.ckpt"


def _is_store(folder: Path, names: list[str]) -> bool:
    return not {"ack.log", "ack.ckpt"}.isdisjoint(names) or any(_segments(folder))


def _segments(folder: Path) -> list[Path]:
    return list((folder / "segments").glob("*.seg"))


def _size_of_segments(folder: Path) -> int:
    return size_of(_segments(folder))


def _folders(path: Path, wanted: Callable[[Path, list[str]], bool]) -> list[Path]:
    found: dict[Path, Path] = {}  # by where it really is: links may lead in circles
    for folder, folders, names in os.walk(path, onerror=_raise, followlinks=True):
        here = Path(folder)
        if here.resolve() in found:
            folders.clear()
            continue
        found[here.resolve()] = here if wanted(here, names) else Path()
    return sorted(here for here in found.values() if here != Path())


def _raise(error: OSError) -> None:
    raise error


def _summary(
    path: Path, reports: _Reports, damaged_identity: list[dict[str, Any]]
) -> dict[str, Any]:
    logs = [report for report in reports if isinstance(report, LogReport)]
    stores = [report for report in reports if not isinstance(report, LogReport)]
    damage = [
        {**asdict(damage), "file": str(Path(report.folder) / damage.file)}
        for report in reports
        for damage in report.damage
    ] + damaged_identity
    return {
        "path": str(path),
        "sound": not damage,
        "logs": len(logs),
        "stores": len(stores),
        "files_checked": sum(report.files_checked for report in reports),
        "bytes_checked": sum(report.bytes_checked for report in reports),
        "messages": sum(report.messages for report in logs),
        "segments": sum(report.segments for report in stores),
        "bundles": sum(report.bundles for report in stores),
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
    held = f"{found['files_checked']} files, {size}, {found['messages']} messages"
    if found["stores"]:
        held += (
            f", {_counted(found['segments'], 'segment')}, {_counted(found['bundles'], 'bundle')}"
        )
    click.echo(f"{found['path']}: {held}")
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
        held = f"{after['messages']} messages"
        held += f" and {_counted(after['bundles'], 'bundle')}" if after["stores"] else ""
        click.echo(f"repaired: {held} readable; {state}")
    else:
        places, lost = len(found["damage"]), found["messages_lost"]
        click.echo(f"{_counted(places, 'damaged place')}, {_counted(lost, 'message')} lost")


def _messages(row: dict[str, Any]) -> str:
    count, first = row["messages_lost"], row["first_offset"]
    return f"1 message (offset {first})" if count == 1 else f"{count} messages from offset {first}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
