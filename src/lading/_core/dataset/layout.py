"""How the samples of a dataset lie, for whoever plans to read them by number: what training needs to know at first."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from lading._core.arrow.references import is_ref
from lading._core.dataset.order.chosen import ChosenSamples
from lading._core.dataset.shards.shards import Shards
from lading._core.formats.base import ShardReader
from lading._core.storage.concurrent import is_remote
from lading._core.storage.stores import resolve

__all__ = ["Layout", "ends_behind", "first_shards", "layout_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """How samples lie.

    Attributes:
        shard_ends: number of samples in each shard and all before it, behind the steps. One shard, if a step changed
            the order.
        sample_bytes: bytes of a sample in its file, on average; 0 if no list says the sizes of files.
        unit_samples: samples of which neighbours are read together: a row group, a compressed shard; 1 where each
            sample is a byte range of its own.
        read_samples: samples that are read to read one: of a unit, or of one of its pages.
        batch_samples: samples that are read at once where most of them are wanted, else one by one: a record batch; 0
            where there are no such samples.
        by_reference: whether payload of remote files is fetched by references, which has a rule of its own for gaps.
        kept_bytes: of such samples that readers of remote files keep, and do not read again.
        remote: whether the files are in a store of high latency.
        fingerprint: 16 hex digits, the same for the same shards and steps wherever they lie.
        old_fingerprint: what states of remote data had instead until 0.1; of local data the same.
    """

    shard_ends: NDArray[np.int64]
    sample_bytes: int
    unit_samples: int
    read_samples: int
    batch_samples: int
    by_reference: bool
    kept_bytes: int
    remote: bool
    fingerprint: str
    old_fingerprint: str

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
    view = None if first is None else shards.counted_shard(first)
    unit, read, places, kept = (1, 1, 0, 0) if view is None else _units(view)
    remote = first is not None and is_remote(resolve(shards.path(first), shards.stores)[0])
    paths = table.column("path").to_pylist()
    return Layout(
        shard_ends=ends if chosen is None else ends_behind(ends, chosen),
        sample_bytes=stored,
        unit_samples=unit,
        read_samples=read,
        batch_samples=places,
        by_reference=remote and view is not None and any(is_ref(field.type) for field in view.schema()),
        kept_bytes=kept,
        remote=remote,
        fingerprint=_fingerprint(_names(paths), shards, ends, chosen),
        old_fingerprint=_fingerprint(_old_names(paths), shards, ends, chosen),
    )


def _units(view: ShardReader) -> tuple[int, int, int, int]:
    """How samples of a shard are read together, as `Layout` has it: units, reads, places, kept bytes."""
    if view.slices_columns and view.column_slices(np.zeros(1, np.int64)) is not None:
        return 1, 1, 0, 0
    read, places, kept = view.samples_at_once()
    index = view.index()
    whole = read == 1 or index is None or "num_rows" not in index.column_names
    unit = read if whole or index is None else max(index["num_rows"].to_pylist(), default=1)
    return unit, read, places, kept


def first_shards(shards: Shards, chosen: ChosenSamples | None, fingerprint: str) -> int | None:
    """Return how many first shards have a fingerprint, with these steps; None if that is one of other data."""
    paths = shards.listing.table.column("path").to_pylist()
    ends, sizes = shards.sample_ends().astype("<i8"), _sizes(shards)
    head, known, names = _head(shards, chosen), None, xxhash.xxh3_64()
    low = high = paths[0] if paths else ""
    for count, path in enumerate(paths, 1):
        low, high = min(low, path), max(high, path)
        begin = _begin_of_names(low, high)
        if begin == known:
            names.update(b"\0" + path[begin:].encode())
        else:
            known, names = begin, xxhash.xxh3_64(b"\0".join([head, *(each[begin:].encode() for each in paths[:count])]))
        found = names.copy()
        found.update(ends[:count].data)
        found.update(sizes[:count].data)
        if found.hexdigest() == fingerprint:
            return count
    return None


def ends_behind(ends: NDArray[np.int64], chosen: ChosenSamples) -> NDArray[np.int64]:
    """Return how many samples behind steps are in each shard and all before it. One shard, if steps change the order.

    Args:
        ends: the same before the steps.
        chosen: the samples behind the steps.
    """
    numbers = chosen.numbers
    if isinstance(numbers, range):
        if numbers.step == 1:
            return np.clip(ends, numbers.start, numbers.stop) - numbers.start
        numbers = np.asarray(numbers, np.int64)
    if np.any(numbers[1:] < numbers[:-1]):
        return np.array([len(numbers)])
    return np.searchsorted(numbers, ends)


def _names(paths: Sequence[str]) -> list[str]:
    """The names of shards below their common folder; of a single shard without a slash."""
    begin = _begin_of_names(min(paths), max(paths)) if paths else 0
    return [path[begin:] for path in paths]


def _begin_of_names(first: str, last: str) -> int:
    """Where the names of shards begin in their paths, by the first and the last one of the sorted paths."""
    if first == last:
        return first.rfind("/") + 1
    # What the first and the last of sorted texts begin with, all others begin with.
    shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return max(first.rfind("/", 0, shared), 0)


def _old_names(paths: Sequence[str]) -> list[str]:
    """The names that states had until 0.1: of remote shards they begin one character early."""
    ends = (min(paths), max(paths)) if paths else ("", "")
    shared = len(os.path.commonpath(ends)) if len(paths) > 1 and ends[0][:1] == ends[1][:1] else 0
    return [path[shared:] for path in paths] if shared else [path.rsplit("/", 1)[-1] for path in paths]


def _fingerprint(
    names: Sequence[str], shards: Shards, sample_ends: NDArray[np.int64], chosen: ChosenSamples | None
) -> str:
    """A hash of the names of the shards, their sizes where a list says them, and steps."""
    told = "\0".join([_head(shards, chosen).decode(), *names])
    numbers = np.concatenate((sample_ends, _sizes(shards))).astype("<i8")
    return xxhash.xxh3_64_hexdigest(told.encode() + numbers.tobytes())


def _head(shards: Shards, chosen: ChosenSamples | None) -> bytes:
    return "\0".join([shards.view, *map(str, () if chosen is None else chosen.steps)]).encode()


def _sizes(shards: Shards) -> NDArray[np.int64]:
    """The sizes of shards; 0 where no list says one."""
    return np.array([size or 0 for size in shards.listing.table.column("size_bytes").to_pylist()], "<i8")
