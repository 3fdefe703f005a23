"""One vocabulary for each dictionary column of a stream."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.settings import SegmentSettings
from penstock.segment import SegmentReader
from penstock.segment import unification as vocabulary
from penstock.segment.dictionaries import can_share, dictionary_paths
from penstock.segment.unification import Unification
from tests.segment.arrow_samples import random_batch, random_type
from tests.segment.helpers import column, sealed, values_of

LIMIT = 65_536
UINT8 = pa.uint8()


def encoded(
    values: list[object], rows: list[int | None], index: pa.DataType, kind: pa.DataType
) -> pa.DictionaryArray:
    """A dictionary array of these values with these indexes."""
    return pa.DictionaryArray.from_arrays(pa.array(rows, index), pa.array(values, kind))


def texts(first: int, count: int, index: pa.DataType = UINT8) -> pa.DictionaryArray:
    """`count` different texts, each used once."""
    values = [f"value {number}" for number in range(first, first + count)]
    return encoded(values, list(range(count)), index, pa.string())


def unify(*arrays: pa.Array, limit: int = LIMIT) -> list[pa.Array]:
    """The column after unification; its values must be what they were, and Arrow must write it."""
    batches = [pa.record_batch([array], names=["d"]) for array in arrays]
    unified = Unification(batches[0].schema, batches, limit)
    rewritten = list(unified)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, unified.schema) as writer:
        for batch in rewritten:
            writer.write_batch(batch)
        assert writer.stats.num_replaced_dictionaries == writer.stats.num_dictionary_deltas == 0
    after = [batch.column(0) for batch in rewritten]
    assert [array.to_pylist() for array in after] == [array.to_pylist() for array in arrays]
    assert {array.type for array in after} == {unified.schema.field("d").type}
    return after


def dictionary_of(array: pa.DictionaryArray) -> list[object]:
    """The dictionary's values."""
    return list(array.dictionary.to_pylist())


# --- vocabularies ------------------------------------------------------------------------------


def test_values_stand_in_the_order_in_which_they_appear() -> None:
    """The same bundles make the same bytes."""
    a = encoded(["x", "y"], [1, 0, None], pa.uint8(), pa.string())
    b = encoded(["z", "y"], [1, 0], pa.uint8(), pa.string())
    after = unify(a, b)
    assert [dictionary_of(array) for array in after] == [["x", "y", "z"]] * 2
    assert after[0].type == a.type


def test_columns_with_one_dictionary_are_passed_through() -> None:
    """Equal dictionaries cost nothing, whether they are one in memory or two."""
    a = texts(0, 10)
    b = encoded(a.dictionary.to_pylist(), [3, None], pa.uint8(), pa.string())
    batches = [pa.record_batch([array], names=["d"]) for array in (a, b)]
    assert all(map(lambda x, y: x is y, Unification(batches[0].schema, batches, LIMIT), batches))


def test_a_column_that_needs_no_change_is_not_copied() -> None:
    """The buffers beside a unified column are the ones that came in."""
    plain = pa.array([1, 2])
    batches = [pa.record_batch({"p": plain, "d": texts(first, 2)}) for first in (0, 1)]
    for batch in Unification(batches[0].schema, batches, LIMIT):
        assert batch.column(0).buffers()[1].address == plain.buffers()[1].address


@pytest.mark.parametrize(
    ("index", "most", "wider"),
    [
        (pa.uint8(), 256, pa.uint16()),
        (pa.int8(), 128, pa.int16()),
        (pa.uint16(), 65_536, pa.uint32()),
        (pa.int16(), 32_768, pa.int32()),
    ],
)
def test_indexes_widen_when_the_vocabulary_does_not_fit(
    index: pa.DataType, most: int, wider: pa.DataType
) -> None:
    """Exactly then: the last value that fits still has the old width."""
    half = most // 2
    a, b = texts(0, half, index), texts(half, half, index)
    assert unify(a, b, limit=LIMIT * 2)[0].type.index_type == index
    more = texts(most, 1, index)
    assert unify(a, b, more, limit=LIMIT * 2)[0].type.index_type == wider


def test_different_index_widths_become_the_widest() -> None:
    """Also where the dictionary is the same."""
    same = [texts(0, 3, index) for index in (pa.uint8(), pa.uint16(), pa.int8())]
    assert unify(*same)[0].type.index_type == pa.int32()
    assert unify(texts(0, 3, pa.int64()), texts(1, 3, pa.uint8()))[0].type.index_type == pa.int64()


def test_over_the_limit_a_column_becomes_plain() -> None:
    """At the limit it does not."""
    a, b = texts(0, 5), texts(5, 5)
    assert pa.types.is_dictionary(unify(a, b, limit=10)[0].type)
    assert unify(a, b, limit=9)[0].type == pa.string()
    assert unify(texts(0, 10), limit=9)[0].type == pa.string()


