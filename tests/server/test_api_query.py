"""The query API of a real server: answers, limits, and requests that mean no good."""

from __future__ import annotations

import contextlib
import json
import os
import signal as signals
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.model.errors import InvalidSetting
from penstock.otel import Signal
from penstock.server.configuration.loading import load
from penstock.server.supervisor import check
from tests.server.running import Answer, Server, children_of, is_alive, serving, until
from tests.server.samples import ids, logs, traces

FOREVER = "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b"
ENDLESS = "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n FROM t) SELECT n FROM t"
COUNTED = "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n FROM t) SELECT count(*) FROM t"
ARROW = "application/vnd.apache.arrow.stream"
_LIMITS = {"timeout": "1s", "rows": 1000, "bytes": "1MiB", "processes": 1, "waiting": 0}


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on which queries may do little."""
    config = {"query": _LIMITS, "limits": {"timeout": "5s"}}
    with serving(tmp_path_factory.mktemp("strict") / "data", config=config) as started:
        yield started


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on which one query may run, for as long as it likes."""
    folder = tmp_path_factory.mktemp("patient")
    query = {"timeout": "10m", "processes": 1, "waiting": 0}
    config = {"query": query, "limits": {"timeout": "5s"}}
    with contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TMPDIR", str(folder))  # of this server, and of no other
            started = stack.enter_context(serving(folder / "data", config=config))
        yield started


def post(server: Server, body: bytes, **headers: str) -> Answer:
    """A body to the query API."""
    heads = {name.replace("_", "-"): value for name, value in headers.items()}
    return server.ask("POST", "/api/v1/query", body, port="web", headers=heads)


def ask(server: Server, sql: str, **more: Any) -> Answer:
    """A question to the query API."""
    return post(server, json.dumps({"sql": sql, **more}).encode())


def rows(server: Server, sql: str, **more: Any) -> list[list[Any]]:
    """The rows of an answer without warnings."""
    answer = ask(server, sql, **more)
    assert answer.status == 200, answer.body
    assert answer.json["warnings"] == []
    found: list[list[Any]] = answer.json["rows"]
    return found


def query_processes(server: Server) -> list[int]:
    """Those that answer queries."""
    found = []
    for pid in children_of(server.process.pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if b"server.querying.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


@contextlib.contextmanager
def asking_forever(server: Server) -> Iterator[list[Answer]]:
    """A query that would not end, asked by somebody else; its answer is there at the end."""
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(ask(server, FOREVER)))
    thread.start()
    until(lambda: query_processes(server))
    try:
        yield answers
    finally:
        thread.join()


# --- answers -----------------------------------------------------------------------------------


def test_what_was_acknowledged_is_found_at_once(server: Server) -> None:
    """Every time, not only after a while."""
    for number in range(100, 120):
        assert server.post(Signal.TRACES, traces(f"at once {number}")).status == 200
        newest = rows(server, "SELECT max(name) FROM spans WHERE name LIKE 'at once %'")
        assert newest == [[f"at once {number}"]]


def test_answer_says_columns_rows_and_time(server: Server) -> None:
    """And nothing else."""
    answer = ask(server, "SELECT 1 AS one, 'x' AS text")
    found = answer.json
    assert found.pop("elapsed_ms") >= 0
    assert found == {
        "columns": [{"name": "one", "type": "int32"}, {"name": "text", "type": "string"}],
        "rows": [[1, "x"]],
        "row_count": 1,
        "warnings": [],
        "partial": False,
    }


def test_tiers_can_be_chosen(server: Server) -> None:
    """Hot rows are not cold."""
    server.post(Signal.LOGS, logs("chosen"))
    sql = "SELECT count(*) FROM logs WHERE body = 'chosen'"
    assert rows(server, sql, tiers=["hot", "warm"]) == [[1]]
    assert rows(server, sql, tiers=["cold"]) == [[0]]


def test_arrow_is_given_to_those_who_accept_it(server: Server) -> None:
    """With the types that they have."""
    answer = post(server, b'{"sql": "SELECT range AS n FROM range(3)"}', accept=ARROW)
    assert answer.headers["content-type"] == ARROW
    table = pa.ipc.open_stream(answer.body).read_all()
    assert table.to_pydict() == {"n": [0, 1, 2]}
    assert json.loads(table.schema.metadata[b"penstock.warnings"]) == []


def test_trace_is_found_by_its_id(server: Server) -> None:
    """In either case of its digits; another id is not found."""
    server.post(Signal.TRACES, traces("found by id"))
    trace_id = ids("found by id")[0].hex()
    for asked in (trace_id, trace_id.upper()):
        found = server.get(f"/api/v1/traces/{asked}").json
        assert (found["trace_id"], found["span_count"]) == (trace_id, 1)
        assert found["spans"][0]["name"] == "found by id"
    assert server.get("/api/v1/traces/" + "0" * 32).status == 404


