"""`penstock queue` says what waits, and tidies up."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from penstock.model.topics import Topic
from penstock.otel.signals import Signal
from penstock.queue import Consumer, ConsumerSettings, Producer, ProducerSettings
from penstock.queue.otlp import Origin, encode_origin
from tests.cli.running import run
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

ORIGIN = encode_origin(Origin(Topic("default", "traces"), Signal.TRACES))


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A queue with three batches, one of them acknowledged."""
    place = (tmp_path / "store").as_uri()
    with Producer.open(place, ProducerSettings(flush_interval_s=0.001)) as producer:
        for metadata in (ORIGIN, ORIGIN, b"?"):
            producer.produce([b"one", b"two"], metadata).watcher.wait(PATIENCE_S)
    with Consumer.open(place, ConsumerSettings(gc_interval_s=None)) as consumer:
        consumer.initialize()
        consumer.next_batch()
        consumer.ack(0)
    return place


def batches(url: str) -> list[str]:
    """The files of the batches, oldest first."""
    from pathlib import Path
    from urllib.parse import urlsplit

    return sorted(str(path) for path in Path(urlsplit(url).path).rglob("*.batch"))


def test_status_is_one_document(url: str) -> None:
    """Nothing else is on stdout."""
    status = run("queue", "status", "--json", url).json
    assert (status["waiting"], status["first_sequence"], status["next_sequence"]) == (2, 1, 3)
    assert (status["manifest_version"], status["epoch"]) == (2, 1)
    assert status["oldest_age_s"] >= 0


def test_status_for_people(url: str) -> None:
    """One fact a line."""
    lines = run("queue", "status", url).out.splitlines()
    assert [line.split()[0] for line in lines] == [
        *("queue", "waiting", "sequences", "oldest", "epoch", "manifest")
    ]
    assert lines[1].split()[1:3] == ["2", "batches,"]


def test_looking_fences_nobody(url: str) -> None:
    """The epoch stays."""
    for verb in ("status", "dump"):
        assert run("queue", verb, url).code == 0
    assert run("queue", "status", "--json", url).json["epoch"] == 1


def test_dump_lists_what_waits(url: str) -> None:
    """With topic and signal where the metadata are those of OTLP."""
    rows = run("queue", "dump", "--json", url).json_lines
    assert [row["sequence"] for row in rows] == [1, 2]
    assert rows[0]["metadata"][0]["topic"] == "/default/traces"
    assert base64.b64decode(rows[1]["metadata"][0]["payload_base64"]) == b"?"
    header, first, second = run("queue", "dump", url).out.splitlines()
    assert header.split()[0] == "sequence"
    assert "/default/traces" in first
    assert "/default/traces" not in second


def test_dump_shows_entries_when_told_to(url: str) -> None:
    """From a sequence on, and no more than asked for."""
    answer = run("queue", "dump", "--json", "--records", "--from", "2", "--count", "1", url)
    (row,) = answer.json_lines
    assert row["sequence"] == 2
    assert [base64.b64decode(each) for each in row["records_base64"]] == [b"one", b"two"]


def test_dump_names_what_cannot_be_read(url: str) -> None:
    """It goes on behind it, and exits with 1."""
    from pathlib import Path

    Path(batches(url)[1]).write_bytes(b"rubbish")
    answer = run("queue", "dump", "--json", "--records", url)
    assert answer.code == 1
    assert [row["sequence"] for row in answer.json_lines] == [1, 2]
    assert "sequence 1 cannot be read" in answer.err


def test_dump_of_an_empty_queue_says_so(tmp_path: Path) -> None:
    """Rather than nothing."""
    url = tmp_path.as_uri()
    Producer.open(url).close()
    assert run("queue", "dump", url).out == "nothing waits\n"


def test_gc_deletes_what_is_not_needed(url: str) -> None:
    """After the grace period; a dry run only says so."""
    found = run("queue", "gc", "--json", url).json
    assert (found["batches"], found["kept"]) == (0, 3)
    found = run("queue", "gc", "--json", "--grace", "0", "--dry-run", url).json
    assert (found["batches"], found["dry_run"], len(batches(url))) == (1, True, 3)
    answer = run("queue", "gc", "--grace", "0", url)
    assert answer.out.startswith("deleted 1 batches (")
    assert len(batches(url)) == 2


def test_place_without_a_queue_is_one_sentence(tmp_path: Path) -> None:
    """Exit code 1."""
    for verb in ("status", "dump", "gc"):
        assert run("queue", verb, tmp_path.as_uri()).is_one_sentence()


def test_lost_manifest_is_one_sentence(url: str) -> None:
    """Nothing is deleted while the manifest is in doubt."""
    from pathlib import Path

    files = batches(url)
    (Path(files[0]).parent / "manifest").unlink()
    answer = run("queue", "gc", "--grace", "0", url)
    assert answer.is_one_sentence()
    assert batches(url) == files


def test_wrong_url_is_a_usage_error() -> None:
    """Exit code 2."""
    for arguments in (["status", "nowhere"], ["gc"], ["dump", "--count", "0", "memory://x"]):
        assert run("queue", *arguments).code == 2