def test_a_column_that_would_burst_without_its_dictionary_keeps_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Few long values in many rows must not fill the memory."""
    monkeypatch.setattr(vocabulary, "_MOST_PLAIN_BYTES", 1000)
    long = encoded(["x" * 300, "y"], [0, 1, 0, 0, None], pa.int8(), pa.string())
    assert unify(long.slice(0, 4), limit=1)[0].type == pa.string()
    longer = encoded(["x" * 300, "y"], [0, 1, 0, 0, 0, None], pa.int8(), pa.string())
    assert unify(longer, limit=1)[0].type == longer.type


def test_nulls_in_a_dictionary_become_null_rows() -> None:
    """By value nothing changes."""
    a = encoded(["x", None], [0, 1, None], pa.uint8(), pa.string())
    b = encoded([None, "y"], [0, 1], pa.uint8(), pa.string())
    assert dictionary_of(unify(a, b)[0]) == ["x", "y"]
    assert unify(a)[0].equals(a)


def test_duplicates_in_a_dictionary_become_one() -> None:
    """Where it is unified at all."""
    a = encoded(["x", "x", "y"], [0, 1, 2], pa.uint8(), pa.string())
    assert dictionary_of(unify(a, texts(0, 1))[0]) == ["x", "y", "value 0"]


def test_empty_dictionaries_and_empty_batches_are_unified_too() -> None:
    """They carry the vocabulary of the others."""
    nothing = encoded([], [], pa.uint8(), pa.string())
    nulls = encoded([], [None, None], pa.uint8(), pa.string())
    after = unify(nothing, nulls, texts(0, 2), texts(2, 1).slice(0, 0))
    assert {len(array.dictionary) for array in after} == {3}
    assert len(unify(nothing, nulls)[0].dictionary) == 0


def test_slices_keep_their_rows() -> None:
    """The dictionary counts as a whole, the rows only as far as they belong to the slice."""
    unify(texts(0, 9).slice(3, 4), texts(5, 9).slice(2), texts(1, 1))


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        (pa.int64(), [1, 2], [2, 3]),
        (pa.binary(), [b"a", b"b"], [b"b", b"c"]),
        (pa.binary(2), [b"aa", b"bb"], [b"bb", b"cc"]),
        (pa.large_string(), ["a"], ["b"]),
        (pa.string_view(), ["a"], ["b"]),
        (pa.bool_(), [True], [False]),
        (pa.timestamp("s"), [1], [2]),
        (pa.decimal128(5, 1), [1], [2]),
        (pa.float64(), [0.5, 1.5], [1.5, 2.5]),
        (pa.null(), [None], [None, None]),
    ],
)
def test_values_of_any_type_are_unified(
    kind: pa.DataType, first: list[object], second: list[object]
) -> None:
    """Integers, bytes, times and the rest."""
    a = encoded(first, [0, None], pa.int8(), kind)
    b = encoded(second, list(range(len(second))), pa.int8(), kind)
    assert unify(a, b)[0].type == a.type


@pytest.mark.parametrize("kind", [pa.struct([("x", pa.int8())]), pa.list_(pa.int8())])
def test_nested_values_become_plain(kind: pa.DataType) -> None:
    """Arrow cannot compare them; one dictionary alone is kept."""
    values: list[list[object]] = [[[1]], [[2]]] if pa.types.is_list(kind) else [[{"x": 1}], [None]]
    a, b = (encoded(some, [0, None], pa.int8(), kind) for some in values)
    assert unify(a, b)[0].type == kind
    assert unify(a, a)[0].type == a.type


def test_decimals_that_arrow_cannot_compare_become_plain() -> None:
    """Their values stay."""
    a, b = (encoded([number], [0, None], pa.int8(), pa.decimal32(3, 1)) for number in (1, 2))
    assert unify(a, b)[0].type == pa.decimal32(3, 1)


def test_zeros_of_both_signs_and_nan_stay_what_they_are() -> None:
    """Floats are compared by their bits."""
    a = encoded([0.0, math.nan], [0, 1], pa.int8(), pa.float64())
    b = encoded([-0.0, math.nan], [0, 1], pa.int8(), pa.float64())
    batches = [pa.record_batch([array], names=["d"]) for array in (a, b)]
    after = [batch.column(0) for batch in Unification(batches[0].schema, batches, LIMIT)]
    signs = [math.copysign(1, array[0].as_py()) for array in after]
    assert signs == [1.0, -1.0]
    assert all(math.isnan(array[1].as_py()) for array in after)
    assert len(after[0].dictionary) == 3


def test_a_union_is_not_ordered() -> None:
    """Values in the order of arrival have lost any other order."""
    a, b = (
        pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([text]), ordered=True)
        for text in "ab"
    )
    assert unify(a, a)[0].type.ordered
    assert not unify(a, b)[0].type.ordered


# --- nested columns ----------------------------------------------------------------------------


def nested(kind: pa.DataType, texts: list[str]) -> pa.Array:
    """An array of the type with the texts in its innermost values, nulls between."""
    if pa.types.is_struct(kind):
        return pa.array([{"x": text} for text in texts] + [None, {"x": None}], kind)
    if pa.types.is_map(kind):
        return pa.array([[(text, text)] for text in texts] + [None, []], kind)
    if pa.types.is_fixed_size_list(kind):
        return pa.array([[text, None] for text in texts] + [None], kind)
    return pa.array([[text, None] for text in texts] + [None, []], kind)


INNER = pa.dictionary(pa.uint8(), pa.string())


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct([("x", INNER)]),
        pa.list_(INNER),
        pa.large_list(INNER),
        pa.list_(INNER, 2),
        pa.map_(INNER, INNER),
        pa.map_(pa.string(), INNER),
    ],
)
def test_nested_dictionaries_are_unified(kind: pa.DataType) -> None:
    """In structs, lists and maps, with nulls at every level and slices."""
    first, second = nested(kind, ["a", "b"]), nested(kind, ["b", "c"])
    assert unify(first, second.slice(1), second.slice(0, 0))[0].type == kind
    plain = unify(first, second, limit=2)[0]
    assert (bool(paths_of(first)), paths_of(plain)) == (True, [])


def paths_of(array: pa.Array) -> list[tuple[int, ...]]:
    """Where the array has dictionaries."""
    return dictionary_paths(pa.schema([("d", array.type)]))


def test_nested_indexes_widen_in_all_batches() -> None:
    """Deep down, and with the type of every level above."""
    kind = pa.list_(pa.struct([("x", INNER)]))
    arrays = [
        pa.array([[{"x": f"{first + number}"}] for number in range(200)], kind)
        for first in (0, 200)
    ]
    after = unify(*arrays)
    assert after[0].type == pa.list_(pa.struct([("x", pa.dictionary(pa.uint16(), pa.string()))]))


UNSHARED = [
    pa.dense_union([pa.field("x", INNER)]),
    pa.run_end_encoded(pa.int16(), INNER),
    pa.list_view(INNER),
    pa.list_(INNER, 0),
    pa.dictionary(pa.int8(), pa.struct([("x", INNER)])),
    pa.dictionary(pa.int8(), pa.list_(pa.string_view())),
    pa.struct([("deep", pa.list_view(INNER))]),
]


@pytest.mark.parametrize("kind", UNSHARED)
def test_columns_that_cannot_be_unified_get_a_stream_for_each_batch(
    kind: pa.DataType, tmp_path: Path
) -> None:
    """Such a bundle is stored all the same."""
    assert not can_share(pa.schema([("d", kind)]))
    reader = sealed(tmp_path, column(pa.nulls(2, kind), pa.nulls(3, kind)))
    assert [(entry.chunks, entry.rows) for entry in reader.streams] == [(1, 2), (1, 3)]
    assert values_of(reader, 1) == {0: {"d": [None] * 3}}


def test_columns_without_odd_dictionaries_are_shared() -> None:
    """Views and unions of plain values included."""
    kinds = [pa.list_view(pa.int8()), pa.dense_union([pa.field("x", pa.int8())]), pa.uuid(), INNER]
    assert can_share(pa.schema([(str(number), kind) for number, kind in enumerate(kinds)]))


# --- through the file --------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_unified_batches_hold_what_they_held(seed: int) -> None:
    """Random nested types, as untidy as Arrow allows, with any limit."""
    random = Random(seed)
    schema = pa.schema([(name, random_type(random)) for name in "abc"])
    batches = [random_batch(random, schema, random.randrange(5)) for _ in range(4)]
    batches = [batch.select(["a", "b", "c"]) for batch in batches]
    unified = Unification(schema, batches, random.choice([0, 3, 10, LIMIT]))
    for before, after in zip(batches, unified, strict=True):
        after.validate(full=True)
        assert after.schema == unified.schema
        assert after.to_pydict() == before.to_pydict()


def test_a_sealed_column_has_one_dictionary_for_all_bundles(tmp_path: Path) -> None:
    """Each bundle reads back with it."""
    reader = sealed(tmp_path, column(texts(0, 200), texts(100, 200), texts(0, 1)))
    arrays = [reader.bundle(index).bundle[0].column(0) for index in range(3)]
    assert {array.type.index_type for array in arrays} == {pa.uint16()}
    assert [len(array.dictionary) for array in arrays] == [300] * 3
    assert arrays[1].to_pylist() == texts(100, 200).to_pylist()


def test_a_single_bundle_over_the_limit_is_stored_plain(tmp_path: Path) -> None:
    """And so are the bundles that come with it."""
    settings = SegmentSettings(dictionary_values=3)
    reader: SegmentReader = sealed(tmp_path, column(texts(0, 4), texts(0, 2)), settings)
    assert reader.schema(0).field("d").type == pa.string()
    assert values_of(reader, 1) == {0: {"d": ["value 0", "value 1"]}}
