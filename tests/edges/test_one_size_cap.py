"""`retention.size_cap` is one cap over everything that a server keeps."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.otel import Signal
from tests.patience import PATIENCE_S, until
from tests.server.running import Server, serving
from tests.server.samples import logs, traces

CAP = 24_000_000
NAMESPACES = [f"team-{number}" for number in range(6)]
REQUEST_BYTES = 100_000
SEGMENT_BYTES = 4 * 1024 * 1024
"""The most that the disk holds beyond the cap for each worker, while it seals: a segment is a part
of the cap and the bundle that filled it, and file systems round up."""


def on_disk(data: Path) -> int:
    """Whatever the server keeps."""
    size = 0
    for folder, _, names in os.walk(data):
        for name in names:
            try:
                size += (Path(folder) / name).stat().st_blocks * 512
            except FileNotFoundError:
                continue
    return size


class Watch:
    """Looks at the disk all the time."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._ended = threading.Event()
        self.most = 0
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._ended.wait(0.02):
            self.most = max(self.most, on_disk(self._data))

    @contextmanager
    def looking(self) -> Iterator[None]:
        """For the length of a block."""
        self._thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._thread.join()


def request(name: str) -> bytes:
    """One that no dictionary makes small."""
    return traces(f"{name} {os.urandom(REQUEST_BYTES // 2).hex()}")


def send(server: Server, namespace: str, name: str) -> Any:
    """What the server answers."""
    return server.post(Signal.TRACES, request(name), x_penstock_namespace=namespace)


def retention(**more: str) -> dict[str, Any]:
    """The settings of these tests; segments are sealed soon, and nobody reads them."""
    return {
        "retention": {"size_cap": str(CAP), **more},
        "segment": {"max_open_duration": "200ms"},
        "limits": {"disk_free": "0"},
    }


def fill(server: Server, namespace: str) -> int:
    """Sends until it is told to wait; how many were taken. Never is anything refused for good."""
    for number in range(2 * CAP // REQUEST_BYTES):
        answer = send(server, namespace, f"{namespace} {number}")
        if answer.status != 200:
            assert answer.status in (429, 503), answer
            assert int(answer.headers["retry-after"]) >= 1
            return number
    raise AssertionError("the cap was never reached")


@pytest.mark.parametrize(("sharing", "workers"), [("even", 1), ("fair", 2)])
def test_six_namespaces_stay_under_one_cap(tmp_path: Path, sharing: str, workers: int) -> None:
    """All of them send until they are put off; that is retryable, and shows in health."""
    data, config = tmp_path / "data", retention(size_cap_sharing=sharing)
    watch = Watch(data)
    with serving(data, f"--workers={workers}", config=config) as server:
        with watch.looking(), ThreadPoolExecutor(len(NAMESPACES)) as clients:
            taken = list(clients.map(lambda namespace: fill(server, namespace), NAMESPACES))
        assert sum(taken) > 20, "much of the cap was of use"
        assert watch.most <= CAP + workers * SEGMENT_BYTES
        health = until(lambda: (h := server.get("/healthz")).status == 503 and h)
        assert any("bytes are used of" in problem for problem in health.json["problems"])
        assert server.stop() == 0
    assert on_disk(data) <= CAP + workers * SEGMENT_BYTES


def test_oldest_go_for_the_newest_of_all_namespaces(tmp_path: Path) -> None:
    """Three times the cap, and everything is taken; the disk never holds more than the cap."""
    data = tmp_path / "data"
    config = retention(size_cap_policy="drop_oldest", size_cap_sharing="fair")
    watch, each = Watch(data), 3 * CAP // REQUEST_BYTES // len(NAMESPACES)

    def pour(namespace: str) -> None:
        for number in range(each):
            until(lambda: send(server, namespace, f"{namespace} {number}").status == 200)  # noqa: B023

    with serving(data, config=config) as server:
        with watch.looking(), ThreadPoolExecutor(len(NAMESPACES)) as clients:
            list(clients.map(pour, NAMESPACES))
        assert watch.most <= CAP + SEGMENT_BYTES
        assert server.metric("penstock_store_dropped_segments_total") > 0


def test_new_topics_wait_while_the_cap_has_no_room_for_them(tmp_path: Path) -> None:
    """Retryable: they come in when others have let go. The others go on."""
    data = tmp_path / "data"
    config = retention(size_cap_sharing="fair", size_cap_policy="drop_oldest")
    with serving(data, config=config) as server:
        names = [f"tenant-{number}" for number in range(CAP // 1024**2 + 3)]
        answers = [send(server, name, name) for name in names]
        statuses = [answer.status for answer in answers]
        assert statuses[:6] == [200] * 6
        assert set(statuses) == {200, 429}
        refused = answers[-1]
        assert b"no room for the new topic" in refused.body
        assert int(refused.headers["retry-after"]) >= 1
        problems = server.get("/healthz").json["problems"]
        assert "retention.size_cap leaves no room for new topics" in problems
        assert on_disk(data) <= CAP + SEGMENT_BYTES
        until(lambda: send(server, names[0], "once more").status == 200)


def test_requests_that_are_remembered_are_under_the_cap(tmp_path: Path) -> None:
    """Many small ones of several namespaces; a repeat is known, and the tables have their part."""
    data, cap = tmp_path / "data", 8_000_000
    config = {"retention": {"size_cap": str(cap), "size_cap_policy": "drop_oldest"}}

    def pour(namespace: str) -> None:
        for number in range(60):
            body = traces(f"{namespace} {number}")
            sent = {"x_penstock_namespace": namespace}
            until(lambda: server.post(Signal.TRACES, body, **sent).status == 200)  # noqa: B023

    with serving(data, config=config) as server:
        with ThreadPoolExecutor(4) as clients:
            list(clients.map(pour, NAMESPACES[:4]))
        assert server.get("/api/v1/status").json["workers"][0]["repeats"] == 0
        again = traces(f"{NAMESPACES[0]} 59")
        server.post(Signal.TRACES, again, x_penstock_namespace=NAMESPACES[0])
        assert server.get("/api/v1/status").json["workers"][0]["repeats"] == 1
        tables = sum(path.stat().st_size for path in data.rglob("repeats*.tbl"))
        assert 0 < tables <= cap // 16
        assert on_disk(data) <= cap


@pytest.mark.parametrize("sharing", ["even", "fair"])
def test_cap_that_cannot_work_is_refused_at_the_start(tmp_path: Path, sharing: str) -> None:
    """In one sentence, which says the least that works."""
    settings = {"retention": {"size_cap": "5MB", "size_cap_sharing": sharing}}
    server = Server.begin(tmp_path / "data", "--workers=2", config=settings)
    try:
        assert server.process.wait(PATIENCE_S) == 1
    except subprocess.TimeoutExpired:
        pytest.fail("it started")
    finally:
        server.kill()
    assert "retention.size_cap must be at least 6MiB with 2 workers" in server.errors


def test_least_cap_that_is_named_works(tmp_path: Path) -> None:
    """For each signal of a namespace."""
    with serving(tmp_path / "data", config={"retention": {"size_cap": "3MiB"}}) as server:
        assert server.post(Signal.TRACES, traces("one")).status == 200
        assert server.post(Signal.LOGS, logs("one")).status == 200
