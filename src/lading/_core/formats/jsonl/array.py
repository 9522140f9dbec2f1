"""Split a JSON array into its elements, piece by piece: a `.json` file of rows, in bounded memory.

    [ {"id": 1},            elements are separated by commas at depth 1, outside strings
      {"id": 2} ]

numpy finds strings and depth for a whole piece. Elements are parsed later, as the lines of JSON Lines are. A comma
before the end of the array is skipped.

Source: RFC 8259.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lading._core.formats.text_lines import BOM, LineBlock, blocks_of
from lading.limits import Limits

__all__ = ["Scanner", "array_blocks", "begins_array", "elements"]

_BLANK = b" \t\r\n"
_BEGIN = re.compile(rb"(?:%s)?[ \t\r\n]*\[" % BOM)
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_STEPS = np.zeros(256, np.int8)
_STEPS[[*b"{["]], _STEPS[[*b"}]"]] = 1, -1
"""Change of nesting depth for each byte of JSON outside strings."""


def begins_array(text: bytes) -> bool:
    """Return whether a text begins as a JSON array."""
    return _BEGIN.match(text) is not None


class Scanner:
    """Finds strings and nesting depth, in one piece after another.

    Attributes:
        depth: nesting depth at the end of the last piece; inside a string it is at least 1.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._inside = self._escaped = False

    def commas(self, piece: bytes) -> NDArray[np.int64]:
        """Return the places of the commas at depth 1 in the next piece."""
        return self.places(piece, [(",", 1)])[0]

    def places(self, piece: bytes, wanted: Sequence[tuple[str, int]]) -> list[NDArray[np.int64]]:
        """Return the places of these signs at these depths, outside strings, in the next piece."""
        if not piece:
            return [np.zeros(0, np.int64) for _ in wanted]
        text = b" " + piece[1:] if self._escaped else piece
        if b"\\" in text:
            text = _ESCAPED.sub(b"  ", text)
        self._escaped = text.endswith(b"\\")
        codes = np.frombuffer(text, np.uint8)
        inside = np.logical_xor.accumulate(codes == ord('"')) ^ self._inside
        depth = np.cumsum(np.where(inside, 0, _STEPS[codes]), dtype=np.int32)
        depth += self.depth
        self._inside, self.depth = bool(inside[-1]), int(depth[-1])
        return [np.flatnonzero((codes == ord(sign)) & ~inside & (depth == at)) for sign, at in wanted]


def array_blocks(pieces: Iterator[bytes], path: str, limits: Limits) -> Iterator[LineBlock]:
    """Yield whole elements of an array without its brackets, as many at a time as end in a piece.

    The last block is not `whole` if the array has no end: its last element may be cut.

    Raises:
        LimitExceeded: an element that spans pieces is longer than `line_bytes`.
    """
    scanner = Scanner(0)

    def ends_of(piece: bytes) -> tuple[int, int]:
        found = scanner.commas(piece)
        return (int(found[0]), int(found[-1]) + 1) if len(found) else (-1, 0)

    last = None
    for block in blocks_of(pieces, ends_of, path, limits):
        data, begin = block.data, 0
        if block.offset == 0 and (match := _BEGIN.match(data)) is not None:
            begin = match.end()
        closed = block.whole or scanner.depth == 0
        end = len(data)
        if closed and not block.whole and data.rstrip(_BLANK).endswith(b"]"):  # else the last element is an error
            end = data.rindex(b"]")
        line = block.line + data.count(b"\n", 0, begin)
        yield replace(block, data=data[begin:end], offset=block.offset + begin, line=line, whole=closed)
        last = block
    if scanner.depth and last is not None and last.whole:  # cut right behind a comma
        yield LineBlock(b"", last.offset + len(last.data), last.line + last.data.count(b"\n"), whole=False)


def elements(block: LineBlock) -> tuple[list[bytes], NDArray[np.int64], NDArray[np.int64]]:
    """Return the elements in some bytes of an array; where each begins in the file, and its line, counted from 1."""
    data = block.data
    stops = np.append(Scanner(1).commas(data), len(data)).tolist()
    texts, places, at = [], [], 0
    for number, stop in enumerate(stops):
        text = data[at:stop].lstrip(_BLANK)
        start = stop - len(text)
        text = text.rstrip(_BLANK)
        if text or number < len(stops) - 1:
            texts.append(text)
            places.append(start)
        at = stop + 1
    begin = np.array(places, np.int64)
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    return texts, block.offset + begin, block.line + np.searchsorted(ends, begin)
