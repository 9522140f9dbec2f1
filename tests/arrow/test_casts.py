"""Casts at any depth: values come out as they went in, whatever lists, views of lists and maps lie around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lading._core.arrow.casts import (
    cast,
    decoded,
    decoded_type,
    rebuilt,
    registered,
    unregistered,
    unregistered_type,
    without_null_values,
)
from lading._core.arrow.references import RefType
from registered import NamedType

_LISTS = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view]
_TEXTS = [["a", None], None, [], ["b", "c" * 20]]


@pytest.mark.parametrize("other", [pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize("to", _LISTS)
@pytest.mark.parametrize("of", _LISTS)
def test_lists_of_every_kind_become_those_of_every_other(of: Any, to: Any, other: pa.DataType) -> None:
    column = pa.array(_TEXTS, of(pa.string_view()))
    for first in (0, 1, 4):
        found = cast(column[first:], to(other))
        found.validate(full=True)
        assert (found.type, found.to_pylist()) == (to(other), _TEXTS[first:])


@pytest.mark.parametrize(
    "values, kind",
    [
        (pa.array([["a"], None], pa.list_(pa.string_view())), pa.list_(pa.large_string())),
        (pa.array([{"x": 1}, {"x": 2}]), pa.struct([("x", pa.int64())])),
        (pa.json_().wrap_array(pa.array(["1", "[]"])), pa.json_()),
        (pa.array(["a", "b"]).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())), None),
        (pa.RunEndEncodedArray.from_arrays([2, 3], pa.array(["a", "b"])), pa.string()),
        (pa.array([0.5, -2.0], pa.float16()), pa.float16()),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_dictionaries_that_are_not_joined_become_their_values(values: pa.Array, kind: pa.DataType | None) -> None:
    kind = kind or pa.dictionary(pa.int32(), pa.string())
    words = pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 1], pa.int8()), values)
    expected = [value.as_py() for value in (values[1], pa.scalar(None), values[0], values[1])]
    found = decoded(words)
    found.validate(full=True)
    assert (found.type, decoded_type(words.type), found.to_pylist()) == (kind, kind, expected)
    assert cast(pa.chunked_array([words, words[1:]]), kind).to_pylist() == [*expected, *expected[1:]]


def test_list_views_in_any_order() -> None:
    letters = pa.array(list("abcdef"), pa.string_view())
    column = pa.ListViewArray.from_arrays([4, 0, 2, 0], [1, 3, 2, 0], letters)
    expected = [["e"], ["a", "b", "c"], ["c", "d"], []]
    for kind in (pa.list_(pa.string()), pa.list_view(pa.string())):
        assert cast(column, kind).to_pylist() == expected
        assert cast(column[1:], kind).to_pylist() == expected[1:]


def test_list_views_inside_whatever_there_is() -> None:
    inside = pa.map_(pa.string_view(), pa.large_list_view(pa.binary_view()))
    given = pa.struct([("a", pa.list_(inside)), ("b", pa.list_(pa.list_view(pa.string_view()), 2))])
    inside = pa.map_(pa.large_string(), pa.list_view(pa.large_binary()))
    asked = pa.struct([("a", pa.list_view(inside)), ("b", pa.list_(pa.list_(pa.string()), 2))])
    rows = [{"a": [[("k", [b"x"])], []], "b": [["q"], None]}, None, {"a": None, "b": None}, {"a": [], "b": [[], ["r"]]}]
    for first in (0, 1, 3, 4):
        found = cast(pa.array(rows, given)[first:], asked)
        found.validate(full=True)
        assert (found.type, found.to_pylist()) == (asked, rows[first:])


def test_lists_of_nothing() -> None:
    kind = pa.struct([("a", pa.list_view(pa.list_(pa.string_view(), 0)))])
    rows = [{"a": [[], None]}, None, {"a": []}]
    for first in (0, 1):
        found = cast(pa.array(rows, kind)[first:], pa.struct([("a", pa.list_(pa.list_(pa.string(), 0)))]))
        found.validate(full=True)
        assert found.to_pylist() == rows[first:]


def test_nulls_become_list_views() -> None:
    assert cast(pa.nulls(2), pa.list_view(pa.int8())).to_pylist() == [None, None]


@pytest.mark.parametrize(
    "make",
    [
        lambda column: column,
        lambda column: pa.ListArray.from_arrays(pa.array([0, 0, 1], pa.int32()), column),
        lambda column: pa.StructArray.from_arrays([column], ["a"]),
    ],
    ids=["itself", "list", "struct"],
)
def test_dictionaries_become_nulls_where_they_hold_nothing_else(make: Any) -> None:
    places, kind = pa.array([None, 1], pa.int8()), make(pa.nulls(2)).type
    for values in (pa.array(["a", None]), pa.nulls(2)):
        column = make(pa.DictionaryArray.from_arrays(places, values))
        found = cast(column, kind)
        assert (found.type, found.to_pylist()) == (kind, column.to_pylist())
    with pytest.raises((pa.ArrowInvalid, pa.ArrowNotImplementedError)):
        cast(make(pa.array(["x", "y"]).dictionary_encode()), kind)


def test_nulls_in_lists_beside_what_is_cast() -> None:
    rows = [{"a": [None], "b": 1}, {"a": [None, None], "b": 2}]
    found = cast(
        pa.array(rows, pa.struct([("a", pa.list_(pa.null())), ("b", pa.int8())])),
        pa.struct([("a", pa.list_(pa.null())), ("b", pa.int16())]),
    )
    found.validate(full=True)
    assert found.to_pylist() == rows


_RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 5, 8], pa.int32()), pa.array([1, 2, 3, 4]))
_HARD_ITEMS = [
    pa.array([[None], [None, None], None, [], [None], [None], [], [None]], pa.list_(pa.null())),
    pa.array([{"q": [None]}, None, {"q": []}, {}] * 2, pa.struct([("p", pa.null()), ("q", pa.list_(pa.null()))])),
    pa.array([[(1, None)], [(2, None), (3, None)], None, []] * 2, pa.map_(pa.int32(), pa.null())),
    _RUNS,
    pa.StructArray.from_arrays([_RUNS], ["r"]),
    pa.ListArray.from_arrays(pa.array([0, 1, 3, 4, 4, 6, 7, 7, 8], pa.int32()), _RUNS),
]
_FIRST, _SIZE = pa.array([4, 0, 2, 6], pa.int32()), pa.array([2] * 4, pa.int32())


@pytest.mark.cases(3)
@pytest.mark.parametrize("to", [*_LISTS, lambda kind: pa.list_(kind, 2)])
@pytest.mark.parametrize("of", ["fixed", "list", "list view", "map"])
@pytest.mark.parametrize("items", _HARD_ITEMS, ids=lambda items: str(items.type))
def test_nulls_and_run_ends_in_lists_stay_where_they_are(items: pa.Array, of: str, to: Any) -> None:
    ends, kind = pa.array([0, 2, 4, 6, 8], pa.int32()), items.type
    column = {
        "fixed": lambda: pa.FixedSizeListArray.from_arrays(items, 2),
        "list": lambda: pa.ListArray.from_arrays(ends, items),
        "list view": lambda: pa.ListViewArray.from_arrays(_FIRST, _SIZE, items),
        "map": lambda: pa.MapArray.from_arrays(ends, pa.array(range(8)), items),
    }[of]()
    expected = column.to_pylist()
    if of == "map":
        kind = pa.struct([pa.field("key", pa.int64(), nullable=False), ("value", kind)])
        expected = [[{"key": key, "value": value} for key, value in entries] for entries in expected]
    for first in range(4):
        found = cast(column[first : first + 2], to(kind))
        found.validate(full=True)
        assert found.to_pylist() == expected[first : first + 2]


def test_lists_of_one_size_become_lists_of_what_others_hold() -> None:
    given = pa.list_(pa.struct([("p", pa.null()), ("q", pa.list_(pa.null()))]), 2)
    column = pa.array([[{"q": [None]}, {"q": [None, None]}]] * 4, given)
    found = cast(column[1:], pa.large_list(pa.struct([("p", pa.string()), ("q", pa.list_(pa.string()))])))
    found.validate(full=True)
    assert found.to_pylist() == column[1:].to_pylist()


def test_lists_become_lists_of_one_size_where_all_have_it() -> None:
    texts, kind = pa.string_view(), pa.list_(pa.string_view(), 2)
    rows = [["a", "b"], None, ["c", None], ["d"]]
    column = pa.ListArray.from_arrays(  # with two values under the null
        pa.array([0, 2, 4, 6, 7], pa.int32()), pa.array(["a", "b", "x", "y", "c", None, "d"], texts),
        mask=pa.array([False, True, False, False]),
    )  # fmt: skip
    for given in (column, cast(column, pa.list_view(texts)), pa.array(rows, pa.large_list(texts))):
        for first in (0, 1, 2):
            found = cast(given[first:3], kind)
            found.validate(full=True)
            assert (found.type, found.to_pylist()) == (kind, rows[first:3])
        with pytest.raises(pa.ArrowInvalid, match="a list of 1 values where 2 must be"):
            cast(given, kind)
    assert cast(column[1:2], pa.list_(texts, 0)).to_pylist() == [None]


def test_run_ends_beside_what_is_cast() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 4], pa.int32()), pa.array(["x", "y"]))
    numbers, nulls = pa.array([1, 2, 3, 4], pa.int8()), pa.array([False, True, False, False])
    column = pa.StructArray.from_arrays([runs, numbers], ["a", "b"], mask=nulls)
    found = cast(column[1:], pa.struct([("a", runs.type), ("b", pa.int64())]))
    found.validate(full=True)
    assert found.to_pylist() == [None, {"a": "y", "b": 3}, {"a": "y", "b": 4}]


def test_fields_that_allow_no_nulls_have_none_under_those_of_their_struct() -> None:
    fields = [pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())]
    numbers, nulls = pa.array([1, 2, 3], pa.int32()), pa.array([False, True, False])
    column = pa.StructArray.from_arrays([numbers, pa.array(["x", "y", "z"])], fields=fields, mask=nulls)
    found = cast(column[1:], pa.struct([fields[0], ("b", pa.large_string())]))
    found.validate(full=True)
    assert found.to_pylist() == [None, {"a": 3, "b": "z"}]
    assert found.field("a").null_count == 0


@pytest.mark.parametrize("nulls", [[False, False], [False, True]])
def test_unions_beside_what_is_cast(nulls: list[bool]) -> None:
    union = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
    column = pa.StructArray.from_arrays([pa.array([1, 2]), union], ["a", "u"], mask=pa.array(nulls))
    found = cast(column, pa.struct([("u", union.type), ("n", pa.null()), ("a", pa.int8())]))
    found.validate(full=True)
    assert found.to_pylist() == [{"u": 1, "n": None, "a": 1}, None if nulls[1] else {"u": "b", "n": None, "a": 2}]


def test_fields_that_may_be_null_become_some_that_may_not_where_none_is() -> None:
    kind = pa.struct([pa.field("b", pa.large_string()), pa.field("a", pa.int8(), nullable=False)])
    column = pa.array([None, {"a": 1, "b": "x"}, None, {"a": 2, "b": None}, {"a": None, "b": "y"}, {"b": "z"}])
    found = cast(column[:4], kind)
    found.validate(full=True)
    assert (found.type, found.to_pylist()) == (kind, column[:4].to_pylist())
    pq.write_table(pa.table({"x": found}), pa.BufferOutputStream())  # which takes no nulls under those of the struct
    with pytest.raises(pa.ArrowInvalid, match="a null in the field 'a'"):
        cast(column, kind)


def test_a_field_that_may_not_be_null_is_lacked_by_nulls_alone() -> None:
    column, kind = pa.array([None, {"b": 1}]), pa.struct([pa.field("a", pa.int8(), nullable=False), ("b", pa.int64())])
    assert cast(column[:1], kind).to_pylist() == [None]
    with pytest.raises(pa.ArrowInvalid, match="a null in the field 'a'"):
        cast(column, kind)


def test_fields_in_another_order_and_nulls_where_none_may_be_are_left_to_pyarrow() -> None:
    column = pa.array([{"a": 1, "b": "x"}, {"a": None, "b": "y"}], pa.struct([("a", pa.int8()), ("b", pa.string())]))
    turned = cast(column, pa.struct([("b", pa.large_string()), ("a", pa.int16())]))
    assert turned.to_pylist() == [{"b": "x", "a": 1}, {"b": "y", "a": None}]
    with pytest.raises((pa.ArrowInvalid, pa.ArrowTypeError)):
        cast(column, pa.struct([pa.field("a", pa.int8(), nullable=False), pa.field("b", pa.large_string())]))


def test_a_dictionary_whose_values_are_null() -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2, 1], pa.int8()), pa.array([None, "a", None]))
    named = pa.ExtensionArray.from_storage(NamedType(words.type), words)
    lists = pa.ListArray.from_arrays([0, 2, 5], words)
    for column in (words, pa.StructArray.from_arrays([words], ["w"]), lists, named):
        found = without_null_values(column)
        found.validate(full=True)
        assert (found.type, found.to_pylist()) == (column.type, column.to_pylist())
    for found in (without_null_values(words), without_null_values(named).storage):
        assert found.dictionary.to_pylist() == ["a"]


def test_dictionaries_of_nested_values() -> None:
    values = pa.array([[("k", ["x" * 20])], None, []], pa.map_(pa.string(), pa.list_view(pa.string_view())))
    column = pa.DictionaryArray.from_arrays(pa.array([2, 0, None, 1, 0], pa.int8()), values)
    found = cast(column[1:], pa.map_(pa.string(), pa.list_(pa.large_string())))
    found.validate(full=True)
    assert found.to_pylist() == [[("k", ["x" * 20])], None, None, [("k", ["x" * 20])]]


def test_chunks_stay() -> None:
    chunks = pa.chunked_array(
        [pa.array(_TEXTS, pa.list_view(pa.string())), pa.array([["z"]], pa.list_view(pa.string()))]
    )
    found = cast(chunks, pa.list_(pa.large_string()))
    assert [len(chunk) for chunk in found.chunks] == [4, 1]
    assert found.to_pylist() == [*_TEXTS, ["z"]]


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(pa.ArrowInvalid):
        cast(pa.array([[1], [300]], pa.list_view(pa.int64())), pa.list_view(pa.int8()))


def test_a_map_is_rebuilt_of_what_is_made_of_its_parts() -> None:
    rows = [[("k", 1)], None, [("z", 2), ("y", None)]]
    column = pa.array(rows, pa.map_(pa.string(), pa.int8()))
    wide = pa.map_(pa.string(), pa.int32())
    assert rebuilt(column[1:], wide, lambda part, kind: part.cast(kind)).to_pylist() == rows[1:]


def _in_list(column: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, 2, 2, 3], pa.int32()), column)


def _in_map(column: pa.Array) -> pa.Array:
    return pa.MapArray.from_arrays(pa.array([0, 2, 3], pa.int32()), pa.array(["a", "b", "c"]), column)


@pytest.mark.parametrize(
    "make",
    [
        lambda column: column,
        _in_list,
        _in_map,
        lambda column: pa.StructArray.from_arrays([column, pa.array([1, None, 3])], names=["p", "n"]),
        lambda column: _in_list(pa.StructArray.from_arrays([_in_list(column).slice(0, 3)], names=["p"])),
        lambda column: pa.DictionaryArray.from_arrays(pa.array([2, None, 0], pa.int8()), column),
    ],
    ids=["itself", "list", "map", "struct", "deep", "dictionary"],
)
def test_types_that_somebody_registered_become_what_they_are_stored_in(make: Any) -> None:
    stored = pa.array([[1, 2], None, []], pa.list_(pa.int8()))
    expected, column = make(stored), make(pa.ExtensionArray.from_storage(NamedType(stored.type), stored))
    assert column.type != expected.type
    assert unregistered_type(column.type) == expected.type
    for start in range(len(column)):
        found = unregistered(column.slice(start))
        found.validate(full=True)
        assert (found.type, found.to_pylist()) == (expected.type, expected.slice(start).to_pylist())
        again = registered(found, column.type)
        again.validate(full=True)
        assert again.equals(column.slice(start))


@pytest.mark.parametrize("kind", [pa.json_(), RefType(), pa.map_(pa.string(), pa.list_(pa.json_()))], ids=str)
def test_types_of_pyarrow_and_lading_are_always_there(kind: pa.DataType) -> None:
    assert unregistered_type(kind) is kind
    column = pa.nulls(2, kind)
    assert unregistered(column) is column


_TIME = pa.array([86_400_000, None, 86_400_001], pa.timestamp("ms"))
_ZONED = pa.array([86_400_000, None, 0], pa.timestamp("ms", "Europe/Berlin"))
_FIELDS = pa.array([{"a": 1, "b": None}, None, {"a": 1, "b": 2}])
_STRICT = pa.field("item", pa.int64(), nullable=False)
_LOST = [
    (_TIME, pa.date32()),
    (_TIME, pa.date64()),
    (_TIME[1:], pa.time32("ms")),
    (_ZONED[1:], pa.timestamp("ms")),
    (_ZONED[1:], pa.date32()),
    (pa.array([0, None, 86_400], pa.int32()), pa.time32("s")),
    (pa.array([86_399_999_999, None, -1]), pa.time64("us")),
    (_ZONED[1:], pa.json_()),
    (_TIME[1:], pa.json_(pa.large_string())),
    (_TIME[1:].dictionary_encode(), pa.json_()),
    (pa.array([None, 1], pa.date32()), pa.json_(pa.string_view())),
    (pa.array([None, 1], pa.time64("us")), pa.json_()),
    (pa.array([1.5, None, float("nan")]), pa.json_()),
    (pa.array([1.5, None, float("-inf")], pa.float32()), pa.json_()),
    (_FIELDS, pa.struct([("a", pa.int64())])),
    (_FIELDS, pa.struct([("c", pa.int8()), ("a", pa.int64())])),
    (_FIELDS[1:], pa.struct([])),
    (pa.array([0, 1, 2]), pa.bool_()),
    (pa.array([0, None, 0.5]), pa.bool_()),
    (pa.array([0.12, None, 0.126]), pa.decimal128(5, 2)),
    (pa.array([2048, None, 2049]), pa.float16()),
    (pa.array([2048, None, 2049]).dictionary_encode(), pa.float16()),
    (pa.array([2048, None, 2049]).dictionary_encode(), pa.dictionary(pa.int32(), pa.float16())),
    (pa.array([1e30, None, 1e300]), pa.float32()),
    (pa.array(["1e30", "inf", "1e300"], pa.string_view()), pa.float32()),
    (pa.array([[1], None, [2, None]]), pa.list_(_STRICT)),
    (pa.array([[1], None, [None]], pa.list_(pa.int64(), 1)), pa.large_list_view(_STRICT)),
    (
        pa.array([[], None, [("a", None)]], pa.map_(pa.string(), pa.int64())),
        pa.map_(pa.string(), _STRICT.with_name("value")),
    ),
]


@pytest.mark.parametrize("column, kind", _LOST, ids=lambda value: str(getattr(value, "type", value)))
def test_what_pyarrow_loses_without_a_word_is_refused(column: pa.Array, kind: pa.DataType) -> None:
    cast(column[:-1], kind).validate(full=True)
    with pytest.raises(pa.ArrowInvalid):
        cast(column, kind)


@pytest.mark.parametrize("to", [pa.list_, pa.large_list_view, lambda kind: pa.list_(kind, 1)])
@pytest.mark.parametrize("of", [pa.list_, pa.list_view, lambda kind: pa.list_(kind, 1)])
def test_what_is_lost_inside_is_refused(of: Any, to: Any) -> None:
    column = pa.array([[{"n": 1e30}], None, [{"n": 1e300}]], of(pa.struct([("n", pa.float64())])))
    kind = to(pa.struct([("n", pa.float32())]))
    assert cast(column[:-1], kind).to_pylist() == [[{"n": 1.0000000150474662e30}], None]
    with pytest.raises(pa.ArrowInvalid, match="infinite"):
        cast(column, kind)


def test_maps_become_lists_of_structs_that_have_their_fields() -> None:
    column = pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64()))
    found = cast(column, pa.list_(pa.struct([("value", pa.int8()), ("key", pa.large_string())])))
    assert found.to_pylist() == [[{"value": 1, "key": "a"}], None]
    with pytest.raises(pa.ArrowInvalid, match="'value'"):
        cast(column, pa.list_(pa.struct([("key", pa.string())])))


def test_tensors_are_cast_as_lists() -> None:
    column = pa.FixedShapeTensorArray.from_numpy_ndarray(np.array([[1.5], [1e300]]))
    assert cast(column[:1], pa.list_(pa.float32())).to_pylist() == [[1.5]]
    with pytest.raises(pa.ArrowInvalid, match="infinite"):
        cast(column, pa.list_(pa.float32()))


@pytest.mark.parametrize(
    "column, kind",
    [
        (pa.array([[1.5], None, [1e300]]), pa.fixed_shape_tensor(pa.float32(), [1])),
        (pa.array([[1.5], [None], [1, 2]], pa.list_view(pa.int8())), pa.fixed_shape_tensor(pa.int64(), [1])),
        (pa.array([2048, None, 2049]), NamedType(pa.float16())),
        (pa.array([[2048], None, [1e300]]), NamedType(pa.list_(pa.float32()))),
        (pa.array([None, None, "x"]).dictionary_encode(), NamedType(pa.null())),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_types_over_others_take_what_those_take(column: pa.Array, kind: pa.DataType) -> None:
    found = cast(column[:-1], kind)
    found.validate(full=True)
    assert (found.type, found.storage.to_pylist()) == (kind, column[:-1].to_pylist())
    with pytest.raises((pa.ArrowInvalid, pa.ArrowNotImplementedError)):
        cast(column, kind)


@pytest.mark.parametrize(
    "column, kind",
    [
        (pa.array([0.1, float("inf"), float("nan"), None]), pa.float32()),
        (pa.array(["0.1", "-Infinity", None]), pa.float64()),
        (pa.array([0, 1, None]), pa.bool_()),
        (pa.array([None, 86_399_999], pa.int32()), pa.time32("ms")),
        (pa.array([None], pa.int64()), pa.time64("ns")),
        (pa.array([2**53, None]), pa.float64()),
        (pa.array([65504, -2048]), pa.float16()),
        (pa.array([86_400_000, None], pa.timestamp("ms")), pa.date32()),
        (_ZONED, pa.timestamp("us", "UTC")),
        (_ZONED, pa.string()),
        (_ZONED, pa.int64()),
        (pa.array([-1.5, 1e300, -0.0, 1e-7, 5e-324, None]), pa.json_()),
        (pa.array([1.5, None], pa.float32()), pa.json_(pa.large_string())),
        (pa.array([86_400, None], pa.duration("s")), pa.json_()),
        (pa.array([1, None, -(2**63)]), pa.json_()),
        (pa.array(['{"a": 1}', None]), pa.json_(pa.string_view())),
        (_TIME, pa.timestamp("us", "UTC")),
        (pa.array([], pa.timestamp("us", "UTC")), pa.timestamp("us")),
    ],
    ids=str,
)
def test_what_keeps_its_value_is_as_pyarrow_makes_it(column: pa.Array, kind: pa.DataType) -> None:
    assert str(cast(column, kind)) == str(column.cast(kind))


def test_floats_and_decimals_of_the_same_digits() -> None:
    numbers = [round(i * 0.001, 3) for i in range(1, 1000, 7)]  # pyarrow's own cast back changes some
    texts = [f"{n:.3f}" for n in numbers]
    assert cast(pa.array(numbers), pa.decimal128(38, 3)).cast(pa.string()).to_pylist() == texts
    assert cast(pa.array(texts).cast(pa.decimal128(38, 20)), pa.float64()).to_pylist() == numbers
