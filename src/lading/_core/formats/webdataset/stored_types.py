"""Open tars, and read those whose members hold values of known types: those that lading wrote, by their manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.column_slices import ColumnSlices, ColumnValues, as_array
from lading._core.arrow.rebatch import split_samples
from lading._core.arrow.references import RefType, is_ref, with_files
from lading._core.arrow.views import is_text
from lading._core.content.media_lists import folded, item_members, list_member, with_list
from lading._core.features.natural import has_items, member_name
from lading._core.features.stored_values import is_payload, npy_head
from lading._core.features.types import feature_of
from lading._core.formats.base import DEFAULT_SCAN, Scan, ShardFile
from lading._core.formats.webdataset.places import (
    Cell,
    MemberPlaces,
    Parse,
    parser_of,
    ranges_at,
    sample_reader,
    typed_parser,
)
from lading._core.formats.webdataset.reader import ReadOptions, TarReader
from lading._core.formats.webdataset.samples import KEY, MAX_CELLS
from lading._core.formats.webdataset.values import decode_column, payload_of, restored_schema
from lading._core.formats.webdataset.walk import TarFile, open_tar
from lading._core.storage.concurrent import is_remote
from lading._core.storage.fetch import Fetcher
from lading.errors import DataError, UsageError, errors_at

__all__ = ["TypedReader", "WebdatasetReader", "open_reader"]

_COLUMN_BYTES = 1 << 30
"""Maximum bytes of members of a batch: a text column holds less than 2 GiB."""
_FEW_ROWS = 64


def open_reader(file: ShardFile, options: ReadOptions) -> WebdatasetReader:
    """Open a tar. Raises NotFound, StoreError."""
    return WebdatasetReader(open_tar(file, mmap=options.mmap, on_concatenated=options.on_concatenated), options)


class WebdatasetReader(TarReader):
    """An open tar, which may become one of typed columns."""

    def as_asked(self, fetcher: Fetcher) -> TypedReader | None:
        """Return a reader of all members, those of lists as lists; None if no lists are named."""
        return TypedReader(self._tar, self._options, fetcher) if self._options.lists else None

    def as_written(self, rows: pa.Schema, fetcher: Fetcher) -> TypedReader:
        """Return a reader that makes values of members; it takes names in the case they were written in."""
        return TypedReader(self._tar, replace(self._options, lower_case=False), fetcher, rows)


class TypedReader(TarReader):
    """A tar whose rows have the columns that they were written with.

    Bytes columns stay references. All others are read a batch at a time, neighbours together, and take the memory of a
    batch. The key of a sample is returned if it is a column, or requested by name.

    Args:
        tar: the file.
        options: how it is read. `lists` are columns that are lists of members, besides those whose types say so.
        fetcher: reads the values.
        schema: schema of the written rows, whose samples are whole; None for all members.
    """

    def __init__(self, tar: TarFile, options: ReadOptions, fetcher: Fetcher, schema: pa.Schema | None = None) -> None:
        super().__init__(tar, options, warns=schema is None)
        self._fetcher = fetcher
        self._reads_together = is_remote(tar.source.store) and not self.holds_values
        self._follows_index = tar.source.by_index and tar.source.index is not None
        written = self._with_lists(super().schema() if schema is None else schema)
        self._schema = restored_schema(written)
        self._members = {KEY: KEY, **{field.name: member_name(field) for field in written if field.name != KEY}}
        named = {*options.lists}.difference(field.name for field in self._schema if pa.types.is_null(field.type))
        self._lists = [field.name for field in self._schema if has_items(field.type) or field.name in named]
        self._members.update({name: list_member(name) for name in self._lists})
        self._items: dict[str, list[str]] | None = None
        self._heads = {field.name: head for field in self._schema if (head := npy_head(field)) is not None}

    def _with_lists(self, schema: pa.Schema) -> pa.Schema:
        """Return a schema with lists in place of their members, or nulls if the tar has none."""
        for name in self._options.lists:
            if name not in schema.names:
                listing = list_member(name)
                texts = self._texts_of(listing) if listing in schema.names else iter(())
                with errors_at(file=self._tar.path, column=name):
                    schema = with_list(schema, name, texts)
            elif not has_items(schema.field(name).type):
                raise UsageError("a member has the name of the list", file=self._tar.path, column=name,
                                 advice="Leave out --lists, or rename the member.")  # fmt: skip
        return schema

    def _texts_of(self, member: str) -> Iterator[bytes | None]:
        """Yield the bytes of a member of all samples, a few samples at a time."""
        for batch in super().batches(Scan([KEY, member], max_rows=_FEW_ROWS)):
            if member in batch.schema.names:
                yield from self._fetcher.materialise(batch, columns=[member]).column(member).to_pylist()

    def schema(self) -> pa.Schema:
        """Return the columns as they were written: bytes as references, or `large_binary` in a compressed tar."""
        kind = pa.large_binary() if self.holds_values else RefType()
        fields = [field.with_type(kind) if is_payload(field.type) else field for field in self._schema]
        return with_files(pa.schema(fields, metadata=self._schema.metadata), self.files)

    def read(self, rows: NDArray[np.int64] | None = None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return samples by ordinal, in the given order; of a remote tar with all bytes. Raises as `batches`."""
        found = super().read(rows, Scan(self._wanted(scan.columns))).combine_chunks()
        if not found.num_rows:
            none = pa.record_batch([column.combine_chunks() for column in found.columns], found.schema)
            return pa.Table.from_batches([self._typed(none, scan.columns)])
        parts = found.to_batches()
        if (
            self._reads_together
        ):  # members of a sample are neighbours: read apart, each column would read the others too
            parts = [self._fetcher.materialise(batch) for batch in parts]
        if found.num_rows > 1:
            parts = [
                part
                for batch in parts
                for part in split_samples(batch, np.arange(len(batch)), len(batch), _COLUMN_BYTES)
            ]
        return pa.Table.from_batches([self._typed(part, scan.columns) for part in parts])

    def sample_getter(self) -> Callable[[int], dict[str, Any] | None] | None:
        """Return what reads the members of one sample by their places; None where columns need `read`."""
        if self.holds_values:
            return None
        get: Callable[[int], dict[str, Any] | None] | None = None

        def sample(row: int) -> dict[str, Any] | None:
            nonlocal get
            if get is None:
                places = self.find_places(1)
                get = None if places is None else self._sample_reader(places)
            return None if get is None else get(row)

        return sample

    def _sample_reader(self, places: MemberPlaces) -> Callable[[int], dict[str, Any] | None]:
        cells: dict[str, tuple[Cell, Parse | None]] = {}
        for field in self._schema:
            if isinstance(field.type, pa.BaseExtensionType) or (field.name == KEY and not is_text(field.type)):
                return _no_sample
            cell = None if field.name == KEY else self._cell(field, places)
            if cell is not None:
                cells[field.name] = (
                    cell,
                    (parser_of(feature_of(field)) if is_payload(field.type) else typed_parser(field, self._tar.path)),
                )
            elif field.name != KEY:
                return _no_sample
        names = self._schema.names
        return sample_reader(places, cells, dict.fromkeys(names), keyed=KEY in names)

    def _cell(self, field: pa.Field, places: MemberPlaces) -> Cell | None:
        """Return the places of the values of a column; None if some value is not as the column says."""
        if field.name in self._lists:
            return None
        none = np.zeros(len(places), np.int64)
        cell = places.cells.get(self._members[field.name]) or Cell(none, none, none.astype(np.bool_))
        if cell.there is not None and not field.nullable and not is_payload(field.type):
            return None
        head = self._heads.get(field.name)
        if head is None:
            return cell
        wrong = cell.length != len(head[0]) + head[1]
        return None if (wrong if cell.there is None else wrong & cell.there).any() else cell.behind(len(head[0]))

    def column_slices(
        self, rows: NDArray[np.int64], scan: Scan = DEFAULT_SCAN, *, hold: bool = True
    ) -> ColumnSlices | None:
        """Return the places of bytes and texts, and other columns decoded. See `ShardReader.column_slices`."""
        places = None if self.holds_values else self.find_places(len(rows))
        if places is None or not 0 <= int(rows.min()) <= int(rows.max()) < len(places):
            return None
        fields = [field for field in self._schema if scan.columns is None or field.name in scan.columns]
        if scan.columns is not None and KEY in scan.columns and KEY not in self._schema.names:
            fields.insert(0, pa.field(KEY, pa.string()))
        found: dict[str, ColumnValues] = {}
        rest: dict[str, pa.Array] = {}
        keys = places.key_ranges(rows)
        for field in fields:
            cell = None if field.name == KEY else self._cell(field, places)
            if field.name == KEY and is_text(field.type):
                found[KEY] = keys
            elif cell is None:
                return None
            elif is_payload(field.type) or is_text(field.type):
                found[field.name] = ranges_at(places, cell, rows, views=scan.views and hold and is_payload(field.type))
            else:
                members = as_array(ranges_at(places, cell, rows, views=False), pa.large_binary())
                try:
                    rest[field.name] = decode_column(field, members, as_array(keys, pa.string()), self._tar.path)
                except DataError:
                    return None  # `read` names the sample
        if not fields:
            return None
        schema = pa.schema(fields, metadata=self._schema.metadata)
        own = pa.schema([field for field in fields if field.name in rest])
        return ColumnSlices(schema, found, pa.table([*rest.values()], own) if rest else None)

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all samples in order, none of them cut.

        Raises:
            DataError: a member does not fit its column; names the tar, the sample and the column.
        """
        wanted = self._wanted(scan.columns)
        few = max(1, MAX_CELLS // len(wanted))  # rows that lack a column are null there
        for batch in super().batches(replace(scan.at_most(few, _COLUMN_BYTES), columns=wanted, schema=None)):
            yield self._typed(self._with_neighbours(batch) if scan.payload else batch, scan.columns)

    def _with_neighbours(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return samples of a remote tar with all bytes, in few requests; as they are if a member is unavailable.

        A walk over headers has read the bytes already.
        """
        if not (self._reads_together and self._follows_index):
            return batch
        try:
            return self._fetcher.materialise(batch, earlier=False)
        except DataError:  # the caller reports it by its row
            return batch

    def _wanted(self, columns: Sequence[str] | None) -> list[str]:
        """Return the members of columns."""
        chosen = [name for name in self._members if columns is None or name in columns or name == KEY]
        items = [member for name in chosen for member in self._items_of(name)]
        return [*(self._members[name] for name in chosen), *items]

    def _items_of(self, name: str) -> list[str]:
        """Return the members that are items of a column of lists; a walk over the headers, if there is no index."""
        if name not in self._lists:
            return []
        if self._items is None:
            members = super().schema().names
            self._items = {of: item_members(of, members) for of in self._lists}
        return self._items[name]

    def _typed(self, batch: pa.RecordBatch, columns: Sequence[str] | None) -> pa.RecordBatch:
        fields = [field for field in self._schema if columns is None or field.name in columns]
        if columns is not None and KEY in columns and KEY not in self._schema.names:
            fields.insert(0, pa.field(KEY, pa.string()))
        if not fields:  # the other shards have the columns, and the rows count here too
            return batch.select([])
        read = [self._members[field.name] for field in fields if field.name != KEY and not is_payload(field.type)]
        read += [member for field in fields for member in self._items_of(field.name)]
        members, keys = self._fetched(batch, read), batch.column(KEY)
        arrays, given = [], []
        for field in fields:
            member = self._members[field.name]
            if field.name in self._lists:
                items = {name: members[name] for name in self._items_of(field.name)}
                column = folded(field, members[member], items, keys, self._tar.path)
            elif field.name == KEY:
                column = keys.cast(field.type)
            elif member in members:
                column = decode_column(field, members[member], keys, self._tar.path)
            else:
                column = batch.column(member)
            if field.name in self._heads:
                column = payload_of(field, column, keys, self._tar.path)
            arrays.append(column)
            given.append(field.with_type(column.type))
        metadata = {**(self._schema.metadata or {}), **(batch.schema.metadata or {})}
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(given, metadata=metadata))

    def _fetched(self, batch: pa.RecordBatch, names: Sequence[str]) -> dict[str, pa.Array]:
        """Return the bytes of members, requested at once: those of a sample are neighbours in the tar."""
        members = {name: batch.column(name) for name in names}
        lazy = [name for name, column in members.items() if is_ref(column.type)]
        if lazy:
            stacked = pa.concat_arrays([members[name] for name in lazy])
            schema = pa.schema([pa.field("member", stacked.type)], metadata=batch.schema.metadata)
            whole = self._fetcher.materialise(pa.record_batch([stacked], schema)).column(0)
            count = batch.num_rows
            members.update({name: whole.slice(i * count, count) for i, name in enumerate(lazy)})
        return members


def _no_sample(row: int) -> dict[str, Any] | None:  # noqa: ARG001 - as readers of samples are called
    """Leave all samples to `read`."""
    return None
