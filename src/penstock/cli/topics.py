"""`penstock topics`: what is in a data directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from penstock.cli.common import (
    data_dir_option,
    existing_data_directory,
    human_bytes,
    json_option,
    print_json,
    print_table,
)
from penstock.log.survey import survey_log
from penstock.storage import LocalFiles

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.storage import Partition


@click.command()
@data_dir_option
@json_option
def topics(data_dir: Path, as_json: bool) -> None:
    """List the topics of a data directory, with their offsets and sizes.

    Works with the server running or stopped.

    Example: penstock topics --data-dir data
    """
    found = [_describe(partition) for partition in existing_data_directory(data_dir).partitions()]
    if as_json:
        print_json(found)
    elif not found:
        click.echo(f"{data_dir} holds no topics yet")
    else:
        print_table(
            ["topic", "partition", "earliest", "end", "messages", "files", "size"],
            [
                [
                    row["topic"],
                    row["partition"],
                    row["earliest"],
                    row["end"],
                    row["end"] - row["earliest"],
                    row["files"],
                    human_bytes(row["bytes"]),
                ]
                for row in found
            ],
        )


def _describe(partition: Partition) -> dict[str, Any]:
    survey = survey_log(LocalFiles(), partition.log_folder)
    return {
        "topic": str(partition.topic),
        "namespace": partition.topic.namespace,
        "name": partition.topic.name,
        "partition": partition.number,
        "earliest": survey.start_offset,
        "end": survey.end_offset,
        "files": survey.files,
        "bytes": survey.bytes,
    }
