"""Datasets one after another, of any formats: each is read by itself, and its rows get the columns of all.

The datasets are shards of a format of their own, whose reader asks the dataset. So numbers, steps and jobs work as with
any other dataset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.arrow.align import align_table, union_schema
from lading.arrow.batches import with_columns
from lading.arrow.hashing import hash_strings
from lading.arrow.references import is_ref
from lading.arrow.views import is_bytes, is_text
from lading.dataset.shards.shards import ReadPlan, Shards
from lading.dataset.source.source import LISTING_SCHEMA, Listing
from lading.errors import UsageError
from lading.features.items import KEY, without_source
from lading.features.natural import in_natural_type, is_number, known_feature
from lading.features.types import Json, Text
from lading.formats.base import Format, FormatInfo, ShardFile, ShardReader
from lading.formats.registry import register
from lading.options import ReadOptions
from lading.storage.fetch import Fetcher
from lading.storage.stores import Stores

if TYPE_CHECKING:
    from lading.dataset.dataset import Dataset
    from lading.dataset.steps.step import Step

__all__ = ["Parts", "concat"]

_KEYS_AT_ONCE, _KEY_BYTES = 65_536, 64 << 20


def concat(datasets: Sequence[Dataset]) -> Dataset:
    """Return one dataset of several, one after another. They may have different formats, options and steps.

    Columns have the type that holds all values. A column that a dataset lacks is null in its rows. Samples without a
    key get one (`0001-000000017`: the dataset and the sample in it) if other datasets have keys. Keys may repeat.

    Example:
        lading.concat([lading.open("tars/*.tar"), lading.open("more.parquet")]).write("all", format="webdataset")

    Written in one process. Payload is read by the batch.

    Raises:
        UsageError: no dataset, something else than a dataset, or one of interleaved documents.
        SchemaMismatch: no type holds the values of a column in all datasets (when the columns are asked for).
    """
    parts = Parts(tuple(datasets))
    return _reopened(parts, ReadOptions(format=_FORMAT.name, view="samples"), ())


@dataclass(frozen=True, eq=False)
class Parts:
    """The source of a dataset that is several datasets one after another.

    Attributes:
        datasets: the datasets.
    """

    datasets: tuple[Dataset, ...]

    def __post_init__(self) -> None:
        """Refuse none, other values than datasets, and documents."""
        if not self.datasets:
            raise UsageError("no dataset to concatenate", advice="Give at least one.")
        for each in self.datasets:
            if not hasattr(each, "steps"):
                raise UsageError("concat takes datasets", found=repr(each)[:80], advice="Open it with lading.open.")
            if each.view != "samples":
                raise UsageError(
                    "documents of items are not concatenated with other datasets", found=repr(str(each.source)),
                    advice="Open it with --view samples, or name several sources of one format together.",
                )  # fmt: skip

    def __iter__(self) -> Iterator[str]:
        """Give the names of the sources, for whatever shows them."""
        return (str(each.source) for each in self.datasets)

    def __repr__(self) -> str:
        return " + ".join(self)

    @cached_property
    def own_schemas(self) -> list[pa.Schema]:
        """The columns of each dataset, payload as bytes."""
        found = [_columns_of(each) for each in self.datasets]
        texts = {field.name for schema in found for field in schema if is_text(field.type)}
        numbers = {field.name for schema in found for field in schema if pa.types.is_integer(field.type)}
        return [pa.schema([_as_meant(field, texts, numbers) for field in schema]) for schema in found]

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of all datasets. Raises SchemaMismatch if no type holds the values of a column in all."""
        names = [f"{each.source} (part {number})" for number, each in enumerate(self.datasets)]
        return union_schema(zip(names, self.own_schemas, strict=True))[0]

    def schema_of(self, number: int) -> pa.Schema:
        """The columns of one dataset, in the types of all."""
        own = {*self.own_schemas[number].names}
        if KEY in self.schema.names:
            own.add(KEY)
        return pa.schema([field for field in self.schema if field.name in own], metadata=self.schema.metadata)

    def repeated_keys(self) -> int:
        """Number of samples with a key that an earlier sample has, in whatever dataset; reads all keys.

        Memory: 16 bytes a sample.
        """
        if KEY not in self.schema.names:
            return 0
        found = [np.zeros(0, np.uint64)]
        for number in range(len(self.datasets)):
            reader = _PartReader(self, number)
            keys = reader.batches(max_rows=_KEYS_AT_ONCE, max_bytes=_KEY_BYTES, columns=[KEY])
            found += [hash_strings(batch.column(KEY).drop_null()) for batch in keys]
        hashes = np.concatenate(found)
        return len(hashes) - len(np.unique(hashes))

    def shards(self, read: ReadOptions) -> Shards:
        """The datasets as shards: each is named by its first file."""
        rows = []
        for number, each in enumerate(self.datasets):
            first = next(iter(each.shards), None)
            rows.append({"path": str(each.source) if first is None else first.path, "entry": str(number)})
        stores = next((each.read.stores for each in self.datasets if each.read.stores is not None), Stores())
        plan = ReadPlan("samples", {"parts": self}, on_bad_shard=read.on_bad_shard)
        fetcher = Fetcher(stores, mmap=read.mmap, limits=read.limits)
        listing = Listing(pa.Table.from_pylist(rows, LISTING_SCHEMA))
        return _PartShards(listing, _FORMAT, plan, fetcher=fetcher, stores=stores)


