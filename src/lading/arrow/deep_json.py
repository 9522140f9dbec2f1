"""JSON of many levels, read and written without recursion, for where Python's `json` runs out of stack.

How many levels that takes depends on who calls, and on the version of Python. What a text means must not: the most is
what orjson takes, whatever the stack.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["MAX_LEVELS", "encode", "is_too_deep", "loads"]

MAX_LEVELS = 1024
"""Most lists and objects inside each other: orjson's limit, which it documents."""

_SPACE = re.compile(r"[ \t\n\r]*")
_ENDS = {"[": "]", "{": "}"}
_decode = json.JSONDecoder().raw_decode


def is_too_deep(value: Any) -> bool:
    """Whether a value out of JSON has more than `MAX_LEVELS` levels."""
    level = [value]
    for _ in range(MAX_LEVELS):
        inside = [inner for one in level if isinstance(one, dict) for inner in one.values()]
        level = inside + [inner for one in level if isinstance(one, list) for inner in one]
        if not level:
            return False
    return any(isinstance(one, dict | list) for one in level)


def loads(text: str, make_object: Callable[[list[tuple[str, Any]]], Any] = dict) -> Any:
    """The value that `json.loads` gives.

    Args:
        text: the text.
        make_object: gets names and values of each object, the innermost first.

    Raises:
        RecursionError: it has more than `MAX_LEVELS` levels.
        json.JSONDecodeError, ValueError: as `json.loads`.
    """
    items: list[Any] = []  # of the innermost list or object; of objects names and values in turn
    outer: list[tuple[str, list[Any]]] = []
    at = _end_of_space(text, 0)
    while True:
        kind = text[at : at + 1]
        if kind in _ENDS:
            if len(outer) == MAX_LEVELS:
                raise RecursionError(f"more than {MAX_LEVELS} levels")
            outer.append((kind, items))
            items, at = [], _end_of_space(text, at + 1)
            if text[at : at + 1] != _ENDS[kind]:
                at = _name(text, at, kind, items)
                continue
        else:
            value, at = _decode(text, at)
            items.append(value)
            at = _end_of_space(text, at)
        while outer and text[at : at + 1] == _ENDS[outer[-1][0]]:
            kind, before = outer.pop()
            before.append(make_object(list(zip(items[::2], items[1::2], strict=True))) if kind == "{" else items)
            items, at = before, _end_of_space(text, at + 1)
        if not outer:
            break
        if text[at : at + 1] != ",":
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
        at = _name(text, _end_of_space(text, at + 1), outer[-1][0], items)
    if at != len(text):
        raise json.JSONDecodeError("Extra data", text, at)
    return items[0]


def _end_of_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _name(text: str, at: int, kind: str, items: list[Any]) -> int:
    """Take in the name of an object's next value; where the value begins, in a list too."""
    if kind == "[":
        return at
    if text[at : at + 1] != '"':
        raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
    name, at = _decode(text, at)
    items.append(name)
    at = _end_of_space(text, at)
    if text[at : at + 1] != ":":
        raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
    return _end_of_space(text, at + 1)


def encode(encoder: json.JSONEncoder, value: Any) -> str:
    """The text that an encoder makes of a value.

    Raises:
        RecursionError: it has more than `MAX_LEVELS` levels.
        TypeError: as the encoder.
    """
    parts: list[str] = []
    inside: list[tuple[Iterator[tuple[str, Any]], str]] = [(iter([("", value)]), "")]
    while inside:
        rest, end = inside[-1]
        found = next(rest, None)
        if found is None:
            parts.append(end)
            inside.pop()
            continue
        label, one = found
        parts.append(label)
        nested = isinstance(one, dict | list | tuple)
        if nested and len(inside) > MAX_LEVELS:
            raise RecursionError(f"more than {MAX_LEVELS} levels")
        if not nested or not one:
            parts.append(encoder.encode(one))
            continue
        inside.append((_entries(encoder, one), "}" if isinstance(one, dict) else "]"))
    return "".join(parts)


def _entries(encoder: json.JSONEncoder, value: Any) -> Iterator[tuple[str, Any]]:
    """The values inside one, and what stands before each."""
    if isinstance(value, dict):
        named = sorted(value.items()) if encoder.sort_keys else value.items()
        # The name as the encoder spells it, of numbers too: of `{"a": 0}` all but the braces and the 0.
        labels, values = (encoder.encode({name: 0})[1:-2] for name, _ in named), (one for _, one in named)
        before = "{"
    else:
        labels, values, before = ("" for _ in value), (one for one in value), "["
    for label, one in zip(labels, values, strict=True):
        yield before + label, one
        before = encoder.item_separator
