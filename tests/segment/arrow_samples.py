"""Random Arrow types and arrays, as untidy as Arrow allows.

Arrays are slices of larger ones, null structs have children, null lists have elements,
dictionaries hold nulls, duplicates and values that no row uses.
"""

from __future__ import annotations

import decimal
from random import Random

import pyarrow as pa
from pyarrow import types

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
INTEGERS += [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()]
TEXTS += [pa.binary_view(), pa.binary(3), pa.binary(5)]
DECIMALS = [pa.decimal32(7, 2), pa.decimal64(14, 3), pa.decimal128(20, 0), pa.decimal128(38, 10)]
OTHERS = [pa.bool_(), pa.null(), pa.date32(), pa.timestamp("us", "UTC"), pa.duration("ms")]
LEAVES = [*INTEGERS, pa.float16(), pa.float32(), pa.float64(), *TEXTS, *DECIMALS, *OTHERS]
INDEXES = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()]
NAMES = "abcdef"


def random_type(random: Random, depth: int = 3) -> pa.DataType:
    """Any type that segments take apart, or a leaf."""
    kind = random.randrange(9) if depth else random.randrange(4)
    if kind < 3:
        return random.choice(LEAVES)
    if kind == 3:
        return pa.dictionary(random.choice(INDEXES), random.choice(LEAVES))
    if kind == 4:
        return pa.map_(random.choice([pa.string(), pa.int32()]), random_field(random, depth - 1))
    if kind == 5:
        return pa.list_(random_field(random, depth - 1), random.randrange(1, 4))
    if kind == 6:
        return random.choice([pa.list_, pa.large_list])(random_field(random, depth - 1))
    names = random.sample(NAMES, random.randrange(4))
    return pa.struct([random_field(random, depth - 1, name) for name in names])


def random_field(random: Random, depth: int, name: str = "item") -> pa.Field:
    """A nullable field of any type."""
    return pa.field(name, random_type(random, depth))


def similar_type(random: Random, type_: pa.DataType) -> pa.DataType:
    """A type that may have a widest one with `type_`."""
    for family in (INTEGERS, TEXTS, DECIMALS):
        if type_ in family:
            return random.choice(family)
    if types.is_dictionary(type_):
        values = similar_type(random, type_.value_type)
        return random.choice([values, pa.dictionary(random.choice(INDEXES), values)])
    if types.is_struct(type_):
        fields = [_similar_field(random, field) for field in type_ if random.random() < 0.8]
        random.shuffle(fields)
        return pa.struct(fields)
    if types.is_map(type_):
        return pa.map_(type_.key_type, _similar_field(random, type_.item_field))
    if types.is_fixed_size_list(type_):
        return pa.list_(_similar_field(random, type_.value_field), type_.list_size)
    if types.is_list(type_) or types.is_large_list(type_):
        kind = random.choice([pa.list_, pa.large_list])
        return kind(_similar_field(random, type_.value_field))
    return random.choice([type_, pa.null()])


def _similar_field(random: Random, field: pa.Field) -> pa.Field:
    return field.with_type(similar_type(random, field.type))


def random_batch(random: Random, schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Random rows; columns may stand in any order."""
    fields = random.sample(list(schema), len(schema))
    columns = [random_array(random, field.type, rows) for field in fields]
    return pa.record_batch(columns, schema=pa.schema(fields))


def random_array(random: Random, type_: pa.DataType, length: int) -> pa.Array:
    """A slice of a larger array with nulls."""
    before, after = random.choice([(0, 0), (0, 3), (3, 0), (2, 5)])
    whole = _build(random, type_, before + length + after)
    return whole.slice(before, length)


def _build(random: Random, type_: pa.DataType, length: int) -> pa.Array:
    if types.is_dictionary(type_):
        return _build_dictionary(random, type_, length)
    if types.is_struct(type_):
        kids = [random_array(random, field.type, length) for field in type_]
        if not kids:
            return pa.array([random.choice([{}, None]) for _ in range(length)], type_)
        return pa.StructArray.from_arrays(kids, fields=list(type_), mask=_mask(random, length))
    if types.is_fixed_size_list(type_):
        kid = random_array(random, type_.value_type, length * type_.list_size)
        return pa.FixedSizeListArray.from_arrays(kid, type=type_, mask=_mask(random, length))
    if types.is_map(type_) or types.is_list(type_) or types.is_large_list(type_):
        return _build_list(random, type_, length)
    values = [_value(random, type_) for _ in range(length)]
    return pa.array(values, type_)


def _build_dictionary(random: Random, type_: pa.DictionaryType, length: int) -> pa.Array:
    values = random_array(random, type_.value_type, random.choice([0, 1, 4, 20]))
    some = range(len(values))
    indexes = [random.choice([None, *some]) for _ in range(length)]
    return pa.DictionaryArray.from_arrays(pa.array(indexes, type_.index_type), values)


def _build_list(random: Random, type_: pa.DataType, length: int) -> pa.Array:
    ends = [0]
    for _ in range(length):
        ends.append(ends[-1] + random.choice([0, 0, 1, 3]))
    mask = _mask(random, length)
    if types.is_map(type_):
        keys = pa.array([_key(random, type_.key_type) for _ in range(ends[-1])], type_.key_type)
        items = random_array(random, type_.item_type, ends[-1])
        offsets = pa.array(ends, pa.int32())
        return pa.MapArray.from_arrays(offsets, keys, items, type=type_, mask=mask)
    kid = random_array(random, type_.value_type, ends[-1])
    if types.is_large_list(type_):
        offsets = pa.array(ends, pa.int64())
        return pa.LargeListArray.from_arrays(offsets, kid, type=type_, mask=mask)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), kid, type=type_, mask=mask)


def _mask(random: Random, length: int) -> pa.Array:
    return pa.array([random.random() < 0.2 for _ in range(length)], pa.bool_())


def _key(random: Random, type_: pa.DataType) -> object:
    return random.randrange(100) if types.is_integer(type_) else random.choice(NAMES)


def _value(random: Random, type_: pa.DataType) -> object:
    if random.random() < 0.2 or types.is_null(type_):
        return None
    if types.is_boolean(type_):
        return random.random() < 0.5
    if types.is_integer(type_):
        bits = type_.bit_width
        least = -(1 << bits - 1) if types.is_signed_integer(type_) else 0
        return random.choice([0, 1, least, least + (1 << bits) - 1])
    if types.is_floating(type_):
        return random.choice([0.0, 0.5, -2.0, 1024.0])
    if types.is_decimal(type_):
        most = 10**type_.precision - 1
        return decimal.Decimal(random.randint(-most, most)).scaleb(-type_.scale, _EXACT)
    if types.is_fixed_size_binary(type_):
        return random.randbytes(type_.byte_width)
    if type_ in TEXTS:
        text = random.choice(["", "a", "bb", "žluťoučký kůň", "longer than twelve bytes"])
        return text.encode() if "binary" in str(type_) else text
    return random.randrange(20_000)


_EXACT = decimal.Context(prec=80)
