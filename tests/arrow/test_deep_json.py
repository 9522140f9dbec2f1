"""JSON of many levels: as Python's `json` has it, whatever room the stack has."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lading.arrow import deep_json, json_text
from lading.errors import DataError

_Told = TypeVar("_Told")

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)
_ENCODERS = [
    json.JSONEncoder(ensure_ascii=False),
    json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")),
    json.JSONEncoder(),
]


def deep(levels: int, inner: str = "") -> str:
    return "[" * levels + inner + "]" * levels


def far_down(told: Callable[[], _Told], frames: int) -> _Told:
    """What a function gives whose stack has this many frames more."""
    return told() if not frames else far_down(told, frames - 1)


@given(_VALUES, st.sampled_from(_ENCODERS))
def test_texts_and_values_are_those_of_json(value: Any, encoder: json.JSONEncoder) -> None:
    text = encoder.encode(value)
    assert deep_json.encode(encoder, value) == text
    assert deep_json.loads(text) == value
    assert deep_json.loads(json.dumps(value, indent=2)) == value


@pytest.mark.parametrize("value", [{1: [], 2.5: {}, None: (), False: [1]}, (1, (2,)), {"a": float("nan")}])
def test_values_of_python(value: Any) -> None:
    for encoder in _ENCODERS[::2]:
        assert deep_json.encode(encoder, value) == encoder.encode(value)


BROKEN = ["", " ", "[", "]", "{", "[1,]", "[1 2]", "[,1]", '{"a"}', '{"a":}', '{"a":1,}', "{1:2}", '{"a" 1}', "[1}",
          '{"a":1]', "[1]]", "[] x", '["a', "nul", "[01]", "{'a':1}", "[\x0b1]"]  # fmt: skip


@pytest.mark.parametrize("text", BROKEN)
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(json.JSONDecodeError) as expected:
        json.loads(text)
    with pytest.raises(json.JSONDecodeError) as caught:
        deep_json.loads(text)
    # Of commas before an end Python 3.13 names the comma.
    assert caught.value.pos == expected.value.pos or text in ("[1,]", '{"a":1,}')


def test_names_in_their_order() -> None:
    found: list[list[str]] = []
    deep_json.loads('{"b": {"x": 1, "x": 2}, "a": []}', lambda pairs: found.append([name for name, _ in pairs]))
    assert found == [["x", "x"], ["b", "a"]]


@pytest.mark.parametrize("levels, too_deep", [(1, False), (1024, False), (1025, True), (3000, True)])
@pytest.mark.parametrize("inner", ["", "1", "null"])
def test_where_depth_ends(levels: int, inner: str, too_deep: bool) -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)  # so that json reads it
    try:
        value = json.loads(deep(levels, inner))
        assert deep_json.is_too_deep(value) is too_deep
    finally:
        sys.setrecursionlimit(limit)
    for told in (lambda: deep_json.loads(deep(levels, inner)), lambda: deep_json.encode(_ENCODERS[1], value)):
        if too_deep:
            with pytest.raises(RecursionError):
                told()
        else:
            assert told() is not None


@pytest.mark.parametrize("inner", ["1", "NaN", str(1 << 70), '"\\ud800"', '{"a":1e999}'])
@pytest.mark.parametrize("levels", [90, 500, 900, 1000])
def test_one_value_and_one_text_whatever_the_stack(levels: int, inner: str) -> None:
    text = deep(levels, inner)
    expected = inner.replace("1e999", "Infinity")
    for frames in (0, 300, 700):
        spelled = far_down(lambda: json_text.canonical(json_text.loads(text)), frames)
        assert spelled == deep(levels, expected)


@pytest.mark.parametrize("inner", ["1", "NaN"])
def test_deeper_is_an_error_whatever_the_stack(inner: str) -> None:
    for frames in (0, 500):
        with pytest.raises(DataError, match=r"nested too deeply.*1024"):
            far_down(lambda: json_text.loads(deep(1025, inner)), frames)


def test_names_that_stand_twice_far_down() -> None:
    text = deep(900, '{"a": 1, "a": 2}').encode()
    assert json_text.find_repeated_name([text], [json_text.loads(text)]) == (0, "a")
