"""Data directories that a shop of eight services has filled, with all three signals."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from penstock.lake.schemas import TABLES, table_of
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
from penstock.load.plan import Plan
from penstock.load.supply import Supply
from penstock.model import Topic
from tests.pipeline.helpers import MORNING_NS
from tests.simulation.manual_pool import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.otel import Signal
    from tests.pipeline.helpers import Data


def fill(data: Data, units: int = 4, spans: int = 250, unit_s: float = 60.0) -> dict[str, int]:
    """Seals two segments of each signal; how many rows that makes of each table."""
    clock = ManualClock(MORNING_NS / 1e9)
    supply = Supply(Plan(batch=spans, seed=1), 0, clock)
    requests: dict[Signal, list[bytes]] = defaultdict(list)
    rows: Counter[str] = Counter()
    for number in range(units):
        clock.advance(unit_s)
        for request in supply.requests(number):
            requests[request.signal].append(request.data)
            rows[table_of(request.signal)] += request.records
    for signal, sent in requests.items():
        data.seal(sent[::2], sent[1::2], topic=Topic("default", signal.value))
    return dict(rows)


def lake_rows(data_dir: Path) -> dict[str, int]:
    """How many rows each table of the lake has."""
    with Lake.open(LakeSettings.of(data_dir)) as lake:
        return {name: lake.table(name).scan().to_arrow().num_rows for name in TABLES}
