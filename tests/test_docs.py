"""The documentation says what is so: its commands, tables, examples and links are checked here.

`python -m tests.test_docs` rewrites docs/cli.md from the `--help` of every command, the list of
decisions from their titles, and the table of packages from what they say of themselves.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import importlib.util
import itertools
import json
import os
import re
import struct
import subprocess
import sys
import tomllib
import uuid
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import jsonschema
import pyarrow as pa
import pytest

from penstock.cli.app import cli
from penstock.log import LogFile
from penstock.log import format as fmt
from penstock.log.checkpoint import encode_checkpoint
from penstock.log.inventory import file_name
from penstock.metrics import Metrics, names
from penstock.metrics.registry import COMMIT_BUCKETS_S
from penstock.model import Durability, LogSettings
from penstock.model.bundle import Bundle
from penstock.model.errors import InvalidTopic
from penstock.model.settings import Compression, SegmentSettings, SizePolicy, StoreSettings
from penstock.model.topics import decode_part, encode_part
from penstock.segment import SegmentInfo
from penstock.server.configuration.config import Config
from penstock.server.configuration.loading import document, schema, settings
from penstock.server.web.exposition import children_page, pipeline_page
from penstock.storage import DataDirectory
from penstock.storage.documents import encode_document
from penstock.store.ack_log import CHECKPOINT_KIND, CHECKPOINT_VERSION
from penstock.store.format import (
    Answered,
    Event,
    Outcome,
    Reason,
    Registered,
    Sealed,
    Snapshot,
    encode_event,
)
from penstock.store.messages import decode_bundle, encode_raw
from penstock.store.state import StoreState
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CLI_PAGE = DOCS / "cli.md"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
DECISIONS = sorted((DOCS / "decisions").glob("0*.md"))
DECISIONS_PAGE = DOCS / "decisions" / "README.md"
ARCHITECTURE = DOCS / "architecture.md"
SERVING = DOCS / "serving.md"
DECISION_HEADINGS = ["Context", "Decision", "Consequences", "Alternatives turned down"]

MIB = 1024 * 1024
STORE_ID = uuid.UUID("ffeeddcc-bbaa-9988-7766-554433221100")
LOG_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
CREATED_AT_NS = 1_735_689_600_000_000_000  # 2025-01-01T00:00:00Z

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


# --- reading Markdown --------------------------------------------------------------------------


class Fence(NamedTuple):
    """A fenced block of code."""

    language: str
    text: str


def fences(page: Path) -> list[Fence]:
    """The fenced blocks of a page."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [Fence(language, text) for language, text in found]


def code_of(page: Path) -> str:
    """What a page sets as code and is no Python: a span or a line of a block on each line."""
    blocks = [fence.text for fence in fences(page) if fence.language != "python"]
    spans = re.findall(r"`([^`\n]+)`", without_fences(page))
    return "\n".join([*spans, *blocks])


