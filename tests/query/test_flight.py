"""The hot tier from a running server: the same rows as from the log's files, and never fewer."""

from __future__ import annotations

import contextlib
import json
import os
import signal as signals
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.flight as pf
import pytest

from penstock.client.server_file import FILE, RunningServer, own_ticks, running_server
from penstock.client.workers import worker_client
from penstock.lake.schemas import TABLES, table_of
from penstock.lake.settings import LakeSettings
from penstock.model.errors import ServerUnreachable
from penstock.otel import Signal
from penstock.query.engine import ask
from penstock.server.flight import hot_stream
from penstock.server.flight.worker_socket import WorkerFlight
from penstock.storage import DataDirectory
from penstock.store import Store
from penstock.tiers import hot as hot_module
from penstock.tiers.findings import Findings
from penstock.tiers.hot import hot_rows
from tests.pipeline.helpers import LOGS, METRICS, TRACES, Data, RequestDecoder, spans
from tests.query.helpers import hot, named, names
from tests.server.running import serving, until
from tests.server.samples import sample, traces

if TYPE_CHECKING:
    from penstock.model import Topic
    from penstock.store.decoding import Decoded

NO_REQUEST = b"\xff\xff"


class Stores:
    """Stands in for those of a worker."""

    def __init__(self, **stores: Store) -> None:
        self._stores = stores

    def find(self, topic: Topic, partition: int) -> Store | None:
        """As `Stores.find`."""
        return self._stores.get(topic.name) if partition == 0 else None

    @contextlib.contextmanager
    def held(self, topic: Topic, partition: int) -> Iterator[Store | None]:
        """As `Stores.held`."""
        yield self.find(topic, partition)


def describe(data: Data, **changes: Any) -> RunningServer:
    """Says that this process is the server."""
    fields: dict[str, Any] = {"pid": os.getpid(), "started_ticks": own_ticks(), "host": "localhost"}
    ports = {f"{name}_port": 1 for name in ("grpc", "http", "flight", "web")}
    server = RunningServer(
        **fields | ports | {"workers": 1, "tls": False, "tokens": False} | changes
    )
    server.write(data.root)
    return server


@contextlib.contextmanager
def server_of(data: Data, store: Store | None, topic: Topic = TRACES) -> Iterator[None]:
    """A worker's service for one store, in this process."""
    stores: Any = Stores(**({topic.name: store} if store is not None else {}))
    flight = WorkerFlight(data.root, 0, stores, dict)
    describe(data)
    try:
        yield
    finally:
        flight.stop()


def look(data: Data, topic: Topic = TRACES, start: int = 0) -> tuple[pa.Table, list[str]]:
    """The hot rows of a partition by offset, and what was said."""
    said, signal = Findings(), Signal(topic.name)
    batches = hot_rows(DataDirectory(data.root).partition(topic), signal, start, said)
    table = pa.Table.from_batches(batches, TABLES[table_of(signal)])
    return table.sort_by([("_offset", "ascending")]), said.warnings


def from_files(monkeypatch: pytest.MonkeyPatch, data: Data, **more: Any) -> Any:
    """The same without the server."""
    with monkeypatch.context() as patch:
        patch.setattr(hot_module, "running_server", lambda _: None)
        return look(data, **more)


def decoded(store: Store, messages: int) -> None:
    """Waits until the open segment has so many messages."""
    until(lambda: sum(each.messages for each in store.snapshot()[1]) == messages)


# --- the same rows -----------------------------------------------------------------------------


@pytest.mark.parametrize("topic", [TRACES, LOGS, METRICS], ids=str)
def test_rows_are_those_of_the_log(
    data: Data, monkeypatch: pytest.MonkeyPatch, topic: Topic
) -> None:
    """In every column, whatever part of them is decoded already."""
    requests = [sample(Signal(topic.name), f"a {n}", f"b {n}") for n in range(5)]
    with hot(data, *requests, topic=topic) as store, server_of(data, store, topic):
        decoded(store, 5)
        store.append_durable(sample(Signal(topic.name), "later"))
        found, warnings = look(data, topic)
        wanted, _ = from_files(monkeypatch, data, topic=topic)
    assert warnings == []
    assert found.num_rows == 11
    assert found.to_pylist() == wanted.to_pylist()


