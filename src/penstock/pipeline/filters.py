"""What Spark asks of rows, applied before they leave Python, and to segments before they are read.

Only what Arrow and Spark decide alike is taken. Floating point numbers, for which NaN differs, and
parts of structs are left to Spark.
"""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Range: TypeAlias = tuple[Any, Any]
"""The least and the greatest value that a column may have, both included."""

_COMPARISONS: Final[Mapping[type, Callable[[Any, Any], Any]]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
_NEVER_NULL: Final = (EqualNullSafe, IsNull, IsNotNull)
_KINDS: Final = (
    types.is_string,
    types.is_integer,
    types.is_boolean,
    types.is_timestamp,
    types.is_date32,
)


class Predicate:
    """The filters that were taken; all must hold. Goes to Spark's workers by pickling."""

    def __init__(self, schema: pa.Schema, filters: Iterable[Filter] = ()) -> None:
        self._schema = schema
        self.taken = tuple(each for each in filters if _expression(each, schema) is not None)

    @property
    def columns(self) -> set[str]:
        """The columns that it looks at."""
        return {_column(each) for each in self.taken}

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Those for which it holds."""
        if not self.taken:
            return batch
        parts = [_expression(each, self._schema) for each in self.taken]
        return batch.filter(functools.reduce(operator.and_, parts))

    def may_hold(self, ranges: Mapping[str, Range]) -> bool:
        """False where it holds for no row within these ranges; other columns may be anything."""
        return all(
            _may_hold(each, *ranges[_column(each)])
            for each in self.taken
            if _column(each) in ranges
        )


def _column(each: Any) -> str:
    return _column(each.child) if isinstance(each, Not) else ".".join(each.attribute)


def _expression(each: Filter, schema: pa.Schema) -> pc.Expression | None:
    """None: it is left to Spark."""
    name = _column(each)
    type_ = schema.field(name).type if name in schema.names else pa.null()
    if not any(is_kind(type_) for is_kind in _KINDS):
        return None
    try:
        return _of_field(each, pc.field(name), type_)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return None  # compared with something that the column cannot hold


def _of_field(each: Filter, field: pc.Expression, type_: pa.DataType) -> pc.Expression | None:
    match each:
        case Not(child):
            inner = _of_field(child, field, type_)
            if inner is None or isinstance(child, _NEVER_NULL):
                return None if inner is None else ~inner
            return ~inner & field.is_valid()
        case IsNull():
            return field.is_null()
        case IsNotNull():
            return field.is_valid()
        case EqualNullSafe(_, value):
            return (
                field.is_valid() & (field == pa.scalar(value, type_)) if value is not None else None
            )
        case In(_, values):
            return field.isin(pa.array(values, type_)) if None not in values else None
        case StringStartsWith(_, value):
            return pc.starts_with(field, value)
    compare = _COMPARISONS.get(type(each))
    value = getattr(each, "value", None)
    return None if compare is None or value is None else compare(field, pa.scalar(value, type_))


def _may_hold(each: Any, least: Any, greatest: Any) -> bool:
    match each:
        case EqualTo(_, value):
            return bool(least <= value <= greatest)
        case In(_, values):
            return any(least <= value <= greatest for value in values)
        case GreaterThan() | GreaterThanOrEqual():
            return bool(_COMPARISONS[type(each)](greatest, each.value))
        case LessThan() | LessThanOrEqual():
            return bool(_COMPARISONS[type(each)](least, each.value))
    return True
