"""What each answer of a remote store means: the rows of the table in docs/object-storage.md."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest

from penstock.model.errors import (
    ObjectChanged,
    ObjectExists,
    ObjectMissing,
    ObjectsUnavailable,
)
from penstock.storage.objects import Version, open_objects
from tests.servers.loops import in_loop

_VERSION = Version('"1"', None)
_CUT = 0
_LATER = (401, 403, 408, 429, 500, 501, 502, 503, 504, _CUT)


class _Scripted:
    """Answers writes and reads with `status`, looks with `head`; counts the writes."""

    def __init__(self) -> None:
        self.status = 200
        self.head = 404
        self.writes = 0
        scripted = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                """Says nothing."""

            def do_HEAD(self) -> None:
                self._answer(scripted.head)

            def do_PUT(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                scripted.writes += 1
                self._answer(scripted.status)

            def do_GET(self) -> None:
                self._answer(scripted.status)

            def _answer(self, status: int) -> None:
                if status == _CUT:
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("etag", '"2"')
                self.send_header("last-modified", "Mon, 16 Nov 2026 00:00:00 GMT")
                self.send_header("content-length", "0")
                self.end_headers()

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def options(self) -> dict[str, str]:
        """For `open_objects`."""
        endpoint = f"http://127.0.0.1:{self.server.server_port}"
        plain = {"aws_allow_http": "true", "aws_skip_signature": "true", "aws_region": "x"}
        return {"aws_endpoint_url": endpoint, **plain}


@pytest.fixture
def scripted() -> Iterator[_Scripted]:
    """A server that says what it is told to."""
    made = _Scripted()
    threading.Thread(target=made.server.serve_forever, daemon=True).start()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.mark.parametrize("status", [*_LATER, 404])
@in_loop
async def test_writes_without_an_answer_are_sent_once(scripted: _Scripted, status: int) -> None:
    """A condition that was met, not answered and sent again would be refused by its own success."""
    objects = open_objects("s3://bucket", scripted.options)
    scripted.status = status
    with pytest.raises(ObjectsUnavailable):
        await objects.create("key", b"data")
    with pytest.raises(ObjectChanged if status == 404 else ObjectsUnavailable):
        await objects.replace("key", b"data", _VERSION)
    assert scripted.writes == 2


@pytest.mark.parametrize("status", [304, 409, 412])
@in_loop
async def test_refused_condition_is_told_from_a_conflict(scripted: _Scripted, status: int) -> None:
    """An object that is there exists; where there is none, another change was under way."""
    objects = open_objects("s3://bucket", scripted.options)
    scripted.status, scripted.head = status, 200
    with pytest.raises(ObjectExists):
        await objects.create("key", b"data")
    with pytest.raises(ObjectChanged):
        await objects.replace("key", b"data", _VERSION)
    assert scripted.writes == 2
    scripted.head = 404
    with pytest.raises(ObjectsUnavailable):
        await objects.create("key", b"data")
    assert scripted.writes > 4


@pytest.mark.parametrize("status", [404, 409, 412])
@in_loop
async def test_write_without_a_condition_fails_for_now_only(
    scripted: _Scripted, status: int
) -> None:
    """There is nothing to decide for whoever sent it."""
    objects = open_objects("s3://bucket", scripted.options)
    scripted.status = status
    with pytest.raises(ObjectsUnavailable):
        await objects.put("key", b"data")
    with pytest.raises(ObjectsUnavailable):
        [info async for info in objects.list("folder/")]


@in_loop
async def test_object_that_is_not_there_is_missing(scripted: _Scripted) -> None:
    """For readers alone."""
    objects = open_objects("s3://bucket", scripted.options)
    scripted.status = 404
    with pytest.raises(ObjectMissing):
        await objects.get("key")
