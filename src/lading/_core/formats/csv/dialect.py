"""How a CSV file spells values: delimiter, quotes, escapes; and which of its bytes stand in quotes.

A quote opens a quoted value only where a value begins. Any other quote outside a quoted value is a plain character, as
for Python's csv, pandas and pyarrow: `5" disk`. In a quoted value a quote ends the value, unless the next byte is a
quote too. Where every quote has its partner, their number before a byte says whether the byte is in quotes. Where not,
each quote is taken as a step between three states, and many runs of quotes take their steps at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from lading._core.formats.text_lines import BOM

__all__ = ["Dialect", "QuoteState"]

_QUOTE, _LF, _CR = b'"\n\r'
_OUTSIDE, _INSIDE, _CLOSED = range(3)
_PLAIN, _OPENS, _DOUBLES, _NOTHING = range(4)
_NEXT = np.array(
    [
        [_OUTSIDE, _CLOSED, _OUTSIDE],  # a quote behind a character of a value
        [_INSIDE, _CLOSED, _INSIDE],  # a quote where a value begins
        [_OUTSIDE, _CLOSED, _INSIDE],  # a quote behind a quote
        [_OUTSIDE, _INSIDE, _CLOSED],
    ],
    np.uint8,
)
"""The state behind a quote, by its kind and the state before it."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a file spells values.

    Attributes:
        delimiter: the character between values.
        quotes: whether quotes around a value are no part of it.
        escape: the character that makes the next byte a plain one; empty if there is none.
    """

    delimiter: str
    quotes: bool = True
    escape: str = ""


class QuoteState:
    """Finds the bytes that stand in quotes, in pieces of a text from its beginning.

    Attributes:
        escaping: whether the text so far ends with an active escape.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._state, self._before, self._head = _OUTSIDE, _LF, b""
        self._size, self.escaping = 0, False

    @property
    def inside(self) -> bool:
        """Return whether the text so far ends inside quotes."""
        return self._state == _INSIDE

    def feed(self, codes: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.bool_], NDArray[np.int64]]:
        """Return the piece with zeros for bytes without a meaning; which bytes stand in quotes; the active escapes.

        A quote that opens stands in quotes, a quote that closes does not.

        Args:
            codes: the next bytes of the text.
        """
        size = len(codes)
        meant, escapes = self._meant(codes)
        if self._size < len(BOM):
            self._head += codes[: len(BOM)].tobytes()
        within = self._within(meant)
        if size:
            self._before = int(meant[-1])
        self._size += size
        return meant, within, escapes

    def _within(self, meant: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Return which bytes stand in quotes, and keep the state behind them."""
        quotes: NDArray[np.bool_] = meant == _QUOTE
        first, size = self._state, len(meant)
        if not size:
            return quotes
        if not quotes.any():
            self._state = _INSIDE if first == _INSIDE else _OUTSIDE
            return np.full(size, first == _INSIDE)
        ends = (ord(self._dialect.delimiter), _LF, _CR)
        begins = np.append(self._before in ends, np.logical_or.reduce([meant[:-1] == end for end in ends]))
        if self._size <= len(BOM) < self._size + size and self._head[: len(BOM)] == BOM:
            begins[len(BOM) - self._size] = True
        doubles = np.append(first == _CLOSED, quotes[:-1])
        within = np.logical_xor.accumulate(quotes) ^ (first == _INSIDE)
        closed = bool(quotes[-1])
        if (quotes & within & ~begins & ~doubles).any():  # a quote that would open a value stands inside one
            places = np.flatnonzero(quotes)
            kinds = np.where(begins[places], _OPENS, np.where(doubles[places], _DOUBLES, _PLAIN))
            states = np.append(np.uint8(first), _states(kinds, first))
            within = np.repeat(states == _INSIDE, np.diff(np.concatenate([[0], places, [size]])))
            closed = closed and int(states[-1]) == _CLOSED
        self._state = _INSIDE if within[-1] else _CLOSED if closed else _OUTSIDE
        return within

    def _meant(self, codes: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return the bytes, with zeros for escaped ones and for plain quotes, and where the active escapes are."""
        escape, escapes = self._dialect.escape, np.empty(0, np.int64)
        if self._dialect.quotes and not escape:
            return codes, escapes
        meant = codes.copy()
        if escape and len(codes):
            marks = np.flatnonzero(codes == ord(escape))
            number = np.arange(len(marks))
            begins = np.append(True, np.diff(marks) != 1)[: len(marks)]  # of runs of escapes
            place = number - np.maximum.accumulate(np.where(begins, number, 0))
            if self.escaping and len(marks) and marks[0] == 0:
                place += place == number  # the first of them is escaped
            escapes = marks[place % 2 == 0]
            meant[escapes] = 0
            meant[(escapes + 1)[escapes + 1 < len(codes)]] = 0
            if self.escaping:
                meant[0] = 0
            self.escaping = bool(len(escapes)) and int(escapes[-1]) == len(codes) - 1
        if not self._dialect.quotes:
            meant[meant == _QUOTE] = 0
        return meant, escapes


def _states(kinds: NDArray[np.int64], first: int) -> NDArray[np.uint8]:
    """Return the state behind each quote: about √n steps of about √n quotes at once."""
    width = isqrt(len(kinds)) + 1
    height = -(-len(kinds) // width)
    steps = np.full(height * width, _NOTHING, np.uint8)
    steps[: len(kinds)] = kinds
    columns = np.ascontiguousarray(steps.reshape(height, width).T)
    behind = np.tile(np.arange(3, dtype=np.uint8)[:, None], height)
    for kind in columns:
        behind = _NEXT[kind, behind]
    begin = np.empty(height, np.uint8)
    for row in range(height):
        begin[row] = first
        first = int(behind[first, row])
    found = np.empty((width, height), np.uint8)
    for at, kind in enumerate(columns):
        begin = found[at] = _NEXT[kind, begin]
    return found.T.reshape(-1)[: len(kinds)]
