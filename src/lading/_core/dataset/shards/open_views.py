"""Open shards of a dataset, the least recently used first, and the memory that they take."""

from __future__ import annotations

from collections import OrderedDict

from lading._core.formats.base import ShardReader

__all__ = ["OpenViews"]

_FEW, _BYTES = 8, 128 << 20
_UNKNOWN_BYTES = _BYTES // 64
"""Of a shard whose memory nobody counts: 64 of them may be open."""


class OpenViews:
    """Open shards by number. A shard is measured when it is used, and when the next one is opened."""

    def __init__(self) -> None:
        self._views: OrderedDict[int, ShardReader] = OrderedDict()
        self._sizes: dict[int, int] = {}
        self._total = 0

    def __len__(self) -> int:
        return len(self._views)

    @property
    def is_full(self) -> bool:
        """Whether they take more memory than they may; eight may take any: a round of a loader is read from so many."""
        return len(self._views) > _FEW and self._total > _BYTES

    def peek(self, shard: int) -> ShardReader | None:
        """A shard, if it is open."""
        return self._views.get(shard)

    def get(self, shard: int) -> ShardReader | None:
        """A shard, if it is open, which is now the latest that was used."""
        view = self._views.get(shard)
        if view is not None:
            self._views.move_to_end(shard)
            self._measure(shard)
        return view

    def add(self, shard: int, view: ShardReader) -> None:
        """Keep a shard that was opened just now."""
        if self._views:
            self._measure(next(reversed(self._views)))
        self._views[shard] = view
        self._measure(shard)

    def pop(self, shard: int) -> ShardReader | None:
        """Give a shard away, if it is open. It is not closed."""
        self._total -= self._sizes.pop(shard, 0)
        return self._views.pop(shard, None)

    def pop_oldest(self) -> int:
        """Give away the shard that was used least recently, and return its number."""
        shard = next(iter(self._views))
        self.pop(shard)
        return shard

    def close(self) -> None:
        """Close all."""
        for view in self._views.values():
            view.close()
        self._views.clear()
        self._sizes.clear()
        self._total = 0

    def _measure(self, shard: int) -> None:
        size = self._views[shard].held_bytes
        size = _UNKNOWN_BYTES if size is None else size
        self._total += size - self._sizes.get(shard, 0)
        self._sizes[shard] = size
