"""Whoever asks an archive gets all of it, or is told by name what is not known and what to do.

Everything with the default metadata, a file in the data directory: it is lost, restored from a
copy, or left behind by another server, while the objects go on.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock.otel import Signal
from tests.cli.conftest import session, warm
from tests.cli.running import Answer, run
from tests.edges.test_lost_disk import (
    config_of,
    metadata_of,
    send,
    status,
    tail,
    wait_until_archived,
)
from tests.pipeline.flush.helpers import names_in
from tests.pipeline.helpers import Data
from tests.server.running import serving, until
from tests.server.samples import traces

__all__ = ["session", "warm"]
T = Signal.TRACES


def receive(data: Path, url: str, *names: str) -> None:
    """A server's whole life; it uploads what it was sent before it ends."""
    with serving(data, config=config_of(url)) as server:
        send(server, *names)
        assert server.stop() == 0


def replay(data: Data, url: str, metadata: Path) -> Answer:
    """`penstock pipeline replay --archive`, to the lake of another directory."""
    where = ("--archive", url, "--metadata", metadata.as_uri())
    return run("pipeline", "replay", *where, "--data-dir", data.root)


def tail_answer(data: Path, url: str, metadata: Path) -> Answer:
    """From the first message on."""
    where = ("--data-dir", data, "--objects", url, "--metadata", metadata.as_uri())
    return run("tail", "--json", "--no-follow", "--from", "earliest", *where, "traces")


def counted(rows: list[dict[str, Any]]) -> list[tuple[int, int, int, int]]:
    """What the status of a topic says."""
    keys = ("objects", "messages", "end_offset", "undescribed")
    return [tuple(row[key] for key in keys) for row in rows]  # type: ignore[misc]


@pytest.mark.usefixtures("warm")
def test_objects_that_lost_metadata_do_not_know_are_named_and_described_again(
    tmp_path: Path,
) -> None:
    """A lease that a refused server left is not a word about what is archived."""
    url, data, backup = (tmp_path / "objects").as_uri(), tmp_path / "data", tmp_path / "backup"
    receive(data, url, "a", "b")
    shutil.copytree(data, backup)
    receive(data, url, "c")
    shutil.rmtree(data)
    backup.rename(data)
    for file in data.glob("metadata.db*"):
        file.unlink()
    with serving(data, config=config_of(url)) as server:
        assert server.post(T, traces("d")).status == 503
        problems = str(server.get("/healthz").json["problems"])
        assert "a second time; put the topic's folder aside" in problems
        assert server.stop() == 0

    metadata, lake = data / "metadata.db", Data(tmp_path / "lake")
    assert counted(status(data, url)) == [(2, 3, 3, 2)]
    shown = run("archive", "status", "--objects", url, "--data-dir", data)
    assert (shown.code, "the metadata lack 2 objects" in shown.err) == (0, True)
    for refused in (replay(lake, url, metadata), tail_answer(tmp_path / "none", url, metadata)):
        assert refused.is_one_sentence(), refused
        assert "has 2 objects" in refused.err
        assert "`penstock archive rebuild`" in refused.err
    where = ("--objects", url, "--data-dir", data)
    assert "2 objects to offset 3" in run("archive", "rebuild", *where, "traces").out
    assert replay(lake, url, metadata).code == 0
    assert names_in(lake) == ["a", "b", "c"]
    assert counted(status(data, url)) == [(2, 3, 3, 0)]


@pytest.mark.usefixtures("warm")
def test_metadata_of_a_server_that_has_a_successor_are_refused(tmp_path: Path) -> None:
    """They know a part; the server itself goes on without the archive, and says just that."""
    url, one, two = (tmp_path / "objects").as_uri(), tmp_path / "one", tmp_path / "two"
    receive(one, url, "a", "b")
    receive(two, url, "c")
    with serving(one, config=config_of(url)) as server:
        send(server, "d")
        until(lambda: "another server went on" in str(server.get("/healthz").json["problems"]))
        assert "cannot be opened" not in server.errors
        assert "is opened without its archive" in server.errors
        assert server.stop() == 0
    receive(two, url, "e")
    metadata = one / "metadata.db"
    for refused in (
        run("archive", "status", "--objects", url, "--data-dir", one),
        replay(Data(tmp_path / "lake"), url, metadata),
        tail_answer(tmp_path / "none", url, metadata),
        run("archive", "rebuild", "--objects", url, "--data-dir", one, "traces"),
    ):
        assert refused.is_one_sentence(), refused
        assert "another server went on with it, and its metadata say what is there" in refused.err
    assert run("fsck", url, "--metadata", metadata.as_uri()).code == 1
    assert counted(status(two, url)) == [(3, 4, 4, 0)]
    assert tail(two, url) == [0, 1, 2, 3]


