"""The way from bundles to their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from google.protobuf.message import DecodeError

from penstock.lake.rows.batches import cut
from penstock.lake.rows.groups import groups, joined_tables
from penstock.lake.rows.logs import log_columns
from penstock.lake.rows.metrics import metric_columns
from penstock.lake.rows.spans import span_columns
from penstock.lake.rows.tables import Tables
from penstock.lake.schemas import TABLES, table_of
from penstock.model.errors import InvalidBundle
from penstock.otel.decode import decode_requests
from penstock.otel.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.lake.rows.groups import Group
    from penstock.model.bundle import Bundle
    from penstock.model.positions import Position

Columns = dict[str, pa.Array]


def rows_of(bundle: Bundle, signal: Signal, origin: Position) -> pa.Table:
    """The rows of one bundle, as `row_batches` gives them."""
    schema = TABLES[table_of(signal)]
    return pa.Table.from_batches(_of_one(bundle, signal, origin, schema), schema)


def row_batches(
    bundles: Iterable[tuple[Bundle, Position]],
    signal: Signal,
    schema: pa.Schema | None = None,
    fault: Callable[[InvalidBundle], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of the signal's records, in the order of the bundles.

    They have the schema of the signal's table in `TABLES`, or in `SHARING` if that is given.

    Within a batch those of metrics are in the order of their kinds. The same bundles give the same
    rows, always. Those of small bundles share a batch, and those of a large one may be cut into
    several: memory is bounded by `GROUP_BYTES` or the largest bundle, and `BATCH_BYTES`. Requests
    in a raw slot are decoded.

    Raises InvalidBundle, with its offset, for a bundle that is not OTAP or has a request that
    cannot be decoded. The rows of the bundles before it are out by then. With `fault` it is told
    that, and the rows of the bundles behind it follow.
    """
    schema = schema or TABLES[table_of(signal)]
    for group in groups(bundles, signal.root_slot):
        joined = _joined_columns(group, signal) if len(group) > 1 else None
        if joined is not None:
            yield from _cut(joined, schema)
            continue
        for bundle, origin in group:
            try:
                yield from _of_one(bundle, signal, origin, schema)
            except InvalidBundle as error:
                if fault is None:
                    raise
                fault(error)


def _joined_columns(group: Group, signal: Signal) -> list[Columns] | None:
    """None where they cannot be joined, or one has a fault: alone it says which one."""
    try:
        tables = joined_tables(group, signal.root_slot)
        return None if tables is None else list(_columns(tables, signal))
    except (InvalidBundle, KeyError, pa.ArrowException):
        return None


def _of_one(
    bundle: Bundle, signal: Signal, origin: Position, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    try:
        if signal.root_slot in bundle:
            tables = Tables.of(bundle, origin, signal.root_slot)
            yield from _cut(_columns(tables, signal), schema)
        if signal.raw_slot in bundle:
            yield from _of_requests(bundle[signal.raw_slot], signal, origin, schema)
    except (InvalidBundle, KeyError, pa.ArrowException) as error:
        reason = f"the bundle at offset {origin.offset} has no rows: {error}"
        raise InvalidBundle(reason) from error


def _columns(tables: Tables, signal: Signal) -> Iterator[Columns]:
    match signal:
        case Signal.TRACES:
            yield span_columns(tables)
        case Signal.LOGS:
            yield log_columns(tables)
        case Signal.METRICS:
            yield from metric_columns(tables)


def _cut(columns: Iterable[Columns], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for each in columns:
        yield from cut(each, schema)


def _of_requests(
    table: pa.RecordBatch, signal: Signal, origin: Position, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    messages = table.column("data").to_pylist()
    for message in messages:
        _check(message, signal)
    for decoded in decode_requests(signal, messages):
        if decoded.bundle is None:
            raise InvalidBundle(decoded.problem)
        yield from _of_one(decoded.bundle, signal, origin, schema)
        origin = origin.after(decoded.count)


def _check(message: bytes, signal: Signal) -> None:
    try:
        signal.request_class.FromString(message)
    except DecodeError as error:
        raise InvalidBundle(f"a raw message is no request: {error}") from None
