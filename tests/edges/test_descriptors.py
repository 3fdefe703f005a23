"""Few descriptors: topics and connections have their part of them, and no log suffers from it."""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.flight as pf
import pytest

from penstock.otel import Signal
from tests.server.running import Server, serving, until
from tests.server.samples import logs

L = Signal.LOGS
SENDERS = 8
_FEW = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
"""


@pytest.fixture
def limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's processes have 256 descriptors, and may not have more."""
    grant(tmp_path, monkeypatch, 256, 256)


def grant(folder: Path, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> None:
    """What `ulimit` would say to a server that is started from now on."""
    (folder / "few").mkdir()
    # The first process alone: what it makes of its limit is what its children have.
    guard = "import os\nif 'DESCRIPTORS_WERE_GRANTED' not in os.environ:\n"
    lines = _FEW.format(soft=soft, hard=hard).strip().splitlines()
    body = "".join(
        f"    {line}\n" for line in [*lines, "os.environ['DESCRIPTORS_WERE_GRANTED'] = ''"]
    )
    (folder / "few" / "sitecustomize.py").write_text(guard + body)
    monkeypatch.setenv("PYTHONPATH", str(folder / "few"))


def descriptors(pid: int) -> int:
    """How many a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def ends(server: Server) -> dict[str, int]:
    """How many messages each namespace has."""
    found = server.get("/api/v1/topics").json["topics"]
    return {each["namespace"]: each["end"] for each in found}


@pytest.mark.usefixtures("limited")
def test_many_topics_live_within_few_descriptors(tmp_path: Path) -> None:
    """Sent to, killed, started again and sent to again: every message of each is there."""
    names = [f"tenant{number}" for number in range(100)]
    for round_ in (1, 2):
        with serving(tmp_path / "data", config={"workers": 1}) as server:
            for name in names:
                answer = server.post(L, logs("a"), x_penstock_namespace=name)
                assert answer.status == 200, answer
            [worker] = server.workers()
            assert descriptors(worker) < 256
            until(lambda: len(ends(server)) == len(names))
            assert ends(server) == dict.fromkeys(names, round_)
            assert server.get("/healthz").status == 200, server.get("/healthz").body
            assert server.metric("penstock_log_poisoned_total") == 0
            server.kill()


@pytest.mark.usefixtures("limited")
def test_idle_connections_poison_no_log(tmp_path: Path) -> None:
    """Who was there before goes on, and the log rotates; others come in when they are gone."""
    with (
        serving(
            tmp_path / "data", config={"workers": 1, "wal": {"rotate_size": "64KiB"}}
        ) as server,
        contextlib.ExitStack() as idle,
    ):
        kept = idle.enter_context(contextlib.closing(server.connection()))
        large = logs(*(os.urandom(2000).hex() for _ in range(10)))
        headers = {"content-type": "application/x-protobuf"}

        def send() -> int:
            kept.request("POST", L.http_path, large, headers)
            response = kept.getresponse()
            response.read()
            return response.status

        assert send() == 200
        for port in ("http", "grpc", "flight"):
            for _ in range(300):
                with contextlib.suppress(OSError):
                    idle.enter_context(server.socket(port))
        for _ in range(20):
            assert send() == 200
        idle.close()
        until(lambda: server.post(L, large).status == 200)
        until(lambda: has_come_in(server))
        assert server.metric("penstock_log_poisoned_total") == 0
        assert server.get("/healthz").status == 200


def has_come_in(server: Server) -> bool:
    """Over the Flight port."""
    with pf.connect(f"grpc://127.0.0.1:{server.ready['flight']}") as client:
        try:
            return bool(list(client.list_actions()))
        except pf.FlightError:
            return False


def test_soft_limit_becomes_the_hard_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the server and in every process that it starts."""
    grant(tmp_path, monkeypatch, 256, 2000)
    with serving(tmp_path / "data", config={"workers": 1}) as server:
        for pid in server.pids():
            assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (2000, 2000)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ten_thousand_topics_on_one_worker(tmp_path: Path) -> None:
    """Each is opened, idles and is closed; descriptors and memory are bounded, after a kill too."""
    live_through(tmp_path, [f"tenant{number}" for number in range(10_000)])


def live_through(tmp_path: Path, names: list[str]) -> None:
    """So many topics are made and closed, and are all there after a kill."""
    with serving(tmp_path / "data", config={"workers": 1}) as server:
        send_to(server, names)
        [worker] = server.workers()
        assert descriptors(worker) < 4 * 1000 + 500
        assert server.resident_bytes() < 3 << 30
        assert len(ends(server)) == len(names)
        server.kill()
    with serving(tmp_path / "data", config={"workers": 1}) as server:
        send_to(server, names[::100])
        until(lambda: len(ends(server)) == len(names))
        assert sum(ends(server).values()) == len(names) + len(names[::100])
        assert server.get("/healthz").status == 200
        assert server.stop(signal.SIGTERM) == 0


def send_to(server: Server, names: list[str]) -> None:
    """One request each, on a few connections."""
    with ThreadPoolExecutor(SENDERS) as senders:
        parts = [names[number::SENDERS] for number in range(SENDERS)]
        list(senders.map(functools.partial(send_in_turn, server), parts))


def send_in_turn(server: Server, names: list[str]) -> None:
    """One request each, on one connection."""
    with contextlib.closing(server.connection()) as connection:
        for name in names:
            headers = {"content-type": "application/x-protobuf", "x-penstock-namespace": name}
            connection.request("POST", L.http_path, logs("a"), headers)
            response = connection.getresponse()
            response.read()
            assert response.status == 200
