"""The values of one column, or of a field inside one: what `ds["txt"]` gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import index as as_int
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.references import files_of, is_ref, with_files
from lading._core.content.field_paths import parse_field
from lading._core.content.nested import close_to
from lading._core.dataset.values.field_values import field_values
from lading._core.features.row_layout import row_layout
from lading._core.storage.fetch import Fetcher
from lading.errors import UsageError, errors_at

if TYPE_CHECKING:
    from lading._core.dataset.opened import OpenDataset
    from lading._core.dataset.shown import FirstValues

__all__ = ["Column"]


class Column:
    """The values of a column, or of a field inside one; read when they are asked for.

    Values are those that `ds[i]` has; None where a sample has none. Fields inside a column are plain values.

    Example:
        ds["txt"][0]
        ds["json.lang"][:100]  # a list
        for text in ds["txt"]: ...
        ds["json.score"].to_numpy().mean()

    A column shows itself as its first values, in a notebook with thumbnails and players.
    """

    def __init__(self, dataset: OpenDataset, name: str, column: str, first: Callable[[], FirstValues]) -> None:
        """Made by `ds[name]`: the values of a name in a column; `first` finds the values that are shown."""
        self._name, self._column, self._dataset, self._first = name, column, dataset.selected((column,)), first

    @classmethod
    def of(
        cls, dataset: OpenDataset, name: str, known: Sequence[str], every: Callable[[Sequence[str]], pa.Schema],
        first: Callable[[], FirstValues],
    ) -> Column:  # fmt: skip
        """Return the column of this name.

        Args:
            dataset: the dataset.
            name: a column, or a field inside one.
            known: columns that the first samples show.
            every: gives the schema with those of some columns that any shard has.
            first: finds the values that are shown.

        Raises:
            UsageError: there is no such column; or rows are items of documents.
        """
        if row_layout(dataset.view).has_items:
            raise UsageError("rows of documents are items, and have no column of samples", found=repr(name),
                             advice=f"Read items: ds.batches(columns=[{name!r}]).")  # fmt: skip
        path = parse_field(name, known)
        if path.column not in known:  # other shards may have it
            there = every([name, path.column]).names
            path = parse_field(name, there)
            if path.column not in there:
                raise UsageError("no such column", column=path.column, expected=", ".join(there),
                                 advice=close_to(path.column, there))  # fmt: skip
        return cls(dataset, name, path.column, first)

    def __len__(self) -> int:
        return len(self._dataset)

    def __iter__(self) -> Iterator[Any]:
        if self._name == self._column:
            return (sample.get(self._name) for sample in self._dataset.samples())
        return (value for chunk in self._chunks() for value in chunk.to_pylist())

    def __getitem__(self, index: Any) -> Any:
        """One value by its number, or a list of the values of a slice or a list of numbers."""
        if isinstance(index, (slice, list, tuple, np.ndarray)):
            return list(self._of(self._dataset.at(index)))
        if self._name == self._column:
            return self._dataset.access.sample(as_int(index)).get(self._name)
        [value] = self._of(self._dataset.at([as_int(index)]))
        return value

    def _of(self, dataset: OpenDataset) -> Column:
        return Column(dataset, self._name, self._column, self._first)

    def to_arrow(self) -> pa.ChunkedArray:
        """All values as Arrow arrays, in memory: text as text, numbers as numbers, media as `large_binary`."""
        chunks = list(self._chunks())
        kinds = {str(chunk.type): chunk.type for chunk in chunks}
        if len(kinds) > 1:  # JSON values that are whole numbers here and decimals there
            return pa.chunked_array([pa.array([value for chunk in chunks for value in chunk.to_pylist()])])
        return pa.chunked_array(chunks, next(iter(kinds.values()), pa.null()))

    def to_pylist(self) -> list[Any]:
        """All values, as `list(ds[name])`."""
        return list(self)

    def to_numpy(self) -> NDArray[Any]:
        """All values as a numpy array: numbers as numbers, with NaN for missing ones; other values as objects."""
        found = self.to_arrow()
        plain = pa.types.is_primitive(found.type)
        array: NDArray[Any] = found.to_numpy() if plain else np.array([*self, None], object)[:-1]
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """For numpy, which calls it."""
        return np.asarray(self.to_numpy(), dtype)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """For libraries that take Arrow data, such as polars and pandas."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _chunks(self) -> Iterator[pa.Array]:
        """The values batch by batch: text as text, numbers as numbers, media as bytes."""
        read = self._dataset.query.read
        with Fetcher(read.stores, limits=read.limits) as fetcher:
            for batch in self._dataset.batches(lazy=True):
                with errors_at(first_row=None):
                    [values] = field_values(batch, [self._name], fetcher)
                if is_ref(values.type):
                    schema = with_files(pa.schema([pa.field(self._name, values.type)]), files_of(batch.schema))
                    values = fetcher.materialise(pa.record_batch([values], schema)).column(0)
                yield values

    def __repr__(self) -> str:
        return self._first().as_text()

    def _repr_html_(self) -> str:
        return self._first().as_html()