def without_fences(page: Path) -> str:
    """The page's prose."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def tables(page: Path, first_heading: str) -> list[list[list[str]]]:
    """The rows of cells, without backticks, of each table whose first column has that heading."""
    found: list[list[list[str]]] = []
    inside = False
    for line in page.read_text().splitlines():
        if line.startswith(f"| {first_heading} |"):
            found.append([])
            inside = True
        elif inside and line.startswith("|"):
            found[-1].append([cell.strip().replace("`", "") for cell in line.strip("|").split("|")])
        else:
            inside = False
    return [rows[1:] for rows in found]  # without the rule below the headings


def table_rows(page: Path, first_heading: str) -> list[list[str]]:
    """The rows of the first of those tables."""
    return tables(page, first_heading)[0]


def python_blocks() -> Iterator[tuple[str, str]]:
    """(where, source) of every block of Python on every page."""
    for page in PAGES:
        blocks = [fence.text for fence in fences(page) if fence.language == "python"]
        for number, block in enumerate(blocks, 1):
            yield f"{page.relative_to(ROOT)}:{number}", block


# --- the packages ------------------------------------------------------------------------------


def layers() -> list[str]:
    """The packages in the order in which data meets them: the order of the layering rule."""
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    rows = [row.split(" | ") for row in rules["contracts"][0]["layers"]]
    return [name.strip().removeprefix("penstock.") for row in reversed(rows) for name in row]


def with_table(page: str, head: str, rows: Iterable[str]) -> str:
    """The page with other rows in the table with this heading."""
    head += "\n" + "|---" * (head.count("|") - 1) + "|\n"
    before, after = page.split(head)
    rest = after.splitlines(keepends=True)
    kept = "".join(itertools.dropwhile(lambda line: line.startswith("|"), rest))
    return f"{before}{head}{chr(10).join(rows)}\n{kept}"


def with_packages(page: str) -> str:
    """The page, with the table of packages as they describe themselves: their first sentences."""
    rows = [
        f"| `{name}` | {importlib.import_module(f'penstock.{name}').__doc__.splitlines()[0]} |"
        for name in layers()
    ]
    return with_table(page, "| package | what it is |", rows)


def test_the_packages_of_the_architecture_are_those_that_there_are() -> None:
    """All of them, in their order, in their own words."""
    folders = {path.parent.name for path in (ROOT / "src" / "penstock").glob("*/__init__.py")}
    assert set(layers()) == folders
    assert ARCHITECTURE.read_text() == with_packages(ARCHITECTURE.read_text())


def test_the_modules_on_the_way_of_a_span_exist() -> None:
    """Each hop names modules that there are."""
    for _, modules, *_ in table_rows(ARCHITECTURE, "hop"):
        for name in modules.split(", "):
            assert importlib.util.find_spec(f"penstock.{name}"), name


def render_decisions() -> str:
    """docs/decisions/README.md, from the titles of the notes."""
    titles = [note.read_text().splitlines()[0].removeprefix("# ") for note in DECISIONS]
    numbered = [title.split(". ", 1) for title in titles]
    links = [
        f"- [{number}]({note.name}) {title}"
        for note, (number, title) in zip(DECISIONS, numbered, strict=True)
    ]
    return "\n".join(
        [
            "# Decisions",
            "",
            "<!-- Written by `python -m tests.test_docs`; do not edit. -->",
            "",
            "What was decided, why, what follows, and what was turned down. A note stays as it is;",
            "a later one may replace it.",
            "",
            *links,
            "",
        ]
    )


def test_the_list_of_decisions_is_current() -> None:
    """Every note is in it."""
    assert DECISIONS_PAGE.read_text() == render_decisions()


# --- the command line --------------------------------------------------------------------------


def render_cli_page() -> str:
    """docs/cli.md, from what `--help` prints."""
    parts = [
        "# The command line",
        "",
        "<!-- Written by `python -m tests.test_docs` from `--help`; do not edit. -->",
        "",
        "Every command exits with 0 on success, 2 on a usage error and 1 on anything else, then",
        "with one sentence on stderr. With `--json`, stdout carries JSON and nothing else.",
        "",
    ]
    for path, command in every_command():
        parts += _help_section(" ".join(["penstock", *path]), command)
    return "\n".join(parts).rstrip() + "\n"


def every_command(
    command: click.Command = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """The command, and those within it."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in sorted(command.list_commands(context)):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from every_command(inner, (*path, name))


def _help_section(path: str, command: click.Command) -> list[str]:
    context = click.Context(
        command, info_name=path, terminal_width=88, max_content_width=88, **cli.context_settings
    )
    text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    return [f"## `{path}`", "", "```text", text, "```", ""]


def test_the_cli_page_is_current() -> None:
    """docs/cli.md is what --help says today."""
    assert CLI_PAGE.read_text() == render_cli_page(), "run python -m tests.test_docs to rewrite"


