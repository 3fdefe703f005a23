"""`penstock topics`: what is in a data directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.common import (
    data_dir_option,
    existing_data_directory,
    human_bytes,
    json_option,
    print_json,
    print_table,
    say,
)
from penstock.log.survey import survey_log
from penstock.storage import LocalFiles

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.storage import Partition


@click.command()
@data_dir_option
@json_option
def topics(data_dir: Path, as_json: bool) -> None:
    """List the topics with their offsets, sizes and subscribers.

    Works with the server running or stopped. Offsets and messages are those on disk, in log files
    or segments; the lag is that of the slowest subscriber, in bundles.

    Example: penstock topics --data-dir data
    """
    found = [_describe(partition) for partition in existing_data_directory(data_dir).partitions()]
    if as_json:
        print_json(found)
    elif not found:
        say(f"{data_dir} holds no topics yet")
    else:
        shown = ["partition", "earliest", "end", "messages", "files", "segments"]
        print_table(
            ["topic", *shown, "size", "subscribers", "lag"],
            [
                [
                    row["topic"],
                    *(row[key] for key in shown),
                    human_bytes(row["bytes"]),
                    row["subscribers"],
                    row["lag_bundles"],
                ]
                for row in found
            ],
        )


def _describe(partition: Partition) -> dict[str, Any]:
    survey = survey_log(LocalFiles(), partition.log_folder)
    store = _Store.of(partition)
    end = max(survey.end_offset, store.end_offset)
    start = survey.start_offset if survey.files else end
    return {
        "topic": str(partition.topic),
        "namespace": partition.topic.namespace,
        "name": partition.topic.name,
        "partition": partition.number,
        "earliest": min([start, *(first for first, _ in store.ranges)]),
        "end": end,
        "messages": end - start + sum(max(0, min(e, start) - first) for first, e in store.ranges),
        "files": survey.files,
        "segments": len(store.ranges),
        "bytes": survey.bytes + store.bytes,
        "subscribers": store.subscribers,
        "lag_segments": store.lag_segments,
        "lag_bundles": store.lag_bundles,
    }


@dataclass(frozen=True, slots=True)
class _Store:
    """What the acknowledgement log says of a partition; nothing, where there is only a log."""

    end_offset: int = 0
    ranges: tuple[tuple[int, int], ...] = ()
    """First offset and end offset of each segment."""
    bytes: int = 0
    subscribers: int = 0
    lag_segments: int = 0
    """Of the subscriber that lags most; so is `lag_bundles`."""
    lag_bundles: int = 0

    @classmethod
    def of(cls, partition: Partition) -> _Store:
        """Safe beside a running store."""
        if not (partition.folder / "segments").exists():
            return cls()
        from penstock.store.status import subscriber_status
        from penstock.store.verify import is_store, survey_store

        files = LocalFiles()
        if not is_store(files, partition.folder):
            return cls()
        state = survey_store(files, partition.folder).state
        each = [subscriber_status(state, one, 0, 0) for one in state.subscribers.values()]
        return cls(
            state.sealed_offset,
            tuple((info.first_offset, info.end_offset) for info in state.segments.values()),
            state.segment_bytes,
            len(each),
            max((one.lag_segments for one in each), default=0),
            max((one.lag_bundles for one in each), default=0),
        )
