"""The rules that hold for every command."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING

import click
import pytest

from penstock import __version__
from penstock.cli.app import cli
from tests.cli.archives import make_archive
from tests.cli.queues import make_queue
from tests.cli.running import finish, log_folder, run, start
from tests.cli.stores import make_store
from tests.load.receiver import receiver
from tests.log.small_logs import write_log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def commands(group: click.Group, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command, those of groups within the group included."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*prefix, name))
        else:
            yield (*prefix, name)


def find(path: tuple[str, ...]) -> click.Command:
    """The command with that name."""
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), name)
    return command


COMMANDS = sorted(commands(cli))
WITH_JSON = [path for path in COMMANDS if any(p.name == "as_json" for p in find(path).params)]
IN_ARCHIVE = ["--objects", "{objects}", "--metadata", "{metadata}"]
JSON_CALLS = {
    ("archive", "rebuild"): ["--data-dir", "{data}", "--objects", "{objects}", "logs"],
    ("archive", "status"): ["--data-dir", "{data}", *IN_ARCHIVE],
    ("archive", "upload"): ["--data-dir", "{data}", *IN_ARCHIVE],
    ("fsck",): ["{data}"],
    ("identity",): ["--data-dir", "{data}"],
    ("inspect",): ["{data}"],
    ("load",): ["--endpoint", "{otlp}", "--spans", "20", "--spans-per-second", "0"],
    ("pipeline", "compact"): ["--data-dir", "{data}"],
    ("pipeline", "expire"): ["--data-dir", "{data}"],
    ("pipeline", "rollup"): ["--data-dir", "{data}"],
    ("queue", "dump"): ["{queue}"],
    ("queue", "gc"): ["{queue}"],
    ("queue", "status"): ["{queue}"],
    ("status",): ["--data-dir", "{data}"],
    ("subscribers", "add"): ["--data-dir", "{data}", "logs", "newcomer"],
    ("subscribers", "list"): ["--data-dir", "{data}"],
    ("subscribers", "remove"): ["--data-dir", "{data}", "logs", "exporter"],
    ("subscribers", "reset"): ["--data-dir", "{data}", "logs", "exporter"],
    ("tail",): ["--data-dir", "{data}", "--from", "earliest", "--no-follow", "traces"],
    ("tokens", "add"): ["{tokens}", "query=a"],
    ("tokens", "list"): ["{tokens}"],
    ("tokens", "remove"): ["{tokens}", "ae6d060649edb70f"],
    ("topics",): ["--data-dir", "{data}"],
}
"""One successful call of each command that prints JSON; a new one needs its line."""
JSON_LINES = {("tail",): 67, ("queue", "dump"): 2}
"""How many lines those of them print that print one for each thing that they show."""
WITH_SPARK = {("demo",), ("pipeline", "replay"), ("pipeline", "run")}
"""They start a Java; their own tests look at what they print."""

every_command = pytest.mark.parametrize("path", COMMANDS, ids=" ".join)


@every_command
def test_help_shows_an_example(path: tuple[str, ...]) -> None:
    """On one line, not wrapped, that can be copied."""
    answer = run(*path, "--help")
    assert (answer.code, answer.err) == (0, "")
    written = re.search(rf"Example: penstock {' '.join(path)}\b.*", find(path).help or "")
    assert written is not None
    assert f"  {written[0]}\n" in answer.out
    assert run(*path, "-h") == answer


@every_command
def test_unknown_option_is_a_usage_error(path: tuple[str, ...]) -> None:
    """Exit code 2, and nothing on stdout."""
    answer = run(*path, "--no-such-option")
    assert (answer.code, answer.out) == (2, "")
    assert "--no-such-option" in answer.err


def objects_beside(data: Path) -> dict[str, str]:
    """An archive of the data directory and a queue, by URL."""
    archive = make_archive(data)
    queue = make_queue((data.parent / "queue").as_uri())
    return {"objects": archive.objects, "metadata": archive.metadata, "queue": queue}


@pytest.mark.parametrize("path", sorted({*WITH_JSON} - WITH_SPARK), ids=" ".join)
def test_json_is_all_there_is_on_stdout(path: tuple[str, ...], data: Path) -> None:
    """One document, or one a line."""
    places = objects_beside(data) if path[0] in {"archive", "queue"} else {}
    make_store(data)
    tokens = data.parent / "tokens"
    tokens.write_text("one-good-token\nanother-good-token\n")
    with receiver() as otlp:
        places |= {"data": str(data), "otlp": otlp.url, "tokens": str(tokens)}
        arguments = [part.format(**places) for part in JSON_CALLS[path]]
        answer = run(*path, "--json", *arguments)
    assert (answer.code, answer.err) == (0, "")
    assert len(answer.json_lines) == JSON_LINES.get(path, 1)


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["fsck", "{queue}"], 1),
        (["fsck", "{objects}", "--metadata", "{metadata}"], 1),
        (["inspect", "{queue}"], 1),
        (["inspect", "{queue}/ingest/manifest"], 1),
        (["inspect", "{objects}"], 1),
        (["inspect", "{metadata}"], 1),
        (
            ["tail", "--from", "0", "--no-follow", "--data-dir", "nowhere", *IN_ARCHIVE, "traces"],
            87,
        ),
    ],
)
def test_json_of_object_storage_is_all_there_is(
    data: Path, arguments: list[str], lines: int
) -> None:
    """By URL as by path."""
    places = objects_beside(data)
    answer = run(*(part.format(**places) for part in arguments), "--json")
    assert (answer.code, answer.err, len(answer.json_lines)) == (0, "", lines)


def test_main_help_lists_every_command() -> None:
    """And the version is the package's."""
    answer = run("--help")
    assert answer.code == 0
    for path in COMMANDS:
        assert f"\n  {path[0]} " in answer.out
    assert run("--version").out.strip().endswith(__version__)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["no-such-command"],
        ["inspect"],
        ["fsck"],
        ["fsck", "one", "two"],
        ["tail"],
        ["tail", "a/b"],
        ["tail", "/default/tra\x00ces"],
        ["tail", "/a/b/c"],
        ["tail", "--from", "soon", "traces"],
        ["tail", "--from", "-1", "traces"],
        ["tail", "--count", "-1", "traces"],
        ["tail", "--count", "many", "traces"],
        ["tail", "--partition", "-1", "traces"],
        ["inspect", "--frames", "-1", "file"],
        ["load", "--endpoint", "ftp://localhost"],
        ["load", "--signals", "spans"],
        ["load", "--spans-per-second", "-1"],
        ["load", "--seconds", "0"],
        ["load", "--spans", "0"],
        ["load", "--spans", "5", "--seconds", "1"],
        ["load", "--processes", "0"],
        ["load", "--concurrency", "0"],
        ["load", "--batch", "0"],
        ["topics", "--data-dir", __file__],
        ["subscribers"],
        ["subscribers", "no-such-command"],
        ["subscribers", "list", "a/b"],
        ["subscribers", "list", "--partition", "-1"],
        ["subscribers", "add", "traces"],
        ["subscribers", "add", "traces", ""],
        ["subscribers", "add", "--from", "soon", "traces", "exporter"],
        ["subscribers", "reset", "--from", "-1", "traces", "exporter"],
        ["subscribers", "remove", "--from", "earliest", "traces", "exporter"],
        ["demo", "--kills", "0"],
        ["archive"],
        ["archive", "upload", "--objects", "file:///nowhere", "a/b"],
        ["archive", "upload", "--objects", "file:///nowhere", "--wait", "-1"],
        ["archive", "rebuild", "--objects", "file:///nowhere"],
        ["queue"],
        ["queue", "status"],
        ["queue", "status", "ftp://somewhere/else"],
        ["queue", "dump", "--count", "0", "file:///nowhere"],
        ["queue", "gc", "--grace", "-1", "file:///nowhere"],
        ["fsck", "ftp://somewhere/else"],
        ["inspect", "ftp://somewhere/else"],
        ["tail", "--data-dir", "nowhere", "--objects", "ftp://somewhere/else", "traces"],
        ["pipeline", "replay"],
        ["pipeline", "replay", "--archive", "file:///a", "--queue", "file:///b"],
    ],
)
def test_usage_error_exits_with_2(arguments: list[str]) -> None:
    """On stderr, with what would be right; stdout stays empty."""
    answer = run(*arguments)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("Usage: ")


