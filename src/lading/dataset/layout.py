"""How the samples of a dataset lie, for whoever plans to read them by number: what training needs to know at first."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from lading.dataset.order.chosen import ChosenSamples
from lading.dataset.shards.shards import Shards
from lading.interleaved.base import View
from lading.storage.concurrent import is_remote
from lading.storage.stores import resolve

__all__ = ["Layout", "layout_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """How samples lie.

    Attributes:
        shard_ends: number of samples in each shard and all before it, behind the steps. One shard, if a step changed
            the order.
        sample_bytes: bytes of a sample in its file, on average; 0 if no list says the sizes of files.
        unit_samples: samples that are read at once to read one; 1 where each sample is a byte range of its own.
        remote: whether the files are in a store of high latency.
        fingerprint: 16 hex digits, the same for the same shards and steps wherever they lie.
    """

    shard_ends: NDArray[np.int64]
    sample_bytes: int
    unit_samples: int
    remote: bool
    fingerprint: str

    @property
    def num_samples(self) -> int:
        """Number of samples."""
        return int(self.shard_ends[-1]) if len(self.shard_ends) else 0


def layout_of(shards: Shards, chosen: ChosenSamples | None) -> Layout:
    """How the samples behind steps lie. Opens one shard; conditions take a pass over the columns that they look at."""
    table, ends = shards.listing.table, shards.sample_ends()
    total = int(ends[-1]) if len(ends) else 0
    sizes = table.column("size_bytes")
    stored = 0 if sizes.null_count or not total else pc.sum(sizes).as_py() // total
    first = int(np.argmax(ends > 0)) if total else None
    return Layout(
        shard_ends=ends if chosen is None else _ends_behind(ends, chosen),
        sample_bytes=stored,
        unit_samples=1 if first is None else _unit_samples(shards.counted_shard(first)),
        remote=first is not None and is_remote(resolve(shards.path(first), shards.stores)[0]),
        fingerprint=_fingerprint(shards, ends, chosen),
    )


def _unit_samples(view: View) -> int:
    """How many samples of a shard are read at once to read one, at most."""
    whole, columns, first = view.whole_samples, view.column_reader, np.zeros(1, np.int64)
    if whole is not None:
        return 1 if whole.zip_bytes is None else view.num_samples()
    if columns is not None and columns.column_slices(first) is not None:
        return 1
    index = view.index()
    return max(index["num_rows"].to_pylist()) if index is not None and "num_rows" in index.column_names else 1


def _ends_behind(ends: NDArray[np.int64], chosen: ChosenSamples) -> NDArray[np.int64]:
    numbers = chosen.numbers
    if isinstance(numbers, range):
        if numbers.step == 1:
            return np.clip(ends, numbers.start, numbers.stop) - numbers.start
        numbers = np.asarray(numbers, np.int64)
    if np.any(numbers[1:] < numbers[:-1]):
        return np.array([len(numbers)])
    return np.searchsorted(numbers, ends)


def _fingerprint(shards: Shards, sample_ends: NDArray[np.int64], chosen: ChosenSamples | None) -> str:
    """A hash of the names of the shards below their common folder, their sizes where a list says them, and steps."""
    paths = shards.listing.table.column("path").to_pylist()
    # What the first and the last of sorted texts begin with, all others begin with.
    ends = (min(paths), max(paths)) if paths else ("", "")
    shared = len(os.path.commonpath(ends)) if len(paths) > 1 and ends[0][:1] == ends[1][:1] else 0
    names = [path[shared:] for path in paths] if shared else [path.rsplit("/", 1)[-1] for path in paths]
    told = "\0".join([shards.view, *map(str, () if chosen is None else chosen.steps), *names])
    sizes = np.array([size or 0 for size in shards.listing.table.column("size_bytes").to_pylist()], np.int64)
    numbers = np.concatenate((sample_ends, sizes)).astype("<i8")
    return xxhash.xxh3_64_hexdigest(told.encode() + numbers.tobytes())
