"""No token keeps the others from asking: turns and disk of queries are bounded for each."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.patience import until
from tests.server.running import Answer, Server, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GREEDY, MODEST = "a-greedy-token", "a-modest-token"
FOREVER = "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b"
SPILLING = (
    "SELECT max(n) FROM (SELECT row_number() OVER (ORDER BY hash(range)) AS n FROM range(30000000))"
)
MANY = 18
TEMPORARY = 16 * 1024**2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server puts things aside."""
    return tmp_path_factory.mktemp("shares")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    """With tokens of two tenants, and little disk for a query."""
    tokens = folder / "tokens"
    tokens.write_text(f"{GREEDY} one\n{MODEST} other\n")
    tokens.chmod(0o600)
    query = {"timeout": "10m", "processes": 2, "waiting": 4, "memory": "640MiB"}
    config = {
        "auth": {"tokens_file": str(tokens)},
        "query": {**query, "temporary": TEMPORARY},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        with serving(folder / "data", config=config) as started:
            yield started


def ask(server: Server, token: str, sql: str) -> Answer:
    """A question over HTTP."""
    heads = {"authorization": f"Bearer {token}"}
    body = json.dumps({"sql": sql}).encode()
    return server.ask("POST", "/api/v1/query", body, port="web", headers=heads)


def test_one_token_cannot_lock_the_others_out(server: Server) -> None:
    """It has every turn and place that it can get; others are answered, its own come again."""
    body = json.dumps({"sql": FOREVER}).encode()
    head = (
        f"POST /api/v1/query HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: bearer  {GREEDY}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    with contextlib.ExitStack() as stack:
        asking = [stack.enter_context(server.socket("web")) for _ in range(MANY)]
        for connection in asking:
            connection.sendall(head.encode() + body)
        # One runs and four wait: what is asked beyond that is put off, and says so.
        until(lambda: ask(server, GREEDY, "SELECT 1").status == 429)
        put_off = ask(server, GREEDY, "SELECT 1")
        assert put_off.status == 429
        assert int(put_off.headers["retry-after"]) >= 1
        assert "4 queries wait already, 4 of them with this token" in put_off.json["message"]
        with ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(lambda _: ask(server, MODEST, "SELECT 1"), range(6)))
        assert [answer.status for answer in answers] == [200] * 6
    until(lambda: ask(server, GREEDY, "SELECT 1").status == 200)


def test_answers_that_nobody_takes_are_their_owners_matter(server: Server) -> None:
    """Who does not take them gets no more; others are answered, and health is what it is."""
    body = json.dumps({"sql": "SELECT repeat('x', 600) FROM range(100000)"}).encode()
    head = (
        f"POST /api/v1/query HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {GREEDY}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )

    def is_put_off() -> bool:
        asking = stack.enter_context(server.socket("web"))
        asking.sendall(head.encode() + body)
        return b" 429 " in asking.recv(100)

    with contextlib.ExitStack() as stack:
        until(is_put_off)
        assert ask(server, GREEDY, "SELECT 1").status == 429
        assert ask(server, MODEST, "SELECT 1").status == 200
        assert server.get("/healthz").status == 200
        assert server.get("/readyz").status == 200
    until(lambda: ask(server, GREEDY, "SELECT 1").status == 200)


def test_disk_of_a_query_is_bounded(server: Server, folder: Path) -> None:
    """What it puts aside is never more than it may, and it is told so; nothing stays behind."""
    peak, over = [0], threading.Event()

    def watch() -> None:
        while not over.is_set():
            peak[0] = max(peak[0], spilled(folder))
            time.sleep(0.02)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        answer = ask(server, MODEST, SPILLING)
    finally:
        over.set()
        watching.join()
    assert answer.status == 422, answer.body
    assert "puts more aside on disk than it may" in answer.json["message"]
    assert 0 < peak[0] <= TEMPORARY
    until(lambda: spilled(folder) == 0)
    assert ask(server, MODEST, "SELECT 1").status == 200


def spilled(folder: Path) -> int:
    """The bytes of what DuckDB has put aside."""
    found = 0
    for path in folder.glob("penstock-*/queries-*/**/duckdb_temp*"):
        with contextlib.suppress(OSError):
            found += path.stat().st_size
    return found
