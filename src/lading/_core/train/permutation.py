"""A random order of many numbers that is computed place by place, in constant memory.

Example:
    order = Permutation(1_000_000_000, derived_key(7, 0, "samples"))
    order.at(np.arange(64))    # the first 64 numbers
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import xxhash
from numpy.typing import NDArray

__all__ = ["Permutation", "derived_key", "random_floats"]

_ROUNDS: Final = 6
_GOLDEN: Final = 0x9E3779B97F4A7C15
_WORD: Final = 2**64


def derived_key(*parts: Any) -> int:
    """A key of 64 bits for one use: the same parts give the same key on any machine.

    Example: `derived_key(seed, epoch, "samples")`
    """
    return xxhash.xxh3_64_intdigest("\0".join(map(str, parts)).encode())


def random_floats(key: int, places: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return random numbers of at least 0 and below 1 at some places of an endless sequence, by arithmetic.

    Example: `random_floats(derived_key(7, 0, "draws"), np.arange(64))`

    Source: SplitMix64: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators" (2014). The key is
        its seed; the upper 53 bits of each word are used.
    """
    states = np.uint64(key) + (places.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN)
    return (_mixed(states) >> np.uint64(11)).astype(np.float64) * 2.0**-53


class Permutation:
    """A bijection of the numbers 0 … count − 1, keyed.

    A balanced Feistel network over the next power of four permutes at least as many numbers. A result that is no
    number of the range is permuted again until it is one: fewer than four times on average.

    Args:
        count: how many numbers; 0 for none.
        key: of 64 bits; see `derived_key`.

    Source: M. Luby and C. Rackoff, "How to construct pseudorandom permutations from pseudorandom functions" (1988);
        J. Black and P. Rogaway, "Ciphers with arbitrary finite domains" (2002), cycle walking; the round function is
        the finaliser of SplitMix64.
    """

    def __init__(self, count: int, key: int) -> None:
        self.count = count
        self._half_bits = max((max(count - 1, 1).bit_length() + 1) // 2, 1)
        self._keys = [np.uint64(_mixed(np.array([(key + i * _GOLDEN) % _WORD], np.uint64))[0]) for i in range(_ROUNDS)]

    def at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers at some places of the order. Memory: 40 bytes a place.

        Raises:
            IndexError: a place outside of the order.
        """
        return self._walked(places, self._permuted)

    def places(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of some numbers in the order: the inverse of `at`, which costs as much.

        Raises:
            IndexError: a number outside of the order.
        """
        return self._walked(numbers, self._unpermuted)

    def _walked(
        self, given: NDArray[np.int64], once: Callable[[NDArray[np.uint64]], NDArray[np.uint64]]
    ) -> NDArray[np.int64]:
        if len(given) and not (given.min() >= 0 and int(given.max()) < self.count):
            raise IndexError(f"places {given.min()} to {given.max()} of {self.count}")
        found = once(given.astype(np.uint64))
        outside = np.flatnonzero(found >= self.count)
        while len(outside):
            again = once(found[outside])
            found[outside] = again
            outside = outside[again >= self.count]
        return found.astype(np.int64)

    def _permuted(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        bits, mask = np.uint64(self._half_bits), np.uint64((1 << self._half_bits) - 1)
        left, right = numbers >> bits, numbers & mask
        for key in self._keys:
            left, right = right, left ^ (_mixed(right + key) & mask)
        return (left << bits) | right

    def _unpermuted(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        bits, mask = np.uint64(self._half_bits), np.uint64((1 << self._half_bits) - 1)
        left, right = numbers >> bits, numbers & mask
        for key in reversed(self._keys):
            left, right = right ^ (_mixed(left + key) & mask), left
        return (left << bits) | right


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
