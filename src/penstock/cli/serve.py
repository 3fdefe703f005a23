"""`penstock serve`: receives, stores, delivers."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import click

from penstock.cli.common import print_json, say, setting_option
from penstock.model.errors import PenstockError
from penstock.server.configuration.config import Config, Listen
from penstock.storage import access
from penstock.storage.scratch import sweep

config_option = click.option(
    "--config", "file", type=click.Path(path_type=Path, dir_okay=False), help="YAML."
)


@click.command()
@config_option
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), help="The data.")
@setting_option(Listen, "host", preset=False)
@setting_option(Listen, "grpc_port", preset=False)
@setting_option(Listen, "http_port", preset=False)
@setting_option(Listen, "flight_port", preset=False)
@setting_option(Listen, "web_port", preset=False)
@setting_option(Config, "workers", preset=False)
@click.option(
    "--buffer", metavar="URL", help="Keep nothing here: into a queue at s3://bucket/prefix."
)
@click.option("--print-config", is_flag=True, help="Print what it would run with, and end.")
@click.option("--print-schema", is_flag=True, help="Print JSON Schema of the file, and end.")
def serve(file: Path | None, print_config: bool, print_schema: bool, **flags: Any) -> None:
    """Receive OTLP, store it durably, and deliver it.

    Every setting can stand in the file, in the environment (PENSTOCK_LISTEN_GRPC_PORT) and some in
    flags; flags win over the environment, and that over the file. Port 0 picks a free one. When
    ready, one line of JSON on stdout says which. SIGTERM or Ctrl-C stops it in order; a second one
    at once.

    With --buffer it acknowledges what is durable in a queue on object storage, and needs no disk;
    `penstock pipeline run --queue` takes it to the lake.

    Example: penstock serve --data-dir data --workers 2
    """
    from penstock.server.configuration import loading
    from penstock.server.log_lines import logging_set_up
    from penstock.server.supervisor import Supervisor

    if print_schema:
        print_json(loading.schema(), indent=2)
        return
    config = loading.load(_read(file), _environment(), _tree(flags), path=file)
    if print_config:
        import yaml

        say(yaml.safe_dump(loading.document(config), sort_keys=False), nl=False)
        return
    access.choose(config.file_access)
    sweep()

    async def run() -> None:
        await Supervisor(config).run()

    with logging_set_up(config.logging):
        asyncio.run(run())


def read_config(file: Path | None, data_dir: Path) -> Config:
    """The configuration of a command that works on the data directory of a server."""
    from penstock.server.configuration import loading

    config = loading.load(_read(file), _environment(), {"data_dir": str(data_dir)}, path=file)
    access.choose(config.file_access)
    return config


def _read(file: Path | None) -> object:
    if file is None:
        return None
    import yaml

    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PenstockError(f"{file} is not YAML: {' '.join(str(error).split())}") from None


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("PENSTOCK_")}


def _tree(flags: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in flags.items() if value is not None}
    tree: dict[str, Any] = {}
    for name in ("data_dir", "workers"):
        if name in given:
            tree[name] = str(given.pop(name))
    if "buffer" in given:
        tree["buffer"] = {"url": given.pop("buffer")}
    return {**tree, "listen": given} if given else tree
