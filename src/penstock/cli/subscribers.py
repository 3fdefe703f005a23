"""`penstock subscribers`: who gets the bundles of a topic, and how far each one is."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import click

from penstock.cli.common import (
    data_dir_option,
    existing_data_directory,
    grouped,
    json_option,
    parse_start,
    parse_topic,
    partitions_of,
    print_json,
    print_table,
    say,
)
from penstock.model import SystemClock
from penstock.model.errors import LogLocked, PenstockError, SubscriberUnknown
from penstock.storage import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.model import Topic
    from penstock.storage import Partition
    from penstock.store.format import Event
    from penstock.store.state import StoreState, SubscriberState

    _Change: TypeAlias = "Callable[[StoreState, SubscriberState | None], list[Event]]"

_NAME_BYTES = 255


def _name(_: click.Context, __: click.Parameter, text: str) -> str:
    if not 0 < len(text.encode(errors="replace")) <= _NAME_BYTES or not text.isprintable():
        raise click.BadParameter(f"a name has 1 to {_NAME_BYTES} printable bytes, not {text!r}")
    return text


class _Chosen(NamedTuple):
    """A subscriber of a topic, in one partition or in all."""

    topic: Topic
    name: str
    partition: int | None
    data_dir: Path

    def partitions(self) -> list[Partition]:
        """Those that it is about, whether they know the subscriber or not."""
        return partitions_of(existing_data_directory(self.data_dir), self.topic, self.partition)

    def knowing(self) -> list[Partition]:
        """Those that know the subscriber, as far as can be told from outside."""
        partitions = self.partitions()
        known = {row["partition"] for row in _rows(partitions)[0] if row["subscriber"] == self.name}
        if not known:
            raise SubscriberUnknown(f"{self.topic} has no subscriber called {self.name}")
        return [partition for partition in partitions if partition.number in known]


partition_option = click.option("--partition", type=click.IntRange(min=0), help="Only this one.")
chosen_options = grouped(
    "chosen",
    _Chosen,
    click.argument("topic", metavar="TOPIC", callback=parse_topic),
    click.argument("name", metavar="NAME", callback=_name),
    partition_option,
    data_dir_option,
)
start_option = click.option(
    "--from",
    "start",
    metavar="earliest|latest|SEQ",
    callback=parse_start,
    default="earliest",
    show_default=True,
    help="The oldest segment, what is sealed from now on, or a segment_seq.",
)


@click.group()
def subscribers() -> None:
    """Show and change who gets the bundles of a topic.

    A subscriber is registered with each partition of a topic; --partition means one alone. What a
    subscriber has not answered is kept for it.

    Example: penstock subscribers list
    """


# --- looking -----------------------------------------------------------------------------------


@subscribers.command("list")
@click.argument("topic", metavar="[TOPIC]", required=False, callback=parse_topic)
@partition_option
@data_dir_option
@json_option
def list_subscribers(
    topic: Topic | None, partition: int | None, data_dir: Path, as_json: bool
) -> None:
    """List the subscribers of a topic, or of all, with their progress.

    Works with the server running or stopped, and changes nothing. The mark is the first bundle that
    a subscriber lacks, as SEGMENT:BUNDLE; the lag counts the sealed bundles that it lacks. Damage
    that leaves this uncertain is named on stderr, and the command exits with 1.

    Example: penstock subscribers list --data-dir data /default/traces
    """
    partitions = partitions_of(existing_data_directory(data_dir), topic, partition)
    rows, problems = _rows(partitions)
    if as_json:
        print_json(rows)
    elif rows:
        _print_rows(rows)
    else:
        say(f"{topic or data_dir} has no subscribers")
    for problem in problems:
        say(f"penstock: {problem}; penstock fsck says more", err=True)
    if problems:
        raise click.exceptions.Exit(1)


def _rows(partitions: list[Partition]) -> tuple[list[dict[str, Any]], list[str]]:
    from penstock.store.verify import is_store, survey_store

    files, rows, problems = LocalFiles(), list[dict[str, Any]](), list[str]()
    for partition in partitions:
        if not is_store(files, partition.folder):
            continue
        found = survey_store(files, partition.folder)
        problems += [f"{partition.folder}: {problem}" for problem in found.problems]
        rows += [_row(partition, found.state, each) for each in found.state.subscribers.values()]
    return rows, problems


def _row(partition: Partition, state: StoreState, subscriber: SubscriberState) -> dict[str, Any]:
    from penstock.store.status import subscriber_status

    status = asdict(subscriber_status(state, subscriber, 0, SystemClock().wall_ns()))
    del status["in_flight"]  # known to the process that delivers, and to nobody else
    return {**_place(partition, status.pop("name")), **status}


def _place(partition: Partition, name: str) -> dict[str, Any]:
    return {"topic": str(partition.topic), "partition": partition.number, "subscriber": name}


def _print_rows(rows: list[dict[str, Any]]) -> None:
    counts = ["acked", "nacked", "rejected", "dropped", "lost"]
    print_table(
        ["topic", "partition", "subscriber", "state", "mark", "lag", "oldest", *counts],
        [
            [
                row["topic"],
                row["partition"],
                row["subscriber"],
                "active" if row["active"] else "paused",
                f"{row['segment_seq']}:{row['bundle_index']}",
                row["lag_bundles"],
                f"{row['oldest_unacked_s']:.0f} s",
                *(row[outcome] for outcome in counts),
            ]
            for row in rows
        ],
    )


# --- changing ----------------------------------------------------------------------------------


@subscribers.command()
@start_option
@chosen_options
@json_option
def add(start: int | str, chosen: _Chosen, as_json: bool) -> None:
    """Register a subscriber with a topic: from now on everything is kept for it.

    One that is registered already stays where it is. Needs the server stopped.

    Example: penstock subscribers add --from latest /default/traces exporter
    """

    def change(state: StoreState, known: SubscriberState | None) -> list[Event]:
        return [] if known is not None else [_registration(state, chosen.name, start)]

    rows = _change(chosen.partitions(), chosen.name, "added", change)
    _say(rows, as_json, lambda row: _standing(row, "added"))


@subscribers.command()
@chosen_options
@json_option
def remove(chosen: _Chosen, as_json: bool) -> None:
    """Forget a subscriber for good; what was kept for it alone may go.

    Needs the server stopped. Where it has a lake, its subscriber `lake` comes back with the next
    start, from the oldest segment that is there; lake.enabled says that there is none.

    Example: penstock subscribers remove /default/traces exporter
    """
    from penstock.store.format import Unregistered

    def change(_: StoreState, known: SubscriberState | None) -> list[Event]:
        return [] if known is None else [Unregistered(known.number)]

    rows = _change(chosen.knowing(), chosen.name, "removed", change)
    _say(rows, as_json, lambda row: f"removed {_at(row)}")


@subscribers.command()
@start_option
@chosen_options
@json_option
def reset(start: int | str, chosen: _Chosen, as_json: bool) -> None:
    """Let a subscriber begin anew, with what is still there.

    Its answers and counts so far are forgotten. Needs the server stopped.

    Example: penstock subscribers reset --from earliest /default/traces exporter
    """
    from penstock.store.format import Unregistered

    def change(state: StoreState, known: SubscriberState | None) -> list[Event]:
        if known is None:
            return []
        return [Unregistered(known.number), _registration(state, chosen.name, start)]

    rows = _change(chosen.knowing(), chosen.name, "reset", change)
    _say(rows, as_json, lambda row: _standing(row, "reset"))


def _change(
    partitions: list[Partition], name: str, done: str, change: _Change
) -> list[dict[str, Any]]:
    """Changes all partitions or, where one of them is in use, none."""
    from penstock.store.repair import closed_journal

    files, clock, rows = LocalFiles(), SystemClock(), list[dict[str, Any]]()
    with contextlib.ExitStack() as stack:
        try:
            journals = [
                stack.enter_context(closed_journal(files, partition.folder, clock))
                for partition in partitions
            ]
        except LogLocked as error:
            raise PenstockError(f"{error}; stop it first") from None
        for partition, (journal, found) in zip(partitions, journals, strict=True):
            for problem in found.problems:
                say(f"penstock: {partition.folder}: {problem}", err=True)
            events = change(journal.state, journal.state.named(name))
            if events:
                journal.record(*events).wait()
            known = journal.state.named(name)
            row = (
                _place(partition, name) if known is None else _row(partition, journal.state, known)
            )
            rows.append({**row, done: bool(events)})
    return rows


def _registration(state: StoreState, name: str, start: int | str) -> Event:
    from penstock.store.format import Registered

    oldest = next(iter(state.segments), state.next_seq)
    if isinstance(start, int):
        first = min(start, state.next_seq)
    else:
        first = oldest if start == "earliest" else state.next_seq
    return Registered(state.next_subscriber, first, name)


def _say(
    rows: list[dict[str, Any]], as_json: bool, sentence: Callable[[dict[str, Any]], str]
) -> None:
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            say(sentence(row))


def _standing(row: dict[str, Any], done: str) -> str:
    behind = f"segment {row['segment_seq']}, {row['lag_bundles']} bundles to get"
    return f"{done if row[done] else 'known already:'} {_at(row)}: {behind}"


def _at(row: dict[str, Any]) -> str:
    return f"{row['subscriber']} at {row['topic']} partition {row['partition']}"
