"""A data directory whose rows are where a test wants them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.lake.settings import LakeSettings
from penstock.log.environment import Environment, MemoryBound
from penstock.metrics import Metrics
from penstock.model.settings import SegmentSettings, StoreSettings
from penstock.otel import Signal
from penstock.query.engine import Answer, ask
from penstock.storage import DataDirectory
from penstock.store import Store
from tests.pipeline.flush.helpers import Plain
from tests.pipeline.helpers import TRACES, Data, RequestDecoder

if TYPE_CHECKING:
    from penstock.model import Topic

_OPEN = StoreSettings(segment=SegmentSettings(max_open_s=100_000.0))


def cold(data: Data, *requests: bytes, topic: Topic = TRACES, partition: int = 0) -> None:
    """Puts requests into the lake, and everything else that is sealed."""
    data.seal(requests, topic=topic, partition=partition)
    Plain(data).run()


def warm(data: Data, *requests: bytes, topic: Topic = TRACES, partition: int = 0) -> None:
    """Puts requests into a sealed segment."""
    data.seal(requests, topic=topic, partition=partition)


@contextlib.contextmanager
def hot(data: Data, *requests: bytes, topic: Topic = TRACES, partition: int = 0) -> Iterator[Store]:
    """Requests are durable in the log of a store that is open, and sealed nowhere."""
    folder = DataDirectory(data.root).partition(topic, partition).folder
    env = Environment(metrics=Metrics(), memory=MemoryBound())
    decoder = RequestDecoder(Signal(topic.name))
    with Store.open(folder, _OPEN, decoder=decoder, env=env) as store:
        for request in requests:
            store.append_durable(request)
        yield store


def answer(data: Data, sql: str, **options: Any) -> Answer:
    """What is found, with everything that goes with it."""
    return ask(data.root, LakeSettings.of(data.root), sql, **options)


def values(data: Data, sql: str, **options: Any) -> list[tuple[Any, ...]]:
    """The rows; nothing was left out."""
    found = answer(data, sql, **options)
    assert found.warnings == []
    return [tuple(row.values()) for row in found.rows.to_pylist()]


def names(data: Data, **options: Any) -> list[str]:
    """Of all spans, sorted."""
    return [name for (name,) in values(data, "SELECT name FROM spans ORDER BY name", **options)]


def named(numbers: Iterable[int]) -> list[str]:
    """What `names` gives for the spans of these numbers."""
    return sorted(f"span {number}" for number in numbers)