def _columns_of(dataset: Dataset) -> pa.Schema:
    """The columns of all shards of a dataset, behind its steps; payload as bytes."""
    whole = dataset.shards.schema_behind(dataset.steps)
    return pa.schema([field.with_type(pa.large_binary()) if is_ref(field.type) else field for field in whole])


def _as_meant(field: pa.Field, texts: set[str], numbers: set[str]) -> pa.Field:
    """Bytes that mean text or numbers become these where another dataset has them in the column."""
    feature = known_feature(field)
    if not is_bytes(field.type):
        return field
    if field.name in numbers and is_number(feature):
        return field.with_type(pa.int64())
    return field.with_type(pa.large_string()) if field.name in texts and isinstance(feature, (Text, Json)) else field


class _PartShards(Shards):
    """Datasets as shards."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of all datasets."""
        return cast("_Options", self.read_options).own.schema


@dataclass(frozen=True, slots=True)
class _Options:
    """What the reader of a part needs.

    Attributes:
        parts: the datasets.
    """

    parts: object = None

    @property
    def own(self) -> Parts:
        """The datasets, with their type."""
        return cast("Parts", self.parts)


class _PartReader(ShardReader):
    """One of the datasets, as a shard."""

    def __init__(self, parts: Parts, number: int) -> None:
        self._parts, self._number, self._dataset = parts, number, parts.datasets[number]

    def schema(self) -> pa.Schema:
        """Return the columns of the dataset, in the types of all datasets."""
        return self._parts.schema_of(self._number)

    def num_rows(self) -> int:
        """Return the number of samples."""
        return len(self._dataset)

    def batches(
        self,
        *,
        max_rows: int,
        max_bytes: int,
        columns: Sequence[str] | None = None,
        views: bool = False,  # noqa: ARG002 - views of files of a part would outlive its batch
        schema: pa.Schema | None = None,  # noqa: ARG002 - the dataset has one
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, payload as bytes."""
        target, first = self._chosen(columns), 0
        for batch in self._dataset.batches(max_rows=max_rows, max_bytes=max_bytes, columns=self._own(target)):
            rows = self._keyed(batch, np.arange(first, first + batch.num_rows))
            first += batch.num_rows
            aligned = self._aligned(rows, target)
            yield aligned.replace_schema_metadata(without_source(aligned.schema).metadata)

    def read(
        self,
        rows: NDArray[np.int64] | None = None,
        columns: Sequence[str] | None = None,
        schema: pa.Schema | None = None,  # noqa: ARG002 - the dataset has one
    ) -> pa.Table:
        """Return rows by number, payload as bytes."""
        numbers, target = np.arange(len(self._dataset)) if rows is None else np.asarray(rows), self._chosen(columns)
        own = self._own(target)
        # A dataset without a manifest knows the columns of its first shard; rows know theirs.
        known = {*own} <= {*self._dataset.columns} and columns is not None
        found = self._dataset.take(numbers, own if known else None).combine_chunks()
        batches = found.to_batches() or [pa.RecordBatch.from_pylist([], found.schema)]
        return pa.Table.from_batches([self._aligned(self._keyed(batches[0], numbers), target)])

    def close(self) -> None:
        """Leave the dataset open: it is the user's."""

    def _chosen(self, columns: Sequence[str] | None) -> pa.Schema:
        own = self.schema()
        names = own.names if columns is None else [name for name in columns if name in own.names]
        return pa.schema([own.field(name) for name in names or own.names[:1]])  # a column counts the rows

    def _own(self, target: pa.Schema) -> list[str]:
        """The columns to ask the dataset for, at least one."""
        own = self._parts.own_schemas[self._number].names
        return [name for name in target.names if name in own] or own[:1]

    def _aligned(self, batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
        """Rows in the types of all datasets; numbers that a file holds as text are read."""
        made = {}
        for place, field in enumerate(batch.schema):
            meant = self._parts.own_schemas[self._number]
            if is_bytes(field.type) and field.name in meant.names and pa.types.is_integer(meant.field(field.name).type):
                made[place] = in_natural_type(batch.column(place), meant.field(field.name))
        return align_table(with_columns(batch, made) if made else batch, target)

    def _keyed(self, batch: pa.RecordBatch, numbers: NDArray[np.int64]) -> pa.RecordBatch:
        if KEY not in self.schema().names or KEY in batch.schema.names:
            return batch
        keys = pa.array([f"{self._number:04}-{number:09}" for number in numbers.tolist()], pa.string())
        return pa.record_batch([keys, *batch.columns], pa.schema([pa.field(KEY, pa.string()), *batch.schema]))


class _ConcatFormat(Format[_Options, Any]):
    """Shards that are datasets. Nobody names it: `concat` makes them."""

    info = FormatInfo(name="concat", extensions=(), read_options=_Options)

    def open(self, file: ShardFile, options: _Options) -> _PartReader:
        """Open one of the datasets."""
        return _PartReader(options.own, int(file.entry))


_FORMAT = _ConcatFormat()
register(_FORMAT, listed=False)


def _reopened(source: Any, read: ReadOptions, steps: tuple[Step, ...]) -> Dataset:
    kind: type[Dataset] = type(source.datasets[0])
    return kind(_reopened, source, read, source.shards(read), steps)
