"""The queue to the lake: every request once, though consumers are killed and fenced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from penstock.model import Topic
from penstock.model.errors import Fenced, OffsetUnavailable
from penstock.model.positions import QUEUE_PARTITION
from penstock.otel import Signal
from penstock.pipeline.feeds import ASIDE, QueueFeed
from penstock.pipeline.flush import batch
from penstock.queue import Consumer, Inspector, Producer
from penstock.queue.otlp import Origin, encode_origin
from penstock.tiers.queue_segments import OFFSETS_PER_BATCH
from tests.pipeline.flush.helpers import Plain, lake_rows, logs, names_in, without_spark
from tests.pipeline.helpers import LOGS, TRACES, Data, named, spans

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ACME = Topic("acme", "traces")


@dataclass
class Queue:
    """A queue in a folder, and one who produces."""

    url: str
    producer: Producer

    def put(self, *requests: bytes, topic: Topic = TRACES, metadata: bytes | None = None) -> None:
        """Each call is part of the present batch."""
        signal = Signal(topic.name)
        said = encode_origin(Origin(topic, signal)) if metadata is None else metadata
        self.producer.produce(requests, said)

    def end_batch(self) -> None:
        """What was put is enqueued."""
        self.producer.flush()

    def batch(self, *requests: bytes, topic: Topic = TRACES) -> None:
        """One of its own."""
        self.put(*requests, topic=topic)
        self.end_batch()

    def waiting(self, data: Data) -> list[int]:
        """The sequences that nobody has dequeued."""
        return [*QueueFeed(data.root, self.url, consumes=False).segments().waiting()]


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    """Empty."""
    url = (tmp_path / "objects").as_uri()
    with Producer.open(url) as producer:
        yield Queue(url, producer)


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch)


def test_requests_go_to_the_tables_of_their_topics(data: Data, queue: Queue) -> None:
    """Those of several namespaces and signals share a batch."""
    queue.put(spans(1))
    queue.put(spans(2), spans(3), topic=ACME)
    queue.put(logs("a"), topic=LOGS)
    queue.put(spans(4))
    queue.end_batch()
    queue.batch(logs("b"), topic=LOGS)
    Plain(data, QueueFeed(data.root, queue.url)).run()
    rows = lake_rows(data, "spans").sort_by("name")
    assert rows["name"].to_pylist() == named(1, 2, 3, 4)
    assert rows["namespace"].to_pylist() == ["default", "acme", "acme", "default"]
    assert rows["_offset"].to_pylist() == [0, 1, 2, 4]
    assert set(rows["_topic_partition"].to_pylist()) == {QUEUE_PARTITION}
    found = lake_rows(data, "logs").sort_by("body")
    assert found["_offset"].to_pylist() == [3, OFFSETS_PER_BATCH]
    assert queue.waiting(data) == []


def test_a_pipeline_goes_on_where_the_last_one_ended(data: Data, queue: Queue) -> None:
    """What waits since then is new, and nothing else."""
    queue.batch(spans(1))
    Plain(data, QueueFeed(data.root, queue.url)).run()
    queue.batch(spans(2))
    queue.batch(logs("a"), topic=LOGS)
    queue.batch(spans(3))
    Plain(data, QueueFeed(data.root, queue.url)).run(batch_segments=1)
    assert names_in(data) == named(1, 2, 3)
    assert queue.waiting(data) == []


def test_kill_between_two_tables_loses_and_repeats_nothing(
    data: Data, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch stays in the queue until the last of its tables is committed."""
    queue.put(spans(1))
    queue.put(logs("a"), topic=LOGS)
    queue.end_batch()
    inner = batch.commit

    def killed(table: object, *parts: object, **named: object) -> object:
        if table.name()[-1] == "logs":  # type: ignore[attr-defined] # a table
            raise KeyboardInterrupt
        return inner(table, *parts, **named)  # type: ignore[arg-type] # as they came

    monkeypatch.setattr(batch, "commit", killed)
    with pytest.raises(KeyboardInterrupt):
        Plain(data, QueueFeed(data.root, queue.url)).run()
    assert queue.waiting(data) == [0]
    monkeypatch.setattr(batch, "commit", inner)
    Plain(data, QueueFeed(data.root, queue.url)).run()
    assert (names_in(data), queue.waiting(data)) == (named(1), [])
    assert lake_rows(data, "logs")["body"].to_pylist() == ["a"]


