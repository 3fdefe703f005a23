"""`penstock fsck`: verifies what is stored, and repairs it."""

from __future__ import annotations

import functools
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from penstock.cli.common import json_option, print_json, size_of
from penstock.cli.feeds import installed
from penstock.cli.fsck_report import Findings, print_findings
from penstock.cli.object_stores import is_url, local_folder, metadata_option, root_option
from penstock.cli.queue import manifest_option, prefix_option
from penstock.log.inventory import SUFFIX
from penstock.log.survey import survey_log
from penstock.log.verify import LogReport, repair_log, verify_file, verify_log
from penstock.model import SystemClock
from penstock.model.errors import FormatError, PenstockError
from penstock.storage import DataDirectory, LocalFiles
from penstock.storage.directory import IDENTITY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.cli.fsck_objects import ObjectPlace
    from penstock.lake.verify import LakeReport
    from penstock.store.verify import StoreReport

    _Reports: TypeAlias = "list[LogReport | StoreReport]"
    _Outcome: TypeAlias = "tuple[Findings, Findings | None, str | None]"

_UNREPAIRED_LAKE: Final = "a table has one copy of its files, so there is nothing to repair it from"
_CATALOG: Final = "catalog.db"


@click.command()
@click.argument("path")
@click.option("--repair", is_flag=True, help="Rebuild what is damaged from what is readable.")
@metadata_option()
@root_option
@manifest_option
@prefix_option
@json_option
def fsck(
    path: str,
    repair: bool,
    metadata_url: str | None,
    root: str,
    manifest_path: str,
    data_path_prefix: str,
    as_json: bool,
) -> None:
    """Verify a data directory, an archive, a queue, a lake, or one file.

    PATH is a data directory, a folder or a file in it, a lake's warehouse, or the URL of object
    storage (s3://bucket/prefix, gs://…, az://…, file:///folder), where an archive needs --metadata.

    Reads every byte of logs, segments, ack.log and ack.ckpt, of archived objects, of batches that
    wait in a queue, and of the Parquet files of a lake's tables; and what servers, pipelines and
    queries have noted in small files with a checksum. Exit code 0: sound; 1: damage was
    found. Verifying is safe beside whatever runs; repairing needs the server stopped.

    A repair records what was lost, so that the next fsck is clean, and keeps damaged files as
    FILE.damaged. A segment stays as long as one bundle in it can be read; the others are recorded
    as lost for every subscriber that lacks them. Of an archive, descriptors that were lost are made
    again from its objects. Queues and lakes are not repaired. Small files are set aside, and
    begun anew by whoever needs them.

    Example: penstock fsck --repair data
    """
    local = local_folder(path) if is_url(path) else Path(path)
    if local is not None and not local.exists():
        raise PenstockError(f"there is nothing at {path}")
    if local is not None and _is_ours(local):
        found, after, kept = _fsck_path(local, repair=repair)
    else:
        url = path if local is None else local.absolute().as_uri()
        place = _object_place(url, metadata_url, root, manifest_path, data_path_prefix)
        found, after, kept = _fsck_objects(place, repair=repair)
    _say(found, after, kept, as_json=as_json)
    if not found.sound:
        raise click.exceptions.Exit(0 if after is not None and after.sound else 1)


def _say(found: Findings, after: Findings | None, kept: str | None, *, as_json: bool) -> None:
    if not as_json:
        print_findings(found, after, kept=kept)
        return
    document = found.document()
    if after is not None:
        document |= {"repaired": after.damage != found.damage, "not_repaired": kept}
        document["after"] = after.document()
    print_json(document)


# --- object storage ----------------------------------------------------------------------------


def _object_place(
    url: str, metadata_url: str | None, root: str, manifest_path: str, prefix: str
) -> ObjectPlace:
    from penstock.cli.fsck_objects import ObjectPlace
    from penstock.queue import QueueSettings

    settings = QueueSettings(manifest_path=manifest_path, data_path_prefix=prefix)
    return ObjectPlace(url, metadata_url, root, settings)


def _fsck_objects(place: ObjectPlace, *, repair: bool) -> _Outcome:
    from penstock.cli.fsck_objects import fsck_objects

    return fsck_objects(place, repair=repair)


# --- local folders and files -------------------------------------------------------------------


def _fsck_path(path: Path, *, repair: bool) -> _Outcome:
    reports, lakes = _verify(path)
    found = _findings(path, reports, lakes)
    records = _check_records(path, found)
    if found.is_empty and path.is_file():
        raise PenstockError(f"{path} holds nothing that Penstock wrote")
    if not repair or found.sound:
        return found, None, None
    _repair(path, reports, records)
    after = _findings(path, *_verify(path))
    _check_records(path, after)
    return found, after, _UNREPAIRED_LAKE if any(not lake.sound for lake in lakes) else None


