"""Count keys that come again, by their hashes."""

from __future__ import annotations

from array import array

import numpy as np
import pyarrow as pa

from lading._core.arrow.hashing import hash_strings

__all__ = ["RepeatedKeys"]


class RepeatedKeys:
    """Counts the samples with a key that an earlier sample has. Memory: 8 bytes a sample."""

    def __init__(self) -> None:
        self._hashes = array("Q")

    def add(self, keys: pa.Array | pa.ChunkedArray) -> None:
        """Take the keys of more samples. Nulls are no keys."""
        for chunk in keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]:
            self._hashes.frombytes(hash_strings(chunk.drop_null()).view(np.uint8).data)

    def count(self) -> int:
        """Return how many samples have a key that an earlier sample has."""
        hashes = np.frombuffer(self._hashes, np.uint64)
        hashes.sort()
        return int(np.count_nonzero(hashes[1:] == hashes[:-1]))
