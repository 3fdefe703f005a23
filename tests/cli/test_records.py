"""`penstock inspect` and `penstock fsck` know the small files that servers and pipelines write."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest

from penstock.client.server_file import RunningServer
from penstock.lake.seen import write_seen
from penstock.lake.settings import LakeSettings
from penstock.model.positions import Reached, SourcePartition
from penstock.pipeline.flush.repeat_window import RepeatWindow
from penstock.server.flight.registrations import Registered, Registrations
from penstock.server.receiving.repeats import Table
from penstock.storage import LocalFiles
from penstock.storage.documents import encode_document
from penstock.store.budget import FairShare
from penstock.store.outside import Delivered, Taken, write_delivered
from tests.cli.running import fsck, inspect, run
from tests.pipeline.flush.test_run_format import random_keys
from tests.store.helpers import flip

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.running import Answer

TRACES = SourcePartition("here", "/default/traces", 0)
SEALED_S = 1_700_000_000.0
RUN, TABLE = "pipeline/repeats/*/*.run", "repeats.tbl"
KINDS = {
    "server.json": "server",
    "registrations.json": "registrations",
    "pipeline/delivered.json": "delivered",
    "pipeline/progress.json": "pipeline progress",
    "topics/default/traces/1/archive.ckpt": "archive checkpoint",
    "lake/spans/seen/doubles.json": "what readers found out: doubles",
    "budget": "disk budget",
    RUN: "run of the repeat window",
    TABLE: "requests that are stored",
}
"""What has a checksum, or, in the last case, a size."""


@pytest.fixture
def noted(data: Path) -> Path:
    """The data directory with all of them."""
    ports = {f"{name}_port": 1 for name in ("grpc", "http", "flight", "web")}
    own = {"pid": 1, "started_ticks": 1, "host": "127.0.0.1", "workers": 1}
    RunningServer(**own, **ports, tls=False, tokens=False).write(data)
    Registrations(data, 1).enter("", Registered("/default/traces", 0, "mine"))
    write_delivered(data, Delivered("lake", {"/default/traces/0": Taken(1, 2)}, "here"))
    progress = encode_document("pipeline progress", 1, {"batches": 3, "bytes": 40_000})
    (data / "pipeline/progress.json").write_bytes(progress)
    archived = encode_document("archive checkpoint", 1, {"offset": 5})
    (data / "topics/default/traces/1/archive.ckpt").write_bytes(archived)
    (data / "lake/spans").mkdir(parents=True)
    write_seen(LakeSettings.of(data), "spans", "doubles", "a table", {"files": ["a", "b"]})
    FairShare(data / "budget", 1000, 2, key="one", unit_bytes=10).limit(5, 10)
    window = RepeatWindow(data / "pipeline/repeats/t", {}, seconds=600.0, most=100)
    window.write([random_keys(7)], {TRACES: Reached(3, 40)}, SEALED_S)
    table = Table(data / TABLE, 64)
    table.add(b"d" * 24, int(SEALED_S * 1000))
    table.close()
    return data


def only(data: Path, name: str) -> Path:
    """The one file of that name."""
    (path,) = data.glob(name)
    return path


def test_every_kind_is_explained(noted: Path) -> None:
    """By what it is called, and how large it is."""
    for name, kind in KINDS.items():
        path = only(noted, name)
        said = inspect(path)
        assert (said["kind"], said["bytes"]) == (kind, path.stat().st_size), name
        assert run("inspect", path).code == 0


def test_run_of_the_repeat_window_is_explained(noted: Path) -> None:
    """How many rows, when they were sealed, and where the table is that has them."""
    said = inspect(only(noted, RUN))
    assert (said["rows"], said["checksum"], said["format_version"]) == (7, "good", 1)
    assert said["sealed_from"] == said["sealed_to"] == "2023-11-14T22:13:20.000+00:00"
    assert said["table_at"] == ["/default/traces partition 0 of here: segment 3, offset 40"]


def test_table_of_requests_is_explained(noted: Path) -> None:
    """How many it remembers, and of which time."""
    said = inspect(only(noted, TABLE))
    assert (said["entries"], said["requests"]) == (64, 1)
    assert said["oldest"] == said["newest"] == "2023-11-14T22:13:20.000+00:00"


def test_what_documents_say_is_shown(noted: Path) -> None:
    """Every field of them; of what readers found out, how much."""
    progress = inspect(noted / "pipeline/progress.json")
    assert (progress["batches"], progress["its_bytes"]) == (3, 40_000)
    assert inspect(noted / "server.json")["http_port"] == 1
    assert inspect(noted / "lake/spans/seen/doubles.json")["files"] == 2


def test_lock_is_explained_while_somebody_has_it(noted: Path) -> None:
    """Without taking it."""
    lock = LocalFiles().lock(noted / ".lock")
    try:
        said = inspect(noted / ".lock")
    finally:
        lock.release()
    assert (said["kind"], said["locks"]) == ("lock file", str(noted))
    assert inspect(noted / "budget.lock")["locks"] == str(noted / "budget")


def test_leftovers_of_a_kill_are_explained(noted: Path) -> None:
    """Files that have not got their names, Spark's checkpoints, and what SQLite has to do."""
    for name, kind in (
        ("server.json.tmp", "unfinished"),
        ("pipeline/checkpoints/a/b", "Spark"),
        ("lake/catalog.db-journal", "SQLite"),
    ):
        (noted / name).parent.mkdir(parents=True, exist_ok=True)
        (noted / name).write_bytes(b"{")
        assert kind in inspect(noted / name)["kind"]
    assert fsck(noted)[0] == 0