@pytest.mark.parametrize("json", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "--data-dir", "{missing}"],
        ["tail", "--data-dir", "{missing}", "traces"],
        ["tail", "--data-dir", "{data}", "other"],
        ["tail", "--data-dir", "{data}", "--partition", "9", "traces"],
        ["tail", "--data-dir", "{data}", "--from", "61", "traces"],
        ["subscribers", "list", "--data-dir", "{missing}"],
        ["subscribers", "list", "--data-dir", "{data}", "other"],
        ["subscribers", "add", "--data-dir", "{missing}", "traces", "exporter"],
        ["subscribers", "add", "--data-dir", "{data}", "--partition", "9", "traces", "exporter"],
        ["subscribers", "remove", "--data-dir", "{data}", "traces", "exporter"],
        ["subscribers", "reset", "--data-dir", "{data}", "traces", "exporter"],
        ["inspect", "{missing}"],
        ["inspect", "{empty}"],
        ["load", "--endpoint", "127.0.0.1:1"],
        ["load", "--endpoint", "http://no-such-host.invalid"],
        ["fsck", "{missing}"],
        ["fsck", "{empty}"],
        ["fsck", "file://{missing}"],
        ["fsck", "file://{empty}"],
        ["fsck", "file://{empty}", "--metadata", "file://{missing}"],
        ["inspect", "file://{missing}"],
        ["inspect", "file://{empty}"],
        ["tail", "--data-dir", "{data}", "--objects", "file://{missing}", "traces"],
        ["tail", "--data-dir", "{data}", "--objects", "file://{empty}", "traces"],
        ["archive", "upload", "--data-dir", "{missing}", "--objects", "file://{empty}"],
        ["archive", "upload", "--data-dir", "{data}", "--objects", "file://{empty}", "other"],
        ["queue", "status", "file://{empty}"],
        ["queue", "dump", "file://{empty}"],
        ["status", "--data-dir", "{missing}"],
    ],
)
def test_error_is_one_sentence_on_stderr(
    data: Path, tmp_path: Path, arguments: list[str], json: list[str]
) -> None:
    """Exit code 1, and nothing on stdout, with `--json` as without."""
    (tmp_path / "empty").mkdir()
    places = {"data": data, "missing": tmp_path / "missing", "empty": tmp_path / "empty"}
    answer = run(*(part.format(**places) for part in arguments), *json)
    assert answer.is_one_sentence(), answer


