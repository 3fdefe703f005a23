"""A disk is lost under the archive: offsets go on behind it, and what was uploaded is reached.

Everything with the default metadata, a file in the data directory, which is lost with the disk.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock.otel import Signal
from tests.cli.running import finish, run, start
from tests.server.running import Server, serving, until
from tests.server.samples import traces
from tests.servers.fixtures import s3
from tests.servers.seaweed import S3Server

__all__ = ["s3"]
T = Signal.TRACES
_SPARK_S = 300.0
_LAG, _TOPIC = "penstock_archive_lag_messages", "/default/traces/0"


def config_of(url: str) -> dict[str, Any]:
    """Only where the archive is, and that it is uploaded soon."""
    return {"archive": {"url": url, "upload_interval": "100ms"}}


def send(server: Server, *names: str, **headers: str) -> None:
    """Each is acknowledged."""
    for name in names:
        assert server.post(T, traces(name), **headers).status == 200, name


def wait_until_archived(data: Path, url: str, end: int, topic: str = "/default/traces") -> None:
    """As `penstock archive status` says it."""
    until(lambda: [row["end_offset"] for row in status(data, url, topic)] == [end])


def status(data: Path, url: str, topic: str = "/default/traces") -> list[dict[str, Any]]:
    """What is archived of the topic."""
    found = run("archive", "status", "--json", "--objects", url, "--data-dir", data).json
    return [row for row in found if row["topic"] == topic]


def tail(data: Path, url: str) -> list[int]:
    """The offsets of the topic, from the first on."""
    where = ("--data-dir", data, "--objects", url, "--metadata", metadata_of(data))
    answer = run("tail", "--json", "--no-follow", "--from", "earliest", *where, "traces")
    assert (answer.code, answer.err) == (0, "")
    return [line["offset"] for line in answer.json_lines]


def metadata_of(data: Path) -> str:
    """The default."""
    return (data / "metadata.db").as_uri()


def lose(server: Server, data: Path) -> None:
    """The server is killed, and its disk is gone."""
    server.kill()
    shutil.rmtree(data)


def names_in_lake(data: Path) -> list[str]:
    """As `penstock query` finds them."""
    question = ("--format", "json", "SELECT name FROM spans")
    answer = run("query", "--data-dir", data, *question)
    assert answer.code == 0, answer.err
    return sorted(row["name"] for row in json.loads(answer.out))


def use(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoint comes from the environment, as on a machine in the cloud."""
    for name, value in s3.options.items():
        monkeypatch.setenv(name.upper(), value)


