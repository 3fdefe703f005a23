"""Questions beside a server under load, whose data move on while they are answered.

Requests come in as fast as they are answered, segments are sealed every moment, a pipeline takes
them to the lake, where files are replaced and deleted at once. Each answer has every span that was
acknowledged before it was asked, and none that was not sent before it was given.
"""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.flight as pf
import pyarrow.parquet as pq
import pytest

from penstock.lake.files import live_files
from penstock.lake.layout import replacement_key
from penstock.lake.orphans import remove_orphans
from penstock.lake.replace import replace
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
from penstock.lake.target import Target
from penstock.lake.writer import write_rows
from tests.cli.running import finish, start
from tests.pipeline.flush.helpers import Plain, without_spark
from tests.pipeline.helpers import Data
from tests.server.running import Server, serving
from tests.server.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COUNT = "SELECT count(*) AS count FROM spans"
BUSY = {
    "segment": {"target_size": "64KiB", "max_open_duration": "0.1s"},
    "wal": {"rotate_size": "64KiB"},
}


class Moving:
    """A pipeline that takes what is sealed to the lake, merges its files and deletes the others."""

    def __init__(self, root: Path) -> None:
        self.rounds = 0
        self.error: BaseException | None = None
        self._root = root
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Moving:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            pipeline = Plain(Data(self._root))
            with Lake.open(LakeSettings.of(self._root)) as lake:
                table = lake.table("spans")
                while not self._ended.is_set():
                    pipeline.run()
                    self._merge(table)
                    remove_orphans(table, 0.0)
                    self.rounds += 1
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def _merge(self, table: Any) -> None:
        table.refresh()
        files = list(live_files(table))
        if len(files) < 2:
            return
        rows = pa.concat_tables(
            [pq.read_table(file.path, partitioning=None) for file in files],
            promote_options="permissive",
        )
        key = replacement_key(file.path for file in files)
        replace(table, files, write_rows(rows, Target.of(table), key, 0))


def by_command(server: Server) -> int:
    """A process of its own."""
    data = server.ready["data_dir"]
    answer = finish(start("query", "--data-dir", data, "--format", "csv", COUNT))
    assert answer.code == 0, answer.err
    return int(answer.out.split()[-1])


def by_api(server: Server) -> int:
    """A process that remembers."""
    answer = server.ask("POST", "/api/v1/query", json.dumps({"sql": COUNT}).encode(), port="web")
    assert answer.status == 200, answer.body
    assert answer.json["partial"] is False
    return int(answer.json["rows"][0][0])


def fresh_by_snapshot(server: Server) -> None:
    """Part of the spans; it must not fail."""
    answer = server.ask("POST", "/api/v1/hot-snapshot", port="web")
    assert answer.status == 200, answer.body


def fresh_by_flight(server: Server) -> None:
    """The same."""
    client = pf.connect(f"grpc://127.0.0.1:{server.ready['flight']}")
    ticket = pf.Ticket(json.dumps({"table": "spans", "tiers": ["hot", "warm"]}))
    client.do_get(ticket).read_all()


def ask_for(root: Path, seconds: float, rounds: int) -> None:
    """Questions of every kind, for so long and over so many rounds of moving."""
    doors: list[Callable[[Server], int]] = [by_api, by_command]
    with (
        serving(root, config=BUSY) as server,
        Traffic(server, "busy", clients=4) as traffic,
        Moving(root) as moving,
    ):
        traffic.wait_for(20)
        seen, asked, end = 0, 0, time.monotonic() + seconds
        while time.monotonic() < end or moving.rounds < rounds:
            assert moving.error is None, moving.error
            for door in doors:
                before = len(traffic.outcome.answered)
                found = door(server)
                assert found >= max(before, seen), f"{door.__name__} lacks spans"
                # Each of the clients may have one on its way that nobody has counted yet.
                assert found <= len(traffic.outcome.answered) + 4, f"{door.__name__} has too many"
                seen = found
                asked += 1
            fresh_by_snapshot(server)
            fresh_by_flight(server)
    assert asked >= len(doors)
    assert moving.error is None, moving.error


def test_questions_beside_a_busy_server_are_answered_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whichever door; some seconds of it."""
    without_spark(monkeypatch)
    ask_for(tmp_path / "data", seconds=3.0, rounds=3)


@pytest.mark.soak
def test_questions_beside_a_busy_server_are_answered_whole_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A minute of it."""
    without_spark(monkeypatch)
    ask_for(tmp_path / "data", seconds=60.0, rounds=20)
