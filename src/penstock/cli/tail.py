"""`penstock tail`: follows a topic."""

from __future__ import annotations

import base64
import codecs
import contextlib
import itertools
import time
from typing import TYPE_CHECKING, Literal

import click

from penstock.cli.common import (
    data_dir_option,
    existing_data_directory,
    json_option,
    parse_start,
    parse_topic,
    partitions_of,
    print_json,
    say,
)
from penstock.cli.object_stores import ArchivePlace, archive_options
from penstock.log.follow import FolderReader
from penstock.storage import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from penstock.cli.tail_tiers import PartitionReader
    from penstock.model import Topic
    from penstock.storage import Partition

_POLL_S = 0.05
_PREVIEW_BYTES = 100


@click.command()
@click.argument("topic", metavar="TOPIC", callback=parse_topic)
@data_dir_option
@click.option(
    "--from",
    "start",
    metavar="earliest|latest|OFFSET",
    callback=parse_start,
    default="latest",
    show_default=True,
)
@click.option("--count", type=click.IntRange(min=0), help="Stop after that many messages.")
@click.option("--partition", type=click.IntRange(min=0), help="One partition only.")
@click.option("--follow/--no-follow", default=True, show_default=True, help="Wait for more.")
@archive_options()
@json_option
def tail(
    topic: Topic,
    data_dir: Path,
    start: int | Literal["earliest", "latest"],
    count: int | None,
    partition: int | None,
    follow: bool,
    archive: ArchivePlace,
    as_json: bool,
) -> None:
    """Print the messages of a topic and follow it.

    TOPIC is /namespace/name, or a name in the namespace "default". Works with the server running or
    stopped. Messages that cannot be read are named on stderr, and the command exits with 1.

    With --objects it begins in the archive and goes on in the log, each message once and in order;
    a topic whose log is on another machine, or lost, is read from the archive alone.

    Example: penstock tail --from earliest --count 10 /default/traces
    """
    with _readers(data_dir, topic, partition, start, archive) as readers:
        for found, offset, message in itertools.islice(_messages(readers, follow=follow), count):
            _print_message(found, offset, message, as_json=as_json)
        if any(reader.lost for _, reader in readers):
            raise click.exceptions.Exit(1)


def _readers(
    data_dir: Path,
    topic: Topic,
    number: int | None,
    start: int | Literal["earliest", "latest"],
    archive: ArchivePlace,
) -> AbstractContextManager[list[tuple[Partition, PartitionReader]]]:
    if archive.objects_url is not None:
        from penstock.cli.tail_tiers import tiered_readers

        return tiered_readers(data_dir, topic, number, start, archive)
    partitions = partitions_of(existing_data_directory(data_dir), topic, number)
    return contextlib.nullcontext(
        [(one, FolderReader(LocalFiles(), one.log_folder, start)) for one in partitions]
    )


def _messages(
    readers: list[tuple[Partition, PartitionReader]], *, follow: bool
) -> Iterator[tuple[Partition, int, bytes]]:
    """Messages of all partitions in turn. Without `follow`, two idle rounds mean the end."""
    idle_rounds = 0
    while follow or idle_rounds < 2:
        idle_rounds += 1
        for partition, reader in readers:
            named = len(reader.lost)
            batch = reader.read_batch()
            _name_losses(partition, reader, named)
            if batch is not None:
                idle_rounds = 0
                for at, message in enumerate(batch.messages):
                    yield partition, batch.first_offset + at, message
        if idle_rounds:
            time.sleep(_POLL_S)


def _name_losses(partition: Partition, reader: PartitionReader, named: int) -> None:
    """Says on stderr what was lost beyond the first `named` losses."""
    for loss in reader.lost[named:]:
        where = f"{partition.topic} partition {partition.number}"
        say(f"penstock: {where}: lost {loss}", err=True)


def _print_message(partition: Partition, offset: int, message: bytes, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "topic": str(partition.topic),
                "partition": partition.number,
                "offset": offset,
                "bytes": len(message),
                "data": base64.b64encode(message).decode(),
            }
        )
    else:
        say(f"{partition.number}:{offset}  {len(message)} B  {preview(message)}")


def preview(message: bytes) -> str:
    """The beginning of a message as text, or in hex where it is none."""
    start = message[:_PREVIEW_BYTES]
    rest = "…" if len(message) > len(start) else ""
    try:
        decoder = codecs.getincrementaldecoder("utf-8")()
        text = decoder.decode(start, final=not rest)  # the cut may go through a character
        if text.isprintable():
            return text + rest
    except UnicodeDecodeError:
        pass
    return start[:32].hex(" ") + ("…" if len(message) > 32 else "")
