"""Samples by number and by key."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence, Sized
from operator import index as as_int
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.align import align_table
from lading._core.content.media_files import Opening
from lading._core.dataset.shards.iteration import MAX_BYTES, aligned_to, hidden_columns, refuse_no_columns
from lading._core.dataset.shards.random_access import materialised, taken_rows, unfetched_rows
from lading._core.dataset.shards.shards import Getter, Shards
from lading._core.dataset.values.python_values import media_of, samples_as_dicts, with_media
from lading._core.features.types import Feature
from lading._core.formats.base import Scan, ShardReader
from lading._core.storage.concurrent import is_remote
from lading._core.storage.stores import resolve
from lading.errors import LadingError, UsageError, errors_at

__all__ = ["SampleAccess", "ordinals"]

_KEY_ROWS = 65_536


class SampleAccess:
    """Gives samples of open shards by number and by key.

    Args:
        shards: the shards.
        media: open images, audio and videos, which are bytes else.
    """

    def __init__(self, shards: Shards, *, media: Opening | None = None) -> None:
        self._shards, self._getters, self._media = shards, shards.getters, media
        self._last: list[int] = []

    def __len__(self) -> int:
        ends = self._shards.sample_ends()
        return int(ends[-1]) if len(ends) else 0

    def sample(self, index: int) -> dict[str, Any]:
        """One sample by its number; numbers below 0 count from the end. Raises IndexError."""
        index = as_int(index)  # sums of numpy's small ones would come out too small
        ends = self._last or self._ends()
        at = index + ends[-1] if index < 0 else index
        if not 0 <= at < ends[-1]:
            raise IndexError(f"sample {index} of {ends[-1]}")
        shard = bisect_right(ends, at)
        ordinal = at - ends[shard - 1] if shard else at
        return self.one(shard, ordinal)

    def _ends(self) -> list[int]:
        """Number of samples in each shard and all before it, as Python has numbers: for one at a time."""
        self._last = self._shards.sample_ends().tolist() or [0]
        return self._last

    def samples(self, indices: Sequence[int] | NDArray[np.int64]) -> list[dict[str, Any]]:
        """Samples by number, each as `sample` gives it. Raises IndexError.

        In the order of the files, so that a shard is opened once. Those that no reader gives alone are read at once.
        """
        ends = self._last or self._ends()
        wanted = [number + ends[-1] if number < 0 else number for number in map(as_int, indices)]
        order, left = sorted(range(len(wanted)), key=wanted.__getitem__), list[int]()
        if order and not 0 <= wanted[order[0]] <= wanted[order[-1]] < ends[-1]:
            raise IndexError(f"sample {next(i for i in indices if not -ends[-1] <= i < ends[-1])} of {ends[-1]}")
        found, end = list[Any]([None]) * len(wanted), 0
        for place in order:
            number = wanted[place]
            if number >= end:
                shard = bisect_right(ends, number)
                known = self._getters.get(shard) or self._new_getter(shard)
                begin, end = ends[shard - 1] if shard else 0, ends[shard]
                get = known.get_sample if known.is_near else None
                is_whole = not (self._media or known.blank)
            sample = None if get is None else get(number - begin)
            if sample is None:
                left.append(place)
            else:
                found[place] = sample if is_whole else self._finished(known, sample, shard, number - begin)
        once = {wanted[place]: place for place in left}
        read = self._of_table([*once]) if once else []
        if len(read) == len(once):  # else documents of one id are neighbours, which cannot be told apart
            for place, sample in zip(once.values(), read, strict=True):
                found[place] = sample
        return [self.sample(wanted[i]) if sample is None else sample for i, sample in enumerate(found)]

    def _of_table(self, wanted: list[int]) -> list[dict[str, Any]]:
        try:
            return samples_as_dicts(self._shards, self.take(wanted, views=True), media=self._media)
        except LadingError:
            return [self.sample(number) for number in wanted]  # the error of a sample names its place

    def one(self, shard: int, ordinal: int) -> dict[str, Any]:
        """One sample of a shard."""
        known = self._getters.get(shard) or self._new_getter(shard)
        sample = None if known.get_sample is None else known.get_sample(ordinal)
        if sample is not None:
            return self._finished(known, sample, shard, ordinal)
        sample = self._one_of_table(shard, known.view, ordinal)
        return {**known.blank, **sample} if known.blank else sample

    def _new_getter(self, shard: int) -> Getter:
        shards = self._shards
        view = shards.shard_to_read(shard)
        get_sample = view.sample_getter() if shards.target is None else None
        near = not is_remote(resolve(shards.path(shard), shards.stores)[0])
        known = self._getters[shard] = Getter(view, get_sample, self._blank(view), near)
        return known

    def _finished(self, known: Getter, sample: dict[str, Any], shard: int, ordinal: int) -> dict[str, Any]:
        """A sample of the reader, with its media opened and the columns that its shard lacks."""
        if self._media:
            if known.media is None:  # not before: the schema of a tar with a sidecar takes a walk over it
                known.media = media_of(known.view.schema(), self._shards.row_layout)
            sample = self._with_media(sample, known.media, shard, ordinal)
        return {**known.blank, **sample} if known.blank else sample

    def _blank(self, view: ShardReader) -> dict[str, None]:
        """All columns of the dataset as nulls, if samples of a shard lack some: iteration gives these nulls too."""
        shards = self._shards
        if not shards.row_layout.columns_vary or shards.takes_any_fields or shards.target is not None:
            return {}
        names = shards.schema.names
        return {} if {*names} <= {*view.schema().names} else dict.fromkeys(names)

    def _with_media(
        self, sample: dict[str, Any], media: Mapping[str, Feature | None], shard: int, ordinal: int
    ) -> dict[str, Any]:
        try:
            return with_media(sample, media, self._media) if media and self._media else sample
        except LadingError as error:
            raise error.at(file=self._shards.path(shard), row=ordinal) from None

    def _one_of_table(self, shard: int, view: ShardReader, ordinal: int) -> dict[str, Any]:
        shards, target = self._shards, self._shards.target
        with errors_at(file=shards.path(shard)):
            found = materialised(shards, view.read(np.array([ordinal])))
            rows = found if target is None else align_table(found, target)
            [sample] = samples_as_dicts(shards, rows)
        media = media_of(rows.schema, shards.row_layout) if self._media else {}
        return self._with_media(sample, media, shard, ordinal)

    def take(
        self,
        indices: int | Sequence[int] | NDArray[np.int64],
        columns: Sequence[str] | None = None,
        *,
        views: bool = False,
    ) -> pa.Table:
        """Rows of samples by number; see `Dataset.take`."""
        refuse_no_columns(columns)
        shards = self._shards
        target, hidden = aligned_to(shards, columns), hidden_columns(shards, columns)
        if target is not None:
            columns = shards.row_layout.columns_asked(target)
        wanted = self._counted(ordinals(indices))
        found = taken_rows(shards, wanted, columns, target, views=views)
        if target is None:
            return found
        return align_table(found, pa.schema([field for field in target if field.name not in hidden]))

    def lazily(self, indices: Sequence[int] | NDArray[np.int64], columns: Sequence[str] | None = None) -> pa.Table:
        """Rows of samples by number, with payload as references where the format has them."""
        return unfetched_rows(self._shards, self._counted(ordinals(indices)), columns)

    def _counted(self, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of samples counted from the start. Raises IndexError."""
        return _from_start(wanted, len(self)) if len(wanted) and wanted.min() < 0 else wanted

    def by_key(self, key: str) -> dict[str, Any]:
        """The first sample with this key; see `Dataset.by_key`."""
        shards = self._shards
        layout = shards.row_layout
        for number, view in shards.readable(range(len(shards.listing))):
            at = 0
            for batch in view.batches(Scan([layout.key], max_rows=_KEY_ROWS, max_bytes=MAX_BYTES)):
                keys = layout.keys(batch)
                if pa.types.is_dictionary(keys.type):
                    keys = keys.dictionary_decode()
                try:
                    wanted = pa.scalar(key, keys.type)
                except (pa.ArrowException, TypeError, ValueError, OverflowError):
                    break  # no key of this shard can be that
                found = pa.compute.index(keys, wanted).as_py()
                if found >= 0:
                    return self.one(number, at + found)
                at += len(keys)
        raise KeyError(key)


