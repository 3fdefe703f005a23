"""`penstock inspect`: explains any file that Penstock wrote."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.common import human_bytes, json_option, print_json, say, size_of
from penstock.cli.feeds import installed
from penstock.cli.object_stores import is_url, local_folder
from penstock.cli.tail import preview
from penstock.log import checkpoint as ckpt
from penstock.log import format as fmt
from penstock.log.inventory import SUFFIX
from penstock.log.scan import End, Gap, Run, read_header, read_seal, scan_frames
from penstock.log.survey import survey_log
from penstock.model.errors import FormatError, PenstockError
from penstock.storage import DataDirectory, LocalFiles
from penstock.storage.directory import IDENTITY

if TYPE_CHECKING:
    from collections.abc import Iterator


@click.command()
@click.argument("path")
@click.option("--frames", type=click.IntRange(min=0), default=5, show_default=True)
@json_option
def inspect(path: str, frames: int, as_json: bool) -> None:
    """Explain a file or folder that Penstock wrote, local or on object storage.

    PATH is a path or a URL: s3://bucket/prefix/key, gs://…, az://…, file:///path of an object or of
    all that is below a prefix, etcd://host:2379/prefix of an archive's descriptors.

    --frames says how many messages of a log file, an archived object or a batch, bundles of a
    segment, events of ack.log, or entries of a manifest to show.

    Example: penstock inspect data/topics/default/traces/0/log
    """
    local = local_folder(path) if is_url(path) else Path(path)
    if local is None:
        described = _describe_url(path, frames)
    elif local.exists():
        described = _describe(local, frames)
    else:
        raise PenstockError(f"there is nothing at {path}")
    if as_json:
        print_json(described)
    else:
        _print(described)


def _describe_url(url: str, frames: int) -> dict[str, Any]:
    from penstock.cli.inspect_remote import describe_url

    return describe_url(url, lambda copy: _describe(copy, frames))


def _describe(path: Path, frames: int) -> dict[str, Any]:
    if path.is_dir():
        return _describe_folder(path)
    if path.name.endswith(SUFFIX) or f"{SUFFIX}.damaged" in path.name:
        return _describe_log_file(path, frames)
    if path.name == ckpt.NAME:
        return _describe_checkpoint(path)
    if path.name == IDENTITY:
        identity = DataDirectory(path.parent).identity()
        return {"path": str(path), "kind": "data directory identity", "id": identity}
    return _describe_store_file(path, frames)


def _describe_store_file(path: Path, frames: int) -> dict[str, Any]:
    from penstock.cli import inspect_store as store

    name = path.name.partition(".damaged")[0]
    if name.endswith(".seg"):
        return store.describe_segment(path, frames)
    if name == "ack.log":
        return store.describe_ack_log(path, frames)
    if name == "ack.ckpt":
        return store.describe_ack_checkpoint(path)
    if re.fullmatch(r"[0-9]{20}\.msg", name):
        return store.describe_aside(path)
    return _describe_other_file(path, frames)


def _describe_other_file(path: Path, frames: int) -> dict[str, Any]:
    """Of a lake, a queue or an archive, or one of the small ones beside them."""
    from penstock.cli.records import describe_record

    record = describe_record(path)
    if record is not None:
        return record
    if path.name == "metadata.db":
        from penstock.cli.inspect_remote import describe_metadata

        return {**describe_metadata(path.absolute().as_uri()), "path": str(path)}
    if path.name.endswith((".parquet", ".avro", ".metadata.json", "catalog.db")):
        with installed("query"):
            from penstock.cli.inspect_lake import describe_lake_file

        return describe_lake_file(path, frames)
    from penstock.cli.inspect_objects import describe_object

    described = describe_object(path, frames)
    if described is None:
        raise PenstockError(f"{path} is no file that Penstock writes")
    return described


def _describe_folder(path: Path) -> dict[str, Any]:
    if (path / IDENTITY).exists():
        directory = DataDirectory(path)
        partitions = [f"{p.topic} partition {p.number}" for p in directory.partitions()]
        known = {"path": str(path), "kind": "data directory", "id": directory.identity()}
        return {**known, "partitions": partitions}
    if not {"ack.log", "ack.ckpt", "segments"}.isdisjoint(LocalFiles().names(path)):
        from penstock.cli.inspect_store import describe_store

        return describe_store(path)
    if any(path.glob("*.seg")):
        from penstock.cli.inspect_store import describe_segments

        return describe_segments(path)
    if (path / "catalog.db").is_file():
        with installed("query"):
            from penstock.cli.inspect_lake import describe_lake

        return describe_lake(path)
    survey = survey_log(LocalFiles(), path)
    if not survey.files:
        return _describe_place(path)
    return {
        "path": str(path),
        "kind": "log",
        "files": survey.files,
        "bytes": survey.bytes,
        "earliest": survey.start_offset,
        "end": survey.end_offset,
    }


def _describe_place(path: Path) -> dict[str, Any]:
    """A folder of objects, or any other one of a data directory."""
    from penstock.cli.inspect_remote import describe_place

    try:
        place = asyncio.run(describe_place(path.absolute().as_uri()))
    except PenstockError:
        within = [each for each in path.absolute().parents if (each / IDENTITY).exists()]
        if not within:
            raise
        files = [each for each in path.rglob("*") if each.is_file()]
        place = {"path": "", "kind": "folder of a data directory", "data_directory": str(within[0])}
        place |= {"files": len(files), "bytes": size_of(files)}
    return {**place, "path": str(path)}


def _describe_checkpoint(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    ckpt.decode_checkpoint(data, path.parent)
    return {"path": str(path), "kind": "log checkpoint", "checksum": "good", **json.loads(data)}


def _describe_log_file(path: Path, frames: int) -> dict[str, Any]:
    file = LocalFiles().open(path)
    try:
        described: dict[str, Any] = {"path": str(path), "kind": "log file", "bytes": file.size()}
        try:
            header, bad_copies = read_header(file)
        except FormatError as error:
            return {**described, "header": str(error)}
        seal = read_seal(file, header)
        described |= {
            "format_version": fmt.VERSION,
            "log_id": str(header.log_id),
            "first_offset": header.first_offset,
            "created_at": _time(header.created_at_ns),
            "damaged_header_copies": bad_copies,
            "sealed": seal is not None,
        }
        if seal is not None:
            described["sealed_at"] = _time(seal.sealed_at_ns)
            described["index_entries"] = len(seal.index)
            described["lost"] = [list(span) for span in seal.lost]
        end = seal.end_offset if seal is not None else None
        walk = scan_frames(file, header.seed, fmt.HEADER_BYTES, header.first_offset, end)
        return described | _describe_frames(walk, frames)
    finally:
        file.close()


def _describe_frames(walk: Iterator[Run | Gap | End], frames: int) -> dict[str, Any]:
    messages, shown, damage = 0, list[dict[str, Any]](), list[dict[str, int]]()
    last = End(0, 0)
    for item in walk:
        if isinstance(item, Run):
            messages += len(item.messages)
            shown += [
                {"offset": offset, "bytes": len(message), "preview": preview(message)}
                for offset, message in enumerate(item.messages[:frames], item.first_offset)
            ]
            del shown[frames:]
        elif isinstance(item, Gap):
            where = {"position": item.position, "first_offset": item.first_offset}
            damage.append({**where, "end_offset": item.end_offset})
        else:
            last = item
    return {
        "end_offset": last.offset,
        "messages": messages,
        "torn_bytes": last.torn_bytes,
        "damage": damage,
        "frames": shown,
    }


def _print(described: dict[str, Any]) -> None:
    width = max(map(len, described))
    for key, value in described.items():
        if isinstance(value, list):
            say(f"{key.ljust(width)}  {len(value)}")
            for item in value:
                say(f"{' ' * width}  {_line(item)}")
        else:
            text = human_bytes(value) if key == "bytes" else value
            say(f"{key.ljust(width)}  {text}")


def _line(item: Any) -> str:
    if isinstance(item, dict):
        return "  ".join(f"{key} {_value(value)}" for key, value in item.items())
    return str(item)


def _value(value: Any) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list | tuple) else str(value)


def _time(ns: int) -> str:
    return datetime.fromtimestamp(ns / 1e9, UTC).isoformat(timespec="milliseconds")
