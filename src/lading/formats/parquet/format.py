"""Parquet: columns in row groups, pages in columns, and a footer that says where they are.

    "PAR1"
    row group 0      column chunk 0: [dictionary page] data page, data page …   column chunk 1 …
    row group 1 …
    [column indexes, offset indexes]
    footer           Thrift FileMetaData: schema, row groups, column chunks, key-value metadata
    uint32           length of the footer
    "PAR1"

pyarrow reads and writes the pages, but for large values that are wanted as views (`_parquet_payload`); this module
decides how much at a time. Reading holds one batch and the page that it
ends in, never a row group, so a file of one 5 GB row group takes no more memory than one of many small ones. Writing
sizes row groups in bytes and pages so that no reader has to hold more than about 1 MiB of media to get at one value.

How pyarrow 26 is used here, and why. Seconds to read 0.93 GB of images in pages of 1 MiB, on one of 2 cores, page cache
warm, where a plain copy takes 0.5:

- `pre_buffer=False`, 256 KiB of buffer a column: 0.12. Over a memory map 0.17, since touching fresh pages costs more
  than `pread` into memory that stays in the processor's cache, and maps count as resident memory. So `mmap` is off.
- Decoding with two threads gains nothing, the work being copies; and there must be no thread pool before a fork.
- Steps of 2 MB 0.12, of 6 MB 0.15, of 24 MB 0.18: `large_binary` grows by doubling, into fresh memory. With jemalloc
  the same takes 0.45. Views do not grow and take 0.12 with any step and pool.
- Page checksums: nothing where the file has none, 0.2 where it has; they are verified. To write them would take as
  long as half of the rest, and the manifest has hashes of whole files: they are not written.
- Writing views takes 0.4, `large_binary` 0.55, pages of 4 MiB instead of 1 take 0.7.

Source: https://parquet.apache.org/docs/file-format/ and parquet-format 2.11.0 `parquet.thrift`; pyarrow 26.0.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading.arrow.align import refuse_duplicate_names
from lading.arrow.views import is_bytes, join, reorder, take_rows
from lading.errors import LadingError, UsageError, errors_at
from lading.features.huggingface import HUGGINGFACE_KEY, huggingface_schema, left_out, unwrapped, unwrapped_schema
from lading.formats.base import Finding, Format, FormatInfo, Level, Recovered, ShardFile, ShardReader, Written
from lading.formats.parquet.check import check_shard
from lading.formats.parquet.decode import STEP_BYTES, STEP_ROWS, Decoder, cut
from lading.formats.parquet.footer import MAGIC, MAGIC_ENCRYPTED, Footer, read_footer
from lading.formats.parquet.input import Input, damage, open_input
from lading.formats.parquet.options import ReadOptions, WriteOptions
from lading.formats.parquet.pages import Run
from lading.formats.parquet.prune import columns_of, fitting, possible_groups
from lading.formats.parquet.recover import resync_groups
from lading.formats.parquet.schema import check_schema, given_schema, leaves_by_field
from lading.formats.parquet.writer import ParquetWriter
from lading.storage.base import Sink, aborting
from lading.storage.memory import MemoryStore

__all__ = ["FORMAT", "ParquetFormat", "ParquetReader", "ParquetWriter", "ReadOptions", "WriteOptions"]

_INDEX_SCHEMA = pa.schema(
    [
        ("row_group", pa.int32()),
        ("first_row", pa.int64()),
        ("num_rows", pa.int64()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
    ]
)


class ParquetFormat(Format[ReadOptions, WriteOptions]):
    """Parquet files. They have no sidecars and no index of a dataset."""

    info = FormatInfo(
        name="parquet",
        extensions=(".parquet",),
        read_options=ReadOptions,
        write_options=WriteOptions,
    )

    def matches(self, path: str, head: bytes) -> bool:
        """By the magic; by the name too, so that a damaged file is called damaged, not unknown."""
        return head[:4] in (MAGIC, MAGIC_ENCRYPTED) or path.lower().endswith(self.info.extensions)

    def open(self, file: ShardFile, options: ReadOptions) -> ParquetReader:
        """Open a shard (`ReadOptions`); reads its footer.

        Raises:
            UsageError: a row group that is not there, a filter that does not fit.
            CorruptShard: the footer is damaged; the file is no Parquet file, or an encrypted one.
            DuplicateField: two columns have one name, or two fields of a struct.
            LimitExceeded: the footer is larger than `footer_bytes`, or has more columns than `table_columns`.
        """
        source = open_input(file, mmap=options.mmap)
        try:
            return ParquetReader(source, read_footer(source), options)
        except LadingError:
            source.close()
            raise

    def check(self, file: ShardFile, options: ReadOptions, level: Level) -> Iterator[Finding]:
        """Yield layout findings of row groups, pages and columns, by the footer."""
        return check_shard(file, options, level)

    def create(self, sinks: Sequence[Sink], schema: pa.Schema, options: WriteOptions) -> ParquetWriter:
        """Begin a shard (`WriteOptions`).

        Raises:
            UsageError: a codec that is not known.
            Unrepresentable: references, two columns of one name, or a type that Parquet (or datasets) does not have.
        """
        [sink] = sinks
        check_schema(schema)
        if options.huggingface:
            with errors_at(file=sink.path):
                schema = huggingface_schema(schema)
        return ParquetWriter(sink, schema, options)

    def written(self, schema: pa.Schema, options: WriteOptions) -> Written:
        """Return the columns of videos, of which datasets keep a part; see `left_out`."""
        return Written(reduced_columns=left_out(schema) if options.huggingface else ())

    def schema_read(self, schema: pa.Schema, options: WriteOptions) -> pa.Schema:
        """Return the types that a file has: bytes as large_binary, few dictionaries."""
        store = MemoryStore()
        with aborting(store.put_stream("rows.parquet")) as sink:
            self.create([sink], schema, options).close()
            sink.close()
        found = self.open(ShardFile(store, "rows.parquet"), ReadOptions()).schema()
        return pa.schema([f.with_type(found.field(f.name).type) for f in schema], metadata=schema.metadata)

    def recover(
        self,
        source: ShardFile,
        options: Mapping[str, Any],
        *,
        schema: pa.Schema | None = None,
        failed: bool = True,
    ) -> Recovered | None:
        """The row groups, each where the footer says; see `lading.formats.parquet.recover`. Raises CorruptShard."""
        if not failed:
            return None
        file = open_input(source, mmap=self.read_options(options).mmap)
        try:
            return resync_groups(file)
        finally:
            file.close()

    def options_like(self, source: ShardFile, view: str) -> dict[str, Any]:
        """Whether the file has the features of Hugging Face's datasets."""
        with closing(open_input(source, mmap=False)) as file:
            metadata = read_footer(file).metadata.metadata or {}
        return {"huggingface": True} if HUGGINGFACE_KEY in metadata else {}


