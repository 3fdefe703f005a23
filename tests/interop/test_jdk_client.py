"""The HTTP client of Java's class library, which asks for h2c with each first request."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.edges.http_cases import as_json
from tests.interop.contents import query
from tests.interop.parts import HERE
from tests.server.running import JSON, PROTOBUF, serving
from tests.server.samples import traces


def test_requests_of_javas_own_client_are_stored_and_answered(tmp_path: Path) -> None:
    """Protobuf, gzip, JSON, and a question to the SQL API."""
    java = shutil.which("java")
    if java is None:
        pytest.skip("java is not installed")
    bodies = {
        "protobuf": (PROTOBUF, "identity", traces("protobuf")),
        "gzip": (PROTOBUF, "gzip", gzip.compress(traces("gzip"))),
        "json": (JSON, "identity", as_json("json").partition(b"\r\n\r\n")[2]),
    }
    question = (JSON, "identity", b'{"sql": "SELECT count(*) FROM spans"}')
    with serving(tmp_path / "data") as server:
        otlp = f"http://127.0.0.1:{server.ready['http']}/v1/traces"
        api = f"http://127.0.0.1:{server.ready['web']}/api/v1/query"
        arguments: list[str] = []
        for name, (kind, encoding, body) in {**bodies, "question": question}.items():
            (tmp_path / name).write_bytes(body)
            address = api if name == "question" else otlp
            arguments += [address, kind, encoding, str(tmp_path / name)]
        command = [java, str(HERE / "java" / "JdkClient.java"), *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.splitlines() == ["200 HTTP_1_1"] * 4
        rows = query(tmp_path / "data", "SELECT name FROM spans ORDER BY name")
    assert [row["name"] for row in rows] == sorted(bodies)
