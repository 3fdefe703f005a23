"""Every version of every format that was ever written is kept as a file, and is read.

`tests/fixtures` has them; what made each is said by `fixture_v1` and `fixture` in folders of the
packages, by `edges/lake_v1` (all of a data directory of 0.1) and by `edges/data_v2` (of the second
version). A new version of a format gets a fixture and a line in `KEPT`, or a test here fails.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.cli.running import run
from tests.edges import data_v2, lake_v1

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "formats").glob("*.md"))
TRACES = "topics/default/traces/0"
OF_ARCHIVE = "objects/penstock/storage/topics/default/traces"


class Kept(NamedTuple):
    """A file of a version, and what `penstock inspect` says of it."""

    page: str
    """Of docs/formats, which describes the format."""
    version: int
    place: str
    """In tests/fixtures, a folder of which may be packed; a pattern."""
    says: dict[str, Any]


KEPT = [
    Kept("log", 1, "log-v1/*15.wal", {"kind": "log file", "messages": 10, "damage": []}),
    Kept("log", 1, f"lake-v1/data/{TRACES}/log/*.wal", {"first_offset": 4, "messages": 1}),
    Kept("checkpoint", 1, "log-v1/log.ckpt", {"kind": "log checkpoint", "checksum": "good"}),
    Kept("ack-log", 1, f"lake-v1/data/{TRACES}/ack.log", {"damage": [], "torn_bytes": 0}),
    Kept("ack-log", 1, f"lake-v1/data/{TRACES}/ack.ckpt", {"version": 1, "checksum": "good"}),
    Kept("ack-log", 1, f"data-v2/data/{TRACES}/ack.log", {"damage": [], "sealed_offset": 3}),
    Kept("message", 1, "message-v1/*7.msg", {"kind": "message set aside", "reason": None}),
    Kept("message", 1, "message-v1/*8.msg", {"kind": "message set aside", "reason": None}),
    Kept("segment", 1, "segment-v1/*3.seg", {"format_version": 1, "damage": [], "bundles": 4}),
    Kept("segment", 2, "segment-v2/*3.seg", {"format_version": 2, "damage": []}),
    Kept("archive", 1, "archive-v1/**/*12.frames", {"format_version": 1, "messages": 12}),
    Kept("archive", 1, "archive-v1/**/*25.frames", {"compression": "zstd", "messages": 13}),
    Kept("archive", 1, "archive-v1/**/archive", {"kind": "archive identity"}),
    Kept("archive", 1, "archive-v1/metadata.db", {"kind": "metadata store"}),
    Kept("archive", 1, f"data-v2/data/{TRACES}/archive.ckpt", {"format_version": 1, "offset": 3}),
    Kept("archive", 2, f"data-v2/{OF_ARCHIVE}/**/*02.frames", {"format_version": 2, "messages": 2}),
    Kept("archive", 2, f"data-v2/{OF_ARCHIVE}/archive", {"kind": "archive identity"}),
    Kept("archive", 2, "data-v2/data/metadata.db", {"kind": "metadata store", "keys": 17}),
    Kept("queue", 1, "queue-v1/ingest/manifest", {"format_version": 1, "waiting": 3, "epoch": 1}),
    Kept("queue", 1, "queue-v1/ingest/manifest.id", {"manifest_version": 1, "checksum": "good"}),
    Kept("queue", 1, "queue-v1/ingest/owner.id", {"manifest_path": "ingest/manifest"}),
    Kept("queue", 1, "queue-v1/ingest/*JHV7C*.batch", {"format_version": 1, "records": 2}),
    Kept("queue", 2, "queue-v2/ingest/manifest", {"format_version": 2, "waiting": 3, "epoch": 1}),
    Kept("queue", 2, "queue-v2/ingest/manifest.id", {"manifest_version": 2, "checksum": "good"}),
    Kept("queue", 2, "queue-v2/ingest/manifest.chunks/*", {"format_version": 2, "end_sequence": 2}),
    Kept("queue", 2, "queue-v2/ingest/*JHV82*.batch", {"format_version": 2, "records": 2}),
    Kept("data-directory", 1, "lake-v1/data/penstock.json", {"kind": "data directory identity"}),
    Kept("data-directory", 1, "lake-v1/data/pipeline/delivered.json", {"format_version": 1}),
    Kept("data-directory", 1, "lake-v1/data/pipeline/progress.json", {"batches": 2}),
    Kept("data-directory", 1, "lake-v1/data/topics/default/traces/repeats.tbl", {"requests": 5}),
    Kept("data-directory", 1, "data-v2/data/server.json", {"format_version": 1, "workers": 1}),
    Kept("data-directory", 1, "data-v2/data/registrations.json", {"format_version": 1}),
    Kept("data-directory", 1, "data-v2/data/budget", {"kind": "disk budget"}),
    Kept("data-directory", 1, "data-v2/data/repeats.tbl", {"format_version": 1, "requests": 4}),
    Kept("data-directory", 1, "data-v2/data/pipeline/progress.json", {"rows": 8, "repeated": 2}),
    Kept("data-directory", 2, "data-v2/data/pipeline/delivered.json", {"format_version": 2}),
    Kept("repeat-window", 1, "data-v2/data/pipeline/repeats/*/*3.run", {"rows": 2}),
    Kept(
        *("lake", 1, "lake-v1/data/lake/spans/metadata/00004-*.metadata.json"),
        {"positions": ["/default/traces partition 0 of an unknown source: segment 1, offset 3"]},
    ),
    Kept(
        *("lake", 2, "data-v2/data/lake/spans/metadata/00004-*.metadata.json"),
        {
            "positions": [
                "/default/traces partition 0 of 0f35b04a-6d91-4c76-a7fb-95b8de7cfbcf: "
                "segment 1, offset 3"
            ]
        },
    ),
    Kept("lake", 1, "seen-v1/seen/doubles.json", {"format_version": 1, "files": 2}),
]


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of tests/fixtures in which data directories are unpacked."""
    folder = tmp_path_factory.mktemp("formats") / "fixtures"
    shutil.copytree(ROOT / "tests" / "fixtures", folder)
    lake_v1.unpacked(folder / "lake-v1")
    data_v2.unpacked(folder / "data-v2")
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: f"{kept.page}-{kept.version}-{kept.place}")
def test_every_version_is_read(fixtures: Path, kept: Kept) -> None:
    """By today's code, with what is known to be in it."""
    (path,) = fixtures.glob(kept.place)
    answer = run("inspect", "--json", path)
    assert answer.code == 0, answer
    said = answer.json
    assert {name: said.get(name) for name in kept.says} == kept.says


