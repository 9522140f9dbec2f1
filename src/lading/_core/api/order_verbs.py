"""The methods of a dataset that choose or order samples as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np

from lading._core.api.verbs import Verbs
from lading._core.arguments import public
from lading._core.dataset.order.key_files import listed_in
from lading._core.dataset.steps.order_steps import Missing, Rows, Sample, Shuffle, Sort, Take
from lading._core.units import parse_sample

__all__ = ["OrderVerbs"]


@public("ds")
class OrderVerbs(Verbs):
    """Every method gives a new dataset, and reads nothing."""

    __slots__ = ()

    def shuffle(self, seed: int = 0) -> Self:
        """Put all samples in a random order: one exact permutation of the whole dataset, and no buffer.

        The order depends only on the seed and on the number of samples. It is
        `numpy.argsort(numpy.random.PCG64(seed).random_raw(len(ds)), kind="stable")`, on any machine.

        Memory: 24 bytes a sample. Written, payload is read once. Formats that point to payload (tars, MDS, media
        archives) need no temporary space for it. Of others (Parquet, Arrow, JSON Lines, CSV) each row group is read
        once, and rows beyond 24 MB wait in temporary files (`$TMPDIR`) that are as large as the unpacked rows.

        Example: `ds.shuffle(seed=42).write("shuffled", format="webdataset")`

        Args:
            seed: a whole number, 0 or more. Another seed gives another order.
        """
        return self._with(Shuffle(seed))

    def sample(self, size: float | str, seed: int = 0) -> Self:
        """Keep randomly chosen samples, in their order: exactly so many, or exactly this fraction (rounded).

        They are those of `shuffle(seed)[:count]`. Of documents whole ones are kept.

        Example: `ds.sample(0.01)`, `ds.sample("1%")`, `ds.sample(1000, seed=3)`

        Args:
            size: a fraction above 0 and up to 1.0, a percentage as text, or a number of samples.
            seed: another seed chooses other samples.

        Raises:
            UsageError: a fraction above 1 or not above 0. When samples are read: more samples than there are, or a
                fraction that leaves none.
        """
        return self._with(Sample(parse_sample(size) if isinstance(size, str) else size, seed))

    def sort(self, by: str | Sequence[str], *, descending: bool | Sequence[bool] = False) -> Self:
        """Order samples by the values of columns, or of fields inside them.

        The sort is stable. Nulls come last in both directions. Texts are ordered by code point. Of a document, the
        first value counts that is not null.

        Memory: 100 MB and 24 bytes a sample; more values go to temporary files. Payload as for `shuffle`.

        Example: `ds.sort("json.score", descending=True)`, `ds.sort(["lang", "score"], descending=[False, True])`

        Args:
            by: a column or several, the most important one first.
            descending: whether the largest value comes first, for all columns or for each.

        Raises:
            UsageError: no column, or when samples are read: values that have no order.
        """
        return self._with(Sort.of(by, descending))

    def take_keys(
        self, keys: Iterable[str] | str | os.PathLike[str], *, by: str | None = None, missing: Missing = "error"
    ) -> Self:
        """Take samples by their keys, in the order of the keys. A key that several samples have takes all of them.

        Keys may stand in a file: one key a line, or a column of a Parquet or CSV file (`__key__`, `sample_id`, `key`,
        or the only column). A column or a first line `number` says that numbers of samples follow, from 0. So they do
        if the dataset has no keys, and in a Parquet column of whole numbers.

        Example: `ds.take_keys(["dog-17", "cat-03"])`, `ds.take_keys("keys.txt")`, `ds.take_keys(urls, by="url")`

        Args:
            keys: the keys, or a file of keys.
            by: the column in which keys are looked up; by default `__key__`, of documents `sample_id`.
            missing: for a key that no sample has: `error`, or `skip` (left out and counted).

        Raises:
            UsageError: a file without keys. When samples are read: a key that no sample has.
        """
        if isinstance(keys, (str, os.PathLike)):
            found = listed_in(keys)
            if isinstance(found, np.ndarray):
                return self._with(Rows(numbers=tuple(found.tolist())))
            keys = found
        return self._with(Take(tuple(keys), by, missing))
