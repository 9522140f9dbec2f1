"""Columns of values out of JSON in a type that is asked for: what fits is what stands there, all else is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from lading._core.arrow.json_columns import build_column
from lading.errors import SchemaMismatch

_POINT = pa.struct([("aa", pa.int64()), ("bb", pa.list_(pa.float32()))])
_OTHERS: list[tuple[pa.DataType, Any, str]] = [
    (pa.int64(), 1e9, "1000000000.0"),
    (pa.uint8(), True, "True"),
    (pa.float64(), True, "True"),
    (pa.float64(), "1", "'1'"),
    (pa.float32(), 1e99, "infinite"),
    (pa.float16(), 1e9, "infinite"),
    (pa.list_(pa.string()), "abcd", "'abcd'"),
    (pa.large_list(pa.string()), {"a": 1}, "{'a': 1}"),
    (pa.list_(pa.int64(), 2), [1, 2.0], "2.0"),
    (pa.dictionary(pa.int32(), pa.int64()), 2.0, "2.0"),
    (_POINT, {"aa": 1, "bc": 2}, "'bc'"),
    (_POINT, [["aa", 1]], "'aa'"),
    (_POINT, {"aa": 1.0}, "1.0"),
    (_POINT, {"aa": 1, "bb": "xy"}, "'xy'"),
    (_POINT, {"bb": [1e99]}, "infinite"),
    (pa.list_(_POINT), [{"aa": 1}, {"cc": 1}], "'cc'"),
    (pa.struct([("p", pa.list_(_POINT))]), {"p": [None, {"aa": False}]}, "False"),
]


@pytest.mark.parametrize("kind, value, found", _OTHERS)
def test_a_value_that_would_become_another_is_refused(kind: pa.DataType, value: Any, found: str) -> None:
    with pytest.raises(SchemaMismatch, match=r"d\.jsonl column 'x': a value does not fit") as caught:
        build_column(pa.field("x", kind), [None, value], "d.jsonl")
    assert found in str(caught.value.found)


@pytest.mark.parametrize(
    "kind, values",
    [
        (pa.float32(), [None, 1, 0.5, float("inf"), float("-inf")]),
        (pa.float16(), [1.5, None]),
        (pa.float64(), [1, 1e300]),
        (pa.dictionary(pa.int32(), pa.float32()), [1.5, None, 2.0]),
        (pa.uint64(), [2**64 - 1, None]),
        (_POINT, [{"aa": 1, "bb": [1.5, None, 2]}, None, {"aa": None, "bb": None}, {"bb": [], "aa": 7}]),
        (pa.list_(_POINT), [[{"aa": 1, "bb": None}, None], None, []]),
        (pa.list_(pa.list_(pa.string())), [[["ab"], None], None]),
        (pa.null(), [None, None]),
    ],
)
def test_what_fits_is_what_stands_there(kind: pa.DataType, values: list[Any]) -> None:
    assert build_column(pa.field("x", kind), values, "d.jsonl").to_pylist() == values


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.bool_(), pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.string(), pa.large_string()),
        *(pa.list_(pa.string()), pa.list_view(pa.int64()), pa.list_(pa.float64(), 1), pa.struct([("a", pa.int64())])),
        *(pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.float32()), pa.null()),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "value", [None, True, 1, 2.0, 1e99, "1", "a", "", [], [1], ["a"], [["a", 1]], {"a": 1}, {"b": 1}]
)
def test_any_value_is_held_or_refused_wherever_it_stands(kind: pa.DataType, value: Any) -> None:
    two = pa.struct([("x", kind), ("y", pa.string())])
    shapes: list[tuple[pa.DataType, Any, Callable[[Any], Any]]] = [
        (kind, value, lambda row: row),
        (pa.list_(kind), [value], lambda row: row[0]),
        (two, {"x": value, "y": "z"}, lambda row: row["x"]),
    ]
    for outer, row, inner in shapes:
        try:
            found = inner(build_column(pa.field("x", outer), [None, row], "d.jsonl")[1].as_py())
        except SchemaMismatch:
            continue
        assert found == value
        assert isinstance(found, bool) == isinstance(value, bool)


def test_a_name_that_no_field_has_is_refused_beside_names_that_are_null_or_missing() -> None:
    for objects in ([{"aa": None}, {"cc": None}], [{"aa": 1, "bb": None}, {"bb": [], "cc": 1}], [{"cc": 2}, None, {}]):
        with pytest.raises(SchemaMismatch, match="the name 'cc'"):
            build_column(pa.field("x", _POINT), objects, "d.jsonl")