@pytest.mark.parametrize(
    ("place", "held"),
    [
        ("lake-v1/data", {"rows": 10, "messages": 1, "segments": 2}),
        ("data-v2/data", {"rows": 8, "messages": 1, "segments": 2, "records": 12}),
        ("queue-v1", {"batches": 3, "messages": 6}),
        ("queue-v2", {"batches": 3, "messages": 6}),
        ("archive-v1/objects", {"archives": 1, "messages": 25}),
        ("data-v2/objects", {"archives": 3, "messages": 5}),
    ],
)
def test_places_of_every_version_are_sound(
    fixtures: Path, place: str, held: dict[str, int]
) -> None:
    """All of them together, with everything that refers to something else."""
    metadata = {"archive-v1/objects": "archive-v1", "data-v2/objects": "data-v2/data"}.get(place)
    where = (
        [] if metadata is None else ["--metadata", (fixtures / metadata / "metadata.db").as_uri()]
    )
    answer = run("fsck", "--json", fixtures / place, *where)
    assert (answer.code, answer.err) == (0, "")
    found = answer.json
    assert {name: found[name] for name in held} == held


def test_requests_of_queues_say_what_they_are(fixtures: Path) -> None:
    """Their metadata, too, have a version."""
    for version in (1, 2):
        rows = run("queue", "dump", "--json", (fixtures / f"queue-v{version}").as_uri()).json_lines
        origins = [(one["topic"], one["signal"]) for row in rows for one in row["metadata"]]
        assert origins == [("/default/traces", "traces")] * 3


@pytest.mark.parametrize(
    ("objects", "metadata", "owned"),
    [
        ("archive-v1/objects", "archive-v1", [("/default/traces", 25, 2)]),
        (
            *("data-v2/objects", "data-v2/data"),
            [("/default/logs", 1, 3), ("/default/metrics", 1, 3), ("/default/traces", 3, 3)],
        ),
    ],
)
def test_owners_of_archives_are_known(
    fixtures: Path, objects: str, metadata: str, owned: list[tuple[str, int, int]]
) -> None:
    """By their leases, which have a version too: the next owner's epoch is a later one."""
    where = ["--metadata", (fixtures / metadata / "metadata.db").as_uri()]
    rows = run(
        "archive", "status", "--json", "--objects", (fixtures / objects).as_uri(), *where
    ).json
    assert [(row["topic"], row["end_offset"], row["epoch"]) for row in rows] == owned


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_version_that_a_page_names_is_kept(page: Path) -> None:
    """So that nobody can raise a number and forget the files that are there."""
    kept = {one.version for one in KEPT if one.page == page.stem}
    named = _versions(page.read_text(encoding="utf-8"))
    assert named
    assert named <= kept


def _versions(text: str) -> set[int]:
    """Of our own formats: Iceberg's, Arrow's and releases are written otherwise."""
    found = re.findall(r"(?<!format )\bversions? ([0-9]+)(?![.0-9])", text, re.IGNORECASE)
    found += re.findall(r'"version": ([0-9]+)', text)
    for row in re.findall(r"^\|.*\bversion`? \|(.*)$", text, re.MULTILINE):
        found += re.findall(r"\b[0-9]\b", row)
    return {int(number) for number in found}


def test_versions_are_found_in_the_words_of_a_page() -> None:
    """The rule above would hold of a page that is misread."""
    text = 'Version 1, and\n| 8 | 2 | version | u16, 2 or 3 |\n{"version": 4} 0.1, version 0.1'
    assert _versions(text) == {1, 2, 3, 4}
