"""A segment or a file of the log that somebody removed is missed; what was let go of is not."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from penstock.otel import Signal
from tests.cli.running import Answer, run
from tests.server.running import Server, serving, until
from tests.server.samples import traces

if TYPE_CHECKING:
    from pathlib import Path

COUNT = "SELECT count(*) AS count FROM spans"
SEALS_EACH = {"segment": {"max_open_duration": "10ms"}, "wal": {"rotate_size": "64KiB"}}
SEALS_NOTHING = {"segment": {"max_open_duration": "1h"}, "wal": {"rotate_size": "64KiB"}}
_LARGE = 70_000
"""Bytes of a request that finishes its log file."""


def send(server: Server, *names: str) -> None:
    """Each is acknowledged, and finishes a file of the log."""
    for name in names:
        assert server.post(Signal.TRACES, traces(name, padding=_LARGE)).status == 200


def partition(data: Path) -> Path:
    """Of the spans."""
    return data / "topics" / "default" / "traces" / "0"


def files(data: Path, folder: str, suffix: str) -> list[Path]:
    """In the order of offsets."""
    return sorted((partition(data) / folder).glob(f"*.{suffix}"))


def query(data: Path, *options: str) -> Answer:
    """How many spans there are."""
    return run("query", "--data-dir", data, *options, COUNT)


def check_refused(data: Path, name: str, messages: str, left: int) -> None:
    """By the name of the file and its offsets; the rest is there for whoever asks for it."""
    refused = query(data)
    assert refused.is_one_sentence(), (refused.out, refused.err)
    assert name in refused.err
    assert messages in refused.err
    partial = query(data, "--partial")
    assert (partial.code, partial.out.split()) == (0, ["count", str(left)])
    assert name in partial.err


def check_settled(data: Path, left: int) -> None:
    """A repair writes the loss down; from then on it stands in nobody's way."""
    assert run("fsck", data).code == 1
    assert run("fsck", "--repair", data).code == 0
    answer = query(data)
    assert (answer.code, answer.out.split()) == (0, ["count", str(left)]), answer.err


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three spans in a segment each, of a server that was stopped."""
    data = tmp_path_factory.mktemp("sealed") / "data"
    with serving(data, config=SEALS_EACH) as server:
        for number in range(3):
            send(server, f"span {number}")
            until(lambda number=number: len(files(data, "segments", "seg")) == number + 1)
        assert server.stop() == 0
    assert query(data).out.split() == ["count", "3"]
    return data


@pytest.fixture(scope="module")
def unsealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four spans in a file of the log each, three finished; no segment; the server was killed."""
    data = tmp_path_factory.mktemp("unsealed") / "data"
    with serving(data, config=SEALS_NOTHING) as server:
        send(server, *(f"span {number}" for number in range(4)))
        until(lambda: '"next_offset":3' in checkpoint(data))
        server.kill()
    assert query(data).out.split() == ["count", "4"]
    return data


def checkpoint(data: Path) -> str:
    """What the log has written down of its finished files."""
    path = partition(data) / "log" / "log.ckpt"
    return path.read_text().replace(" ", "") if path.exists() else ""


def copy(data: Path, tmp_path: Path) -> Path:
    """To be harmed."""
    return shutil.copytree(data, tmp_path / "copy", ignore=shutil.ignore_patterns("sockets"))


@pytest.mark.parametrize("number", [0, 1])
def test_removed_segment_is_missed(sealed: Path, tmp_path: Path, number: int) -> None:
    """The acknowledgement log still names it."""
    data = copy(sealed, tmp_path)
    path = files(data, "segments", "seg")[number]
    path.unlink()
    check_refused(data, path.name, f"messages {number} to {number}", left=2)
    check_settled(data, left=2)


def test_removed_folder_of_segments_is_missed(sealed: Path, tmp_path: Path) -> None:
    """Nothing is left of it that could be listed."""
    data = copy(sealed, tmp_path)
    first = files(data, "segments", "seg")[0]
    shutil.rmtree(first.parent)
    for path in files(data, "log", "wal"):
        path.unlink()
    check_refused(data, first.name, "messages 0 to 0", left=0)


@pytest.mark.parametrize("number", [0, 1])
def test_removed_file_of_the_log_is_missed(unsealed: Path, tmp_path: Path, number: int) -> None:
    """The first or one in between: none was sealed."""
    data = copy(unsealed, tmp_path)
    path = files(data, "log", "wal")[number]
    path.unlink()
    refused = query(data)
    assert refused.is_one_sentence(), (refused.out, refused.err)
    assert path.name in refused.err
    assert query(data, "--partial").out.split() == ["count", "3"]
    check_settled(data, left=3)


def test_what_was_let_go_of_is_not_missed(tmp_path: Path) -> None:
    """Too old, by the configuration: that loss is asked for."""
    data = tmp_path / "data"
    aged = {**SEALS_EACH, "retention": {"max_retain_after_ingestion_hours": 0.001}}
    with serving(data, config=aged) as server:
        send(server, "span 0")
        until(lambda: files(data, "segments", "seg"))
        until(lambda: not files(data, "segments", "seg"))
        send(server, "span 1")
        until(lambda: files(data, "segments", "seg"))
        server.kill()
    answer = query(data)
    assert (answer.code, answer.out.split(), answer.err) == (0, ["count", "1"], "")
    assert run("fsck", data).code == 0