def test_rows_begin_where_they_are_asked_for(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also within a bundle, which has several messages."""
    with hot(data) as store, server_of(data, store):
        for append in [store.append(spans(number)) for number in range(6)]:
            append.durable.wait()
        decoded(store, 6)
        assert len(store.snapshot()[1]) < 6
        for start in range(7):
            assert look(data, start=start) == from_files(monkeypatch, data, start=start)
            assert look(data, start=start)[0].num_rows == 6 - start


class Waiting(RequestDecoder):
    """Decodes nothing until it may."""

    def __init__(self) -> None:
        super().__init__(Signal.TRACES)
        self.may = threading.Event()

    def decode(self, first_offset: int, messages: Sequence[bytes]) -> Iterator[Decoded]:
        """As every decoder."""
        self.may.wait()
        yield from super().decode(first_offset, messages)


def test_what_is_not_decoded_yet_is_sent_as_it_is(data: Data) -> None:
    """Acknowledged is acknowledged."""
    folder, decoder = DataDirectory(data.root).partition(TRACES).folder, Waiting()
    with Store.open(folder, decoder=decoder) as store, server_of(data, store):
        store.append_durable(spans(1))
        store.append_durable(spans(2, 3))
        assert names(data) == named([1, 2, 3])
        decoder.may.set()


def test_long_backlog_is_read_from_the_files(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server sends so much of it, and no more."""
    monkeypatch.setattr(hot_stream, "MOST_RAW_BYTES", 1)
    folder, decoder = DataDirectory(data.root).partition(TRACES).folder, Waiting()
    with Store.open(folder, decoder=decoder) as store, server_of(data, store):
        for number in range(5):
            store.append_durable(spans(number))
        assert names(data) == named(range(5))
        decoder.may.set()


def test_message_that_cannot_be_decoded_is_named(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is without the server; the others are found."""
    with hot(data, spans(1), NO_REQUEST, spans(2)) as store, server_of(data, store):
        decoded(store, 2)
        found, warnings = look(data)
        assert (found.num_rows, len(warnings)) == (2, 1)
        assert "message 1 of /default/traces cannot be decoded" in warnings[0]
        assert (found, warnings) == from_files(monkeypatch, data)


# --- a server that is not there ----------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [None, b"", b"{}", b"\xff", b'{"penstock": "server", "version": 1}'],
    ids=["none", "empty", "object", "bytes", "no checksum"],
)
def test_stopped_server_is_not_missed(data: Data, text: bytes | None) -> None:
    """No warning: its log has everything."""
    if text is not None:
        (data.root / FILE).write_bytes(text)
    with hot(data, spans(1)):
        assert names(data) == named([1])


@pytest.mark.parametrize("changes", [{"pid": 2**22 + 1}, {"started_ticks": 1}], ids=str)
def test_description_of_a_server_that_was_killed_is_passed_over(
    data: Data, changes: dict[str, int]
) -> None:
    """Also where its pid belongs to another process by now."""
    describe(data, **changes)
    assert running_server(data.root) is None
    with hot(data, spans(1)):
        assert names(data) == named([1])


def test_server_that_should_be_there_is_named(data: Data) -> None:
    """And its log is read instead."""
    describe(data)
    with hot(data, spans(1)):
        found, warnings = look(data)
    assert found.num_rows == 1
    [warning] = warnings
    assert "/default/traces/0: the server does not answer" in warning
    assert "\n" not in warning
    assert len(warning) < 300


def test_server_that_ends_in_the_middle_is_made_up_for(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row is there once, and the warning too."""
    whole = hot_module.hot_messages

    def half(*arguments: Any) -> Iterator[Any]:
        for number, each in enumerate(whole(*arguments)):
            if number == 2:
                raise ServerUnreachable("it ended")
            yield each

    with hot(data) as store, server_of(data, store):
        for number in range(4):
            store.append_durable(spans(number))
            decoded(store, number + 1)
        monkeypatch.setattr(hot_module, "hot_messages", half)
        found, warnings = look(data)
    assert sorted(found["name"].to_pylist()) == named(range(4))
    assert len(warnings) == 1


def test_partition_that_no_worker_has_open_is_read_from_files(data: Data) -> None:
    """It has no server that could be missed."""
    with hot(data, spans(1)), server_of(data, None):
        found, warnings = look(data)
    assert (found.num_rows, warnings) == (1, [])


@pytest.mark.parametrize(
    "ticket",
    [b"", b"[]", b"{}", b'{"hot": 1}', b'{"hot": "/a/b", "partition": "x"}', b'{"hot": "/"}'],
)
def test_question_that_is_none_is_refused(data: Data, ticket: bytes) -> None:
    """In one sentence."""
    with (
        server_of(data, None),
        pytest.raises(ServerUnreachable),
        worker_client(data.root, 0) as client,
    ):
        client.do_get(pf.Ticket(ticket)).read_all()


# --- a real server -----------------------------------------------------------------------------


def count(data: Path) -> int:
    """The spans that are seen, with nothing to complain of."""
    found = ask(data, LakeSettings.of(data), "SELECT count(*) AS n FROM spans")
    assert found.warnings == []
    number: int = found.rows["n"][0].as_py()
    return number


def test_no_row_is_missing_or_twice_while_segments_are_sealed(tmp_path: Path) -> None:
    """Each look sees what was acknowledged before it, and nothing that was not sent."""
    sent, done = [0], threading.Event()
    with serving(tmp_path / "data", "--workers=2") as server:

        def write() -> None:
            while not done.is_set():
                assert server.post(Signal.TRACES, traces(f"span {sent[0]}")).status == 200
                sent[0] += 1
                if sent[0] % 25 == 0:
                    server.ask("POST", "/api/v1/flush", port="web")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(25):
                before = sent[0]
                found = count(tmp_path / "data")
                assert before <= found <= sent[0] + 1
        finally:
            done.set()
            writer.join()
        assert count(tmp_path / "data") == sent[0]


def test_worker_that_was_started_again_is_asked_again(tmp_path: Path) -> None:
    """The connection to the old one is not held against it."""
    with serving(tmp_path / "data") as server:
        server.post(Signal.TRACES, traces("x"))
        assert count(tmp_path / "data") == 1
        [pid] = server.workers()
        os.kill(pid, signals.SIGKILL)
        until(lambda: server.get("/healthz").status == 200 and server.workers() != [pid])
        assert count(tmp_path / "data") == 1
        server.post(Signal.TRACES, traces("y"))
        assert count(tmp_path / "data") == 2


def test_data_directory_may_have_a_long_path(tmp_path: Path) -> None:
    """Longer than the path of a socket; and its sockets are its owner's alone."""
    data = tmp_path / ("long" * 40) / "data"
    with serving(data) as server:
        server.post(Signal.TRACES, traces("x"))
        assert count(data) == 1
        assert (data / "sockets").stat().st_mode & 0o777 == 0o700
        assert json.loads((data / FILE).read_bytes())["flight_port"] == server.ready["flight"]
        assert server.stop() == 0
        assert not (data / FILE).exists()
    assert count(data) == 1


def test_killed_server_is_not_missed(tmp_path: Path) -> None:
    """Its description is still there, and deceives nobody."""
    data = tmp_path / "data"
    with serving(data) as server:
        server.post(Signal.TRACES, traces("x"))
        server.kill()
    assert (data / FILE).exists()
    assert count(data) == 1
