"""`penstock serve` from its first line to its last."""

from __future__ import annotations

import json
import os
import resource
import signal as signals
import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from penstock.otel import Signal
from penstock.storage import DataDirectory
from penstock.store.outside import Delivered, Taken, write_delivered
from tests.server.running import (
    PROTOBUF,
    Server,
    children_of,
    is_alive,
    serving,
    stored_names,
    until,
)
from tests.server.samples import logs, sample, traces
from tests.server.traffic import Traffic

T, L = Signal.TRACES, Signal.LOGS


def data_of(server: Server) -> Path:
    """Its data directory."""
    return Path(server.ready["data_dir"])


def flush(server: Server) -> None:
    """Seals everything."""
    assert server.ask("POST", "/api/v1/flush", port="web").json == {"flushed": True, "errors": []}


# --- where it listens --------------------------------------------------------------------------


def test_ready_line_says_where_it_listens(server: Server) -> None:
    """Port 0 picks free ones; nothing else is on stdout."""
    assert set(server.ready) >= {"ready", "grpc", "http", "flight", "web", "data_dir"}
    ports = [server.ready[name] for name in ("grpc", "http", "web")]
    assert len(set(ports)) == 3
    assert all(port > 0 for port in ports)
    assert data_of(server).is_absolute()
    assert (data_of(server) / "penstock.json").exists()


def test_probes_are_green(server: Server) -> None:
    """Both, as soon as the ready line is there."""
    assert server.get("/healthz").json == {"healthy": True, "problems": []}
    assert server.get("/readyz").json == {"ready": True}
    assert server.ask("HEAD", "/healthz", port="web").status == 200


def test_metrics_count_what_came_in(server: Server) -> None:
    """For Prometheus, by topic."""
    for number in range(3):
        assert server.post(L, logs(str(number)), x_penstock_namespace="counted").status == 200
    found = server.metric("penstock_log_messages_total", topic="/counted/logs/0")
    assert found == 3
    assert server.get("/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")


