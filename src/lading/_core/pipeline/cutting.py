"""Where one shard ends and the next begins: by size on disk, or by number of samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lading._core.pipeline.open_shard import OpenShard

__all__ = ["ONE_SHARD", "Cut", "ShardCutter"]

_FIRST_SHARE = 0.1
"""Share of a shard's room that rows take before their size in the file is known."""
_STEP_SHARE = 0.75
"""Share of the room that rows take at once: their size is an estimate until they are written."""
_LAST_SHARE = 0.04
"""A shard with less room than this share of its size is full."""
_TAIL_SHARE = 1.25
"""A part's last shard may be so much larger than others, so that no tiny shard follows it."""
_LEAST_RATIO = 0.001
_PRIOR_WEIGHT = 0.2
"""Share of a part behind which its own rows tell more of its size than the plan does."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How a part of a dataset is cut into shards.

    Attributes:
        shard_bytes: size of a shard on disk.
        part_bytes: expected size of all shards of the part. They get equal sizes, because another part follows. None:
            each shard but the last has `shard_bytes`.
        slack: share by which equal shards may differ from `shard_bytes`.
        ratio: expected bytes in the file for each byte of payload; None if nothing is known.
        samples: samples of a shard, whatever its size; None to cut by size.
        longer: number of shards, the first ones, that get one sample more than `samples`.
    """

    shard_bytes: int
    part_bytes: int | None = None
    slack: float = 0.1
    ratio: float | None = None
    samples: int | None = None
    longer: int = 0


ONE_SHARD = Cut(1 << 62, samples=1 << 62)
"""All samples in one shard."""


class ShardCutter:
    """Says how many samples the open shard still takes. Learns from shards that are finished.

    Attributes:
        ratio: bytes in the file for each byte of payload, as earlier rows took them; None if there were none.
    """

    def __init__(self, cut: Cut) -> None:
        self._cut = cut
        self.ratio = cut.ratio
        self._shards = self._bytes = 0
        self._done = self._begun = self._ending = 0.0
        self._measured = cut.ratio is not None
        self._settled = -1

    def begin_rows(self, done: float | None) -> None:
        """Take note that rows come, with which this share of the part's source is read; None if it is unknown."""
        self._begun = self._ending
        self._ending = self._ending if done is None else max(done, self._ending)
        self._done = self._begun

    def took(self, shard: OpenShard, share: float) -> None:
        """Take note that this share of the rows was written."""
        self._done = self._begun + (self._ending - self._begun) * share
        self._learn(shard)

    def finished(self, size_bytes: int, payload_bytes: int) -> None:
        """Take note of a finished shard."""
        self._shards += 1
        self._bytes += size_bytes
        self._settled, self._measured = -1, True
        if payload_bytes:
            self.ratio = max(size_bytes / payload_bytes, _LEAST_RATIO)

    def samples_that_fit(self, shard: OpenShard, ends: NDArray[np.int64], num_rows: NDArray[np.int64]) -> int:
        """Return how many samples the shard takes now: none if it is full, at least one if it is empty.

        Args:
            shard: the open shard.
            ends: payload of the first sample, of the first two, and so on.
            num_rows: rows of the same samples.
        """
        cut = self._cut
        if cut.samples is not None:
            return min(cut.samples + (self._shards < cut.longer) - shard.num_samples, len(ends))
        most = self._most_bytes(shard)
        count = self._fitting(shard, ends, num_rows, most)
        if not count and shard.num_samples and self._settled != shard.payload_bytes:
            self._settled = shard.payload_bytes
            if shard.writer.flush() or not self._measured:
                self._measured = True
                self._learn(shard)
                if most - shard.writer.bytes_written() > _LAST_SHARE * most:
                    count = self._fitting(shard, ends, num_rows, most)
        return max(count, 1) if shard.num_samples == 0 else count

    def _learn(self, shard: OpenShard) -> None:
        if shard.payload_bytes:
            self.ratio = max(shard.writer.bytes_written() / shard.payload_bytes, _LEAST_RATIO)

    def _fitting(self, shard: OpenShard, ends: NDArray[np.int64], num_rows: NDArray[np.int64], most: float) -> int:
        writer, written = shard.writer, shard.writer.bytes_written()
        if writer.sample_bytes is not None and not writer.packs:
            room = min(most, writer.limit_bytes) - written
            return int(np.searchsorted(ends + writer.sample_bytes * num_rows, room, "right"))
        # Before a size is measured, rows are taken to need as much as their values.
        room = most - (written if self._measured else max(written, shard.payload_bytes))
        if room <= 0:
            return 0
        per_byte = (self.ratio or 1.0) if self._measured else max(self.ratio or 1.0, 1.0)
        count = int(np.searchsorted(ends, room / per_byte, "right"))
        if self.ratio is None or (count < len(ends) and room > _LAST_SHARE * most):
            share = _FIRST_SHARE if self.ratio is None else _STEP_SHARE
            count = max(int(np.searchsorted(ends, room * share / per_byte, "right")), min(count, 1))
        if writer.sample_bytes is not None:
            limit = writer.limit_bytes - writer.raw_bytes()
            count = min(count, int(np.searchsorted(ends + writer.sample_bytes * num_rows, limit, "right")))
        return count

    def _most_bytes(self, shard: OpenShard) -> float:
        """Size at which the open shard ends."""
        cut = self._cut
        if cut.part_bytes is None:
            return cut.shard_bytes
        written = self._bytes + (shard.writer.bytes_written() if shard.num_samples else 0)
        rate = (written + _PRIOR_WEIGHT * cut.part_bytes) / (self._done + _PRIOR_WEIGHT)
        left = written + (1 - self._done) * rate - self._bytes
        count = max(round(left / cut.shard_bytes), 1)
        if count == 1:
            return _TAIL_SHARE * cut.shard_bytes
        return min(max(left / count, (1 - cut.slack) * cut.shard_bytes), (1 + cut.slack) * cut.shard_bytes)
