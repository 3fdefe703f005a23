"""What the slots of a bundle mean. The store and its segments know only numbers.

OTAP's table is Penstock's own; another project brings its `SlotTable`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from penstock.model.errors import InvalidBundle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.model.bundle import Bundle


@dataclass(frozen=True, slots=True)
class SlotTable:
    """Names of slots, which of them hold root records, and the column with the event's time."""

    names: Mapping[int, str] = field(default_factory=dict)
    roots: frozenset[int] = frozenset()
    event_times: Mapping[int, str] = field(default_factory=dict)
    max_root_records: int | None = None
    """Most rows of a root slot in one bundle; None: any number."""

    def check(self, bundle: Bundle) -> None:
        """Raises InvalidBundle for a bundle with more root records than its ids can number."""
        if self.max_root_records is None:
            return
        for slot in self.roots:
            batch = bundle.get(slot)
            if batch is not None and batch.num_rows > self.max_root_records:
                most = f"the most is {self.max_root_records}"
                raise InvalidBundle(f"{batch.num_rows} {self.name(slot)} in one bundle; {most}")

    def name(self, slot: int) -> str:
        """What people call the slot."""
        return self.names.get(slot, f"SLOT_{slot}")

    def number(self, name: str) -> int | None:
        """The slot of that name."""
        return next((slot for slot, known in self.names.items() if known == name.upper()), None)

    def count_items(self, bundle: Bundle) -> int:
        """The bundle's own count; else its root records; without roots, its longest slot."""
        if bundle.items is not None:
            return bundle.items
        rows = {slot: batch.num_rows for slot, batch in bundle.slots.items()}
        roots = self.roots.intersection(rows)
        return sum(rows[slot] for slot in roots) if roots else max(rows.values(), default=0)


MAX_ROOT_RECORDS: Final = 65_535
"""OTAP numbers a bundle's root records with u16 ids, so that a bundle can hold no more."""

RESOURCE_ATTRS: Final = 1
SCOPE_ATTRS: Final = 2
UNIVARIATE_METRICS: Final = 10
NUMBER_DATA_POINTS: Final = 11
SUMMARY_DATA_POINTS: Final = 12
HISTOGRAM_DATA_POINTS: Final = 13
EXP_HISTOGRAM_DATA_POINTS: Final = 14
NUMBER_DP_ATTRS: Final = 15
SUMMARY_DP_ATTRS: Final = 16
HISTOGRAM_DP_ATTRS: Final = 17
EXP_HISTOGRAM_DP_ATTRS: Final = 18
NUMBER_DP_EXEMPLARS: Final = 19
HISTOGRAM_DP_EXEMPLARS: Final = 20
EXP_HISTOGRAM_DP_EXEMPLARS: Final = 21
NUMBER_DP_EXEMPLAR_ATTRS: Final = 22
HISTOGRAM_DP_EXEMPLAR_ATTRS: Final = 23
EXP_HISTOGRAM_DP_EXEMPLAR_ATTRS: Final = 24
MULTIVARIATE_METRICS: Final = 25
METRIC_ATTRS: Final = 26
LOGS: Final = 30
LOG_ATTRS: Final = 31
SPANS: Final = 40
SPAN_ATTRS: Final = 41
SPAN_EVENTS: Final = 42
SPAN_LINKS: Final = 43
SPAN_EVENT_ATTRS: Final = 44
SPAN_LINK_ATTRS: Final = 45
MESSAGE_RECORDS: Final = 58
"""How many root records each message of the bundle has, where it has several."""
REMAINDER: Final = 59
"""What OTAP has no column for."""
RAW_LOGS: Final = 60
RAW_TRACES: Final = 61
RAW_METRICS: Final = 62

_NAMES = {
    number: name for name, number in list(globals().items()) if type(number) is int and number < 64
}

OTAP: Final = SlotTable(
    names=MappingProxyType(_NAMES),
    roots=frozenset({UNIVARIATE_METRICS, MULTIVARIATE_METRICS, LOGS, SPANS}),
    event_times=MappingProxyType(
        {
            **dict.fromkeys(range(NUMBER_DATA_POINTS, NUMBER_DP_ATTRS), "time_unix_nano"),
            LOGS: "time_unix_nano",
            SPANS: "start_time_unix_nano",
            SPAN_EVENTS: "time_unix_nano",
        }
    ),
    max_root_records=MAX_ROOT_RECORDS,
)
"""The payload types of OTel-Arrow with their ids; 60 to 62 are raw OTLP requests, column `data`.

58 and 59 are Penstock's own."""
