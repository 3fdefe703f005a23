"""The hot snapshot: what is in it, when, and what it leaves alone."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from penstock.lake.schemas import TABLES
from penstock.lake.settings import LakeSettings
from penstock.model.errors import AnswerIncomplete
from penstock.otel import Signal
from penstock.server.querying import snapshot
from penstock.server.querying.snapshot import take_snapshot
from penstock.tiers.fresh_rows import Fresh
from tests.pipeline.flush.helpers import Plain, without_spark
from tests.pipeline.helpers import TRACES, Data, spans
from tests.query.helpers import cold, hot, named, warm
from tests.server.running import Answer, Server, serving
from tests.server.samples import traces


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Data:
    """An empty data directory; flushes do without Spark."""
    without_spark(monkeypatch)
    return Data(tmp_path / "data")


def take(data: Data) -> tuple[list[str], dict[str, Any]]:
    """The names of the spans in a snapshot, and what was said of it."""
    found = take_snapshot(data.root, LakeSettings.of(data.root))
    assert found["warnings"] == []
    table = pq.read_table(found["snapshot_path"], partitioning=None)
    assert table.schema.names == TABLES["spans"].names
    assert table.num_rows == found["row_count"]
    assert Path(found["snapshot_path"]).stat().st_size == found["file_size_bytes"]
    return sorted(table["name"].to_pylist()), found


def test_snapshot_has_what_the_lake_has_not(data: Data) -> None:
    """Warm and hot, each once; the lake's own files are named beside it."""
    cold(data, spans(1, 2))
    warm(data, spans(3), spans(4))
    with hot(data, spans(5), spans(6, 7)):
        names, found = take(data)
    assert names == named([3, 4, 5, 6, 7])
    [path] = found["recent_cold_paths"]
    assert sorted(pq.read_table(path, partitioning=None)["name"].to_pylist()) == named([1, 2])


def test_empty_directory_has_an_empty_snapshot(data: Data) -> None:
    """With the columns that it would have."""
    names, found = take(data)
    assert (names, found["recent_cold_paths"]) == ([], [])


def test_all_partitions_and_namespaces_are_in_it(data: Data) -> None:
    """Messages of the same offset are kept apart."""
    other = type(TRACES)("other", "traces")
    warm(data, spans(1))
    warm(data, spans(2), topic=other)
    with hot(data, spans(3), partition=1), hot(data, spans(4), topic=other, partition=1):
        names, _ = take(data)
    assert names == named([1, 2, 3, 4])


def test_nothing_is_sealed_or_deleted(data: Data) -> None:
    """Logs and segments are those that were there."""
    warm(data, spans(1))
    with hot(data, spans(2)) as store:
        before = _stored(data)
        take(data)
        assert _stored(data) == before
        assert len(store.segments) == 1


def _stored(data: Data) -> list[Path]:
    return sorted(path for path in data.root.rglob("*") if path.suffix in (".wal", ".seg"))


