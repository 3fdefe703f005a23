"""A topic partition and its subscribers, as the worker that has it open knows them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.model.topics import Topic
    from penstock.store import Store


def describe(topic: Topic, partition: int, store: Store) -> dict[str, Any]:
    """Offsets, sizes, and the progress of every subscriber."""
    status, segments, log = store.status(), store.segments, store.log
    earliest = min([log.start_offset, *(info.first_offset for info in segments)])
    sealed = max([earliest, *(info.end_offset for info in segments)])
    return {
        "topic": str(topic),
        "namespace": topic.namespace,
        "name": topic.name,
        "partition": partition,
        "earliest": earliest,
        "sealed": sealed,
        "end": log.end_offset,
        "segments": status.segments,
        "bytes": status.used_bytes,
        "limit_bytes": _whole(status.limit_bytes),
        "open_bytes": status.open_bytes,
        "subscribers": [_progress(each) for each in status.subscribers],
    }


def _whole(limit: float) -> int | None:
    return None if limit == float("inf") else int(limit)


def _progress(subscriber: Any) -> dict[str, Any]:
    return asdict(subscriber)