@pytest.mark.usefixtures("warm")
def test_an_older_copy_of_the_metadata_leaves_nothing_out(tmp_path: Path) -> None:
    """What it lacks is counted, read, found by fsck and described; a topic that it lacks, too."""
    url, data, copy = (tmp_path / "objects").as_uri(), tmp_path / "data", tmp_path / "copy.db"
    receive(data, url, "a", "b")
    shutil.copy(data / "metadata.db", copy)
    receive(data, url, "c")
    where = ("--objects", url, "--metadata", copy.as_uri())
    found = run("archive", "status", "--json", *where).json
    assert counted(found) == [(2, 3, 3, 1)]
    none = tmp_path / "none"
    assert [line["offset"] for line in tail_answer(none, url, copy).json_lines] == [0, 1, 2]
    lake = Data(tmp_path / "lake")
    assert replay(lake, url, copy).code == 0
    assert names_in(lake) == ["a", "b", "c"]

    damaged = run("fsck", url, "--metadata", copy.as_uri())
    assert damaged.code == 1, damaged
    assert "1 object behind the newest descriptor" in damaged.out + damaged.err
    assert run("fsck", "--repair", url, "--metadata", copy.as_uri()).code == 0
    assert run("fsck", url, "--metadata", copy.as_uri()).code == 0
    assert counted(run("archive", "status", "--json", *where).json) == [(2, 3, 3, 0)]

    with serving(data, config=config_of(url)) as server:
        send(server, "x", x_penstock_namespace="new")
        wait_until_archived(data, url, 1, "/new/traces")
        assert server.stop() == 0
    found = run("archive", "status", "--json", *where).json
    assert [(row["topic"], row["messages"]) for row in found] == [
        ("/default/traces", 3),
        ("/new/traces", 1),
    ]
    assert "knows nothing" in replay(lake, url, copy).err
    assert not none.exists()


def test_metadata_that_are_not_there_are_no_archive(tmp_path: Path) -> None:
    """A wrong URL of either store is refused, and makes nothing."""
    from penstock.model.errors import PenstockError
    from penstock.tiers.archive_segments import ArchiveSegments

    url, data, wrong = (tmp_path / "objects").as_uri(), tmp_path / "data", tmp_path / "wrong"
    receive(data, url, "a")
    for objects, metadata, said in (
        (url, (wrong / "metadata.db").as_uri(), "knows nothing"),
        (wrong.as_uri(), metadata_of(data), "the objects are of none"),
        (wrong.as_uri(), (wrong / "metadata.db").as_uri(), "there is no archive"),
    ):
        with pytest.raises(PenstockError, match=said):
            ArchiveSegments(objects, {}, metadata, "penstock").since({})
    assert not wrong.exists()


_LOOKING = (
    "archive status --objects {url}",
    "archive status --objects {url} --data-dir {none}",
    "archive status --objects {url} --metadata {none_url}/metadata.db",
    "archive status --objects {none_url}",
    "fsck {none}",
    "fsck {none_url} --metadata {none_url}/metadata.db",
    "fsck {url} --metadata {none_url}/metadata.db",
    "identity --data-dir {none}",
    "inspect {none}",
    "inspect {none_url}",
    "query --data-dir {none} SELECT(1)",
    "query --data-dir {none} --explain SELECT(1)",
    "queue dump {none_url}",
    "queue gc --dry-run {none_url}",
    "queue status {none_url}",
    "status --data-dir {none}",
    "subscribers list --data-dir {none}",
    "subscribers list --data-dir {none} traces",
    "tail --no-follow --data-dir {none} traces",
    "tail --no-follow --data-dir {none} --objects {url} traces",
    "tail --no-follow --data-dir {none} --objects {none_url} traces",
    "tokens list {none}",
    "topics --data-dir {none}",
)


@pytest.mark.parametrize("command", _LOOKING)
def test_a_command_that_only_looks_makes_nothing(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a folder that is not there; neither where it was told nor where it is called."""
    here, objects = tmp_path / "here", tmp_path / "objects"
    for folder in (here, objects):
        folder.mkdir()
    monkeypatch.chdir(here)
    names = {"none": tmp_path / "none", "none_url": (tmp_path / "none").as_uri()}
    words = command.format(url=objects.as_uri(), **names).split()
    answer = run(*words)
    assert answer.code in (0, 1), answer
    assert answer.out or answer.err
    assert sorted(tmp_path.rglob("*")) == [here, objects]