@each_page
def test_named_commands_and_options_exist(page: Path) -> None:
    """Every `penstock <command>` in code exists, and so does each option given to it."""
    for words in re.findall(r"\bpenstock ([a-z]+\b[^\n|#]*)", code_of(page)):
        command: click.Command = cli
        rest = words.split()
        while isinstance(command, click.Group) and rest and re.fullmatch(r"[a-z]+", rest[0]):
            inner = command.get_command(click.Context(command), rest.pop(0))
            assert inner is not None, f"penstock {words}"
            command = inner
        known = {"-h", "--help"}
        for parameter in command.params:
            known |= {*parameter.opts, *parameter.secondary_opts}
        used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", " ".join(rest)))
        assert used <= known, f"penstock {words}: {used - known}"


@each_page
def test_named_make_targets_exist(page: Path) -> None:
    """Every `make <target>` in code exists."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^(?:\$ )?make ([a-z]+)", code_of(page), re.MULTILINE))
    assert named <= targets


def test_every_command_has_an_example() -> None:
    """The help of each command ends with an example."""
    without = [
        path
        for path, command in every_command()
        if path and "Example: " not in (command.help or "")
    ]
    assert without == []


# --- examples ----------------------------------------------------------------------------------


def run_python(arguments: list[str], folder: Path) -> str:
    """Runs Python in `folder` with warnings as errors; its output."""
    command = [sys.executable, "-W", "error", *arguments]
    environment = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(("where", "source"), list(python_blocks()), ids=lambda text: text[:40])
def test_python_in_the_docs_runs(where: str, source: str, tmp_path: Path) -> None:
    """Each block of Python is a whole program; `# prints:` comments say its output."""
    printed = run_python(["-c", source], tmp_path)
    promised = re.findall(r"# prints: (.*)", source)
    assert printed.splitlines()[: len(promised)] == promised, where


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples_run_and_clean_up(example: Path, tmp_path: Path) -> None:
    """Each example runs without arguments, prints something and leaves nothing behind."""
    assert run_python([str(example)], tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_short(example: Path) -> None:
    """An example is read in one look."""
    assert len(example.read_text().splitlines()) < 40


# --- tables ------------------------------------------------------------------------------------


def shown_default(value: object) -> str:
    """A default as the settings page writes it."""
    if isinstance(value, enum.Enum):
        return str(value.value)
    if dataclasses.is_dataclass(value):
        fields = [(field, getattr(value, field.name)) for field in dataclasses.fields(value)]
        unlike = [f"{field.name}={set_to}" for field, set_to in fields if set_to != field.default]
        return f"{type(value).__name__}({', '.join(unlike)})"
    if isinstance(value, int) and value and value % MIB == 0:
        return f"{value // MIB} MiB"
    return str(value)


@pytest.mark.parametrize(
    ("number", "kind"), list(enumerate([LogSettings, SegmentSettings, StoreSettings]))
)
def test_the_settings_page_is_complete(number: int, kind: type) -> None:
    """Every setting stands on its page, in order, with its default and a consequence."""
    fields = [(field.name, shown_default(field.default)) for field in dataclasses.fields(kind)]
    rows = tables(DOCS / "settings.md", "setting")[number]
    assert [(name, default) for name, default, _ in rows] == fields
    assert all(consequence for *_, consequence in rows)


@pytest.mark.parametrize("kind", [Compression, SizePolicy], ids=lambda kind: kind.__name__)
def test_the_choices_of_a_setting_are_all_explained(kind: type[enum.Enum]) -> None:
    """Each has its row, the default first."""
    name = {Compression: "compression", SizePolicy: "size_policy"}[kind]
    shown = [row[0] for row in table_rows(DOCS / "settings.md", name)]
    assert shown == [choice.value for choice in kind]


def server_settings() -> Iterator[tuple[str, str, str]]:
    """Every key of the server's configuration, its default and its meaning: as the schema says."""
    found = schema()
    for name, each in found["properties"].items():
        if "default" in each:
            yield name, shown_setting(each["default"]), each["description"]
            continue
        section = found["$defs"][each["$ref"].rpartition("/")[2]]
        for key, within in section["properties"].items():
            yield f"{name}.{key}", shown_setting(within["default"]), within["description"]


def shown_setting(value: object) -> str:
    """A default as the page about serving writes it."""
    return ", ".join(value) if isinstance(value, list) else str(value).lower()