@pytest.mark.parametrize("bad", ["1", "g" * 32, "0" * 33, "'", "%27%20OR%201=1%20--", "..%2f"])
def test_what_is_no_trace_id_is_refused(server: Server, bad: str) -> None:
    """In a sentence, before anything looks for it."""
    answer = server.get(f"/api/v1/traces/{bad}")
    assert answer.status in (400, 404)
    assert answer.json["message"]


# --- hostile requests --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE x AS SELECT 1",
        "INSERT INTO spans SELECT * FROM spans",
        "DROP VIEW spans",
        "COPY (SELECT 1) TO '{file}'",
        "EXPORT DATABASE '{file}'",
        "ATTACH '{file}' AS other",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "PRAGMA database_list",
        "CALL pragma_version()",
        "SELECT 1; SELECT 2",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM read_parquet('http://127.0.0.1:9/x.parquet')",
        "SELECT * FROM 's3://bucket/x.parquet'",
        "SELECT getenv('HOME')",
        "SELECT nothing FROM nowhere",
        "SELEKT",
        "",
        "\x00",
        "SELECT " + "(" * 20_000 + "1" + ")" * 20_000,
    ],
)
def test_statement_that_does_not_only_read_is_refused(
    server: Server, tmp_path: Path, sql: str
) -> None:
    """With one sentence; no file is made, and the next question is answered."""
    answer = ask(server, sql.replace("{file}", str(tmp_path / "stolen")))
    assert answer.status == 400
    assert answer.json["message"]
    assert "root:" not in answer.body.decode()
    assert list(tmp_path.iterdir()) == []
    assert rows(server, "SELECT 1") == [[1]]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not JSON",
        b"\xff\xfe",
        b"[]",
        b"17",
        b"{}",
        b'{"sql": 1}',
        b'{"sql": null}',
        b'{"sql": ["SELECT 1"]}',
        b'{"sql": "SELECT 1", "limit": 3}',
        b'{"sql": "SELECT 1", "tiers": "hot"}',
        b'{"sql": "SELECT 1", "tiers": []}',
        b'{"sql": "SELECT 1", "tiers": [["hot"]]}',
        b"[" * 500_000,
        b'{"sql":' * 100_000,
        b'{"sql": "\\ud800"}',
    ],
    ids=lambda body: body[:20].decode("latin-1"),
)
def test_body_that_asks_nothing_is_refused(server: Server, body: bytes) -> None:
    """Whatever it is, the answer is a sentence."""
    answer = post(server, body)
    assert answer.status == 400
    assert answer.json["message"]


def test_body_is_bounded(server: Server) -> None:
    """Whether its length is told or not."""
    body = json.dumps({"sql": "SELECT '" + "x" * 2_000_000 + "'"}).encode()
    assert post(server, body).status == 413
    connection = server.connection("web")
    with contextlib.closing(connection):
        connection.request("POST", "/api/v1/query", iter([body]), encode_chunked=True)
        assert connection.getresponse().status == 413


def test_slow_body_is_not_waited_for(strict: Server) -> None:
    """The connection is answered and closed."""
    with strict.socket("web") as connection:
        connection.sendall(
            b"POST /api/v1/query HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{"
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 408 ")


# --- limits ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("SELECT * FROM range(1000000000)", "rows"),
        ("SELECT repeat('x', 5000) FROM range(900)", "bytes"),
        ("SELECT repeat(chr(233), 1000) FROM range(600)", "bytes"),
        (FOREVER, "longer than"),
        (COUNTED, "longer than"),
        (ENDLESS, "than"),
    ],
    ids=["rows", "bytes", "bytes of JSON", "time", "recursion", "recursive rows"],
)
def test_query_over_a_limit_is_stopped(strict: Server, sql: str, word: str) -> None:
    """And the limit named; the next question is answered."""
    answer = until(lambda: in_time(ask(strict, sql), word))
    assert answer.status == 422
    assert word in answer.json["message"]
    assert until(lambda: in_time(ask(strict, "SELECT 1"))).json["rows"] == [[1]]


def in_time(answer: Answer, word: str = "") -> Answer | None:
    """None where the machine was so busy that a second went by, and that is not the question."""
    slow = answer.status == 422 and "longer than" in answer.json["message"]
    return None if slow and "than" not in word else answer


def test_more_queries_than_may_wait_are_put_off(patient: Server) -> None:
    """With the time after which to come again; requests with telemetry are not."""
    with asking_forever(patient):
        until(lambda: _busy(patient))
        answer = ask(patient, "SELECT 1")
        assert (answer.status, int(answer.headers["retry-after"]) >= 1) == (429, True)
        assert patient.post(Signal.TRACES, traces("meanwhile")).status == 200
        assert patient.get("/healthz").status == 200
        _kill_queries(patient)
    assert rows(patient, "SELECT 1") == [[1]]


