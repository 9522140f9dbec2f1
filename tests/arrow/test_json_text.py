"""Reading and writing JSON: what Python's json gives, and errors that say where."""

import json
import math
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

from lading._core.arrow.json_text import canonical, dumps, loads, loads_plain
from lading.errors import DataError, Unrepresentable


class _Number(int):
    pass


@pytest.mark.parametrize(
    "text",
    [
        "18446744073709551616",
        "-9223372036854775809",
        "[123456789012345678901234567890, 1]",
        "1e400",
        "-1e400",
        "-0",
        "-0.0",
        "Infinity",
        '"\\ud800"',
        '"\\ud83d\\ude00"',
        '{"a": 1, "a": 2}',
        "9007199254740993",
        "0.1234567890123456789012345",
        '"\\u007f \x7f"',
        ' [1 ,\t"x"]\r\n',
    ],
)
def test_gives_what_python_gives(text: str) -> None:
    assert repr(loads(text)) == repr(json.loads(text))
    assert repr(loads(text.encode())) == repr(json.loads(text))
    assert repr(loads(memoryview(text.encode()))) == repr(json.loads(text))


def test_nan_is_kept() -> None:
    assert math.isnan(loads(b"[NaN]")[0])


def test_a_byte_order_mark_is_ignored() -> None:
    assert loads(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


@pytest.mark.parametrize(
    "text, at",
    [
        (b'{"a": tru}', 6),
        ('{"\u00fc": tru}'.encode(), 7),
        (b"\xef\xbb\xbf[1,]", 6),
        (b"", 0),
        (b'"a\xff"', 2),
        (b"[1] x", 4),
        (b'"a\tb"', 2),
    ],
)
def test_errors_say_where(text: bytes, at: int) -> None:
    with pytest.raises(DataError, match=f"at byte {at} of the text") as caught:
        loads(text)
    assert caught.value.offset is None
    with pytest.raises(DataError) as caught:
        loads(text, base=512)
    assert caught.value.offset == 512 + at


@pytest.mark.parametrize("depth", [201, 2_000, 200_000])
@pytest.mark.parametrize("shell", [("[", "]"), ('{"a":', "}")])
def test_depth_is_an_error(depth: int, shell: tuple[str, str]) -> None:
    with pytest.raises(DataError, match="nested too deeply"):
        loads(shell[0] * depth + "1" + shell[1] * depth)


def test_an_integer_of_many_digits_is_an_error_and_quick() -> None:
    with pytest.raises(DataError, match="number that cannot be read"):
        loads("9" * 100_000)


@pytest.mark.parametrize("inner", ["1", "NaN", str(1 << 70), '"\\ud800"', '"[\\"[["', "1e999"])
def test_values_of_the_deepest_level_have_one_value_and_one_text(inner: str) -> None:
    text = "[" * 200 + inner + "]" * 200
    value = loads(text)
    assert loads(dumps(value)) == value
    assert canonical(value).startswith("[" * 200)
    with pytest.raises(DataError, match=r"nested too deeply.*200"):
        loads(f"[{text}]")
    with pytest.raises(Unrepresentable, match=r"nested too deeply.*200"):
        dumps([value])


def test_brackets_in_strings_and_beside_each_other_are_no_levels() -> None:
    assert loads(dumps({"a": "[{" * 500, "b": [[]] * 500}))["b"] == [[]] * 500
    assert loads_plain([dumps(["[" * 500]).encode()]) == [["[" * 500]]


def test_many_texts_at_once_are_as_deep_as_one() -> None:
    deep = b"[" * 201 + b"]" * 201
    assert loads_plain([b"1", deep]) is None


def test_numbers_and_arrays_of_numpy_are_numbers() -> None:
    value = {"a": np.float32(0.5), "b": [np.int64(-3), np.bool_(True)], "c": np.arange(4, dtype=np.uint8).reshape(2, 2)}
    assert loads(dumps(value)) == {"a": 0.5, "b": [-3, True], "c": [[0, 1], [2, 3]]}
    assert loads(dumps(np.array(["a", None, {"b": np.int8(1)}], object))) == ["a", None, {"b": 1}]


@pytest.mark.parametrize(
    "value",
    [{1, 2}, b"bytes", {"a": object()}, {(1,): 2}, np.datetime64("2020-01-01"), np.array([1j]),
     np.ma.masked_array([1, 2], [True, False]), np.longdouble(1)],
)  # fmt: skip
def test_values_that_json_lacks(value: Any) -> None:
    with pytest.raises(Unrepresentable, match="JSON cannot hold"):
        dumps(value)


@pytest.mark.parametrize(
    "value",
    [{1: "a", "1": "b"}, [{"a": {None: 0, "null": 1}}], {True: 0, "true": 1}, {1.5: 0, "1.5": 2, "n": 1 << 70},
     {float("nan"): 0, -float("nan"): 1}, {2: ({"b": ({}, {1: 0, "1": 0})},)}, OrderedDict({1: 0, "1": 1}),
     {1: {"b": OrderedDict({1: 0, "1": 1})}}, {_Number(1): 0, 2: 0, "1": 0}],
)  # fmt: skip
def test_keys_that_become_one_text_are_refused(value: Any) -> None:
    with pytest.raises(Unrepresentable, match="two keys become one text"):
        dumps(value)


@pytest.mark.soak
@pytest.mark.parametrize("value", [dict.fromkeys(range(20_000)), [1 << 70] * 50_000], ids=["keys", "integers"])
def test_what_orjson_refuses_is_not_read_again_if_its_keys_are_of_one_type(value: Any) -> None:
    """That took as long again as to write it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("json.loads", None)
        assert dumps(value) == json.dumps(value)


@pytest.mark.parametrize("value", [{1: {"1": 0}, "2": [{True: 0}, {"true": 1}]}, {"a": "\ud800", "b": 1 << 70}])
def test_other_keys_become_what_python_s_json_makes_of_them(value: Any) -> None:
    assert loads(dumps(value)) == json.loads(json.dumps(value))


def test_a_loop_is_unrepresentable() -> None:
    loop = []
    loop.append(loop)
    with pytest.raises(Unrepresentable):
        canonical(loop)


def test_spelling() -> None:
    value = {"b": [1, 1.0, 1e16, None, True], "a": "\u00fc\n"}
    assert dumps(value) == '{"b": [1, 1.0, 1e+16, null, true], "a": "\u00fc\\n"}'
    assert canonical(value) == '{"a":"\u00fc\\n","b":[1,1.0,1e+16,null,true]}'
    assert canonical([math.nan, math.inf, -math.inf, -0.0]) == "[NaN,Infinity,-Infinity,-0.0]"


def test_lone_surrogates_become_storable() -> None:
    assert dumps("\ud800\u00fc") == '"\\ud800\u00fc"'
    assert loads(dumps("\ud800\u00fc")) == "\ud800\u00fc"


def test_keys_are_sorted_by_code_point() -> None:
    # In UTF-16 the emoji would stand before U+FFFD.
    assert canonical({"\U0001f600": 1, "\ufffd": 2, "a": 3}) == '{"a":3,"\ufffd":2,"\U0001f600":1}'