def test_socket_is_explained(noted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed server leaves those of its workers."""
    monkeypatch.chdir(noted)  # the path of a socket may not be long
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("0.sock")
    assert inspect(noted / "0.sock")["kind"] == "socket of a server's worker"


def test_folders_of_a_data_directory_are_explained(noted: Path) -> None:
    """Also those that hold none of the things that have a name of their own."""
    for name in ("pipeline", "pipeline/repeats", "topics/default", "lake/spans/seen"):
        said = inspect(noted / name)
        files = [path for path in (noted / name).rglob("*") if path.is_file()]
        assert (said["path"], said["files"]) == (str(noted / name), len(files))
        assert said["data_directory"] == str(noted)


def test_directory_with_all_of_them_is_sound(noted: Path) -> None:
    """Each is counted; and by itself, too."""
    code, found = fsck(noted)
    assert (code, found["damage"], found["records"]) == (0, [], len(KINDS))
    for name in KINDS:
        code, found = fsck(only(noted, name))
        assert (code, found["records"], found["files_checked"]) == (0, 1, 1), name


@pytest.mark.parametrize("name", KINDS)
def test_damage_is_found_and_set_aside(noted: Path, name: str) -> None:
    """One bit is enough; what is damaged is kept, and the directory is sound without it."""
    path = only(noted, name)
    flip(path, 9 if name == TABLE else 30)
    assert_is_one_sentence_about(path, run("inspect", path))
    assert fsck(path)[0] == 1
    code, found = fsck(noted)
    (row,) = found["damage"]
    assert (code, row["file"], row["kind"]) == (1, str(path), "record")
    code, found = fsck(noted, "--repair")
    assert (code, found["after"]["sound"]) == (0, True)
    assert not path.exists()
    assert path.with_name(f"{path.name}.damaged").exists()


def assert_is_one_sentence_about(path: Path, answer: Answer) -> None:
    """As commands fail."""
    assert answer.is_one_sentence(), answer
    assert str(path) in answer.err


@pytest.mark.parametrize("name", KINDS)
def test_torn_file_is_damaged(noted: Path, name: str) -> None:
    """Cut anywhere, or empty; but a table of requests is empty until it has a head."""
    path = only(noted, name)
    whole = path.read_bytes()
    for size in (7, len(whole) - 3, *(() if name == TABLE else (0,))):
        path.write_bytes(whole[:size])
        assert_is_one_sentence_about(path, run("inspect", path))
        assert fsck(noted)[0] == 1, size


@pytest.mark.parametrize("left", [b"", bytes(64 + 8 * 32)])
def test_table_whose_maker_was_killed_is_no_damage(noted: Path, left: bytes) -> None:
    """The next server makes it."""
    (noted / TABLE).write_bytes(left)
    assert inspect(noted / TABLE)["requests"] == 0
    assert fsck(noted)[0] == 0


def test_files_of_a_running_server_are_not_set_aside(noted: Path) -> None:
    """It may be about to replace them."""
    (noted / "server.json").write_text(json.dumps({}))
    lock = LocalFiles().lock(noted / ".lock")
    try:
        answer = run("fsck", "--repair", noted)
    finally:
        lock.release()
    assert answer.is_one_sentence()
    assert "in use by process" in answer.err
