"""A data directory knows who it is and what it holds."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import pytest

from penstock.model import Topic
from penstock.model.errors import Damaged, UnsupportedVersion
from penstock.storage import DataDirectory
from penstock.storage.directory import FORMAT_VERSION, IDENTITY

if TYPE_CHECKING:
    from pathlib import Path

TOPICS = [
    Topic("default", "traces"),
    Topic("default", "Traces"),
    Topic("..", "con"),
    Topic("Team É", "%2e"),
]


def test_identity_is_created_once_and_kept(tmp_path: Path) -> None:
    """Opening a data directory again, also from elsewhere, finds the same one."""
    created = DataDirectory(tmp_path / "new" / "data").create()
    again = DataDirectory(tmp_path / "new" / "data")
    assert again.create() == again.identity() == created == str(uuid.UUID(created))


def test_two_directories_have_two_identities(tmp_path: Path) -> None:
    """A copy put in the place of another is told apart."""
    assert DataDirectory(tmp_path / "a").create() != DataDirectory(tmp_path / "b").create()


def test_identity_file_is_readable_by_a_person(tmp_path: Path) -> None:
    """It says what it is, in JSON with one field a line."""
    identity = DataDirectory(tmp_path).create()
    text = (tmp_path / IDENTITY).read_text()
    wanted = {"penstock": "data directory", "version": FORMAT_VERSION, "id": identity}
    assert json.loads(text) == wanted
    assert text.count("\n") == 5


def test_directory_without_identity_is_no_data_directory(tmp_path: Path) -> None:
    """Asking changes nothing."""
    with pytest.raises(FileNotFoundError):
        DataDirectory(tmp_path).identity()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"id"',
        "{}",
        '{"version": 1}',
        '{"id": "x"}',
        '{"version": "one", "id": "x"}',
        '{"version": null, "id": "x"}',
        '{"version": 1e999, "id": "x"}',
        '{"version": 1, "id": null}',
        "\x00" * 80,
        "\xff",
    ],
)
def test_damaged_identity_is_reported_and_not_replaced(tmp_path: Path, text: str) -> None:
    """A directory of unknown identity is neither opened nor made a new one."""
    (tmp_path / IDENTITY).write_text(text, encoding="latin-1")
    for use in (DataDirectory(tmp_path).identity, DataDirectory(tmp_path).create):
        with pytest.raises(Damaged, match=IDENTITY):
            use()
    assert (tmp_path / IDENTITY).read_text(encoding="latin-1") == text


def test_newer_version_is_refused(tmp_path: Path) -> None:
    """An older Penstock keeps its hands off what it does not know."""
    document = {"version": FORMAT_VERSION + 1, "id": "x", "new": True}
    (tmp_path / IDENTITY).write_text(json.dumps(document))
    with pytest.raises(UnsupportedVersion, match=str(FORMAT_VERSION + 1)):
        DataDirectory(tmp_path).create()


def test_interrupted_creation_is_finished_by_the_next(tmp_path: Path) -> None:
    """A scratch file from before the rename is nothing to rely on."""
    (tmp_path / f"{IDENTITY}.tmp").write_text('{"version": 1, "id"')
    assert DataDirectory(tmp_path).create() == DataDirectory(tmp_path).identity()


def test_partition_lies_where_the_interface_says(tmp_path: Path) -> None:
    """`topics/<namespace>/<topic>/<partition>/log`, each part encoded."""
    partition = DataDirectory(tmp_path).partition(Topic("Ns", ".."), 3)
    assert partition.log_folder == tmp_path / "topics/%4es/%2e%2e/3/log"


def test_partitions_lists_what_partition_made(tmp_path: Path) -> None:
    """Each topic with its own name, partitions in the order of their numbers."""
    directory = DataDirectory(tmp_path)
    made = [directory.partition(topic, number) for topic in TOPICS for number in (0, 2, 10)]
    for partition in made:
        partition.log_folder.mkdir(parents=True)
    found = list(directory.partitions())
    assert sorted(found) == sorted(made)
    assert [p.number for p in found] == [0, 2, 10] * len(TOPICS)


def test_empty_or_missing_directory_has_no_partitions(tmp_path: Path) -> None:
    """Looking creates nothing."""
    assert list(DataDirectory(tmp_path / "missing").partitions()) == []
    assert list(DataDirectory(tmp_path).partitions()) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "stray",
    [
        "README",
        "lost+found",
        "Default/traces/0",
        "default/Traces/0",
        "default/%74races/0",
        "default/con/0",
        "default/.hidden/0",
        "default/traces/00",
        "default/traces/-1",
        "default/traces/0x1",
        "default/traces/1 ",
        "default/traces/lock",
        "default/traces/1\u0663",
    ],
)
def test_stray_folders_are_passed_over(tmp_path: Path, stray: str) -> None:
    """Only names that Penstock itself writes are taken for partitions."""
    directory = DataDirectory(tmp_path)
    made = directory.partition(Topic("default", "traces"))
    made.log_folder.mkdir(parents=True)
    (tmp_path / "topics" / stray).mkdir(parents=True)
    assert list(directory.partitions()) == [made]


@pytest.mark.parametrize("stray", ["topics", "topics/default", "topics/default/traces"])
def test_stray_files_are_passed_over(tmp_path: Path, stray: str) -> None:
    """A file where a folder is expected holds no partitions."""
    (tmp_path / stray).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / stray).touch()
    assert list(DataDirectory(tmp_path).partitions()) == []