def test_kill_before_the_acknowledgement_repeats_nothing(
    data: Data, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lake knows, and the next one tells the queue before it begins."""
    queue.batch(spans(1))
    pipeline = Plain(data, QueueFeed(data.root, queue.url))
    monkeypatch.setattr(QueueFeed, "acknowledge", lambda *_: None)
    pipeline.run()
    monkeypatch.undo()
    without_spark(monkeypatch)
    assert queue.waiting(data) == [0]
    Plain(data, QueueFeed(data.root, queue.url)).run()
    assert (names_in(data), queue.waiting(data)) == (named(1), [])


def test_consumer_that_is_fenced_within_a_batch_commits_nothing(
    data: Data, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are there by then, and belong to no table."""
    queue.batch(spans(1))
    stale = Plain(data, QueueFeed(data.root, queue.url))
    inner = batch.run_in_tasks

    def claimed_meanwhile(*parts: object) -> object:
        done = inner(*parts)  # type: ignore[arg-type] # as they came
        with Consumer.open(queue.url) as other:
            other.initialize()
        return done

    monkeypatch.setattr(batch, "run_in_tasks", claimed_meanwhile)
    with pytest.raises(Fenced):
        stale.run()
    assert lake_rows(data, "spans").num_rows == 0
    assert queue.waiting(data) == [0]


def test_queue_that_somebody_else_consumed_is_refused(data: Data, queue: Queue) -> None:
    """Batches are missing between what the lake has and what waits."""
    queue.batch(spans(1))
    Plain(data, QueueFeed(data.root, queue.url)).run()
    queue.batch(spans(2))
    queue.batch(spans(3))
    with Consumer.open(queue.url) as other:
        other.initialize()
        other.ack_through(1)
    with pytest.raises(OffsetUnavailable, match="batches up to 0, and the queue holds 2 to 2"):
        Plain(data, QueueFeed(data.root, queue.url))


def test_what_cannot_be_read_is_set_aside_and_the_rest_goes_on(
    data: Data, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests that are none, and those of which nobody knows what they are."""
    queue.put(spans(1))
    queue.put(b"\xff no request")
    queue.put(spans(2), metadata=b"another program's")
    queue.put(spans(3))
    queue.end_batch()
    Plain(data, QueueFeed(data.root, queue.url)).run()
    assert names_in(data) == named(1, 3)
    assert "message 1 cannot be decoded" in caplog.text
    assert "metadata version" in caplog.text
    kept = sorted(path.name for path in (data.root / ASIDE).iterdir())
    assert len(kept) == 2
    assert queue.waiting(data) == []


def test_damaged_batch_is_named_and_kept(
    data: Data, queue: Queue, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The other batches are in the lake."""
    queue.batch(spans(1))
    [path] = (tmp_path / "objects" / "ingest").rglob("*.batch")
    queue.batch(spans(2))
    whole = path.read_bytes()
    path.write_bytes(whole[:20] + bytes([whole[20] ^ 1]) + whole[21:])
    Plain(data, QueueFeed(data.root, queue.url)).run()
    assert names_in(data) == named(2)
    assert f"{path.name} of sequence 0 cannot be read" in caplog.text
    [kept] = (data.root / ASIDE).iterdir()
    assert kept.read_bytes() == path.read_bytes()


def test_an_acknowledgement_reads_new_entries_alone(
    data: Data, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many wait: those that were listed are remembered."""
    begun: list[int] = []
    inner = Inspector.entries

    def entries(self: Inspector, begin: int | None = None) -> object:
        begun.append(begin or 0)
        return inner(self, begin)

    monkeypatch.setattr(Inspector, "entries", entries)
    feed = QueueFeed(data.root, queue.url)
    for number in range(1, 4):
        queue.batch(spans(number))
        feed.acknowledge({})
    assert begun == [0, 1, 2]
    assert queue.waiting(data) == [0, 1, 2]