def with_settings(page: str) -> str:
    """The page, with the table of all keys."""
    rows = [
        f"| `{key}` | {f'`{default}`' if default else ''} | {meaning} |"
        for key, default, meaning in server_settings()
    ]
    return with_table(page, "| key | default | meaning |", rows)


def test_the_serving_page_is_complete() -> None:
    """Every key with its default and its meaning, in the order of the tree."""
    assert SERVING.read_text() == with_settings(SERVING.read_text())


def test_the_schema_has_every_setting_and_no_other() -> None:
    """What an editor offers is what the code reads, and what it shows is what the code takes."""
    assert [key for key, *_ in server_settings()] == [".".join(path) for path, _ in settings()]
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(document(Config()), schema())


def test_the_bounds_of_the_security_page_are_those_of_the_server() -> None:
    """With the defaults that it has; none of a request or a query is left out."""
    defaults = {key: default for key, default, _ in server_settings()}
    rows = table_rows(ROOT / "SECURITY.md", "bound")
    assert [(key, default.lower()) for key, default, _ in rows] == [
        (key, defaults.get(key)) for key, *_ in rows
    ]
    bounds = {key for key in defaults if key.startswith(("limits.", "query."))}
    assert bounds <= {key for key, *_ in rows}


def test_the_durability_table_is_complete() -> None:
    """Every durability mode is explained, the default first."""
    modes = [row[0].split()[0] for row in table_rows(DOCS / "settings.md", "durability")]
    assert modes == [mode.value for mode in Durability]
    assert modes[0] == LogSettings().durability.value


def test_the_metrics_page_is_complete() -> None:
    """Every metric stands on its page with its type and labels."""
    known = {(name, "counter", "topic") for name in names.LOG_COUNTERS}
    known |= {(name, "histogram", "") for name in [*names.LOG_HISTOGRAMS, *names.STORE_HISTOGRAMS]}
    known |= {(name, "histogram", "") for name in names.QUEUE_HISTOGRAMS}
    known |= {(name, "counter", "topic") for name in names.ARCHIVE_COUNTERS}
    known |= {(name, "gauge", "topic") for name in names.ARCHIVE_GAUGES}
    known |= {(name, "counter", "queue") for name in names.QUEUE_COUNTERS}
    known |= {(name, "gauge", "queue") for name in names.QUEUE_GAUGES}
    known |= {(name, "counter", "") for name in names.PIPELINE_COUNTERS}
    known |= {(name, "counter", "namespace") for name in names.PIPELINE_TENANT_COUNTERS}
    known |= {(name, "gauge", "") for name in names.PIPELINE_GAUGES}
    known |= {(name, "counter", label) for name, (_, label) in names.SERVER_COUNTERS.items()}
    for kind, table in [("counter", names.STORE_COUNTERS), ("gauge", names.STORE_GAUGES)]:
        known |= {
            (name, kind, ", ".join(["topic", *labels])) for name, (_, labels) in table.items()
        }
    rows = [tuple(row[:3]) for table in tables(DOCS / "metrics.md", "name") for row in table]
    assert len(rows) == len(set(rows))
    assert set(rows) == known


def test_the_metrics_page_has_what_is_exposed() -> None:
    """Prometheus sees the metrics of the page and no others."""
    metrics = Metrics()
    metrics.for_log("/default/traces")
    pages = metrics.exposition().decode() + pipeline_page({"recent": [{}]})
    pages += children_page({"worker": 1})
    types = re.findall(r"^# TYPE (\S+) \S+$", pages, re.MULTILINE)
    rows = [row for table in tables(DOCS / "metrics.md", "name") for row in table]
    assert {name for name in types if not name.endswith("_created")} == {row[0] for row in rows}
    page = " ".join((DOCS / "metrics.md").read_text().split())
    assert ", ".join(f"{bound:g}" for bound in COMMIT_BUCKETS_S) in page


