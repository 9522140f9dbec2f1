"""Keys that samples of several shards share."""

from __future__ import annotations

import base64
from typing import Self

import numpy as np

from lading._core.dataset.order.duplicates import DuplicateFinder
from lading._core.units import count
from lading.errors import DataError

__all__ = ["SharedKeys"]


class SharedKeys:
    """Compares the keys of samples with those of other shards, by hashes in bounded memory."""

    def __init__(self) -> None:
        self._finder, self._starts, self._paths, self._count = DuplicateFinder(), list[int](), list[str](), 0
        self._are_known = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._finder.__exit__(kind, error, None)

    @property
    def are_compared(self) -> bool:
        """Whether there are several shards, and the keys of all their samples are known."""
        return self._are_known and len(self._paths) > 1

    def add(self, path: str, keys: str | None) -> None:
        """Add the keys of a shard: their hashes, `uint64` in base64; None if they are not known."""
        hashes = np.frombuffer(base64.b64decode(keys or ""), np.uint64)
        self._are_known = self._are_known and keys is not None
        if len(hashes):
            self._starts.append(self._count)
            self._paths.append(path)
            places = np.arange(self._count, self._count + len(hashes))
            self._finder.add(np.repeat(hashes, 2).view(np.uint8).reshape(-1, 16), places)
            self._count += len(hashes)

    def note(self) -> list[DataError]:
        """Return one error that tells of all shared keys; nothing if there are none."""
        places, firsts = self._finder.duplicates()
        shards, others = (np.searchsorted(self._starts, at, "right") - 1 for at in (places, firsts))
        shared = np.flatnonzero(shards != others)
        if not len(shared):
            return []
        shard, other = int(shards[shared[0]]), int(others[shared[0]])
        row, first = int(places[shared[0]]) - self._starts[shard], int(firsts[shared[0]]) - self._starts[other]
        return [
            DataError(
                "samples of several shards have the same key",
                file=self._paths[shard],
                row=row,
                found=f"{count(len(shared), 'sample')} with the key of a sample in an earlier shard; "
                f"this one also in {self._paths[other]}, row {first}",
            )
        ]