FORMAT = ParquetFormat()


class ParquetReader(ShardReader):
    """An open Parquet file.

    Payload comes as `large_binary`. Other types are the file's (by its Arrow schema, where it has one), in their
    `plain_type`s, since pyarrow has few kernels for views and joins no dictionaries of many values under few bits.
    Strings are checked to be UTF-8.

    Args:
        file: the open file.
        footer: its footer.
        options: what to read, and how.
    """

    def __init__(self, file: Input, footer: Footer, options: ReadOptions) -> None:
        self._file, self._footer, self._filter = file, footer, options.filter
        self._decoder = Decoder(file, footer, pa.binary_view() if options.views else None, options.int96_unit)
        natural = self._decoder.natural_schema()
        with errors_at(file=file.path), damage(file.path, "the Arrow schema"):
            self._schema = unwrapped_schema(
                given_schema(natural, footer.metadata.metadata or {}, views=options.views), media=options.media
            )
            refuse_duplicate_names(natural)
        self._leaves = leaves_by_field(natural)
        self._groups = self._selected(options)
        self._ordinals: NDArray[np.int64] | None = None

    def schema(self) -> pa.Schema:
        """Schema of the batches, from the footer."""
        return self._schema

    def num_rows(self) -> int:
        """Rows of the selected row groups, from the footer; with a filter, its columns are read once."""
        if self._filter is not None:
            return len(self._matching())
        return sum(map(self._rows_of, self._groups))

    def index(self) -> pa.Table:
        """A row a row group: `row_group`, `first_row`, `num_rows`; `offset` and `length` of its bytes in the file."""
        groups = np.array([group for group in self._groups if self._rows_of(group)], np.int64)
        rows = self._footer.num_rows[groups]
        start, length = self._footer.chunks[groups, :, 0], self._footer.chunks[groups, :, 1]
        first = start.min(axis=1, initial=self._file.size_bytes)
        stop = (start + length).max(axis=1, initial=0)
        columns = [groups, np.cumsum(rows) - rows, rows, first, np.maximum(stop - first, 0)]
        arrays = [pa.array(column).cast(field.type) for column, field in zip(columns, _INDEX_SCHEMA, strict=True)]
        return pa.table(arrays, schema=_INDEX_SCHEMA)

    def batches(
        self,
        *,
        max_rows: int,
        max_bytes: int,
        columns: Sequence[str] | None = None,
        views: bool = False,
        schema: pa.Schema | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """All rows in order, about 8 MB a batch at most; columns that the file lacks are left out.

        With `views`, large values come as `binary_view` over their pages where there is no filter
        (`lading.formats.parquet.payload`); a view keeps its whole page in memory.

        Peak memory: the batch that is out, the batch being decoded and the page it ends in, and buffers (32 MB; of a
        remote file 96 MB). A row group that decodes to less than 72 MB, or half of `max_bytes`, may be decoded in
        one step if its rows are of very unlike sizes.

        Raises:
            CorruptShard: pages are damaged; the message names row group and column.
        """
        chosen = self._chosen(columns)
        for run in self._decoder.runs(self._groups, self._leaves_of(chosen), max_bytes):
            keep = None if self._filter is None else self._kept(run)
            if keep is not None and not keep.any():
                continue
            at = 0
            for batch in self._decode(run, chosen, max_rows, max_bytes, views=views and keep is None):
                mine = None if keep is None else np.flatnonzero(keep[at : at + batch.num_rows])
                at += batch.num_rows
                yield from cut(batch if mine is None else take_rows(batch, mine), max_rows, max_bytes)

    def read(
        self,
        rows: NDArray[np.int64] | None = None,
        columns: Sequence[str] | None = None,
        schema: pa.Schema | None = None,
    ) -> pa.Table:
        """Rows by ordinal; of each row group touched, pages are decoded up to the last row asked for.

        A `string` column of more than 2 GiB may come as `large_string`. Peak memory: twice the rows asked for.

        Raises:
            UsageError: an ordinal is outside the shard.
            CorruptShard: pages are damaged.
        """
        chosen = self._chosen(columns)
        wanted = np.arange(self.num_rows()) if rows is None else np.asarray(rows, np.int64)
        ordinals, place = np.unique(self._ordinals_of(wanted), return_inverse=True)
        parts: list[pa.RecordBatch] = []
        first = 0
        for group in self._groups:
            begin, end = np.searchsorted(ordinals, (first, first + self._rows_of(group)))
            if begin < end:
                parts += self._rows_in(group, ordinals[begin:end] - first, chosen)
            first += self._rows_of(group)
        if not chosen:
            return pa.table({"none": pa.nulls(len(wanted))}).select([])
        table = pa.Table.from_batches(parts, self._subschema(chosen))
        return table if bool((np.diff(place) == 1).all()) else reorder(table, place)

    def unit_rows(self) -> NDArray[np.int64]:
        """Rows of each row group: of one that is damaged none can be read."""
        return self._footer.num_rows[np.array(self._groups, np.int64)]

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _selected(self, options: ReadOptions) -> list[int]:
        """The row groups asked for, less those that statistics exclude."""
        count = len(self._footer.num_rows)
        groups = list(range(count)) if options.row_groups is None else [int(group) for group in options.row_groups]
        for group in groups:
            if not 0 <= group < count:
                raise UsageError("no such row group", file=self._file.path, expected=f"0 to {count - 1}", found=group)
        if options.filter is None:
            return groups
        possible = possible_groups(self._file, self._footer, self._schema, self._leaves, options.filter)
        return [group for group in groups if group in possible]

    def _rows_of(self, group: int) -> int:
        return int(self._footer.num_rows[group])

    def _chosen(self, columns: Sequence[str] | None) -> list[int]:
        """Fields by number, in the order asked for, once each."""
        if columns is None:
            return list(range(len(self._schema)))
        return list(dict.fromkeys(i for name in columns for i in self._schema.get_all_field_indices(name)))

    def _leaves_of(self, chosen: Sequence[int]) -> list[int]:
        return sorted(leaf for i in chosen for leaf in self._leaves[i])

    def _subschema(self, chosen: Sequence[int]) -> pa.Schema:
        return pa.schema([self._schema.field(i) for i in chosen], metadata=self._schema.metadata)

    def _decode(
        self, run: Run, chosen: Sequence[int], max_rows: int, max_bytes: int, *, views: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a run; columns in the order asked for, in the types that `schema` says, but for views."""
        schema = self._subschema(chosen)
        plain = [i for i in chosen if len(self._leaves[i]) == 1 and is_bytes(self._schema.field(i).type)]
        payload = plain if views else []
        taken = self._decoder.payload(run, [leaf for i in payload for leaf in self._leaves[i]])
        as_views = {i: self._leaves[i][0] for i in payload if self._leaves[i][0] in taken}
        kinds = [f.with_type(pa.binary_view()) if i in as_views else f for i, f in zip(chosen, schema, strict=True)]
        schema = pa.schema(kinds, metadata=schema.metadata)
        place = {i: at for at, i in enumerate(sorted({*chosen} - {*as_views}))}
        for batch, found in self._decoder.decode(run, max_rows, max_bytes, taken):
            columns = [found[as_views[i]] if i in as_views else batch.column(place[i]) for i in chosen]
            with damage(self._file.path, run.name):
                cast = [unwrapped(column, field.type) for column, field in zip(columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(cast, schema=schema) if cast else batch

    def _rows_in(self, group: int, wanted: NDArray[np.int64], chosen: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Rows of one row group, by ascending number in it."""
        at = 0
        for run in self._decoder.runs([group], self._leaves_of(chosen), STEP_BYTES):
            for batch in self._decode(run, chosen, STEP_ROWS, STEP_BYTES):
                begin, end = np.searchsorted(wanted, (at, at + batch.num_rows))
                if begin < end:
                    yield take_rows(batch, wanted[begin:end] - at)
                at += batch.num_rows
                if end == len(wanted):
                    return

    def _kept(self, run: Run) -> NDArray[np.bool_]:
        """For each row of a run, whether the filter keeps it; reads the filter's columns alone."""
        expression = self._filter
        chosen = self._chosen(columns_of(expression, self._schema.names))
        parts = []
        for own in self._decoder.runs(run.groups, self._leaves_of(chosen), STEP_BYTES):
            for batch in self._decode(own, chosen, STEP_ROWS, STEP_BYTES):
                with fitting(expression):
                    parts.append(_mask(batch, expression))
        return np.concatenate(parts)

    def _matching(self) -> NDArray[np.int64]:
        """Ordinals of the rows that the filter keeps, among those of the selected row groups; found once."""
        if self._ordinals is None:
            kept = [self._kept(run) for run in self._decoder.runs(self._groups, [], STEP_BYTES)]
            self._ordinals = np.flatnonzero(np.concatenate(kept)) if kept else np.zeros(0, np.int64)
        return self._ordinals

    def _ordinals_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ordinals among the rows of the selected row groups, filtered or not."""
        count = self.num_rows()
        outside = np.flatnonzero((rows < 0) | (rows >= count))
        if len(outside):
            raise UsageError(
                "no such row", file=self._file.path, expected=f"0 to {count - 1}", found=int(rows[outside[0]])
            )
        return rows if self._filter is None else self._matching()[rows]


def _mask(batch: pa.RecordBatch, expression: pc.Expression) -> NDArray[np.bool_]:
    from pyarrow import acero

    # Not `RecordBatch.filter`, which starts pyarrow's threads: a process forked later would wait for them for ever.
    # Without a column nothing would say how many rows there are.
    columns = [join(column) for column in batch.columns] or [pa.nulls(batch.num_rows)]
    table = pa.table(columns, names=batch.schema.names or ["none"])
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    kept = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["keep"]), [source])
    column = kept.to_table(use_threads=False).column(0)
    return np.asarray(column.fill_null(fill_value=False).to_numpy(), np.bool_)
