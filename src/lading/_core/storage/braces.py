"""Brace patterns: expand `{train,val}-{00..09}.tar` as a shell and the peers do.

The rules are those of braceexpand 0.1.7, which webdataset uses, except for escapes: a backslash stands for itself.
`{a,b}` is each of the choices, which may hold further braces. `{1..3}` and `{a..c}` are ranges; `{0..8..4}` is every
fourth number. If one end of a numeric range begins with a zero, all numbers have the width of the wider end. Braces
around anything else, and an unmatched brace, stand for themselves.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from string import ascii_lowercase, ascii_uppercase
from typing import TypeAlias

from lading.errors import UsageError

__all__ = ["expand_braces"]

_MAX_NAMES = 10_000_000
_MAX_DEPTH = 300
_SIGN = re.compile(r"[{},]|[^{},]+")
_NUMBERS = re.compile(r"(-?\d{1,255})\.\.(-?\d{1,255})(?:\.\.-?(\d{1,255}))?")
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.-?(\d{1,255}))?")
_ZEROS = re.compile(r"-?0\d")
_ALPHABET = ascii_uppercase + ascii_lowercase


@dataclass(frozen=True, slots=True)
class _Choice:
    """The choices of one pair of braces: their number; of each its text, or its pattern and the index in that."""

    size: int
    pick: Callable[[int], tuple[_Pattern | str, int]]


_Pattern: TypeAlias = "list[str | _Choice]"


def expand_braces(pattern: str) -> Iterator[str]:
    """Yield the names of a brace pattern, in order.

    Raises:
        UsageError: there are more than ten million names, or braces are nested more than 300 deep.
    """
    parsed = _parse(pattern)
    for number in range(_count(parsed)):
        yield _name(parsed, number)


def _parse(pattern: str) -> _Pattern:
    signs = _SIGN.findall(pattern)
    pairs = _pairs(signs)
    outer: list[list[_Pattern]] = []
    here: list[_Pattern] = [[]]
    for at, sign in enumerate(signs):
        if sign == "{" and at in pairs:
            outer.append(here)
            here = [[]]
            if len(outer) > _MAX_DEPTH:
                raise UsageError("braces are nested too deeply", expected=_MAX_DEPTH, found=repr(pattern[:40]))
        elif sign == "}" and at in pairs:
            choice = _range(signs[at - 1]) if pairs[at] == at - 2 else None
            choice = choice or _either(here if len(here) > 1 else [["{", *here[0], "}"]])
            here = outer.pop()
            here[-1].append(choice)
        elif sign == "," and outer:
            here.append([])
        else:
            here[-1].append(sign)
    return here[0]


def _pairs(signs: Sequence[str]) -> dict[int, int]:
    """Return the places of matched opening braces, with the place of each match."""
    opened, pairs = [], {}
    for at, sign in enumerate(signs):
        if sign == "{":
            opened.append(at)
        elif sign == "}" and opened:
            begin = opened.pop()
            pairs[begin], pairs[at] = at, begin
    return pairs


def _range(text: str) -> _Choice | None:
    """Return a range of numbers or letters; None if the text is not a range."""
    show: Callable[[int], str]
    if found := _LETTERS.fullmatch(text):
        first, last = _ALPHABET.index(found[1]), _ALPHABET.index(found[2])
        show = _ALPHABET.__getitem__
    elif found := _NUMBERS.fullmatch(text):
        first, last = int(found[1]), int(found[2])
        show = f"{{:0{max(map(len, found.group(1, 2))) if any(map(_ZEROS.match, found.group(1, 2))) else 0}}}".format
    else:
        return None
    step = int(found[3] or 1) or 1
    size = abs(last - first) // step + 1
    step = step if first < last else -step
    return _Choice(size, lambda at: (show(first + at * step), 0))


def _either(patterns: Sequence[_Pattern]) -> _Choice:
    """Combine the names of one pattern with those of another, one after the other."""
    starts = [0, *accumulate(map(_count, patterns))]

    def pick(at: int) -> tuple[_Pattern, int]:
        which = bisect_right(starts, at) - 1
        return patterns[which], at - starts[which]

    return _Choice(starts[-1], pick)


def _count(pattern: _Pattern) -> int:
    """Return how many names a pattern has."""
    total = 1
    for part in pattern:
        total *= 1 if isinstance(part, str) else part.size
        if total > _MAX_NAMES:
            raise UsageError("the brace pattern names too many files", expected=_MAX_NAMES, found=total)
    return total


def _name(pattern: _Pattern, number: int) -> str:
    """Return one name of a pattern; the last choice varies fastest. Without recursion, at any nesting."""
    texts: list[str] = []
    todo: list[tuple[_Pattern | _Choice | str, int]] = [(pattern, number)]
    while todo:
        part, at = todo.pop()
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, _Choice):
            todo.append(part.pick(at))
        else:
            for one in reversed(part):
                at, which = (at, 0) if isinstance(one, str) else divmod(at, one.size)
                todo.append((one, which))
    return "".join(texts)