def test_memory_of_a_query_is_bounded(tmp_path: Path) -> None:
    """One that takes more is ended, and named as what it is."""
    with serving(tmp_path / "data", config={"query": {"memory": "256MiB"}}) as server:
        answer = ask(server, "SELECT length(list(repeat('x', 100) || range)) FROM range(50000000)")
        assert answer.status == 422
        assert "emory" in answer.json["message"]
        assert server.post(Signal.TRACES, traces("after")).status == 200


def test_client_that_does_not_take_its_answer_is_left(patient: Server) -> None:
    """Others are answered meanwhile."""
    body = b'{"sql": "SELECT repeat(\'x\', 1000000) FROM range(40)"}'
    head = f"POST /api/v1/query HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
    with patient.socket("web") as connection:
        connection.sendall(head.encode() + body)
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
        until(lambda: "does not take it" in patient.errors)
        assert rows(patient, "SELECT 1") == [[1]]
        taken = sum(len(piece) for piece in iter(lambda: connection.recv(1 << 20), b""))
    assert taken < 40_000_000


# --- processes ---------------------------------------------------------------------------------


def test_process_leaves_nothing_behind(patient: Server) -> None:
    """What a query that was killed had spilled goes with it."""
    folder = Path(patient.ready["data_dir"]).parent
    with asking_forever(patient):
        until(lambda: _busy(patient))
        until(lambda: list(folder.glob("penstock-*/queries-*/penstock-*/query-*")))
        _kill_queries(patient)
    until(lambda: not list(folder.glob("penstock-*/queries-*")))


def test_killed_query_process_is_replaced(server: Server) -> None:
    """Whoever it was answering is told to ask again; the next is answered."""
    assert rows(server, "SELECT 1") == [[1]]
    with asking_forever(server) as answers:
        until(lambda: not answers and _busy(server))
        _kill_queries(server)
    assert answers[0].status == 503
    assert answers[0].headers["retry-after"]
    assert rows(server, "SELECT 1") == [[1]]


def _kill_queries(server: Server) -> None:
    for pid in query_processes(server):
        os.kill(pid, signals.SIGKILL)


def _busy(server: Server) -> bool:
    """Whether a query process uses the processor."""

    def spent(pid: int) -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11])

    before = {pid: spent(pid) for pid in query_processes(server)}
    threading.Event().wait(0.2)
    return any(spent(pid) > before.get(pid, 0) + 5 for pid in query_processes(server))


def test_idle_process_that_died_is_not_asked(server: Server) -> None:
    """Nobody notices."""
    assert rows(server, "SELECT 1") == [[1]]
    [pid, *_] = query_processes(server)
    os.kill(pid, signals.SIGKILL)
    until(lambda: not is_alive(pid))
    assert rows(server, "SELECT 2") == [[2]]


def test_query_ends_when_its_client_goes_away(server: Server) -> None:
    """Its process too, since nothing less stops every query."""
    assert rows(server, "SELECT 1") == [[1]]
    before = set(query_processes(server))
    body = json.dumps({"sql": FOREVER}).encode()
    head = f"POST /api/v1/query HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
    with server.socket("web") as connection:
        connection.sendall(head.encode() + body)
        until(lambda: _busy(server))
        connection.shutdown(socket.SHUT_RDWR)
    until(lambda: not before & set(query_processes(server)))
    assert rows(server, "SELECT 1") == [[1]]


def test_stopping_ends_a_query(tmp_path: Path) -> None:
    """Rather than wait for its time to be over."""
    with serving(tmp_path / "data", config={"query": {"timeout": "10m"}}) as server:
        thread = threading.Thread(target=lambda: _ignore(lambda: ask(server, FOREVER)))
        thread.start()
        [pid] = until(lambda: query_processes(server))
        assert server.stop() == 0
        until(lambda: not is_alive(pid))
        thread.join()


def _ignore(work: Any) -> None:
    with contextlib.suppress(OSError, Exception):
        work()


def test_server_runs_without_the_query_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It receives, and says what to install to those who ask."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "duckdb.py").write_text("raise ImportError('no duckdb', name='duckdb')\n")
    monkeypatch.setenv("PYTHONPATH", str(hidden))
    with serving(tmp_path / "data") as server:
        assert server.post(Signal.TRACES, traces("kept")).status == 200
        answer = ask(server, "SELECT 1")
        assert answer.status == 501
        assert "penstock[query]" in answer.json["message"]


@pytest.mark.parametrize("setting", [{"processes": 0}, {"timeout": "0s"}, {"memory": "1MiB"}])
def test_limit_with_which_no_query_could_run_is_refused(setting: dict[str, Any]) -> None:
    """Before anything is started."""
    with pytest.raises(InvalidSetting, match=next(iter(setting))):
        check(load({"query": setting}, {}, {}))
