"""Who may read what is on disk: its owner alone, unless the configuration says otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.client import RemoteSubscriber
from penstock.otel import Signal
from tests.server.running import Server, serving
from tests.server.samples import sample


def fill(server: Server) -> None:
    """Every kind of file that a server writes."""
    for signal in Signal:
        assert server.post(signal, sample(signal, "x")).status == 200
    assert server.ask("POST", "/api/v1/flush", port="web").status == 200
    assert server.ask("POST", "/api/v1/hot-snapshot", port="web").status == 200
    location = f"grpc://127.0.0.1:{server.ready['flight']}"
    with RemoteSubscriber(location, "/default/traces", "mine") as subscriber:
        subscriber.register()


def modes(data: Path) -> dict[str, set[str]]:
    """Those of folders and files, in octal; sockets stand in a folder of their owner's."""
    found: dict[str, set[str]] = {"folders": set(), "files": set()}
    for path in (data, *data.rglob("*")):
        if "sockets" not in path.relative_to(data).parts and not path.is_socket():
            kind = "folders" if path.is_dir() else "files"
            found[kind].add(f"{path.stat().st_mode & 0o777:o}")
    return found


@pytest.mark.parametrize(
    ("config", "folders", "files"),
    [
        ({}, {"700"}, {"600", "400"}),
        ({"file_access": "group"}, {"750"}, {"640", "440"}),
    ],
    ids=["owner", "group"],
)
def test_files_are_for_those_who_may(
    tmp_path: Path, config: dict[str, Any], folders: set[str], files: set[str]
) -> None:
    """Whatever the mask of whoever starts the server; finished ones are read-only."""
    data = tmp_path / "data"
    archive = {"url": f"file://{tmp_path / 'objects'}", "upload_interval": "100ms"}
    with serving(data, config={**config, "archive": archive, "limits": {}}) as server:
        fill(server)
        assert server.stop() == 0
    assert modes(data) == {"folders": folders, "files": files}
    found = modes(tmp_path / "objects")
    assert found["folders"] == folders
    assert found["files"] <= files


def test_directory_of_an_earlier_release_is_closed(tmp_path: Path) -> None:
    """Its files were for everybody; nobody comes to them any more."""
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    with serving(data) as server:
        assert data.stat().st_mode & 0o777 == 0o700
        assert "no longer open to others" in server.errors
