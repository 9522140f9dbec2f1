"""What differs between two texts, by words, and between two JSON texts, by fields. Bounded, whatever the texts are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

__all__ = ["FieldChange", "Part", "field_changes", "word_changes"]

Part: TypeAlias = tuple[Literal["same", "a", "b"], str]
"""Text that both have, or that one of them has alone."""

_MOST_WORDS, _MOST_CHANGES = 50_000, 600
_WORDS = re.compile(r"\s+|\w+|[^\w\s]")


def word_changes(one: str, other: str) -> list[Part]:
    """Return both texts as parts in order: what they share, and what one of them has alone.

    Where more than 600 words differ, all between the first and the last one that differs is a part of each text.

    Source: E. W. Myers, An O(ND) Difference Algorithm and Its Variations, 1986.
    """
    a, b = _WORDS.findall(one), _WORDS.findall(other)
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    middle = a[start : len(a) - end], b[start : len(b) - end]
    changes = _shortest(*middle) if max(map(len, middle)) <= _MOST_WORDS else None
    if changes is None:
        changes = [*(("a", word) for word in middle[0]), *(("b", word) for word in middle[1])]
    same = [("same", word) for word in a[:start]], [("same", word) for word in a[len(a) - end :]]
    return _joined([*same[0], *changes, *same[1]])


def _shortest(a: Sequence[str], b: Sequence[str]) -> list[tuple[str, str]] | None:
    """The words with who has them, of the fewest changes; None if these are too many."""
    reached, trail = {1: 0}, list[dict[int, int]]()
    for changes in range(min(len(a) + len(b), _MOST_CHANGES) + 1):
        trail.append(reached.copy())
        for line in range(-changes, changes + 1, 2):
            down = line == -changes or (line != changes and reached[line - 1] < reached[line + 1])
            x = reached[line + 1] if down else reached[line - 1] + 1
            y = x - line
            while x < len(a) and y < len(b) and a[x] == b[y]:
                x, y = x + 1, y + 1
            reached[line] = x
            if x >= len(a) and y >= len(b):
                return [*_way_back(a, b, trail)][::-1]
    return None


def _way_back(a: Sequence[str], b: Sequence[str], trail: Sequence[dict[int, int]]) -> Iterator[tuple[str, str]]:
    x, y = len(a), len(b)
    for changes in range(len(trail) - 1, -1, -1):
        reached, line = trail[changes], x - y
        down = line == -changes or (line != changes and reached[line - 1] < reached[line + 1])
        before = line + 1 if down else line - 1
        x_before = reached[before]
        y_before = x_before - before
        while x > max(x_before, 0) and y > max(y_before, 0):
            x, y = x - 1, y - 1
            yield "same", a[x]
        if changes:
            yield ("b", b[y_before]) if down else ("a", a[x_before])
        x, y = x_before, y_before


def _joined(words: Sequence[tuple[str, str]]) -> list[Part]:
    parts: list[tuple[Any, list[str]]] = []
    for side, word in words:
        if not parts or parts[-1][0] != side:
            parts.append((side, []))
        parts[-1][1].append(word)
    return [(side, "".join(found)) for side, found in parts]


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field in which two JSON texts differ.

    Attributes:
        path: such as `lang` or `boxes[2].x`; empty for the whole value.
        a: the value as JSON; None where the first text lacks the field.
        b: the same of the second text.
    """

    path: str
    a: str | None
    b: str | None


@dataclass(frozen=True, slots=True)
class _Number:
    """A number as it is written: other numbers, and other ways to write one, differ."""

    text: str


_ABSENT = object()


def field_changes(one: str, other: str) -> list[FieldChange] | None:
    """Return the fields in which two JSON texts differ, in order; None where one of them is no JSON, or too deep."""
    try:
        values = [json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_Number)
                  for text in (one, other)]  # fmt: skip
        return [*_changes("", *values)]
    except (ValueError, RecursionError):
        return None


def _changes(path: str, one: Any, other: Any) -> Iterator[FieldChange]:
    if type(one) is type(other) and one == other:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for name in dict.fromkeys([*one, *other]):
            inner = f"{path}.{name}" if path else name
            yield from _changes(inner, one.get(name, _ABSENT), other.get(name, _ABSENT))
    elif isinstance(one, list) and isinstance(other, list):
        for place in range(max(len(one), len(other))):
            values = (each[place] if place < len(each) else _ABSENT for each in (one, other))
            yield from _changes(f"{path}[{place}]", *values)
    else:
        yield FieldChange(path, _written(one), _written(other))


def _written(value: Any) -> str | None:
    if value is _ABSENT:
        return None
    if isinstance(value, _Number):
        return value.text
    if isinstance(value, dict):
        inside = ", ".join(f"{json.dumps(name, ensure_ascii=False)}: {_written(each)}" for name, each in value.items())
        return f"{{{inside}}}"
    if isinstance(value, list):
        return f"[{', '.join(str(_written(each)) for each in value)}]"
    return json.dumps(value, ensure_ascii=False)
