"""Rollups computed row by row, slowly and obviously; and spans to compute them of."""

from __future__ import annotations

import datetime as dt
import random
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tests.lake.helpers import DAY
from tests.pipeline.jobs.helpers import HOUR_NS, MINUTE_NS, SECOND_NS, nanos, span

if TYPE_CHECKING:
    from tests.pipeline.jobs.helpers import Row

KINDS = ("INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
CODES = ("STATUS_CODE_UNSET", "STATUS_CODE_OK", "STATUS_CODE_ERROR")
SERVICES = ("cart", "mail", "pay", "shop")
QUANTILES = {50: 0.5, 90: 0.9, 95: 0.95, 99: 0.99}


def busy_days(seed: int, count: int) -> list[Row]:
    """Traces of two days, some of them across midnight, some without their root."""
    chance = random.Random(seed)
    return [row for number in range(count) for row in _trace(chance, number)]


def _trace(chance: random.Random, number: int) -> list[Row]:
    at_ns = nanos(DAY, 22) + chance.randrange(4 * HOUR_NS)
    made: list[Row] = []
    for place in range(chance.randint(1, 6)):
        parent = chance.choice(made)["span_id"] if made else None
        at_ns += chance.randrange(5 * MINUTE_NS)
        columns = {
            "service_name": chance.choice(SERVICES),
            "kind": f"SPAN_KIND_{chance.choice(KINDS)}",
            "status_code": chance.choice(CODES),
            "duration_ns": int(10 ** chance.uniform(0, 10)),
            "name": f"{number} {place}",
        }
        made.append(span(f"{number:032x}", f"{place + 1:016x}", parent, at_ns=at_ns, **columns))
    return made[1:] if len(made) > 1 and chance.random() < 0.2 else made


def red(rows: Iterable[Row]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """By namespace, service and minute; quantiles are exact, there is no histogram."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row["kind"] in {"SPAN_KIND_SERVER", "SPAN_KIND_CONSUMER"}:
            minute = moment(row["start_time_unix_nano"] // MINUTE_NS * MINUTE_NS)
            groups[row["namespace"], row["service_name"], minute].append(row)
    return {key: _summary(group) for key, group in groups.items()}


def _summary(group: list[Row]) -> dict[str, Any]:
    durations = sorted(row["duration_ns"] for row in group)
    return {
        "requests": len(group),
        "errors": sum(map(failed, group)),
        "duration_sum_ns": sum(durations),
        "duration_min_ns": durations[0],
        "duration_max_ns": durations[-1],
        **{f"duration_p{p}_ns": exact(durations, q) for p, q in QUANTILES.items()},
    }


def exact(values: list[int], q: float) -> int:
    """The quantile of sorted values."""
    return values[int(q * (len(values) - 1))]


def edges(rows: list[Row]) -> dict[tuple[Any, ...], tuple[int, int]]:
    """Calls and errors by hour, namespace, caller and callee."""
    services = {(r["namespace"], r["trace_id"], r["span_id"]): r["service_name"] for r in rows}
    found: dict[tuple[Any, ...], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for row in rows:
        caller = services.get((row["namespace"], row["trace_id"], row["parent_span_id"]))
        if caller is not None and caller != row["service_name"]:
            hour = moment(row["start_time_unix_nano"] // HOUR_NS * HOUR_NS)
            key = (hour, row["namespace"], caller, row["service_name"])
            calls, errors = found[key]
            found[key] = (calls + 1, errors + failed(row))
    return dict(found)


def traces(rows: Iterable[Row]) -> dict[tuple[str, str], dict[str, Any]]:
    """By namespace and trace."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["namespace"], row["trace_id"]].append(row)
    return {key: _trace_row(group) for key, group in groups.items()}


def _trace_row(group: list[Row]) -> dict[str, Any]:
    begin = min(row["start_time_unix_nano"] for row in group)
    roots = sorted(
        (row["start_time_unix_nano"], row["service_name"], row["name"])
        for row in group
        if row["parent_span_id"] is None
    )
    return {
        "time": moment(begin // 1000 * 1000),
        "duration_ns": max(row["end_time_unix_nano"] for row in group) - begin,
        "root_service": roots[0][1] if roots else None,
        "root_name": roots[0][2] if roots else None,
        "span_count": len(group),
        "error_count": sum(map(failed, group)),
        "services": sorted({row["service_name"] for row in group}),
        "complete": bool(roots),
    }


def failed(row: Row) -> int:
    """1 for an error."""
    return int(row["status_code"] == "STATUS_CODE_ERROR")


def moment(at_ns: int) -> dt.datetime:
    """As tables give it."""
    whole = dt.datetime.fromtimestamp(at_ns // SECOND_NS, dt.UTC)
    return whole + dt.timedelta(microseconds=at_ns % SECOND_NS // 1000)