def test_what_is_sealed_meanwhile_is_in_it_once(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log had it, and now a segment has it too."""
    look = Fresh.look
    with hot(data, spans(1), spans(2)) as store:

        def sealed_first(self: Any) -> None:
            store.append_durable(spans(3))
            store.flush()
            look(self)

        monkeypatch.setattr(Fresh, "look", sealed_first)
        names, _ = take(data)
    assert names == named([1, 2, 3])


def test_what_goes_to_the_lake_meanwhile_is_named_there(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the snapshot or in the lake, and not in both."""
    look = Fresh.look
    with hot(data, spans(1)) as store:

        def flushed_first(self: Any) -> None:
            store.flush()
            Plain(data).run()
            look(self)

        monkeypatch.setattr(Fresh, "look", flushed_first)
        names, found = take(data)
    assert names == []
    assert len(found["recent_cold_paths"]) == 1


def test_snapshot_is_replaced_whole(data: Data) -> None:
    """A reader of the old one keeps it; nothing else is left in the folder."""
    with hot(data, spans(1)) as store:
        _, found = take(data)
        path = Path(found["snapshot_path"])
        with pq.ParquetFile(path) as old:
            store.append_durable(spans(2))
            assert take(data)[0] == named([1, 2])
            assert old.read()["name"].to_pylist() == named([1])
    assert [each.name for each in path.parent.iterdir()] == ["hot_snapshot.parquet"]


def test_failed_snapshot_leaves_the_old_one(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no scratch files."""
    with hot(data, spans(1)) as store:
        _, found = take(data)
        store.append_durable(spans(2))
        monkeypatch.setattr(snapshot, "_sync", _fail)
        with pytest.raises(OSError, match="no space"):
            take(data)
    path = Path(found["snapshot_path"])
    assert pq.read_table(path, partitioning=None).num_rows == 1
    assert [each.name for each in path.parent.iterdir()] == ["hot_snapshot.parquet"]


def _fail(*_: object) -> None:
    raise OSError("no space")


def test_row_groups_are_written_as_they_fill(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that memory is that of one of them."""
    monkeypatch.setattr(snapshot, "_GROUP_ROWS", 3)
    for number in range(4):
        warm(data, spans(2 * number, 2 * number + 1))
    _, found = take(data)
    assert pq.read_metadata(found["snapshot_path"]).num_row_groups == 3


def test_damaged_segment_is_named_and_the_rest_is_there(data: Data) -> None:
    """Whoever reads the snapshot knows that something is missing."""
    warm(data, spans(1))
    warm(data, spans(2))
    path = min(data.root.rglob("*.seg"))
    text = bytearray(path.read_bytes())
    text[len(text) // 4] ^= 1
    path.chmod(0o600)
    path.write_bytes(text)
    with pytest.raises(AnswerIncomplete, match=path.name):
        take_snapshot(data.root, LakeSettings.of(data.root))
    found = take_snapshot(data.root, LakeSettings.of(data.root), partial=True)
    assert pq.read_table(found["snapshot_path"])["name"].to_pylist() == named([2])
    assert any(path.name in warning for warning in found["warnings"])


def test_only_new_files_of_the_lake_are_named(data: Data) -> None:
    """Everybody knows of the others by now."""
    cold(data, spans(1))
    [path] = take(data)[1]["recent_cold_paths"]
    os.utime(path, (0, 0))
    assert take(data)[1]["recent_cold_paths"] == []


# --- over the API ------------------------------------------------------------------------------


def call(server: Server) -> Answer:
    """The call."""
    return server.ask("POST", "/api/v1/hot-snapshot", port="web")


def test_calls_that_come_together_share_one(server: Server) -> None:
    """One file is written for all of them."""
    server.post(Signal.TRACES, traces("shared"))
    folder = Path(server.ready["data_dir"]) / "snapshots"
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: call(server), range(8)))
    assert {answer.status for answer in answers} == {200}
    assert len({answer.body for answer in answers}) == 1
    found = answers[0].json
    keys = {"snapshot_path", "row_count", "file_size_bytes", "recent_cold_paths", "warnings"}
    assert set(found) == {*keys, "partial"}
    assert Path(found["snapshot_path"]) == folder / "hot_snapshot.parquet"
    assert pq.read_table(found["snapshot_path"]).num_rows == found["row_count"] == 1


def test_ingest_goes_on_while_a_snapshot_is_taken(tmp_path: Path) -> None:
    """And what was acknowledged before the call is in it."""
    with serving(tmp_path / "data") as server:
        server.post(Signal.TRACES, traces(*(f"before {number}" for number in range(2000))))
        with ThreadPoolExecutor(1) as pool:
            taking = pool.submit(call, server)
            sent = 0
            while not taking.done() or not sent:
                assert server.post(Signal.TRACES, traces(f"during {sent}")).status == 200
                sent += 1
        assert 2000 <= taking.result().json["row_count"] <= 2000 + sent
