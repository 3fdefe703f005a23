"""HTTP/1.1 through bare sockets: an answer of 200 means that every announced byte is stored."""

from __future__ import annotations

import http.client
import json
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from typing import IO

import pytest

from tests.cli.running import run
from tests.edges.http_cases import CASES, H2C, HALF_CLOSED, KEPT, LEFT, SECTIONS, Case, upgrade
from tests.server import http2
from tests.server.running import ROOT, Server, serving

SILENCE_S = 20.0
"""After which a case counts as not answered, and the next one has its turn."""
PROBE = b"GET /probe HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


class Outcome:
    """What became of each case: its answers, whether the connection was kept, rows stored."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, ...]] = {}
        self.kept: dict[str, bool] = {}
        self.stored: Counter[str] = Counter()
        self.namespaces: set[str] = set()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With its defaults."""
    with serving(tmp_path_factory.mktemp("http") / "data") as started:
        yield started


@pytest.fixture(scope="module")
def outcome(server: Server) -> Outcome:
    """All of them, one after the other, and one question at the end."""
    found = Outcome()
    for case in CASES:
        with server.socket() as connection:
            found.answers[case.title], found.kept[case.title] = converse(connection, case)
    for row in query(server, "SELECT namespace, name FROM spans"):
        found.stored[row["name"].partition(" #")[0]] += 1
        found.namespaces.add(row["namespace"])
    return found


def query(server: Server, sql: str) -> list[dict[str, str]]:
    """As users ask."""
    answer = run("query", "--data-dir", server.ready["data_dir"], "--format", "json", sql)
    assert answer.code == 0, answer.err
    rows: list[dict[str, str]] = json.loads(answer.out)
    return rows


def converse(connection: socket.socket, case: Case) -> tuple[tuple[int, ...], bool]:
    """Sends what the case says, reads all answers, and looks whether another one could follow."""
    connection.settimeout(SILENCE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    text = case.send(case.title)
    for at in range(0, len(text), 1 if case.bytewise else len(text)):
        connection.sendall(text[at : at + 1] if case.bytewise else text)
    if case.end == LEFT:
        return (), False
    if case.end == HALF_CLOSED:
        connection.shutdown(socket.SHUT_WR)
    has_body = not text.startswith(b"HEAD")
    answers: list[int] = []
    with connection.makefile("rb") as file:
        try:
            while len(answers) < len(case.answers):
                if not (status := next_status(file, has_body=has_body)):
                    break
                answers.append(status)
            if case.end != HALF_CLOSED:
                connection.sendall(PROBE)
            while status := next_status(file):
                answers.append(status)
        except TimeoutError:
            answers.append(0)
        except ConnectionError:
            pass  # it was closed while the next request was under way
    is_kept = answers[-1:] == [404]
    return tuple(answers[:-1] if is_kept else answers), is_kept


def next_status(file: IO[bytes], *, has_body: bool = True) -> int:
    """Of the next answer, which is read whole; 0 at the end."""
    line = file.readline()
    if not line:
        return 0
    length = int(http.client.parse_headers(file).get("content-length", 0))
    assert len(file.read(length if has_body else 0)) == length or not has_body
    return int(line.split(b" ")[1])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_only_what_came_whole_is_acknowledged(outcome: Outcome, case: Case) -> None:
    """The answers, what becomes of the connection, and the rows that a query finds."""
    assert outcome.answers[case.title] == case.answers
    assert outcome.kept[case.title] == (case.end == KEPT)
    assert outcome.stored[case.title] == case.stored


def test_trailers_choose_no_namespace(outcome: Outcome) -> None:
    """They come behind the body, where nobody has checked them."""
    assert outcome.namespaces == {"default"}


@pytest.mark.parametrize("headers", [H2C, upgrade("websocket"), ("upgrade: x",)])
def test_questions_may_ask_for_another_protocol_too(
    server: Server, headers: tuple[str, ...]
) -> None:
    """The SQL API is behind the same protocol: its body is read, `Upgrade` or not."""
    names = dict(header.split(": ") for header in headers)
    body = b'{"sql": "SELECT 41 + 1 AS x"}'
    answer = server.ask("POST", "/api/v1/query", body, port="web", headers=names)
    assert answer.status == 200, answer.body
    assert answer.json["rows"] == [[42]]


def test_client_of_another_version_is_told_so(server: Server) -> None:
    """One that begins with HTTP/2, as gRPC does, hears what the port speaks."""
    for port in ("http", "web"):
        with server.socket(port) as connection, connection.makefile("rb") as file:
            connection.sendall(http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0))
            assert b" 505 " in (answer := file.read())
            assert b"This port speaks HTTP/1.1; OTLP over gRPC has a port of its own." in answer


@pytest.mark.parametrize(
    ("port", "path", "status"),
    [("http", "/v1/none", 404), ("web", "/api/v1/none", 404), ("web", "/api/v1/query", 413)],
)
def test_body_that_is_not_wanted_is_not_asked_for(
    server: Server, port: str, path: str, status: int
) -> None:
    """Where nothing is, and on the web port: the answer to the head, and then the end."""
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n"
    with server.socket(port) as connection, connection.makefile("rb") as file:
        connection.sendall(f"{head}content-length: 99999999999\r\n\r\n".encode())
        assert (next_status(file), next_status(file)) == (status, 0)


def test_page_says_what_is_tested() -> None:
    """Row by row."""
    page = (ROOT / "docs" / "http.md").read_text()
    assert page.partition("<!-- table -->\n")[2] == table()


def table() -> str:
    """Of all cases, as Markdown; `python -m tests.edges.test_http_conformance` prints it."""
    lines = []
    for title, cases in SECTIONS.items():
        lines += ["", f"### {title}", "", "| request | answer | spans stored |", "|---|---|---|"]
        lines += [f"| {' | '.join(case.row)} |" for case in cases]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.stdout.write(table())