def test_the_folder_names_on_the_page_are_right() -> None:
    """Each topic name in the table is encoded as the page says, and back."""
    for name, folder, _ in table_rows(DOCS / "formats" / "data-directory.md", "name"):
        assert encode_part(name) == folder
        assert decode_part(folder) == name


def test_the_refused_names_on_the_page_are_refused() -> None:
    """What the page lists as refused is."""
    refused = ["", "a/b", "a\\b", "a\0b", "a\nb", "\ud800", "x" * 201, "é" * 34]
    for name in refused:
        with pytest.raises(InvalidTopic):
            encode_part(name)


# --- formats -----------------------------------------------------------------------------------


def example_log_file() -> bytes:
    """The file of the worked example: two messages, sealed a second after it was begun."""
    header = fmt.new_header(LOG_ID, 42, CREATED_AT_NS, b"penstock")
    frames = b"".join(fmt.encode_frames([b"hello", b"lakehouse"], 42, header.seed))
    position = fmt.HEADER_BYTES + len(frames)
    seal = fmt.Seal(44, CREATED_AT_NS + 10**9, 2)
    return fmt.encode_header(header) + frames + fmt.encode_seal(seal, position, header.seed)


def hex_dump(data: bytes) -> str:
    """Position, sixteen bytes in hex, the same as text; a star for rows of zeros left out."""
    lines: list[str] = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        if not any(row):
            lines += [] if lines[-1] == "*" else ["*"]
            continue
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:04x}  {row.hex(' '):47}  {text}")
    return "\n".join(lines) + "\n"


def test_the_log_example_is_right() -> None:
    """The bytes in docs/formats/log.md are those of the file that it describes."""
    blocks = [fence.text for fence in fences(DOCS / "formats" / "log.md")]
    assert hex_dump(example_log_file()) in blocks


def test_the_field_tables_of_the_log_add_up() -> None:
    """Each field begins where the one before it ends, and the last ends with the structure."""
    page = (DOCS / "formats" / "log.md").read_text()
    ends = []
    for table in re.findall(r"(?:^\| +\d+ \| +\d+ \|.*\n)+", page, re.MULTILINE):
        pairs = re.findall(r"^\| +(\d+) \| +(\d+) \|", table, re.MULTILINE)
        fields = [(int(at), int(width)) for at, width in pairs]
        assert all(at + width == after for (at, width), (after, _) in pairwise(fields))
        ends.append(sum(fields[-1]))
    assert ends == [64, fmt.FRAME_BYTES, 32, fmt.TRAILER_BYTES]


def test_the_checkpoint_example_is_right() -> None:
    """The text in docs/formats/checkpoint.md is what is written for the log that it describes."""
    size = len(example_log_file())
    file = LogFile(Path(file_name(42)), 42, 44, size, CREATED_AT_NS + 10**9)
    written = encode_checkpoint(LOG_ID, 44, [file], CREATED_AT_NS + 10**9).decode()
    blocks = [fence.text for fence in fences(DOCS / "formats" / "checkpoint.md")]
    assert written in blocks


def example_state() -> StoreState:
    """A store that has nothing yet, as a snapshot of it begins a file."""
    state = StoreState()
    state.store_id = STORE_ID
    return state


def example_events() -> list[Event]:
    """A subscriber comes, a segment of two bundles is sealed, the first of them acknowledged."""
    times = (CREATED_AT_NS, CREATED_AT_NS + 10**9, CREATED_AT_NS + 2 * 10**9)
    return [
        Snapshot(example_state().document()),
        Registered(0, 0, "lake"),
        Sealed(SegmentInfo(0, 0, 3, 2, 60, 4096, *times)),
        Answered(Outcome.ACKED, 0, 0, 0, 1, CREATED_AT_NS + 3 * 10**9),
    ]


def test_the_ack_log_example_is_right() -> None:
    """The bytes in docs/formats/ack-log.md are those of the events that it describes."""
    header = fmt.new_header(LOG_ID, 7, CREATED_AT_NS, b"penstock")
    messages = [encode_event(event) for event in example_events()]
    file = fmt.encode_header(header) + b"".join(fmt.encode_frames(messages, 7, header.seed))
    frames = "1000  " + hex_dump(file).partition("\n1000  ")[2]
    assert frames in [fence.text for fence in fences(DOCS / "formats" / "ack-log.md")]