def _verify(path: Path) -> tuple[_Reports, list[LakeReport]]:
    files = LocalFiles()
    if path.is_file():
        return _verify_file(path)
    logs, stores, lakes = log_folders(path), store_folders(path), lake_folders(path)
    size = sum(survey_log(files, folder).bytes for folder in logs)
    size += sum(_size_of_segments(folder) for folder in stores) + _size_of_lakes(lakes)
    hidden = not sys.stderr.isatty()
    with click.progressbar(length=size, label="verifying", hidden=hidden, file=sys.stderr) as bar:
        found: _Reports = [
            verify_log(files, folder, bar.update, functools.partial(_released, folder))
            for folder in logs
        ]
        if stores:
            from penstock.store.verify import verify_store

            found += [verify_store(files, folder, bar.update) for folder in stores]
        return found, _verify_lakes(lakes, bar.update)


def _released(log_folder: Path) -> int | None:
    """Below which offset the store of a log has sealed everything; None where it does not say."""
    from penstock.store.holes import sealed_through

    return sealed_through(LocalFiles(), log_folder.parent)


def _verify_file(path: Path) -> tuple[_Reports, list[LakeReport]]:
    if path.suffix == SUFFIX:
        return [verify_file(LocalFiles(), path)], []
    if path.suffix == ".seg" or path.name in {"ack.log", "ack.ckpt"}:
        from penstock.store.verify import verify_store_file

        return [verify_store_file(LocalFiles(), path)], []
    if path.suffix == ".parquet":
        with installed("query"):
            from penstock.lake.verify import verify_parquet

        return [], [verify_parquet(path)]
    return [], []


def _verify_lakes(folders: list[Path], progress: Callable[[int], object]) -> list[LakeReport]:
    if not folders:
        return []
    with installed("query"):
        from penstock.lake.verify import verify_lake

    return [verify_lake(folder, progress) for folder in folders]


def _size_of_lakes(folders: list[Path]) -> int:
    if not folders:
        return 0
    with installed("query"):
        from penstock.lake.verify import lake_bytes

    return sum(lake_bytes(folder) for folder in folders)


def _repair(path: Path, reports: _Reports, records: list[Path]) -> None:
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
    if records:
        from penstock.cli.records import set_aside

        set_aside(path, records)


# --- what there is -----------------------------------------------------------------------------


def _is_ours(path: Path) -> bool:
    """Whether it is a file, or a folder with something that is kept on a disk."""
    if path.is_file() or (path / IDENTITY).exists() or lake_folders(path):
        return True
    return bool(log_folders(path) or store_folders(path))


def lake_folders(path: Path) -> list[Path]:
    """The warehouse at `path`, or that of the data directory at `path`."""
    candidates = [path, path / "lake"] if (path / IDENTITY).exists() else [path]
    return [folder.absolute() for folder in candidates if (folder / _CATALOG).is_file()]


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


def _findings(path: Path, reports: _Reports, lakes: list[LakeReport]) -> Findings:
    found = Findings(str(path))
    for report in reports:
        _add_report(found, report)
    for lake in lakes:
        _add_lake(found, lake)
    _check_identity(path, found)
    return found


def _add_report(found: Findings, report: LogReport | StoreReport) -> None:
    if isinstance(report, LogReport):
        found.logs += 1
        found.messages += report.messages
    else:
        found.stores += 1
        found.segments += report.segments
        found.bundles += report.bundles
    found.files_checked += report.files_checked
    found.bytes_checked += report.bytes_checked
    for damage in report.damage:
        fields: dict[str, Any] = asdict(damage)
        found.add_damage(**{**fields, "file": str(Path(report.folder) / damage.file)})
    found.known_losses += [
        {"folder": report.folder, "first_offset": first, "messages_lost": end - first}
        for first, end in report.known_losses
    ]
    found.notes += [f"{report.folder}: {note}" for note in report.notes]


def _add_lake(found: Findings, lake: LakeReport) -> None:
    found.lakes += 1
    found.tables += lake.tables
    found.files_checked += lake.files_checked
    found.bytes_checked += lake.bytes_checked
    found.rows += lake.rows
    for damage in lake.damage:
        found.add_damage(**asdict(damage))
    found.notes += lake.notes


def _check_records(path: Path, found: Findings) -> list[Path]:
    """Those that are damaged, of the small files of a data directory; or the one at `path`."""
    from penstock.cli.records import describe_record, is_verified, records_of

    damaged = []
    if path.is_file():
        records: Iterable[Path] = [path] if is_verified(path) else []
    else:
        records = records_of(path) if (path / IDENTITY).exists() else ()
    for record in records:
        try:
            described = describe_record(record)
        except FileNotFoundError:  # its owner was faster
            continue
        except FormatError as error:
            found.add_damage(str(record), str(error).removeprefix(f"{record}: "), kind="record")
            damaged.append(record)
        else:
            found.bytes_checked += described["bytes"] if described is not None else 0
        found.records += 1
        found.files_checked += 1
    return damaged


def _check_identity(path: Path, found: Findings) -> None:
    if not (path / IDENTITY).exists():
        return
    try:
        DataDirectory(path).identity()
    except PenstockError as error:
        found.add_damage(IDENTITY, str(error), kind="identity")
