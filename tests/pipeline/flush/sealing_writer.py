"""A process that seals segments until its stdin is closed, and lets go of what the lake has.

    python -m tests.pipeline.flush.sealing_writer DATA

What message N says is known to everybody (`trace_request`, `log_request`), so that at the end it
prints no more than `sealed TRACES LOGS`: how many of each there are. It also acknowledges what
`delivered.json` says, as a server does: what the lake has not got is then gone.
"""

from __future__ import annotations

import contextlib
import select
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.log.environment import Environment, MemoryBound
from penstock.metrics import Metrics
from penstock.model.settings import SegmentSettings, StoreSettings
from penstock.otel import Signal
from penstock.storage import DataDirectory
from penstock.store import Store
from penstock.store.outside import LAKE, DeliveredFile, acknowledge
from tests.patience import PATIENCE_S
from tests.pipeline.flush.helpers import logs
from tests.pipeline.helpers import HOUR_NS, LOGS, MORNING_NS, TRACES, RequestDecoder, spans

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.model import Topic

PAUSE_S = 0.25
"""Between two segments of a topic."""
WAIT_S = PATIENCE_S


def trace_request(number: int) -> bytes:
    """Message `number` of the traces: three spans, all of one morning."""
    first = 3 * number
    return spans(first, first + 1, first + 2, start_ns=MORNING_NS - first * HOUR_NS)


def log_request(number: int) -> bytes:
    """Message `number` of the logs, in which one record is there twice."""
    return logs(f"log {number}", f"log {number}", f"end {number}")


@contextlib.contextmanager
def opened(data_dir: Path, topic: Topic) -> Iterator[Store]:
    """The store of a topic's partition 0."""
    folder = DataDirectory(data_dir).partition(topic, 0).folder
    parts: dict[str, Any] = {
        "env": Environment(metrics=Metrics(), memory=MemoryBound()),
        "name": f"{topic}/0",
    }
    decoder = RequestDecoder(Signal(topic.name))
    settings = StoreSettings(segment=SegmentSettings(max_open_s=100_000.0))
    with Store.open(folder, settings, decoder=decoder, registered=[LAKE], **parts) as store:
        yield store


def main() -> None:
    """Goes on until nobody listens any more."""
    data_dir = Path(sys.argv[1])
    delivered, written = DeliveredFile(data_dir), 0
    with opened(data_dir, TRACES) as traces, opened(data_dir, LOGS) as records:
        while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
            traces.append(trace_request(written))
            records.append(log_request(written))
            written += 1
            for store in (traces, records):
                store.flush(WAIT_S)
                if (found := delivered.read()) is not None:
                    acknowledge(store, found)
    sys.stdout.write(f"sealed {written} {written}\n")


if __name__ == "__main__":
    main()
