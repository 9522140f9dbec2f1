"""A dataset as users hold it: a source, and how it is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.dataset import iteration
from lading.dataset.python_values import rows_as_dicts, samples_as_dicts
from lading.dataset.sample_access import SampleAccess
from lading.dataset.shard import ShardList
from lading.dataset.shards import Shards
from lading.dataset.source import Source
from lading.errors import UsageError
from lading.options import OnError, ReadOptions

__all__ = ["Dataset"]

_DOCUMENT_ROWS = 64
_USUAL = ReadOptions()


class Dataset:
    """A source, and how it is read. Made by `lading.open`; nothing is read before it is asked for.

    Attributes:
        source: the source, as `lading.open` took it.
        read: how it is read.
    """

    __slots__ = ("_access", "_open", "_sample", "_shards", "read", "source")

    def __init__(
        self, reopen: Callable[[Source, ReadOptions], Dataset], source: Source, read: ReadOptions, shards: Shards
    ) -> None:
        self.source, self.read, self._open, self._shards = source, read, reopen, shards
        self._access = SampleAccess(shards)
        self._sample = self._access.sample

    @property
    def format(self) -> str:
        """Name of the shards' format."""
        return self._shards.format

    @property
    def view(self) -> str:
        """`samples`: a row is a sample. `interleaved`: a row is an item; a sample is the rows of a `sample_id`."""
        return self._shards.view

    @property
    def schema(self) -> pa.Schema:
        """Columns of the manifest, if that is of this view, or of the first shard that is not empty.

        Other shards may hold more columns then. A column of references is payload that is read when it is asked for.
        """
        return self._shards.schema

    @property
    def shards(self) -> ShardList:
        """The shards, each opened when it is asked for."""
        return ShardList(self._shards, self._access)

    @property
    def counts(self) -> Counter[str]:
        """What was noticed while reading, by a short phrase."""
        return self._shards.counts

    def __repr__(self) -> str:
        return f"<lading.Dataset {self.format}, {self.view}, {len(self._shards.listing)} shards>"

    def __reduce__(self) -> tuple[Callable[..., Dataset], tuple[object, ...]]:
        """A process that is given a dataset opens the source again, with files and maps of its own."""
        return _open_again, (self._open, self.source, self.read)

    def read_with(self, opening: Mapping[str, Any]) -> ReadOptions:
        """How the dataset is read. Raises UsageError where arguments of `lading.open` are given too."""
        given = [name for name, value in opening.items() if value != getattr(_USUAL, name)]
        if given:
            raise UsageError("a dataset is open already, and was given with arguments of opening",
                             found=", ".join(given), advice="Give these arguments to lading.open.")  # fmt: skip
        return self.read

    def close(self) -> None:
        """Give up open shards, maps and streams. They are opened again when something is read."""
        self._shards.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        ends = self._shards.sample_ends()
        return int(ends[-1]) if len(ends) else 0

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One sample as a dict of Python values: media as bytes, text as str, JSON parsed, arrays as numpy.

        In the view `interleaved`: `sample_id`, the sample's own fields, and `items`, a list of dicts.
        """
        return self._sample(index)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.samples()

    def take(
        self, indices: Sequence[int] | NDArray[np.int64], columns: Sequence[str] | None = None, *, views: bool = False
    ) -> pa.Table:
        """Rows of samples by number, in the order asked for, repeats allowed; payload as `large_binary`.

        Columns come in the order asked for; one that the shards of these rows lack, and the schema has, is null. If
        none are asked for, a few rows of a tar with a `.tar.idx` have the fields of these rows alone, unless its schema
        was asked for before: that takes a walk over the tar. Reads nothing but their ranges; of a remote store
        identical ones once, neighbours together. With `views` payload is `binary_view`, over mapped files where it lies
        in such: bytes move when a value is looked at, and nothing holds all of them.

        Raises:
            IndexError: a number is outside the dataset.
            UsageError: a column that neither the schema nor a shard of these rows has.
        """
        return self._access.take(indices, columns, views=views)

    def by_key(self, key: str) -> dict[str, Any]:
        """The first sample with this key (`__key__`, or `sample_id` of interleaved data).

        Looks through the keys of one shard after another. Raises KeyError.
        """
        return self._access.by_key(key)

    def batches(
        self,
        *,
        max_rows: int = iteration.MAX_ROWS,
        max_bytes: int | str = iteration.MAX_BYTES,
        columns: Sequence[str] | None = None,
        lazy: bool = False,
        views: bool = False,
        on_error: OnError = "error",
        shards_per_batch: int | None = 1,
    ) -> Iterator[pa.RecordBatch]:
        """All rows in order, by the batch; a sample is never cut.

        Payload columns are `large_binary`; with `views` `binary_view` over mapped files, good for use at once (the
        pages behind a batch are given back when the next is asked for); with `lazy` references, and no payload is
        read. Each batch's schema metadata names its files (`lading.source_files`). A field that appears late joins the
        schema then, and stays.

        Args:
            max_rows: rows a batch, at most (a larger interleaved sample stays whole).
            max_bytes: payload a batch, at most (a larger sample stays whole).
            columns: columns to give, in this order; None for all.
            lazy: leave references as they are.
            views: give views instead of copies.
            on_error: for a row whose bytes cannot be had: `error`, `warn` (null, and a warning), `drop_row`,
                `drop_sample`; dropped rows are counted.
            shards_per_batch: consecutive shards that a batch may hold rows of, so that small files make batches as
                large as large ones do; None for as many as the limits allow.
        """
        return iteration.batches(
            self._shards, max_rows=max_rows, max_bytes=max_bytes, columns=columns, lazy=lazy, views=views,
            on_error=on_error, shards_per_batch=shards_per_batch,
        )  # fmt: skip

    def samples(self, *, raw: bool = False) -> Iterator[dict[str, Any]]:
        """All samples in order, each a dict as `[i]` gives it.

        A value is read when its sample's turn comes, so let a sample go before the next where memory and speed matter.

        Args:
            raw: give every value as its column has it (bytes for a member of a tar, unless a manifest says more),
                nothing decoded. Only for the view `samples`.
        """
        if self.view == "interleaved":
            for batch in self.batches(views=True):
                yield from samples_as_dicts(self._shards, pa.Table.from_batches([batch]))
            return
        for batch in self.batches(lazy=True):
            yield from rows_as_dicts(self._shards, batch, raw=raw)

    def head(self, count: int = 5) -> list[dict[str, Any]]:
        """The first samples, as `[i]` gives them, without an index; what cannot be had is None, with a warning."""
        found: list[dict[str, Any]] = []
        rows = max(count, 1) if self.view == "samples" else _DOCUMENT_ROWS
        for batch in self.batches(max_rows=rows, on_error="warn"):
            found += samples_as_dicts(self._shards, pa.Table.from_batches([batch]))
            if len(found) >= count:
                break
        return found[:count]

    def materialise(
        self,
        batch: pa.RecordBatch,
        *,
        columns: Sequence[str] | None = None,
        views: bool = False,
        on_error: OnError = "error",
    ) -> pa.RecordBatch:
        """A lazy batch of this dataset with its payload in the place of references."""
        return self._shards.fetcher.materialise(batch, columns, on_error=on_error, views=views)


def _open_again(reopen: Callable[[Source, ReadOptions], Dataset], source: Source, read: ReadOptions) -> Dataset:
    return reopen(source, read)
