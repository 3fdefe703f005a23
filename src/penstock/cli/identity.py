"""`penstock identity`: which data directory it is, and a new one for a copy."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from penstock.cli.common import (
    data_dir_option,
    existing_data_directory,
    json_option,
    print_json,
    say,
)
from penstock.model.errors import LogLocked, PenstockError
from penstock.storage.files import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@click.command()
@data_dir_option
@click.option("--new", is_flag=True, help="Make a copy a directory of its own.")
@json_option
def identity(data_dir: Path, new: bool, as_json: bool) -> None:
    """Say which data directory it is, as the lake and the archive know it.

    With --new it gets another identity, for a directory that was copied, or restored from an older
    copy while the lake went on. All that it still has goes to the lake again, as from a directory
    that was never there: nothing is lost, and of what the lake had from the original, spans count
    once, while logs and data points are there twice, with another _source. Server and pipeline have
    to be stopped.

    Example: penstock identity --data-dir data
    """
    directory = existing_data_directory(data_dir)
    found = directory.identity()
    if new:
        with _nobody_has(data_dir):
            # First what speaks of the old one, so that nothing of it is taken for the new one's.
            from penstock.store.outside import put_behind  # it brings pyarrow: help comes at once

            put_behind(data_dir)
            found = directory.renew()
    if as_json:
        print_json({"data_dir": str(data_dir), "id": found})
    else:
        say(found)


@contextlib.contextmanager
def _nobody_has(data_dir: Path) -> Iterator[None]:
    files = LocalFiles()
    with contextlib.ExitStack() as held:
        for who, path in (
            ("a server", data_dir / ".lock"),
            ("a pipeline", data_dir / "pipeline" / ".lock"),
        ):
            try:
                files.make_folder(path.parent)
                held.callback(files.lock(path).release)
            except LogLocked:
                raise PenstockError(f"{who} works on {data_dir}; stop it first") from None
        yield
