"""Hash whole string columns, to look up names and to find duplicates, in 8 bytes a value.

The hashes are not cryptographic, and equal hashes do not prove equal strings: compare the strings where it matters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow.views import present

__all__ = ["NameTable", "equal_neighbours", "hash_strings"]

_FACTOR = 0x9E3779B97F4A7C15
_BLOCK_BYTES = 1 << 20


def hash_strings(column: pa.Array) -> NDArray[np.uint64]:
    """Return a 64-bit hash of every value of a string or binary column; 0 where null. Peak memory: about 25 MB."""
    if column.type not in (pa.large_string(), pa.large_binary()):
        column = column.cast(pa.large_binary() if pa.types.is_binary(column.type) else pa.large_string())
    _, ends_buffer, body = column.buffers()
    hashes = np.zeros(len(column), np.uint64)
    if not len(column) or body is None:
        return hashes
    ends = np.frombuffer(ends_buffer, np.int64)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(body, np.uint8)
    first = 0
    while first < len(column):
        last = max(first + 1, int(np.searchsorted(ends, ends[first] + _BLOCK_BYTES, "right")) - 1)
        hashes[first:last] = _hash_block(data, ends[first : last + 1])
        first = last
    if column.null_count:
        hashes[~present(column)] = 0
    return hashes


def _hash_block(data: NDArray[np.uint8], ends: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return polynomials in `_FACTOR` mod 2⁶⁴ over each value's bytes, by one cumulative sum a block."""
    lengths = np.diff(ends)
    powers = np.full(int(lengths.max(initial=0)) + 1, _FACTOR, np.uint64)
    powers[0] = 1
    np.multiply.accumulate(powers, out=powers)
    within = np.arange(int(ends[-1] - ends[0])) - np.repeat(ends[:-1] - ends[0], lengths)
    terms = (data[ends[0] : ends[-1]].astype(np.uint64) + np.uint64(1)) * powers[within]
    sums = np.zeros(len(terms) + 1, np.uint64)
    np.cumsum(terms, out=sums[1:])
    mixed: NDArray[np.uint64] = sums[ends[1:] - ends[0]] - sums[ends[:-1] - ends[0]]
    mixed ^= mixed >> np.uint64(29)
    return mixed * np.uint64(_FACTOR) + lengths.astype(np.uint64)


def equal_neighbours(rising: NDArray[Any]) -> NDArray[np.bool_]:
    """Return of each of some values in order whether another one equals it."""
    same = rising[1:] == rising[:-1]
    found = np.zeros(len(rising), np.bool_)
    found[1:] = same
    found[:-1] |= same
    return found


class NameTable:
    """A lookup table for batches of names: 16 bytes a name, plus the names themselves.

    Args:
        names: strings without null; the first of equal ones wins.
    """

    def __init__(self, names: pa.Array) -> None:
        self.names = names
        hashes = hash_strings(names)
        self._order = np.argsort(hashes, kind="stable")
        self._sorted = hashes[self._order]

    def clashing(self) -> NDArray[np.int64]:
        """Return the positions of names whose hash another name has too: equal names are among them."""
        return np.sort(self._order[equal_neighbours(self._sorted)])

    def find(self, wanted: pa.Array) -> NDArray[np.int64]:
        """Return the position of each wanted string among the names, −1 where it is missing or null."""
        if not len(self.names) or not len(wanted):
            return np.full(len(wanted), -1, np.int64)
        hashes = hash_strings(wanted)
        at = np.minimum(np.searchsorted(self._sorted, hashes), len(self._sorted) - 1)
        found = self._order[at]
        same = pc.fill_null(pc.equal(self.names.take(pa.array(found)), wanted), fill_value=False)
        missed = ~np.asarray(same.to_numpy(zero_copy_only=False), np.bool_)
        found = np.where(missed, -1, found)
        there = present(wanted)
        clashing = np.flatnonzero(missed & (self._sorted[at] == hashes) & there)
        if len(clashing):  # two names of one hash: rare by chance, so an exact look-up may be slow
            exact = pc.index_in(wanted.take(pa.array(clashing)), self.names).fill_null(-1)
            found[clashing] = exact.to_numpy(zero_copy_only=False)
        return found
