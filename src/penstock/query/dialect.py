"""Functions that DuckDB does not have under the names that ClickHouse has for them.

Dashboards for the ClickHouse convention are written with these. What is written differently, not
only named differently, stays different: `quantile(Duration, 0.99)`, not `quantile(0.99)(Duration)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.query.tree import nodes

if TYPE_CHECKING:
    from penstock.query.tree import Node


def _start_of(seconds: int) -> str:
    """Without calendars, which DuckDB asks for times with a zone: ten times slower."""
    return f"make_timestamptz(epoch_us(t) // {seconds}000000 * {seconds}000000)"


MACROS: Final = {
    # times
    "toStartOfInterval(t, i)": "time_bucket(i, t)",
    "toStartOfSecond(t)": _start_of(1),
    "toStartOfMinute(t)": _start_of(60),
    "toStartOfFiveMinutes(t)": _start_of(300),
    "toStartOfTenMinutes(t)": _start_of(600),
    "toStartOfFifteenMinutes(t)": _start_of(900),
    "toStartOfHour(t)": _start_of(3600),
    "toStartOfDay(t)": _start_of(86400),
    "toDateTime(t)": "CAST(t AS TIMESTAMPTZ)",
    "toDateTime64(t, p)": "CAST(t AS TIMESTAMPTZ)",
    "toDate(t)": "CAST(t AS DATE)",
    "toUnixTimestamp(t)": "CAST(epoch(t) AS BIGINT)",
    "toUnixTimestamp64Milli(t)": "epoch_ms(t)",
    "toUnixTimestamp64Nano(t)": "epoch_ns(t)",
    "fromUnixTimestamp64Milli(n)": "make_timestamptz(n * 1000)",
    "fromUnixTimestamp64Nano(n)": "make_timestamptz(n // 1000)",
    # aggregates
    "countIf(c)": "count(*) FILTER (WHERE c)",
    "sumIf(x, c)": "sum(x) FILTER (WHERE c)",
    "avgIf(x, c)": "avg(x) FILTER (WHERE c)",
    "minIf(x, c)": "min(x) FILTER (WHERE c)",
    "maxIf(x, c)": "max(x) FILTER (WHERE c)",
    "uniq(x)": "approx_count_distinct(x)",
    "uniqExact(x)": "count(DISTINCT x)",
    "groupArray(x)": "list(x)",
    # values
    "intDiv(a, b)": "a // b",
    "toString(x)": "CAST(x AS VARCHAR)",
    "toFloat64(x)": "CAST(x AS DOUBLE)",
    "toFloat64OrZero(x)": "coalesce(TRY_CAST(x AS DOUBLE), 0)",
    "toInt64(x)": "CAST(x AS BIGINT)",
    "toInt64OrZero(x)": "coalesce(TRY_CAST(x AS BIGINT), 0)",
    "toUInt64(x)": "CAST(x AS UBIGINT)",
    "empty(x)": "length(x) = 0",
    "notEmpty(x)": "length(x) > 0",
    # texts
    "startsWith(s, p)": "starts_with(s, p)",
    "endsWith(s, p)": "ends_with(s, p)",
    "match(s, p)": "regexp_matches(s, p)",
    "hasToken(s, t)": "list_contains(string_split_regex(s, '[^A-Za-z0-9]+'), t)",
    "positionCaseInsensitive(s, p)": "instr(lower(s), lower(p))",
    "JSONExtractString(j, k)": "json_extract_string(j, k)",
    "JSONExtractFloat(j, k)": "TRY_CAST(json_extract_string(j, k) AS DOUBLE)",
    "JSONExtractInt(j, k)": "TRY_CAST(json_extract_string(j, k) AS BIGINT)",
    # maps and lists
    "mapKeys(m)": "map_keys(m)",
    "mapValues(m)": "map_values(m)",
    "mapContains(m, k)": "map_contains(m, k)",
    "has(l, x)": "list_contains(l, x)",
    "arrayJoin(l)": "unnest(l)",
}
"""What a call means, by the call."""


_BY_NAME: Final = {call.partition("(")[0].lower(): call for call in MACROS}


def macros_in(tree: Node) -> list[str]:
    """The statements that make those that a statement calls; making all takes too long."""
    called = {str(node.get("function_name", "")).lower() for node in nodes(tree)}
    calls = [_BY_NAME[name] for name in sorted(called & _BY_NAME.keys())]
    return [f"CREATE TEMP MACRO {call} AS {MACROS[call]}" for call in calls]