def _from_start(wanted: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Numbers of samples, of which those below 0 count from the end, counted from the start. Raises IndexError."""
    wrong = wanted < -count
    if wrong.any():
        raise IndexError(f"sample {wanted[np.argmax(wrong)]} of {count}")
    return np.where(wanted < 0, wanted + count, wanted)


def ordinals(indices: int | Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers of samples as an array: those of a list, or the first so many. Raises UsageError for anything else."""
    if isinstance(indices, (int, np.integer)) and not isinstance(indices, bool):
        if indices < 0:
            raise UsageError("a number of samples is 0 or more", found=str(indices))
        return np.arange(indices, dtype=np.int64)
    if not isinstance(indices, Sized):
        raise UsageError("not numbers of samples", expected="whole numbers such as [5, 1, 3], or 3 for the first three",
                         found=repr(indices)[:80])  # fmt: skip
    wanted = np.asarray(indices) if len(indices) else np.zeros(0, np.int64)
    if wanted.dtype.kind not in "iu" or wanted.ndim != 1:
        found_as = f"{wanted.dtype}, {wanted.ndim} dimensions"
        raise UsageError("not numbers of samples", expected="whole numbers such as [5, 1, 3], or 3 for the first three",
                         found=found_as)  # fmt: skip
    return wanted.astype(np.int64)
