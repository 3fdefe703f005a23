"""Options and output that several commands share."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import uuid
from dataclasses import fields
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.model import Topic
from penstock.model.errors import InvalidSetting, InvalidTopic, PenstockError
from penstock.model.fields import check_bounds, key_of, written_as
from penstock.model.printable import printable, printable_lines
from penstock.storage import DEFAULT_DATA_DIR, DataDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.model.fields import Settings
    from penstock.storage import Partition

    _Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_DATA_DIR,
    envvar="PENSTOCK_DATA_DIR",
    show_default=True,
    show_envvar=True,
    help="The data directory.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")


def setting_option(
    of: type[Settings], name: str, *, flag: str | None = None, preset: bool = True
) -> _Decorator:
    """An option for a field of settings, which says its default, its bounds and its meaning.

    Without `preset` it is None where it is not given: a file may say it.
    """
    (each,) = (one for one in fields(of) if one.name == name)
    written = written_as(of, name)
    flag = flag or f"--{key_of(each).replace('_', '-')}"

    def read(_: click.Context, __: click.Parameter, text: str | None) -> Any:
        try:
            value = None if text is None else written.read(text)
            check_bounds(each, value)
        except InvalidSetting as error:
            raise click.BadParameter(error.told(lambda _: "it")) from None
        return value

    shown = None if each.default is None else str(written.show(each.default))
    meaning = each.metadata["description"].partition(". ")[0].removesuffix(".") + "."
    return click.option(
        *(flag, name),
        metavar=written.metavar,
        default=shown if preset else None,
        show_default=preset,
        callback=read,
        help=meaning if preset else f"{meaning}  [default: {shown}]",
    )


def settings_options(of: type[Settings], *names: str, **flags: str) -> _Decorator:
    """Options for some fields of settings, which the command gets as `settings`.

    `flags` are further fields whose option is not called as a file calls them.
    """
    options = [setting_option(of, name) for name in names]
    options += [setting_option(of, name, flag=flag) for name, flag in flags.items()]
    return grouped("settings", of, *options)


def grouped(name: str, make: Callable[..., Any], *options: Callable[[Any], Any]) -> _Decorator:
    """Options that a command gets together, as the one value that `make` makes of them."""
    keys = tuple(inspect.signature(make).parameters)

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def called(**given: Any) -> Any:
            value = make(**{key: given.pop(key) for key in keys if key in given})
            return command(**given, **{name: value})

        return functools.reduce(lambda inner, option: option(inner), reversed(options), called)

    return decorate


@contextlib.contextmanager
def installed(extra: str = "spark") -> Iterator[None]:
    """One sentence where an import finds nothing."""
    try:
        yield
    except ImportError as error:
        name = (error.name or str(error)).partition(".")[0]
        raise PenstockError(f"{name} is missing: pip install 'penstock[{extra}]'") from None


def parse_topic(_: click.Context, __: click.Parameter, text: str | None) -> Topic | None:
    """A topic from the command line."""
    try:
        return None if text is None else Topic.parse(text)
    except InvalidTopic as error:
        raise click.BadParameter(str(error)) from None


def parse_start(_: click.Context, parameter: click.Parameter, text: str) -> int | str:
    """`earliest`, `latest` or a number, whose name is the last in the parameter's metavar."""
    if text in {"earliest", "latest"}:
        return text
    if text.isascii() and text.isdigit() and len(text) <= 20:
        return int(text)
    wanted = f"neither earliest, latest nor {(parameter.metavar or '').rpartition('|')[2]}"
    raise click.BadParameter(f"{text!r} is {wanted}")


def existing_data_directory(root: Path) -> DataDirectory:
    """The data directory at `root`, or one sentence about why there is none."""
    if not root.is_dir():
        raise PenstockError(f"there is no data directory at {root}")
    directory = DataDirectory(root)
    try:
        directory.identity()
    except FileNotFoundError:
        raise PenstockError(f"{root} is not a data directory: it has no penstock.json") from None
    return directory


def partitions_of(
    directory: DataDirectory, topic: Topic | None, number: int | None
) -> list[Partition]:
    """The partitions of a topic, or of all; or one sentence about why there are none."""
    found = [
        partition
        for partition in directory.partitions()
        if topic in {None, partition.topic} and number in {None, partition.number}
    ]
    if not found and topic is not None:
        which = "" if number is None else f" with a partition {number}"
        raise PenstockError(f"{directory.root} holds no topic {topic}{which}")
    return found


def say(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """A text on stdout or stderr: it may quote telemetry, of which a terminal is to obey nothing.

    JSON passes as it is, since `json.dumps` escapes all that is not ASCII.
    """
    click.echo(printable_lines(str(text)), err=err, nl=nl)  # noqa: TID251 - here alone


def print_json(document: Any, indent: int | None = None) -> None:
    """One JSON document, on one line of stdout unless it is to be read by people too."""
    say(json.dumps(document, indent=indent))


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Aligned columns; numbers to the right."""
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    headers = [printable(name) for name in headers]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    numeric = [all(isinstance(row[at], int | float) for row in rows) for at in range(len(headers))]
    for line in [list(headers), *cells]:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        say("  ".join(padded).rstrip())


def size_of(paths: Iterable[Path]) -> int:
    """The bytes of these files together; one that was removed meanwhile has none."""
    size = 0
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


def time_text(ns: int) -> str:
    """ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(ns / 1e9, UTC).isoformat(timespec="milliseconds")


def told(record: Any) -> dict[str, Any]:
    """The fields of a dataclass for JSON and for people: times as text, keys in hex, by name."""
    found: dict[str, Any] = {}
    for each in fields(record):
        value = getattr(record, each.name)
        if each.name.endswith("_ns"):
            found[each.name.removesuffix("_ns")] = time_text(value)
        elif isinstance(value, bytes):
            found[each.name] = value.hex()
        elif isinstance(value, uuid.UUID):
            found[each.name] = str(value)
        else:
            found[each.name] = value.name.lower() if isinstance(value, Enum) else value
    return found


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`1 file`, `2 files`."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def human_bytes(size: int) -> str:
    """`3.2 MiB`."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
