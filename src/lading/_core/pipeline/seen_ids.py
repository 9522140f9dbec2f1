"""Ids of samples that were written, as hashes in few sorted runs: 8 or 16 bytes a sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

__all__ = ["SeenIds", "long_hashes"]


class SeenIds:
    """Ids of samples, by hashes of one kind: `hash_strings`, or `long_hashes`."""

    def __init__(self) -> None:
        self._runs: list[NDArray[Any]] = []

    def distinct(self, hashes: NDArray[Any]) -> int:
        """Return how many samples come before the first whose id is known by then; remember their ids."""
        ordered, count = np.sort(hashes), len(hashes)
        if (ordered[1:] == ordered[:-1]).any() or any(_held(run, ordered).any() for run in self._runs):
            known = np.ones(len(hashes), np.bool_)
            known[np.unique(hashes, return_index=True)[1]] = False
            for run in self._runs:
                known |= _held(run, hashes)
            count = int(known.argmax())
            ordered = np.sort(hashes[:count])
        while self._runs and len(self._runs[-1]) <= len(ordered):
            ordered = np.sort(np.concatenate([self._runs.pop(), ordered]))
        self._runs += [ordered] if len(ordered) else []
        return count


def long_hashes(ids: pa.Array) -> NDArray[Any]:
    """Return a hash of 128 bits of every id (large_binary), as 16 bytes."""
    return np.array([xxhash.xxh3_128_digest(name) for name in ids.to_pylist()], "S16")


def _held(run: NDArray[Any], hashes: NDArray[Any]) -> NDArray[np.bool_]:
    """Which hashes a sorted run has."""
    held: NDArray[np.bool_] = run[np.minimum(np.searchsorted(run, hashes), len(run) - 1)] == hashes
    return held
