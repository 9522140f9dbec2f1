"""Reading Parquet by row groups and pages. See `_core.formats.parquet.format`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow.predicates import Predicate
from lading._core.arrow.views import is_bytes, join, plain_type, reorder, take_rows
from lading._core.features.huggingface import unwrapped, unwrapped_schema
from lading._core.features.items import KEY, split_rows
from lading._core.formats.base import DEFAULT_SCAN, RowFilter, Scan, ShardReader, Span, Units
from lading._core.formats.parquet.decode import STEP_BYTES, STEP_ROWS, RowGroupDecoder, cut
from lading._core.formats.parquet.footer import ColumnChunk, Footer
from lading._core.formats.parquet.holes import OffsetIndexes, find_holes, may_have_holes
from lading._core.formats.parquet.input import KEPT_BYTES, Input, damage
from lading._core.formats.parquet.options import ReadOptions
from lading._core.formats.parquet.pages import GroupSpan
from lading._core.formats.parquet.prune import columns_of, fitting, possible_groups
from lading._core.formats.parquet.schema import given_schema, leaves_by_field, without_leaves
from lading._core.formats.refused import Refusal, first_of_each, refuse_columns, unread_columns
from lading.errors import DataError, Unrepresentable, UsageError, errors_at

__all__ = ["ParquetReader"]

_INDEX_SCHEMA = pa.schema(
    [
        ("row_group", pa.int32()),
        ("first_row", pa.int64()),
        ("num_rows", pa.int64()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
    ]
)


_MUCH = 4
"""Columns of a condition that are more than this share of the bytes are not read first."""
_TOGETHER_BYTES = 16 << 20
"""Of row groups of a remote file that are requested at once, to read some of their rows."""
_NO_KEYS = "lading has no keys."
_LEFT_OUT = "row groups with more values than rows, left out"


class ParquetReader(ShardReader):
    """An open Parquet file.

    Payload comes as `large_binary`. Other types are the file's (by its Arrow schema, where it has one), in their
    `plain_type`s, since pyarrow has few kernels for views and joins no dictionaries of many values under few bits.
    Strings are checked to be UTF-8.

    Args:
        file: the open file.
        footer: its footer.
        options: what to read, and how.
        row_filter: a condition on rows of a remote file. `batches` may give nulls for values of rows that fail.
        span: the row groups to read; None for those of the options.
        predicate: row groups without a row that passes are left out.
    """

    kept_bytes = KEPT_BYTES

    def __init__(
        self,
        file: Input,
        footer: Footer,
        options: ReadOptions,
        row_filter: RowFilter | None = None,
        span: Span | None = None,
        predicate: Predicate | None = None,
    ) -> None:
        self._file, self._footer, self._filter = file, footer, options.filter
        self._indexes: OffsetIndexes | None = None
        self._decoder = RowGroupDecoder(file, footer, pa.binary_view() if options.views else None, options.int96_unit)
        natural = self._decoder.natural_schema()
        self._leaves = leaves_by_field(natural)
        asked = options.int96_unit
        wide = {} if asked is None else {natural.field(i).name: asked for i in self._with_wide_times()}
        with errors_at(file=file.path), damage(file.path, "the Arrow schema"):
            self._schema = unwrapped_schema(
                given_schema(natural, footer.metadata.metadata or {}, views=options.views, units=wide),
                media=options.media,
            )
        self._refused = {**unread_columns(natural), **_with_empty_groups(natural), **self._encrypted()}
        self._groups = self._selected(options, predicate)
        self._span = span
        if span is not None:
            ends = np.cumsum([self._rows_of(group) for group in self._groups])
            first, last = np.searchsorted(ends, (span.first_row, span.stop_row - 1), "right").tolist()
            self._groups = self._groups[first : last + 1]
        self._ordinals: NDArray[np.int64] | None = None
        self._row_filter = row_filter if file.is_remote and options.filter is None else None

    def schema(self) -> pa.Schema:
        """Schema of the batches, from the footer; of several columns of one name, the first."""
        return first_of_each(self._schema) if self._refused else self._schema

    def num_rows(self) -> int:
        """Rows of the selected row groups, from the footer; with a filter, its columns are read once."""
        if self._span is not None:
            return self._span.num_rows
        if self._filter is not None:
            return len(self._matching())
        return sum(map(self._rows_of, self._groups))

    def index(self) -> pa.Table:
        """Return a row a row group.

        `row_group`, `first_row`, `num_rows`; `offset` and `length` of its bytes in the file.
        """
        groups = np.array([group for group in self._groups if self._rows_of(group)], np.int64)
        rows = self._footer.num_rows[groups]
        start, length = self._footer.chunks[groups, :, 0], self._footer.chunks[groups, :, 1]
        first = start.min(axis=1, initial=self._file.size_bytes)
        stop = (start + length).max(axis=1, initial=0)
        columns = [groups, np.cumsum(rows) - rows, rows, first, np.maximum(stop - first, 0)]
        arrays = [pa.array(column).cast(field.type) for column, field in zip(columns, _INDEX_SCHEMA, strict=True)]
        return pa.table(arrays, schema=_INDEX_SCHEMA)

    def units(self) -> Units | None:
        """Return the row groups, by the footer; None with a filter."""
        index = self.index()
        if self._filter is not None or not len(index):
            return None
        row, rows, offset, length = (index[name].to_numpy() for name in ("first_row", "num_rows", "offset", "length"))
        return Units(np.append(row, row[-1] + rows[-1]), np.cumsum([offset[0], *length]))

    def rows_at_once(self) -> int:
        """Return the rows of a row group; of a remote file that says where pages of large values are, of a page."""
        chunks = [self._footer.chunk(self._groups[0], leaf) for leaf in self._leaves_of(range(len(self._schema)))]
        payload = max(chunks, key=lambda chunk: chunk.nbytes, default=None)
        if not self._file.is_remote or payload is None or not may_have_holes(payload):
            return super().rows_at_once()
        if self._indexes is None:
            self._indexes = OffsetIndexes(self._file, self._footer)
        [pages] = self._indexes.pages([payload])
        return super().rows_at_once() if pages is None else -(-payload.num_rows // pages.shape[1])

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, about 8 MB a batch at most; columns that the file lacks are left out.

        For a `row_filter`, its columns are read first. Pages without a row that passes are then left out
        (`_core.formats.parquet.holes`).

        With `views` and without a filter, large values come as `binary_view` over their pages
        (`_core.formats.parquet.payload`). A view keeps its whole page in memory.

        Peak memory: the yielded batch, the batch being decoded and the page it ends in, and buffers (32 MB; of a remote
        file 96 MB). A row group that decodes to less than 72 MB, or half of `max_bytes`, may be decoded in one step if
        its rows have very different sizes.

        Raises:
            CorruptShard: pages are damaged; the message names row group and column.
        """
        chosen = self._chosen(scan.columns)
        self._count_left_out()
        batches = self._batches(chosen, scan)
        yield from batches if self._span is None else self._span.of(batches)
        self._file.leave_out([])

    def _batches(self, chosen: Sequence[int], scan: Scan) -> Iterator[pa.RecordBatch]:
        for run in self._decoder.runs(self._groups, self._leaves_of(chosen), scan.max_bytes):
            keep = self._kept(run)
            if keep is not None and not keep.any():
                continue
            self._leave_out(run)
            at = 0
            for batch in self._decode(run, chosen, scan.max_rows, scan.max_bytes, views=scan.views and keep is None):
                mine = None if keep is None else np.flatnonzero(keep[at : at + batch.num_rows])
                at += batch.num_rows
                yield from cut(batch if mine is None else take_rows(batch, mine), scan.max_rows, scan.max_bytes)

    def read(self, rows: NDArray[np.int64] | None = None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return rows by ordinal; in each row group, pages are decoded up to the last requested row.

        Of a remote file, only the pages of large values with such rows are read, where the file says where pages are.

        A `string` column of more than 2 GiB may come as `large_string`. Peak memory: twice the requested rows.

        Raises:
            UsageError: an ordinal is outside the shard.
            CorruptShard: pages are damaged.
        """
        chosen = self._chosen(scan.columns)
        wanted = np.arange(self.num_rows()) if rows is None else np.asarray(rows, np.int64)
        ordinals, place = np.unique(self._ordinals_of(wanted), return_inverse=True)
        found: list[tuple[int, NDArray[np.int64]]] = []
        first = 0
        for group in self._groups:
            begin, end = np.searchsorted(ordinals, (first, first + self._rows_of(group)))
            if begin < end:
                found.append((group, ordinals[begin:end] - first))
            first += self._rows_of(group)
        parts: list[pa.RecordBatch] = []
        try:
            for together in self._together(found, chosen):
                for group, rows_of_group in together:
                    parts += self._rows_in(group, rows_of_group, chosen)
        finally:
            self._file.leave_out([])
        if not chosen:
            return pa.table({"none": pa.nulls(len(wanted))}).select([])
        table = pa.Table.from_batches(parts, self._subschema(chosen))
        return table if bool((np.diff(place) == 1).all()) else reorder(table, place)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _selected(self, options: ReadOptions, predicate: Predicate | None) -> list[int]:
        """Return the requested row groups, without those that statistics exclude."""
        count = len(self._footer.num_rows)
        groups = list(range(count)) if options.row_groups is None else [int(group) for group in options.row_groups]
        for group in groups:
            if not 0 <= group < count:
                raise UsageError("no such row group", file=self._file.path, expected=f"0 to {count - 1}", found=group)
        predicates = [] if predicate is None else [predicate]
        if options.filter is not None:
            plain = pa.schema([field.with_type(plain_type(field.type)) for field in self._schema])
            predicates.append(Predicate(options.filter, plain))
        for each in predicates:
            possible = possible_groups(self._file, self._footer, self._schema, self._leaves, each)
            groups = [group for group in groups if group in possible]
        return groups

    def _with_wide_times(self) -> list[int]:
        """Return the columns that have 96-bit times, by number."""
        wide = {leaf for leaf, column in enumerate(self._footer.columns) if column.kind == "INT96"}
        return [i for i, leaves in enumerate(self._leaves) if wide.intersection(leaves)]

    def _count_left_out(self) -> None:
        """Count row groups whose flat columns have more values than the row group has rows, which are not read."""
        flat = np.array([column.flat for column in self._footer.columns], np.bool_)
        more = self._footer.chunks[:, :, 3] > self._footer.num_rows[:, None]
        count = int(np.count_nonzero(np.any(more & flat, axis=1)[self._groups]))
        self.counts.update({_LEFT_OUT: count} if count else {})

    def _encrypted(self) -> dict[str, Refusal]:
        """Return the columns of which values are encrypted."""
        paths = [column.path for column in self._footer.columns]
        found = {i: [paths[leaf] for leaf in leaves if leaf in self._footer.encrypted]
                 for i, leaves in enumerate(self._leaves)}  # fmt: skip
        return {
            self._schema.field(i).name: Refusal(DataError, "the column is encrypted", ", ".join(own), _NO_KEYS)
            for i, own in found.items()
            if own
        }

    def _rows_of(self, group: int) -> int:
        return int(self._footer.num_rows[group])

    def _chosen(self, columns: Sequence[str] | None) -> list[int]:
        """Return fields by number, in the given order, once each. Raises the error of one that cannot be read."""
        refuse_columns(self._refused, columns, self._schema.names, self._file.path)
        if columns is None:
            return list(range(len(self._schema)))
        return list(dict.fromkeys(i for name in columns for i in self._schema.get_all_field_indices(name)))

    def _leaves_of(self, chosen: Sequence[int]) -> list[int]:
        return sorted(leaf for i in chosen for leaf in self._leaves[i])

    def _subschema(self, chosen: Sequence[int]) -> pa.Schema:
        return pa.schema([self._schema.field(i) for i in chosen], metadata=self._schema.metadata)

    def _decode(
        self, run: GroupSpan, chosen: Sequence[int], max_rows: int, max_bytes: int, *, views: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a run; columns in the given order, in the types of `schema` except for views."""
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

    def _together(
        self, wanted: Sequence[tuple[int, NDArray[np.int64]]], chosen: Sequence[int]
    ) -> Iterator[Sequence[tuple[int, NDArray[np.int64]]]]:
        """Yield row groups, with the wanted rows of each, whose bytes are requested at once.

        Of a remote file, pages of large values that have no such row are left out.
        """
        if not self._file.is_remote:
            yield wanted
            return
        self._file.leave_out([])
        chunks = [[self._footer.chunk(group, leaf) for leaf in self._leaves_of(chosen)] for group, _ in wanted]
        masks = {group: np.zeros(self._rows_of(group), np.bool_) for group, _ in wanted}
        for group, rows in wanted:
            masks[group][rows] = True
        if not all(mask.all() for mask in masks.values()):
            every = {(chunk.group, chunk.leaf): chunk for own in chunks for chunk in own}
            self._hide([*every.values()], [masks[group] for group, _ in every])
        sizes = np.array([sum(chunk.stop - chunk.start for chunk in own) for own in chunks], np.int64)
        for first, stop in pairwise(split_rows(np.arange(len(sizes)), sizes, max_bytes=_TOGETHER_BYTES).tolist()):
            self._file.expect([(chunk.start, chunk.stop) for own in chunks[first:stop] for chunk in own])
            yield wanted[first:stop]

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

    def _kept(self, run: GroupSpan) -> NDArray[np.bool_] | None:
        """For each row of a run, whether the filter keeps it; reads the filter's columns alone. None for all rows."""
        expression = self._filter
        if expression is None:
            return None
        chosen = self._chosen(columns_of(expression, self._schema.names))
        parts = []
        for own in self._decoder.runs(run.groups, self._leaves_of(chosen), STEP_BYTES):
            for batch in self._decode(own, chosen, STEP_ROWS, STEP_BYTES):
                with fitting(expression):
                    parts.append(_mask(batch, expression))
        return np.concatenate(parts)

    def _leave_out(self, run: GroupSpan) -> None:
        """Leave out the pages of a run in which no row passes the row filter, until the next run."""
        if self._row_filter is None:
            return
        self._file.leave_out([])
        first = self._chosen(self._row_filter.columns(self._schema.names))
        own = {*self._leaves_of(first)}
        rest = [chunk for chunk in run.chunks if chunk.leaf not in own and chunk.column != KEY]  # reports name keys
        size, rest_size = (sum(chunk.stop - chunk.start for chunk in each) for each in (run.chunks, rest))
        if not first or _MUCH * (size - rest_size) > size:
            return
        passes, parts = self._row_filter.passes, list[NDArray[np.bool_]]()
        for part in self._decoder.runs(run.groups, sorted(own), STEP_BYTES):
            parts += [passes(batch) for batch in self._decode(part, first, STEP_ROWS, STEP_BYTES)]
        rows = np.concatenate(parts)
        counts = [self._rows_of(group) for group in run.groups]
        of_group = dict(zip(run.groups, np.split(rows, np.cumsum(counts)[:-1]), strict=True))
        self._hide(rest, [of_group[chunk.group] for chunk in rest])

    def _hide(self, chunks: Sequence[ColumnChunk], wanted: Sequence[NDArray[np.bool_]]) -> None:
        """Leave out the pages of chunks that have none of the wanted rows of their row groups."""
        if self._indexes is None:
            self._indexes = OffsetIndexes(self._file, self._footer)
        holes = find_holes(self._indexes, chunks, wanted, self._file.gap_bytes)
        self._file.leave_out([(hole.start, hole.stop, hole.head) for hole in holes])

    def _matching(self) -> NDArray[np.int64]:
        """Ordinals of the rows that the filter keeps, among those of the selected row groups; found once."""
        if self._ordinals is None:
            masks = [self._kept(run) for run in self._decoder.runs(self._groups, [], STEP_BYTES)]
            kept = [mask for mask in masks if mask is not None]
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


def _with_empty_groups(schema: pa.Schema) -> dict[str, Refusal]:
    """Return the columns in which a group has no columns and others have: pyarrow 26 reads none of them."""
    what = "pyarrow does not read a column with a group without columns inside"
    return {f.name: Refusal(Unrepresentable, what, str(f.type)) for f in schema if without_leaves(f.type)}


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
