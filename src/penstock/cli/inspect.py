"""`penstock inspect`: explains any file that Penstock wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from penstock.cli.common import human_bytes, installed, json_option, print_json, say
from penstock.cli.files import explain
from penstock.cli.object_stores import is_url, local_folder
from penstock.model.errors import PenstockError
from penstock.storage import LocalFiles
from penstock.storage.directory import IDENTITY


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
        from penstock.cli.explain_places import explain_url

        described = explain_url(path, lambda copy: explain(copy, frames))
    elif not local.exists():
        raise PenstockError(f"there is nothing at {path}")
    else:
        described = _folder(local) if local.is_dir() else explain(local, frames)
    if as_json:
        print_json(described)
    else:
        _print(described)


def _folder(path: Path) -> dict[str, Any]:
    names = LocalFiles().names(path)
    found: dict[str, Any] | None
    if "catalog.db" in names and IDENTITY not in names:
        with installed("query"):
            from penstock.cli.explain_lake import lake

        found = lake(path)
    else:
        from penstock.cli.explain_store import folder

        found = folder(path, names)
    if found is None:
        from penstock.cli.explain_places import place

        found = place(path)
    return {**found, "path": str(path)}


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
