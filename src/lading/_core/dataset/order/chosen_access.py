"""Samples by number and by key, behind the steps of a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from operator import index as as_int
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.content.media_files import Opening
from lading._core.dataset.order.chosen import ChosenSamples, in_order
from lading._core.dataset.order.numbers import numbers_at
from lading._core.dataset.order.source_rows import one_batch
from lading._core.dataset.shards.iteration import hidden_columns, refuse_no_columns
from lading._core.dataset.shards.random_access import materialised
from lading._core.dataset.shards.sample_access import SampleAccess, ordinals
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.values.python_values import samples_as_dicts
from lading.errors import LadingError

__all__ = ["ChosenAccess", "access_to"]


class ChosenAccess:
    """Gives samples behind the steps of a dataset by number and by key.

    Args:
        shards: the shards of the source.
        source: the samples of the source.
        chosen: the samples behind the steps.
        media: how images, audio and videos are opened; None for bytes.
    """

    def __init__(
        self, shards: Shards, source: SampleAccess, chosen: ChosenSamples, *, media: Opening | None = None
    ) -> None:
        self._shards, self._source, self._chosen, self._media = shards, source, chosen, media
        changes = any(step.changes_rows(shards.view) for step in chosen.steps)
        self._as_they_are = not shards.has_items and not changes

    def __len__(self) -> int:
        return len(self._chosen.numbers)

    def sample(self, index: int) -> dict[str, Any]:
        """One sample by its number; numbers below 0 count from the end. Raises IndexError."""
        [number] = numbers_at(self._chosen.numbers, np.array([as_int(index)]))
        return self._of_source(int(number))

    def samples(self, indices: int | Sequence[int] | NDArray[np.int64]) -> list[dict[str, Any]]:
        """Samples by number, each as `sample` gives it. Raises IndexError."""
        numbers = numbers_at(self._chosen.numbers, ordinals(indices))
        if self._as_they_are:
            return self._source.samples(numbers)
        once, place = np.unique(numbers, return_inverse=True)
        with suppress(LadingError):  # the error of a sample names its place
            rows = self._taken(once, None, views=True)
            found = samples_as_dicts(self._shards, rows, media=self._media)
            if len(found) == len(once) == len(numbers):  # neighbours of one id could not be told apart
                return [found[i] for i in place.tolist()]
        return [self._of_source(number) for number in numbers.tolist()]

    def _of_source(self, number: int) -> dict[str, Any]:
        if self._as_they_are:
            return self._source.sample(number)
        rows = self._taken(np.array([number]), None, views=False)
        [sample] = samples_as_dicts(self._shards, rows, media=self._media)
        return sample

    def take(
        self,
        indices: int | Sequence[int] | NDArray[np.int64],
        columns: Sequence[str] | None = None,
        *,
        views: bool = False,
    ) -> pa.Table:
        """Rows of samples by number; see `Dataset.take`."""
        refuse_no_columns(columns)
        numbers = numbers_at(self._chosen.numbers, ordinals(indices))
        if self._as_they_are:
            return self._source.take(numbers, columns, views=views)
        return self._taken(numbers, columns, views=views)

    def _taken(self, numbers: NDArray[np.int64], columns: Sequence[str] | None, *, views: bool) -> pa.Table:
        return materialised(self._shards, self._lazily(numbers, columns), views=views)

    def lazily(self, indices: Sequence[int] | NDArray[np.int64], columns: Sequence[str] | None = None) -> pa.Table:
        """Rows of samples by number, with payload as references where the format has them."""
        return self._lazily(numbers_at(self._chosen.numbers, ordinals(indices)), columns)

    def _lazily(self, numbers: NDArray[np.int64], columns: Sequence[str] | None) -> pa.Table:
        hidden = hidden_columns(self._shards, columns)
        wanted = None if columns is None else [*columns, *hidden]
        found = self._chosen.made(numbers, self._chosen.steps, wanted)
        if columns is not None:
            found = pa.Table.from_batches([in_order(one_batch(found), columns, self._shards.view)])
        return found

    def by_key(self, key: str) -> dict[str, Any]:
        """The first sample with this key; see `Dataset.by_key`."""
        layout = self._shards.row_layout
        for traced in self._chosen.traced_batches([layout.key]):
            keys = layout.keys(traced.batch)
            if traced.samples is None:
                continue
            try:
                place = keys.to_pylist().index(key)
            except ValueError:
                continue
            return self._of_source(int(traced.samples[place]))
        raise KeyError(key)


def access_to(
    shards: Shards, chosen: ChosenSamples | None, *, media: Opening | None = None
) -> SampleAccess | ChosenAccess:
    """The samples of shards by number and by key; behind steps, if there are some; `media` as of `SampleAccess`."""
    source = SampleAccess(shards, media=media)
    return source if chosen is None else ChosenAccess(shards, source, chosen, media=media)