@pytest.mark.away
@pytest.mark.timeout(400)  # Spark starts as its users start it
def test_lost_disk_costs_nothing_that_was_uploaded(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice in a row; each span is found once by tail, archive status, replay and query."""
    use(s3, monkeypatch)
    url, data = s3.place(), tmp_path / "data"
    with serving(data, config=config_of(url)) as server:
        send(server, *(f"first {n}" for n in range(4)))
        wait_until_archived(data, url, 4)
        lose(server, data)
    with serving(data, config=config_of(url)) as server:
        send(server, *(f"second {n}" for n in range(3)))
        wait_until_archived(data, url, 7)
        lose(server, data)
    with serving(data, config=config_of(url)) as server:
        send(server, "third")
        wait_until_archived(data, url, 8)
        until(lambda: server.get("/healthz").status == 200)
        assert tail(data, url) == list(range(8))
        assert server.stop() == 0
    (row,) = status(data, url)
    assert (row["start_offset"], row["end_offset"], row["messages"]) == (0, 8, 8)
    replay = finish(start("pipeline", "replay", "--archive", url, "--data-dir", data), _SPARK_S)
    assert replay.code == 0, replay.err
    first, second = [f"first {n}" for n in range(4)], [f"second {n}" for n in range(3)]
    assert names_in_lake(data) == [*first, *second, "third"]


def test_topic_waits_for_an_archive_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one offset is given out that the archive may have; known topics go on meanwhile."""
    store = S3Server(tmp_path / "weed")
    use(store, monkeypatch)
    url, data = store.place(), tmp_path / "data"
    config = config_of(url)
    try:
        store.start()
        with serving(data, config=config) as server:
            send(server, "a")
            wait_until_archived(data, url, 1)
            lose(server, data)
        store.kill()
        with serving(data, config=config) as server:
            refused = server.post(T, traces("b"))
            assert (refused.status, "retry-after" in refused.headers) == (503, True)
            health = until(lambda: server.get("/healthz").json["problems"])
            assert any("/default/traces" in problem for problem in health)
            store.start()
            until(lambda: server.post(T, traces("b")).status == 200)
            wait_until_archived(data, url, 2)
            until(lambda: server.get("/healthz").status == 200)
            store.kill()
            send(server, "c")
            until(lambda: "is not archived" in str(server.get("/healthz").json["problems"]))
            server.kill()
        with serving(data, config=config) as server:  # its own log says where it ends
            send(server, "d")
            assert server.post(T, traces("x"), x_penstock_namespace="new").status == 503
            store.start()
            wait_until_archived(data, url, 4)
            until(lambda: server.get("/healthz").status == 200)
            assert server.stop() == 0
    finally:
        store.stop()


@pytest.mark.parametrize("restored", ["before the first object", "between objects"])
def test_metadata_of_a_backup_are_brought_up_to_date(tmp_path: Path, restored: str) -> None:
    """They lack objects that are there: those are described, and offsets go on behind them."""
    url, data, backup = (tmp_path / "objects").as_uri(), tmp_path / "data", tmp_path / "backup.db"
    with serving(data, config=config_of(url)) as server:
        send(server, "a")
        wait_until_archived(data, url, 1)
        server.stop()
        if restored == "between objects":
            shutil.copy(data / "metadata.db", backup)
    with serving(data, config=config_of(url)) as server:
        send(server, "b", "c")
        wait_until_archived(data, url, 3)
        lose(server, data)
    data.mkdir()
    if backup.exists():
        shutil.copy(backup, data / "metadata.db")
    with serving(data, config=config_of(url)) as server:
        send(server, "d")
        wait_until_archived(data, url, 4)
        assert server.stop() == 0
    assert tail(data, url) == [0, 1, 2, 3]
    assert status(data, url)[0]["messages"] == 4


def test_directory_of_a_backup_is_refused_by_name(tmp_path: Path) -> None:
    """Its log would give out offsets again that the archive has; put aside, the topic goes on."""
    url, data, backup = (tmp_path / "objects").as_uri(), tmp_path / "data", tmp_path / "backup"
    with serving(data, config=config_of(url)) as server:
        send(server, "a")
        wait_until_archived(data, url, 1)
        assert server.stop() == 0
    shutil.copytree(data, backup)
    with serving(data, config=config_of(url)) as server:
        send(server, "b")
        wait_until_archived(data, url, 2)
        lose(server, data)
    backup.rename(data)
    with serving(data, config=config_of(url)) as server:
        assert server.post(T, traces("c")).status == 503
        assert "a second time" in str(server.get("/healthz").json["problems"])
        (data / "topics" / "default" / "traces" / "0").rename(tmp_path / "aside")
        until(lambda: server.post(T, traces("c")).status == 200)
        wait_until_archived(data, url, 3)
        assert server.stop() == 0
    assert tail(data, url) == [0, 1, 2]


def test_second_server_on_the_archive_destroys_nothing(tmp_path: Path) -> None:
    """Each has metadata of its own: the first says that another went on, and keeps its log."""
    url, one, two = (tmp_path / "objects").as_uri(), tmp_path / "one", tmp_path / "two"
    with serving(one, config=config_of(url)) as first:
        send(first, "a", "b")
        wait_until_archived(one, url, 2)
        with serving(two, config=config_of(url)) as second:
            send(second, "c")
            wait_until_archived(two, url, 3)
            send(first, "d")
            until(lambda: "another server went on" in str(first.get("/healthz").json["problems"]))
            assert second.get("/healthz").status == 200
            assert second.stop() == 0
        first.kill()
    for name in ("e", "f"):  # each start cleans, and counts epochs on
        with serving(two, config=config_of(url)) as second:
            send(second, name)
            until(lambda: second.metric(_LAG, topic=_TOPIC) == 0)
            assert second.stop() == 0
    assert tail(two, url) == [0, 1, 2, 3, 4]
    found = run("fsck", "--json", url, "--metadata", metadata_of(two))
    assert found.code == 0, found.out
