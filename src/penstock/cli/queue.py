"""`penstock queue`: what waits on object storage, and tidying up there."""

from __future__ import annotations

import asyncio
import base64
import datetime
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.common import (
    human_bytes,
    json_option,
    print_json,
    print_table,
    say,
    settings_options,
)
from penstock.cli.object_stores import open_store, queue_options
from penstock.model.errors import BatchUnreadable, FormatError
from penstock.queue.settings import GarbageSettings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.queue import Collected, ConsumedBatch, Entry, Metadata, QueueStatus
    from penstock.queue.settings import QueueSettings
    from penstock.storage.objects import ObjectStore

Result = TypeVar("Result")

url_argument = click.argument("url", metavar="URL")


@click.group()
def queue() -> None:
    """Look into a queue on object storage, and delete what it does not need.

    URL is s3://bucket/prefix, gs://…, az://… or file:///folder; credentials and endpoint come from
    the usual environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, …). The consumer is not disturbed.

    Example: penstock queue status s3://telemetry/buffer
    """


# --- status ------------------------------------------------------------------------------------


@queue.command()
@url_argument
@queue_options
@json_option
def status(url: str, settings: QueueSettings, as_json: bool) -> None:
    """Show how much waits, since when, and how the manifest is.

    Example: penstock queue status s3://telemetry/buffer --json
    """
    from penstock.queue import Inspector

    found = _with_store(url, lambda objects: Inspector(objects, settings).status())
    if as_json:
        print_json(asdict(found))
    else:
        _print_status(found)


def _print_status(found: QueueStatus) -> None:
    oldest = "nothing waits"
    if found.oldest_time_ms is not None:
        oldest = f"{_time(found.oldest_time_ms)}, {found.oldest_age_s:.1f} s ago"
    last = f"{found.first_sequence} to {found.next_sequence - 1}"
    lines = {
        "queue": f"{found.manifest_path}, version {found.manifest_version}",
        "waiting": f"{found.waiting} batches, {human_bytes(found.waiting_bytes)}",
        "sequences": last if found.waiting else f"none; the next is {found.next_sequence}",
        "oldest": oldest,
        "epoch": found.epoch,
        "manifest": f"{human_bytes(found.manifest_bytes)}, {found.chunks} chunks",
    }
    for name, text in lines.items():
        say(f"{name:<11}{text}")


# --- dump --------------------------------------------------------------------------------------


@queue.command()
@url_argument
@queue_options
@click.option("--from", "begin", type=click.IntRange(min=0), help="The first sequence to show.")
@click.option("--count", type=click.IntRange(min=1), help="Show so many and end.")
@click.option("--records", is_flag=True, help="Fetch each batch and show its entries, too.")
@json_option
def dump(
    url: str,
    settings: QueueSettings,
    begin: int | None,
    count: int | None,
    records: bool,
    as_json: bool,
) -> None:
    """List the batches that wait, oldest first; with --json one object a line.

    A batch that cannot be read is named on stderr, and the command exits with 1 in the end.

    Example: penstock queue dump s3://telemetry/buffer --count 10
    """
    from penstock.queue import Inspector

    shown = _Shown(as_json)

    async def show(objects: ObjectStore) -> None:
        inspector = Inspector(objects, settings)
        left = count
        async for entry in inspector.entries(begin):
            await shown.show(entry, inspector.batch if records else None)
            left = None if left is None else left - 1
            if left == 0:
                break

    _with_store(url, show)
    shown.end()


class _Shown:
    """Prints entries as they come: JSON at once, a table at the end."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._rows: list[list[object]] = []
        self._unreadable = 0

    async def show(
        self, entry: Entry, fetch: Callable[[Entry], Awaitable[ConsumedBatch]] | None
    ) -> None:
        batch = None
        try:
            batch = await fetch(entry) if fetch is not None else None
        except BatchUnreadable as error:
            self._unreadable += 1
            say(f"penstock: {error}", err=True)
        if self._as_json:
            print_json(_document(entry, batch))
        else:
            self._rows.append(_row(entry, batch))

    def end(self) -> None:
        if self._rows:
            headings = ["sequence", "time", "calls", "entries", "bytes", "topics", "location"]
            print_table(headings, self._rows)
        elif not self._as_json:
            say("nothing waits")
        if self._unreadable:
            raise click.exceptions.Exit(1)


def _row(entry: Entry, batch: ConsumedBatch | None) -> list[object]:
    extent = entry.extent
    known = "?" if extent is None else extent.record_count
    times = [item.ingestion_time_ms for item in entry.metadata]
    topics = {str(origin["topic"]) for item in entry.metadata if (origin := _origin(item))}
    return [
        entry.sequence,
        _time(min(times)) if times else "",
        len(entry.metadata),
        known if batch is None else len(batch.entries),
        "?" if extent is None else extent.batch_bytes,
        ",".join(sorted(topics)) or "-",
        entry.location,
    ]


def _document(entry: Entry, batch: ConsumedBatch | None) -> dict[str, Any]:
    extent = entry.extent
    document: dict[str, Any] = {
        "sequence": entry.sequence,
        "location": entry.location,
        "batch_bytes": None if extent is None else extent.batch_bytes,
        "record_count": None if extent is None else extent.record_count,
        "metadata": [
            {
                "start_index": item.start_index,
                "ingestion_time_ms": item.ingestion_time_ms,
                "payload_base64": base64.b64encode(item.payload).decode(),
                **_origin(item),
            }
            for item in entry.metadata
        ],
    }
    if batch is not None:
        document["record_count"] = len(batch.entries)
        document["records_base64"] = [base64.b64encode(each).decode() for each in batch.entries]
    return document


def _origin(item: Metadata) -> dict[str, str]:
    """Topic and signal, where the metadata are those of OTLP requests."""
    from penstock.queue.otlp import decode_origin

    try:
        origin = decode_origin(item.payload)
    except FormatError:
        return {}
    return {"topic": str(origin.topic), "signal": origin.signal.value}


# --- gc ----------------------------------------------------------------------------------------


@queue.command()
@url_argument
@settings_options(GarbageSettings, "manifest_path", "data_path_prefix", gc_grace_period_s="--grace")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@json_option
def gc(
    url: str,
    settings: GarbageSettings,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Delete batches and chunks that the queue does not need any more.

    A consumer does this by itself. Safe beside producers and consumers at any time. What could not
    be deleted is tried again by the next one; the command then exits with 1.

    Example: penstock queue gc s3://telemetry/buffer --dry-run
    """
    from penstock.queue import GarbageCollector

    found = _with_store(
        url, lambda objects: GarbageCollector(objects, settings).collect(dry_run=dry_run)
    )
    if as_json:
        print_json({**asdict(found), "dry_run": dry_run})
    else:
        _print_collected(found, "would delete" if dry_run else "deleted")
    if found.failed:
        say(f"penstock: {found.failed} objects could not be deleted", err=True)
        raise click.exceptions.Exit(1)


def _print_collected(found: Collected, verb: str) -> None:
    batches = f"{found.batches} batches ({human_bytes(found.batch_bytes)})"
    say(f"{verb} {batches} and {found.chunks} chunks; {found.kept} batches are kept")


# --- small parts -------------------------------------------------------------------------------


def _with_store(url: str, work: Callable[[ObjectStore], Awaitable[Result]]) -> Result:
    objects = open_store(url, create=True)

    async def run() -> Result:
        try:
            return await work(objects)
        finally:
            await objects.close()

    return asyncio.run(run())


def _time(ms: int) -> str:
    try:
        moment = datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"
    return moment.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
