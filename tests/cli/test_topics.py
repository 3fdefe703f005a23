"""`penstock topics` says what is in a data directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.log import Environment, Log
from penstock.metrics import Metrics
from penstock.model import Topic
from penstock.storage import DataDirectory
from tests.cli.running import log_folder, run
from tests.cli.stores import Placed, bundle, delivered, eventually, open_store
from tests.log.small_logs import QUICK, append, write_log

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_topics_are_listed_with_offsets_and_sizes(data: Path, log: Path) -> None:
    """One row a partition."""
    rows = run("topics", "--json", "--data-dir", data).json
    assert [(row["partition"], row["earliest"], row["end"], row["files"]) for row in rows] == [
        (0, 0, 60, 3),
        (1, 0, 7, 1),
    ]
    assert {(row["topic"], row["namespace"], row["name"]) for row in rows} == {
        ("/default/traces", "default", "traces")
    }
    assert rows[0]["bytes"] == sum(path.stat().st_size for path in log.glob("*.wal"))


def test_table_has_a_header_and_aligned_columns(data: Path) -> None:
    """For people: text to the left, numbers to the right."""
    header, first, second = run("topics", "--data-dir", data).out.splitlines()
    offsets = ["topic", "partition", "earliest", "end", "messages", "files"]
    assert header.split() == [*offsets, "segments", "size", "subscribers", "lag"]
    assert first.split()[:7] == ["/default/traces", "0", "0", "60", "60", "3", "0"]
    assert first.index("60") == second.index(" 7")


def test_store_is_listed_with_its_segments_and_lag(store: Placed) -> None:
    """The lag is that of the slowest subscriber; sizes are of log and segments together."""
    (row,) = run("topics", "--json", "--data-dir", store.data).json
    assert (row["segments"], row["subscribers"]) == (3, 2)
    assert (row["lag_segments"], row["lag_bundles"]) == (3, 12)
    files = [*store.folder.glob("segments/*.seg"), *store.folder.glob("log/*.wal")]
    assert row["bytes"] == sum(path.stat().st_size for path in files)


def test_messages_are_counted_once_wherever_they_are(store: Placed) -> None:
    """In segments, in log files, or in both."""
    for log_files in (list(store.folder.glob("log/*.wal")), []):
        (row,) = run("topics", "--json", "--data-dir", store.data).json
        assert (row["earliest"], row["end"], row["messages"]) == (0, 12, 12)
        for path in log_files:
            path.unlink()


def test_store_whose_segments_are_gone_ends_where_it_did(store: Placed) -> None:
    """Everything was delivered and deleted: no message, no segment, no lag."""
    for name in ("exporter", "archive"):
        delivered(store, name)
    with open_store(store.folder) as opened:
        assert eventually(lambda: opened.segments == ())
    (row,) = run("topics", "--json", "--data-dir", store.data).json
    assert (row["end"], row["segments"], row["lag_bundles"]) == (12, 0, 0)


def test_running_store_is_listed(store: Placed) -> None:
    """With what is durable there."""
    with open_store(store.folder) as opened:
        opened.append(bundle(12))
        opened.flush()
        opened.subscribe("exporter").next_bundle(60).ack().wait()
        (row,) = run("topics", "--json", "--data-dir", store.data).json
    assert (row["end"], row["segments"], row["lag_bundles"]) == (13, 4, 13)


def test_directory_without_topics_says_so(tmp_path: Path) -> None:
    """That is no error; JSON is an empty list."""
    DataDirectory(tmp_path / "data").create()
    answer = run("topics", "--data-dir", tmp_path / "data")
    assert (answer.code, answer.err) == (0, "")
    assert "no topics yet" in answer.out
    assert run("topics", "--json", "--data-dir", tmp_path / "data").json == []


def test_missing_directory_is_refused_and_not_made(tmp_path: Path) -> None:
    """A typing mistake leaves nothing behind."""
    answer = run("topics", "--data-dir", tmp_path / "data")
    assert answer.is_one_sentence()
    assert "no data directory" in answer.err
    assert list(tmp_path.iterdir()) == []


def test_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    """Without penstock.json nothing is guessed."""
    answer = run("topics", "--data-dir", tmp_path)
    assert answer.is_one_sentence()
    assert "penstock.json" in answer.err


def test_damaged_and_newer_identities_are_refused(data: Path) -> None:
    """In one sentence that says which of the two it is."""
    for text, word in [("{", "does not describe"), ('{"version": 2, "id": "x"}', "version 2")]:
        (data / "penstock.json").write_text(text)
        answer = run("topics", "--data-dir", data)
        assert answer.is_one_sentence()
        assert word in answer.err


def test_data_directory_comes_from_the_environment(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PENSTOCK_DATA_DIR stands in for the option."""
    monkeypatch.setenv("PENSTOCK_DATA_DIR", str(data))
    assert len(run("topics", "--json").json) == 2


def test_hostile_names_are_shown_as_they_are(data: Path) -> None:
    """Not as the folders that they are encoded to."""
    topic = Topic("Größe", "..")
    write_log(log_folder(data, topic=topic), (1,))
    assert "/Größe/.." in {row["topic"] for row in run("topics", "--json", "--data-dir", data).json}


def test_open_log_is_listed_up_to_its_last_message(data: Path, log: Path) -> None:
    """The server may be running."""
    with Log.open(log, QUICK, env=Environment(metrics=Metrics())) as opened:
        append(opened, 5)
        assert run("topics", "--json", "--data-dir", data).json[0]["end"] == 65
