"""Clients of a server that is killed, restarted or moved go on by themselves, and lose nothing."""

from __future__ import annotations

import os
import re
import signal as signals
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow.flight as pf
import pytest

from penstock import client
from penstock.client import RemoteSubscriber, connect
from penstock.model.errors import InvalidArgument, ServerUnreachable
from penstock.otel import Signal
from tests.patience import PATIENCE_S, until
from tests.server.running import Server, serving
from tests.server.samples import logs, traces
from tests.server.subscribing import names_of, seal

LAZY = {"segment": {"max_open_duration": "1h"}}
TRACES = "/default/traces"
API_PAGE = Path(__file__).parents[2] / "docs" / "api.md"


class Consumer:
    """Takes bundles in a thread of its own, as people's programs do, and acknowledges each."""

    def __init__(self, subscriber: RemoteSubscriber) -> None:
        self.got: list[str] = []
        self.acked: set[str] = set()
        self.ended: BaseException | None = None
        self._subscriber = subscriber
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            for delivery in self._subscriber.bundles():
                self.got += names_of(delivery)
                if delivery.ack():
                    self.acked.update(names_of(delivery))
        except (pf.FlightError, ServerUnreachable) as error:
            self.ended = error

    def close(self) -> None:
        """From here, while it waits there."""
        self._subscriber.close()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


def lag(server: Server) -> int:
    """Of the consumer."""
    found = server.get("/api/v1/subscribers").json["subscribers"]
    [mine] = [each for each in found if each["subscriber"] == "mine"]
    return int(mine["lag_bundles"])


def test_consumer_goes_on_when_its_server_moves_to_other_ports(tmp_path: Path) -> None:
    """Killed or stopped; by the data directory it is found again, and everything comes once."""
    data, ports = tmp_path / "data", set[int]()
    with serving(data, config=LAZY) as server:
        seal(server, "one")
        consumer = Consumer(connect(data).subscribe(TRACES, "mine"))
        until(lambda: consumer.acked == {"one"})
        ports.add(server.ready["flight"])
        server.kill()
    with serving(data, config=LAZY) as server:
        seal(server, "two")
        until(lambda: consumer.acked == {"one", "two"})
        ports.add(server.ready["flight"])
        assert server.stop() == 0
    with serving(data, config=LAZY) as server:
        seal(server, "three")
        until(lambda: consumer.acked == {"one", "two", "three"})
        ports.add(server.ready["flight"])
        assert lag(server) == 0
        consumer.close()
    assert len(ports) > 1
    assert consumer.got == ["one", "two", "three"]
    assert consumer.ended is None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For the server below."""
    return tmp_path_factory.mktemp("lasting") / "data"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    """One whose parts are killed, each test with a namespace and a subscriber of its own."""
    with serving(folder, config=LAZY) as started:
        yield started


def test_unanswered_bundle_comes_again_from_the_restarted_server(tmp_path: Path) -> None:
    """An answer that was too late says so; the same port is called again."""
    data = tmp_path / "data"
    with serving(data, config=LAZY) as first:
        port = first.ready["flight"]
        subscriber = RemoteSubscriber(f"grpc://127.0.0.1:{port}", TRACES, "mine")
        seal(first, "held")
        subscriber.register()
        held = next(stream := subscriber.bundles())
        first.kill()
    with serving(data, f"--flight-port={port}", config=LAZY) as second, subscriber:
        assert held.ack() is False
        again = next(stream)
        assert names_of(again) == ["held"]
        assert again.ack() is True
        until(lambda: lag(second) == 0)
        stream.close()


def test_worker_that_dies_interrupts_nobody_for_good(server: Server) -> None:
    """The Flight port stays, and says that it is away for a while."""
    location = f"grpc://127.0.0.1:{server.ready['flight']}"
    assert server.post(Signal.TRACES, traces("first")).status == 200
    with RemoteSubscriber(location, TRACES, "mine") as subscriber:
        subscriber.register()
        consumer = Consumer(subscriber)
        server.ask("POST", "/api/v1/flush", port="web")
        until(lambda: consumer.acked == {"first"})
        os.kill(server.workers()[0], signals.SIGKILL)
        until(lambda: server.get("/readyz").status == 200 and _takes(server, "second"))
        server.ask("POST", "/api/v1/flush", port="web")
        until(lambda: "second" in consumer.acked)
        consumer.close()


def _takes(server: Server, name: str) -> bool:
    try:
        return server.post(Signal.TRACES, traces(name)).status == 200
    except OSError:
        return False


def test_server_that_never_comes_is_given_up(tmp_path: Path) -> None:
    """After the patience that was asked for, with an error."""
    with (
        RemoteSubscriber("grpc://127.0.0.1:1", TRACES, "mine", patience_s=0.3) as nobody,
        pytest.raises(pf.FlightUnavailableError),
    ):
        nobody.register()
    with pytest.raises(ServerUnreachable, match="no server runs on"):
        connect(tmp_path, patience_s=0.3).flush()
    with pytest.raises(ServerUnreachable, match="refused"):
        connect("http://127.0.0.1:1", patience_s=0.3).status()


def test_server_is_asked_and_administered(server: Server, folder: Path) -> None:
    """By its data directory, and by the address of its web port, which leads to the Flight port."""
    for where in (folder, f"http://127.0.0.1:{server.ready['web']}"):
        with connect(where) as connected:
            assert server.post(Signal.LOGS, logs("line")).status == 200
            connected.flush()
            answer = connected.query("SELECT 1 + 1 AS two", tiers=["hot"])
            assert answer.to_pydict() == {"two": [2]}
            with pytest.raises(InvalidArgument, match="nothing"):
                connected.query("SELECT * FROM nothing")
            assert [each["topic"] for each in connected.topics()].count("/default/logs") == 1
            assert connected.status()["flight_port"] == server.ready["flight"]
            assert Path(connected.hot_snapshot()["snapshot_path"]).exists()
            with connected.subscribe("/default/logs", "asked", "latest") as subscriber:
                assert list(subscriber.bundles(wait_s=0)) == []  # all of it came before
                found = [each["subscriber"] for each in connected.subscribers()]
                assert "asked" in found
                subscriber.unregister()


def test_program_in_the_docs_runs(server: Server, folder: Path) -> None:
    """It asks, takes and acknowledges, beside a server with a data directory named `data`."""
    seal(server, "documented")
    [program] = re.findall(r"^```py\n(.*?)^```$", API_PAGE.read_text(), re.DOTALL | re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    asked, *taken = done.stdout.splitlines()
    assert asked.startswith("{'spans': [")
    assert len(taken) >= 1
    assert lag(server) == 0


def test_every_exported_name_is_documented() -> None:
    """Under its own name, in the table of the page."""
    page = API_PAGE.read_text()
    for name in client.__all__:
        assert re.search(rf"^\| `{name}\b", page, re.MULTILINE), name
        assert getattr(client, name) is not None