def test_other_paths_and_methods_of_the_web_port_are_refused(server: Server) -> None:
    """With a status, and with what would be right."""
    assert server.get("/nowhere").status == 404
    refused = server.ask("POST", "/healthz", port="web")
    assert (refused.status, refused.headers["allow"]) == (405, "GET")
    refused = server.get("/api/v1/flush")
    assert (refused.status, refused.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("port", ["grpc", "http", "web"])
def test_port_in_use_is_one_sentence(server: Server, tmp_path: Path, port: str) -> None:
    """Even if a server like this one has it, whose workers share it among themselves."""
    other = Server.begin(tmp_path / "other", f"--{port}-port={server.ready[port]}")
    assert other.wait() == 1
    assert str(server.ready[port]) in other.errors
    assert other.errors.startswith("penstock: ")
    assert other.errors.count("\n") == 1


def test_data_directory_in_use_is_one_sentence(server: Server, tmp_path: Path) -> None:
    """It names the directory and who has it."""
    link = tmp_path / "same"
    link.symlink_to(data_of(server))
    other = Server.begin(link)
    assert other.wait() == 1
    assert str(link) in other.errors
    assert str(server.process.pid) in other.errors
    assert other.errors.count("\n") == 1


def test_data_directory_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    """It names it."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "topics").write_text("in the way")
    (tmp_path / "data" / "penstock.json").write_text("not a document")
    other = Server.begin(tmp_path / "data")
    assert other.wait() == 1
    assert str(tmp_path / "data") in other.errors
    assert other.errors.count("\n") == 1


@pytest.mark.parametrize(
    "tls",
    [
        {"certificate": "/nowhere/c.pem", "key": "/nowhere/k.pem"},
        {"certificate": __file__, "key": __file__},
    ],
)
def test_certificate_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, tls: dict[str, str]
) -> None:
    """The server ends, and does not try for ever."""
    other = Server.begin(tmp_path / "data", config={"tls": tls})
    assert other.wait() == 1
    last = other.errors.splitlines()[-1]
    assert last.startswith("penstock: ")
    assert "Traceback" not in other.errors


# --- topics ------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["grpc", "http"])
def test_namespaces_are_apart(server: Server, way: str) -> None:
    """By header or metadata; each has topics of its own."""
    for name in ("north", "south"):
        namespace = {"x_penstock_namespace": f"{way}-{name}"}
        if way == "grpc":
            server.export(T, traces(name), **namespace)
        else:
            assert server.post(T, traces(name), **namespace).status == 200
    flush(server)
    for name in ("north", "south"):
        assert stored_names(data_of(server), T, f"{way}-{name}") == [name]


@pytest.mark.parametrize(
    "name",
    [
        "..",
        ".",
        "../../etc",
        "a/b",
        "a\\b",
        "/etc/passwd",
        "n" * 300,
        "x\x7f",
        "%2e%2e",
        "con",
        "*",
    ],
)
def test_hostile_namespace_stays_in_its_place(server: Server, name: str) -> None:
    """Refused, or a folder of its own right under the topics."""
    answer = server.post(T, traces("hostile"), x_penstock_namespace=name)
    assert answer.status in (200, 400)
    code = grpc_code(server, name)
    assert code is (grpc.StatusCode.OK if answer.status == 200 else code)
    assert code in (grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, None)
    beside = {path.name for path in data_of(server).iterdir()}
    known = {
        "penstock.json",
        "topics",
        ".lock",
        "server.json",
        "sockets",
        "repeats.tbl",
        "pipeline",
    }
    assert beside <= known
    for folder in data_of(server).glob("topics/*"):
        assert {path.name for path in folder.iterdir()} <= {"traces", "logs", "metrics"}


def grpc_code(server: Server, namespace: str) -> grpc.StatusCode | None:
    """How a request with that namespace ends; None where the client does not send it."""
    with server.channel() as channel:
        method = channel.unary_unary(T.grpc_method)
        metadata = (("x-penstock-namespace", namespace),)
        call = method.future(traces("hostile"), metadata=metadata)
        return None if call.code() is grpc.StatusCode.INTERNAL else call.code()


def test_retried_request_is_stored_once(server: Server) -> None:
    """Whichever way it comes; of log records two equal ones may be two events."""
    for sent in (T, L):
        data = sample(sent, "again")
        namespace = {"x_penstock_namespace": "retried"}
        assert server.post(sent, data, **namespace).status == 200
        server.export(sent, data, **namespace)
        assert server.post(sent, data, **namespace).status == 200
    flush(server)
    assert stored_names(data_of(server), T, "retried") == ["again"]
    assert stored_names(data_of(server), L, "retried") == ["again"] * 3


def test_client_that_gave_up_may_try_again(server: Server) -> None:
    """Its first request was on its way into the log; the second one is not a second copy."""
    data = traces("impatient", padding=300_000)
    with server.channel() as channel:
        method = channel.unary_unary(T.grpc_method)
        metadata = (("x-penstock-namespace", "impatient"),)
        for number in range(20):
            call = method.future(data, metadata=metadata, timeout=0.001 * number)
            call.cancel() if number % 2 else call.exception()
        method(data, metadata=metadata)
    flush(server)
    assert stored_names(data_of(server), T, "impatient") == ["impatient"]


def test_client_that_goes_away_leaves_all_or_nothing(server: Server) -> None:
    """Half a request is none; a whole one is stored, though nobody waits for the answer."""
    data = logs("left")
    head = (
        f"POST /v1/logs HTTP/1.1\r\nhost: localhost\r\ncontent-type: {PROTOBUF}\r\n"
        f"x-penstock-namespace: gone\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    for part in (data[:5], data):
        with server.socket() as connection:
            connection.sendall(head.encode() + part)

    def count() -> bool:
        flush(server)
        return stored_names(data_of(server), L, "gone") == ["left"]

    until(count)


# --- stopping ----------------------------------------------------------------------------------


def test_stopping_in_the_middle_loses_nothing(tmp_path: Path) -> None:
    """SIGTERM under load: every answered request is sealed, and the exit code is 0."""
    with serving(tmp_path / "data", "--workers=2") as server:
        with Traffic(server, "stop") as traffic:
            traffic.wait_for(300)
            assert server.stop() == 0
        outcome = traffic.outcome
    names = stored_names(tmp_path / "data", T)
    assert outcome.answered <= set(names)
    assert not outcome.refused & set(names)
    assert len(names) == len(set(names))
    assert set(names) <= outcome.answered | outcome.unknown
    assert not any(map(is_alive, server.pids()))


def test_second_signal_stops_at_once_and_loses_nothing(tmp_path: Path) -> None:
    """A request that does not end holds up the first; what was answered is there next time."""
    with serving(tmp_path / "data", config={"segment": {"max_open_duration": "1h"}}) as server:
        pids = server.pids()
        server.post(T, traces("answered"))
        with server.socket() as held:
            held.sendall(b"POST /v1/traces HTTP/1.1\r\nhost: localhost\r\ncontent-type: ")
            held.sendall(f"{PROTOBUF}\r\ncontent-length: 100\r\n\r\nhalf".encode())
            until(lambda: server.get("/api/v1/status").json["workers"][0]["in_flight_bytes"])
            server.process.send_signal(signals.SIGTERM)
            until(lambda: refuses(server))
            server.process.send_signal(signals.SIGTERM)
            assert server.wait() != 0
        until(lambda: not any(map(is_alive, pids)))
    with serving(tmp_path / "data") as server:
        assert server.stop() == 0
    assert stored_names(tmp_path / "data", T) == ["answered"]


def refuses(server: Server) -> bool:
    """Whether it takes no more connections."""
    try:
        server.socket("http").close()
    except OSError:
        return True
    return False


def test_request_that_does_not_end_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    """It is given up at the deadline; the exit code is 0 all the same."""
    with serving(tmp_path / "data", config={"stop_deadline": "2s"}) as server:
        server.post(T, traces("answered"))
        with server.socket() as held:
            held.sendall(b"POST /v1/traces HTTP/1.1\r\nhost: localhost\r\ncontent-type: ")
            held.sendall(f"{PROTOBUF}\r\ncontent-length: 100\r\n\r\nhalf".encode())
            assert server.stop(signals.SIGINT) == 0
    with serving(tmp_path / "data") as again:  # two seconds may not have been enough to seal it
        flush(again)
    assert stored_names(tmp_path / "data", T) == ["answered"]


def test_workers_end_with_their_supervisor(tmp_path: Path) -> None:
    """However it ends: they end as if killed, and nothing is lost or left running."""
    with serving(tmp_path / "data") as server:
        server.post(T, traces("answered"))
        pids = server.pids()
        server.process.kill()
        server.process.wait()
        until(lambda: not any(map(is_alive, pids)))
    with serving(tmp_path / "data") as again:
        flush(again)
    assert stored_names(tmp_path / "data", T) == ["answered"]


# --- workers -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with two workers."""
    with serving(tmp_path_factory.mktemp("pair") / "data", "--workers=2") as started:
        yield started


def test_killed_worker_is_started_again(pair: Server) -> None:
    """The other one goes on; what the dead one had acknowledged is there."""
    names = {f"before {number}" for number in range(40)}
    for name in names:
        assert pair.post(T, traces(name)).status == 200
    first, second = pair.workers()
    decoders = children_of(first)
    os.kill(first, signals.SIGKILL)
    until(lambda: len(pair.workers()) == 2 and first not in pair.workers())
    assert second in pair.workers()
    until(lambda: pair.get("/readyz").status == pair.get("/healthz").status == 200)
    until(lambda: not any(map(is_alive, decoders)))
    for number in range(40):
        names.add(f"after {number}")
        assert pair.post(T, traces(f"after {number}")).status == 200
    flush(pair)
    found = [name for name in stored_names(data_of(pair), T) if name in names]
    assert found == sorted(names)  # beside what other tests have sent


def test_worker_that_dies_is_seen_from_outside(pair: Server) -> None:
    """Not ready, and said so in the log, until it is back."""
    victim = pair.workers()[1]
    os.kill(victim, signals.SIGSTOP)
    try:
        os.kill(victim, signals.SIGKILL)
        until(lambda: f"worker 1 ended with {-signals.SIGKILL}" in pair.errors)
    finally:
        until(lambda: len(pair.workers()) == 2)


def test_both_workers_take_requests(pair: Server) -> None:
    """Each has its partition; connections are spread by the system."""
    for number in range(60):
        assert pair.post(L, logs(str(number))).status == 200
        pair.export(L, logs(f"grpc {number}"))
    folder = data_of(pair) / "topics" / "default" / "logs"
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {"0", "1"}
    counts = [
        pair.metric("penstock_log_messages_total", topic=f"/default/logs/{number}")
        for number in range(2)
    ]
    assert sum(counts) == 120
    assert all(counts)


def test_hangup_changes_nothing(pair: Server) -> None:
    """A terminal that closes does not end a server."""
    pair.process.send_signal(signals.SIGHUP)
    for pid in pair.workers():
        os.kill(pid, signals.SIGHUP)
    assert pair.post(T, traces("after the hangup")).status == 200
    assert pair.process.poll() is None
    assert pair.get("/healthz").status == 200


def test_fewer_workers_look_after_all_partitions(tmp_path: Path) -> None:
    """What a worker that is no more had taken is sealed all the same."""
    names = {f"span {number}" for number in range(30)}
    config = {"segment": {"max_open_duration": "1h"}}
    with serving(tmp_path / "data", "--workers=2", config=config) as server:
        for name in names:
            assert server.post(T, traces(name)).status == 200
        server.kill()
    with serving(tmp_path / "data", "--workers=1") as server:
        assert server.stop() == 0
    assert set(stored_names(tmp_path / "data", T)) == names


# --- short of something ------------------------------------------------------------------------


def test_full_disk_is_red_and_puts_requests_off(tmp_path: Path) -> None:
    """With a time to come again; the data directory is left alone."""
    with serving(tmp_path / "data", config={"limits": {"disk_free": "1000TB"}}) as server:
        until(lambda: server.get("/healthz").status == 503)
        assert "the disk is full" in server.get("/healthz").json["problems"]
        answer = server.post(T, traces("a"))
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        with pytest.raises(grpc.RpcError) as failed:
            server.export(T, traces("a"))
        assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "grpc-status-details-bin" in dict(failed.value.trailing_metadata())
        assert not (tmp_path / "data" / "topics").exists()


def test_disk_that_fills_up_and_empties_again(tmp_path: Path) -> None:
    """Requests are put off meanwhile, none is lost, and it goes on by itself."""
    with serving(tmp_path / "data", config={"wal": {"rotate_size": "1MB"}}) as server:
        assert server.post(T, traces("before")).status == 200
        [worker] = server.workers()
        unlimited = resource.prlimit(worker, resource.RLIMIT_FSIZE)
        resource.prlimit(worker, resource.RLIMIT_FSIZE, (2**16, unlimited[1]))
        answers = [server.post(T, traces(f"big {n}", padding=10**6)).status for n in range(3)]
        assert set(answers) <= {429, 503}
        answers = [server.post(L, logs("new topic")).status for _ in range(2)]
        assert set(answers) <= {429, 503}
        resource.prlimit(worker, resource.RLIMIT_FSIZE, unlimited)
        until(lambda: server.post(T, traces("after", padding=10**6)).status == 200)
        until(lambda: server.post(L, logs("new topic")).status == 200)
        assert server.get("/healthz").status == 200
        assert server.stop() == 0
    assert stored_names(tmp_path / "data", T) == ["after", "before"]
    assert stored_names(tmp_path / "data", L) == ["new topic"]


def test_disk_budget_that_is_used_up_is_told(tmp_path: Path) -> None:
    """429 and not an endless wait; with `drop_oldest` it goes on."""
    cap = {"size_cap": "4MB"}
    with serving(tmp_path / "a", config={"retention": cap, "limits": {"timeout": "1s"}}) as server:
        until(lambda: server.post(T, traces(os.urandom(8).hex(), padding=200_000)).status == 429)
        assert server.get("/healthz").status in (200, 503)


def test_unknown_topics_do_not_stop_the_start(tmp_path: Path) -> None:
    """Folders that are none of its own are passed over."""
    for name in ("default/traces/x", "default/other/0", "NOT-ENCODED/traces/0"):
        (tmp_path / "data" / "topics" / name).mkdir(parents=True)
    with serving(tmp_path / "data") as server:
        assert server.post(T, traces("a")).status == 200


def test_log_lines_are_json(server: Server) -> None:
    """One object a line, with time, level and message."""
    lines = [json.loads(line) for line in server.errors.splitlines()]
    assert all({"time", "level", "message"} <= line.keys() for line in lines)


def test_every_port_is_on_loopback_alone(server: Server) -> None:
    """By default nobody from outside comes in."""
    addresses = {
        info[4][0]
        for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
        if not info[4][0].startswith("127.")
    }
    for address in addresses:
        for port in ("grpc", "http", "web"):
            with pytest.raises(OSError, match="refused"):
                socket.create_connection((address, server.ready[port]), 5).close()


# --- the pipeline ------------------------------------------------------------------------------


def test_what_the_pipeline_has_is_acknowledged_and_removed(tmp_path: Path) -> None:
    """Written down while the server was stopped, or while it runs."""
    data = tmp_path / "data"
    segments = data / "topics" / "default" / "traces" / "0" / "segments"
    with serving(data) as server:
        server.export(T, traces("a"))
        flush(server)
    source = DataDirectory(data).identity()
    write_delivered(data, Delivered("lake", {"/default/traces/0": Taken(0, 1, 2**62)}, source))
    with serving(data) as server:
        until(lambda: not list(segments.iterdir()))
        server.export(T, traces("b"))
        flush(server)
        server.export(T, traces("c"))
        flush(server)
        write_delivered(data, Delivered("lake", {"/default/traces/0": Taken(1, 2, 2**62)}, source))
        until(lambda: len(list(segments.iterdir())) == 1)
    assert stored_names(data, T) == ["c"]
