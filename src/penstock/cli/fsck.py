"""`penstock fsck`: verifies what is stored, and repairs it."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.common import counted, human_bytes, json_option, print_json, say
from penstock.cli.fsck_places import ObjectPlace, is_local, local_places, object_places
from penstock.cli.object_stores import (
    is_url,
    local_folder,
    metadata_option,
    queue_options,
    root_option,
)
from penstock.model.damage import Damage, DamageReport, KnownLoss
from penstock.model.errors import PenstockError
from penstock.storage.directory import IDENTITY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.cli.fsck_places import Place
    from penstock.queue.settings import QueueSettings


@click.command()
@click.argument("path")
@click.option("--repair", is_flag=True, help="Rebuild what is damaged from what is readable.")
@metadata_option()
@root_option
@queue_options
@json_option
def fsck(
    path: str,
    repair: bool,
    metadata_url: str | None,
    root: str,
    settings: QueueSettings,
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
    if local is not None and is_local(local):
        looking = functools.partial(local_places, local)
        found, after, kept = _fsck(str(local), looking, repair=repair)
    else:
        url = path if local is None else local.absolute().as_uri()
        where = ObjectPlace(url, metadata_url, root, settings)
        with object_places(where, repair=repair) as look:
            found, after, kept = _fsck(url, look, repair=repair)
    if as_json:
        _print_json(found, after, kept)
    else:
        _print(found, after, kept)
    if not found.sound:
        raise click.exceptions.Exit(0 if after is not None and after.sound else 1)


def _fsck(
    name: str, look: Callable[[], list[Place]], *, repair: bool
) -> tuple[DamageReport, DamageReport | None, str | None]:
    """What is found, what after a repair, and why something was not repaired."""
    before = _verified(look())
    found = _together(name, before)
    if found.is_empty and not (Path(name) / IDENTITY).exists():
        raise PenstockError(f"{name} holds nothing that Penstock wrote")
    if not repair or found.sound:
        return found, None, None
    damaged = [(place, report) for place, report in before if not report.sound]
    left = [key for place, report in damaged for key in place.repair(report)]
    then = _verified(look())
    after = _together(name, then)
    after.notes += [f"{key} was left alone" for key in left]
    reasons = [place.unrepaired for place, report in then if not report.sound]
    return found, after, "; ".join(dict.fromkeys(filter(None, reasons))) or None


def _verified(places: list[Place]) -> list[tuple[Place, DamageReport]]:
    hidden, size = not sys.stderr.isatty(), sum(place.bytes for place in places)
    with click.progressbar(length=size, label="verifying", hidden=hidden, file=sys.stderr) as bar:
        return [(place, place.verify(bar.update)) for place in places]


def _together(name: str, verified: list[tuple[Place, DamageReport]]) -> DamageReport:
    found = DamageReport(name)
    for _, report in verified:
        found.add(report)
    return found


# --- the answer --------------------------------------------------------------------------------


def _print_json(found: DamageReport, after: DamageReport | None, kept: str | None) -> None:
    document = found.document()
    if after is not None:
        document |= {"repaired": after.damage != found.damage, "not_repaired": kept}
        document["after"] = after.document()
    print_json(document)


def _print(found: DamageReport, after: DamageReport | None, kept: str | None) -> None:
    """For people: what was read, what is wrong with it, and the verdict in the last line."""
    say(f"{found.path}: {', '.join(_held(found))}")
    for damage in found.damage:
        lost = [_messages(damage)] if damage.messages_lost else []
        lost += [counted(damage.rows_lost, "row")] if damage.rows_lost else []
        text = "".join(f", {each} lost" for each in lost)
        say(f"  damaged: {damage.file} at byte {damage.position}: {damage.detail}{text}")
    for loss in found.known_losses:
        say(f"  lost earlier: {_messages(loss)} in {loss.folder}")
    for note in found.notes:
        say(f"  note: {note}")
    if kept is not None:
        say(f"  not repaired: {kept}")
    say(_verdict(found, after))


def _verdict(found: DamageReport, after: DamageReport | None) -> str:
    if found.sound:
        return "sound"
    if after is not None and after.damage != found.damage:
        state = "sound now" if after.sound else f"{len(after.damage)} still damaged"
        held = f"{after.messages} messages"
        held += f" and {counted(after.bundles, 'bundle')}" if after.stores else ""
        return f"repaired: {held} readable; {state}"
    lost = counted(found.messages_lost, "message")
    lost += f" and {counted(found.rows_lost, 'row')}" if found.tables else ""
    return f"{counted(len(found.damage), 'damaged place')}, {lost} lost"


def _held(found: DamageReport) -> Iterator[str]:
    yield f"{found.files_checked} files"
    yield human_bytes(found.bytes_checked)
    if not found.lakes or found.logs or found.stores:
        yield f"{found.messages} messages"
    if found.stores:
        yield counted(found.segments, "segment")
        yield counted(found.bundles, "bundle")
    if found.queues:
        yield counted(found.batches, "batch", "batches")
    if found.lakes:
        yield counted(found.tables, "table")
        yield counted(found.rows, "row")


def _messages(lost: Damage | KnownLoss) -> str:
    count, first = lost.messages_lost, lost.first_offset
    if first is None:
        return counted(count, "message")
    return f"1 message (offset {first})" if count == 1 else f"{count} messages from offset {first}"