def test_script_exits_as_the_function_does(data: Path, tmp_path: Path) -> None:
    """The installed command, with nothing of the test's around it."""
    good = finish(start("topics", "--data-dir", data))
    assert good == run("topics", "--data-dir", data)
    assert finish(start("topics", "--data-dir", tmp_path / "missing")).is_one_sentence()
    wrong = finish(start("topics", "--no-such-option"))
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err.startswith("Usage: penstock topics ")


# --- pipes and signals -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "--data-dir", "{data}"],
        ["inspect", "{data}"],
        ["fsck", "{data}"],
        ["fsck", "--json", "{data}"],
        ["tail", "--data-dir", "{data}", "--from", "earliest", "--no-follow", "traces"],
        ["--help"],
    ],
)
def test_reader_that_went_away_is_no_error(data: Path, arguments: list[str]) -> None:
    """Whoever closed the pipe has seen enough: exit code 0 and not a word."""
    reading, writing = os.pipe()
    os.close(reading)
    process = start(*(part.format(data=data) for part in arguments), stdout=writing)
    os.close(writing)
    answer = finish(process)
    assert (answer.code, answer.err) == (0, "")


def test_head_gets_its_line_and_no_traceback_follows(data: Path) -> None:
    """`penstock tail … | head -1` with more output than a pipe holds."""
    write_log(log_folder(data), (5000,))
    process = start("tail", "--data-dir", data, "--from", "earliest", "traces")
    assert process.stdout is not None
    assert process.stdout.readline() == b"0:0  10 B  message 0 \n"
    process.stdout.close()
    process.stdout = None
    answer = finish(process)
    assert (answer.code, answer.err) == (0, "")


def test_interrupted_command_ends_without_a_traceback(data: Path) -> None:
    """A following tail is ended by Ctrl-C."""
    process = start("tail", "--data-dir", data, "--from", "earliest", "traces")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    answer = finish(process)
    assert answer.code == 130
    assert answer.err.strip() == ""