def test_the_ack_checkpoint_example_is_right() -> None:
    """It is the second copy of the snapshot in the same example."""
    fields = {"next_event": 8, **example_state().document()}
    written = encode_document(CHECKPOINT_KIND, CHECKPOINT_VERSION, fields).decode()
    assert written in [fence.text for fence in fences(DOCS / "formats" / "ack-log.md")]


def test_the_numbers_of_outcomes_and_reasons_are_right() -> None:
    """The tables in docs/formats/ack-log.md are those of the code."""
    for heading, kind in [("outcome", Outcome), ("reason", Reason)]:
        rows = table_rows(DOCS / "formats" / "ack-log.md", heading)
        assert [(int(row[0]), row[1]) for row in rows] == [(e.value, e.name.lower()) for e in kind]


def undumped(dump: str) -> bytes:
    """The bytes of a dump without rows left out."""
    return bytes.fromhex("".join(line[6:53] for line in dump.splitlines()))


def test_the_message_example_is_right() -> None:
    """The bytes in docs/formats/message.md are the bundle that it describes."""
    dumps = [f.text for f in fences(DOCS / "formats" / "message.md") if f.text.startswith("0000")]
    raw, bundle = map(undumped, dumps)
    assert raw == encode_raw(b"\0 is no protobuf")
    batch = pa.record_batch({"id": pa.array([7, 8], pa.uint16())})
    assert decode_bundle(bundle) == Bundle({30: batch})
    assert decode_bundle(bundle).items == 2
    length = len(bundle) - 64
    assert bundle[:64] == struct.pack("<2sBBIqB3xI", b"\0B", 1, 1, 0, 2, 30, length).ljust(
        64, b"\0"
    )


def test_the_identity_example_is_right(tmp_path: Path) -> None:
    """penstock.json has the fields that its page shows."""
    DataDirectory(tmp_path).create()
    blocks = [fence.text for fence in fences(DOCS / "formats" / "data-directory.md")]
    shown = next(json.loads(block) for block in blocks if block.startswith("{"))
    written = json.loads((tmp_path / "penstock.json").read_text())
    assert {**shown, "id": ""} == {**written, "id": ""}


# --- the pages as a whole ----------------------------------------------------------------------


@each_page
def test_relative_links_resolve(page: Path) -> None:
    """Every link to a file of the repository, and to a heading in it, leads somewhere."""
    for target in re.findall(r"\]\(([^)\s]+)\)", without_fences(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors_of(linked), target


def anchors_of(page: Path) -> set[str]:
    """The anchors that a page's headings get when it is rendered."""
    headings = re.findall(r"^#+ (.+)$", without_fences(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("note", DECISIONS, ids=lambda path: path.stem[:4])
def test_decision_notes_have_their_headings(note: Path) -> None:
    """A decision has its context, consequences and alternatives, in 15 to 40 lines."""
    text = note.read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == DECISION_HEADINGS
    assert text.startswith(f"# {note.stem[:4]}. ")
    assert 15 <= len(text.splitlines()) <= 40


def test_decision_notes_are_numbered_without_gaps() -> None:
    """The next note has an obvious number."""
    assert [int(note.stem[:4]) for note in DECISIONS] == list(range(1, len(DECISIONS) + 1))


def test_every_page_is_reachable_from_the_readme() -> None:
    """Following links from the README leads to every page."""
    seen, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        linked = re.findall(r"\]\(([^)#:\s]+\.md)[^)]*\)", without_fences(page))
        waiting += [(page.parent / target).resolve() for target in linked]
    assert set(PAGES) <= seen


if __name__ == "__main__":
    CLI_PAGE.write_text(render_cli_page())
    DECISIONS_PAGE.write_text(render_decisions())
    ARCHITECTURE.write_text(with_packages(ARCHITECTURE.read_text()))
    SERVING.write_text(with_settings(SERVING.read_text()))
