"""Rows of samples by ordinal, out of many shards, in the order asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.align import align_table, union_schema
from lading._core.arrow.batches import copied
from lading._core.arrow.column_slices import ColumnSlices, as_array, put
from lading._core.arrow.json_columns import fit_json, union_json_schemas
from lading._core.arrow.references import concat, is_ref
from lading._core.arrow.views import is_bytes, is_text, is_view, reorder, share
from lading._core.dataset.shards.shards import Shards
from lading._core.features.items import sample_rows, without_source
from lading._core.formats.base import Scan, ShardReader
from lading._core.manifest.values import lookup
from lading._core.storage.concurrent import concurrent_map
from lading._core.units import count
from lading.errors import DataError, UsageError

__all__ = ["materialised", "taken_rows", "unfetched_rows", "united", "uniting"]

_SHARED_ROWS = 4096
"""Rows of which some are worth a thread."""
_HELD_SHARDS = 64
"""That may stay open until all of their rows are known: each takes two of the files that a process may have open."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """Rows of a shard.

    Attributes:
        rows: perhaps with references.
        firsts: the first row of each sample.
        loose: whether types are what the values happen to be.
    """

    rows: pa.Table
    firsts: NDArray[np.int64]
    loose: bool


def taken_rows(
    shards: Shards, wanted: NDArray[np.int64], columns: Sequence[str] | None, target: pa.Schema | None, *,
    views: bool,
) -> pa.Table:  # fmt: skip
    """Rows of samples with their bytes, as `SampleAccess.take`; in the columns of the target, if there is one."""
    if target is not None:
        return materialised(shards, unfetched_rows(shards, wanted, columns, target), views=views)
    varies = shards.row_layout.columns_vary
    if columns is not None and varies:
        _refuse_unknown(shards, wanted, columns)
    found = None
    if len(wanted) and not shards.has_items:
        # Text that is no UTF-8: where it stands is known when each shard's is read by itself.
        with suppress(pa.ArrowInvalid):
            found = _picked_rows(shards, wanted, columns, views=views)
    if found is None:
        found = materialised(shards, unfetched_rows(shards, wanted, columns), views=views)
    if columns is not None and varies:
        found = _with_all(found, columns, shards.schema)
    return _shown(found) if views else found


def _refuse_unknown(shards: Shards, wanted: NDArray[np.int64], columns: Sequence[str]) -> None:
    """Raise UsageError for a column that neither the schema of the source nor any shard with such rows has."""
    unknown = [name for name in columns if name not in shards.schema.names]
    if not unknown:
        return
    numbers = np.unique(lookup(shards.sample_ends(), wanted)[0]).tolist()
    there = {name for shard in numbers for name in shards.counted_shard(shard).schema().names}
    for name in unknown:
        if name not in there:
            known = dict.fromkeys([*shards.schema.names, *sorted(there)])
            raise UsageError("no such column in the shards of these rows", expected=", ".join(known), found=repr(name),
                             advice=f"If other shards have it, or a column has it inside, use ds.select({name!r})."
                             )  # fmt: skip


def _with_all(table: pa.Table, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
    """The columns in the order asked for; those that no shard with such rows has as nulls."""
    names = list(dict.fromkeys(columns))
    given = {
        name for name, kind in zip(table.column_names, table.schema.types, strict=True) if not pa.types.is_null(kind)
    }
    if table.column_names == names and len(given) == len(names):
        return table
    fields, arrays = [], []
    for name in names:
        there = name in given or name not in schema.names
        field = (table.schema if there else schema).field(name)
        if is_ref(field.type):
            field = field.with_type(pa.large_binary())
        fields.append(field)
        arrays.append(table.column(name) if there else pa.nulls(len(table), field.type))
    return pa.table(arrays, pa.schema(fields, metadata=table.schema.metadata))


def _shown(table: pa.Table) -> pa.Table:
    """The rows with bytes as views of where they are."""
    for i, field in enumerate(table.schema):
        if is_bytes(field.type):
            chunks = [share(chunk) for chunk in table.column(i).chunks]
            if all(is_view(chunk.type) for chunk in chunks):
                table = table.set_column(
                    i, field.with_type(pa.binary_view()), pa.chunked_array(chunks, pa.binary_view())
                )
    return table


def _picked_rows(
    shards: Shards, wanted: NDArray[np.int64], columns: Sequence[str] | None, *, views: bool
) -> pa.Table | None:
    """The rows, each value moved once; None if some shard does not say where they lie, or they differ in columns."""
    ends = shards.sample_ends()
    if not len(ends) or int(wanted.min()) < 0 or int(wanted.max()) >= int(ends[-1]):
        lookup(ends, wanted)
    threads = min(pa.cpu_count(), len(wanted)) if len(wanted) >= _SHARED_ROWS else 1

    scan = Scan(columns, views=views)

    def put_together(rows: NDArray[np.int64]) -> pa.Table | None:
        asked = _by_shard(rows, ends)
        hold = len(asked) <= _HELD_SHARDS // threads
        slices: list[ColumnSlices] = []
        for each in asked:
            reader = _picker(shards, each.shard)
            found = None if reader is None else reader.column_slices(each.rows, scan, hold=hold)
            if found is None or (slices and not _are_alike(found, slices[0])):
                return None
            slices.append(found)
        return _put_together(slices, [each.places for each in asked], len(rows), views=views)

    if threads == 1:
        return put_together(wanted)
    # One is opened before, or each thread would look through all of its record batches.
    if _picker(shards, int(np.searchsorted(ends, wanted.min(), "right"))) is None:
        return None
    # Page faults are most of it: 20,000 texts of 300 bytes take two threads 12 ms, and one 16.
    with ThreadPoolExecutor(threads, "lading-take") as pool:
        parts = list(pool.map(put_together, np.array_split(wanted, threads)))
    found = [part for part in parts if part is not None]
    if len(found) < len(parts) or not all(part.schema.equals(found[0].schema, check_metadata=True) for part in found):
        return None  # what the rows have in common goes by the order of the shards, not by that of the parts
    return pa.concat_tables(found)


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """What is asked of a shard.

    Attributes:
        shard: its number.
        rows: of it.
        places: which rows of the result they are.
    """

    shard: int
    rows: NDArray[np.int64]
    places: NDArray[np.int64]


def _by_shard(wanted: NDArray[np.int64], ends: NDArray[np.int64]) -> list[_Asked]:
    """What is asked of each shard, in their order, in rising rows; of a single one in the order asked for."""
    low, high = (int(np.searchsorted(ends, row, "right")) for row in (wanted.min(), wanted.max()))
    if low == high:
        return [_Asked(low, wanted - int(ends[low - 1]) if low else wanted, np.arange(len(wanted)))]
    order = np.argsort(wanted, kind="stable")
    rising = wanted[order]
    stops = np.searchsorted(rising, ends)
    asked = []
    for shard in np.flatnonzero(np.diff(stops, prepend=0)).tolist():
        begin, before = (int(stops[shard - 1]), int(ends[shard - 1])) if shard else (0, 0)
        mine = slice(begin, int(stops[shard]))
        asked.append(_Asked(shard, rising[mine] - before, order[mine]))
    return asked


def _picker(shards: Shards, shard: int) -> ShardReader | None:
    view = shards.shard_to_read(shard)
    return view if view.slices_columns else None


def _are_alike(one: ColumnSlices, other: ColumnSlices) -> bool:
    """Whether rows of two shards are of the same columns, and fields tell the same, such as names of labels."""
    if one.columns.keys() != other.columns.keys():
        return False
    if one.schema.equals(other.schema, check_metadata=True):
        return True
    mine, its = one.schema.remove_metadata(), other.schema.remove_metadata()
    return bool(mine.equals(its, check_metadata=True))


def _put_together(
    slices: Sequence[ColumnSlices], places: Sequence[NDArray[np.int64]], count: int, *, views: bool
) -> pa.Table:
    """Rows of shards as one table."""
    schema = without_source(slices[0].schema)
    if any(each.schema.metadata != slices[0].schema.metadata for each in slices):
        schema, _ = union_schema(("", each.schema) for each in slices)
    rest = _rest(slices, places, count)
    given = []
    for field in schema:
        if field.name not in slices[0].columns:
            given.append(rest.column(field.name))
            continue
        parts = [each.columns[field.name] for each in slices]
        column = as_array(put(parts, places, count) if len(parts) > 1 else parts[0], field.type, views=views)
        if is_text(field.type):
            column.validate(full=True)
        given.append(column)
    if [column.type for column in given] != schema.types:
        fields = [field.with_type(column.type) for field, column in zip(schema, given, strict=True)]
        schema = pa.schema(fields, metadata=schema.metadata)
    return pa.table(given, schema)


def _rest(slices: Sequence[ColumnSlices], places: Sequence[NDArray[np.int64]], count: int) -> pa.Table:
    """Columns that were read, in order; none if there are none."""
    read = [each.rest for each in slices if each.rest is not None]
    if len(read) <= 1:
        return read[0] if read else pa.table({})
    rows = np.empty(count, np.int64)
    rows[np.concatenate(places)] = np.arange(count)
    return reorder(concat(read), rows)


def unfetched_rows(
    shards: Shards, wanted: NDArray[np.int64], columns: Sequence[str] | None, target: pa.Schema | None = None
) -> pa.Table:
    """The rows, perhaps with references; in the columns of the target, if there is one."""
    asked, place = np.unique(wanted, return_inverse=True)
    shard, ordinal = lookup(shards.sample_ends(), asked)
    begins = np.flatnonzero(np.diff(shard, prepend=-1))
    numbers = shard[begins].tolist() or [*range(len(shards.listing))][:1]
    parts, firsts, count, loose = [], [], 0, False
    hold = len(numbers) <= _HELD_SHARDS
    reads = [
        partial(_taken, shards, number, mine, columns, hold=hold)
        for number, mine in zip(numbers, np.split(ordinal, begins[1:]), strict=False)
    ]
    for taken in concurrent_map(reads, remote=bool(numbers) and shards.is_remote(numbers[0])):
        loose = taken.loose
        firsts.append(taken.firsts + count)
        parts.append(taken.rows)
        count += taken.rows.num_rows
    if not parts:
        return shards.schema.empty_table()
    table = united(shards, parts, [shards.path(number) for number in numbers], loose=loose, target=target)
    if np.array_equal(asked, wanted):
        return table
    return reorder(
        table, place if count == len(asked) else sample_rows(np.append(np.concatenate(firsts), count), place)
    )


def united(
    shards: Shards,
    parts: Sequence[pa.Table],
    names: Sequence[str],
    *,
    loose: bool,
    target: pa.Schema | None = None,
) -> pa.Table:
    """Return rows of several shards as one table, in types that hold the values of all.

    Args:
        shards: the shards, whose fetcher reads references where other parts have bytes.
        parts: the rows, at least one part.
        names: of the parts, for errors.
        loose: types are what the values happen to be; columns that differ become JSON texts.
        target: columns of the table, if they are known.
    """
    told = {(field.name, is_ref(field.type)) for part in parts for field in part.schema}
    if len(told) > len({name for name, _ in told}) and not loose:
        # Some have references where others have bytes.
        parts = [materialised(shards, part) for part in parts]
    # Shards may differ in types: to the first one's, values would be cut.
    if target is None and loose:
        schema = union_json_schemas(part.schema for part in parts)
        parts = [fit_json(part, schema) for part in parts]
    else:
        schema = target or union_schema((name, part.schema) for name, part in zip(names, parts, strict=True))[0]
    return concat([align_table(part, schema) for part in parts])


def uniting(shards: Shards) -> Callable[[Sequence[pa.Table]], pa.Table]:
    """Return the function that makes one table of rows of several shards; see `united`."""

    def unite(parts: Sequence[pa.Table]) -> pa.Table:
        names = [f"some shards ({number})" for number in range(1, len(parts) + 1)]
        return united(shards, parts, names, loose=shards.fmt.info.types != "stored")

    return unite


def _taken(
    shards: Shards, shard: int, ordinals: NDArray[np.int64], columns: Sequence[str] | None, *, hold: bool
) -> _Taken:
    """Rows of a shard; with `hold=False` they keep no file open."""
    view = shards.shard_to_read(shard)
    varies = shards.row_layout.columns_vary
    if columns is not None and varies and not any(name in view.schema().names for name in columns):
        # A table without columns would forget how many rows it has.
        rows = pa.table({columns[0]: pa.nulls(len(ordinals))})
    else:
        rows = view.read(ordinals, Scan(columns))
    firsts = shards.row_layout.firsts(rows)
    if len(firsts) < len(ordinals) and len(ordinals) > 1:  # documents of one id became neighbours
        one, other = (_taken(shards, shard, half, columns, hold=hold) for half in np.array_split(ordinals, 2))
        both = np.concatenate((one.firsts, other.firsts + one.rows.num_rows))
        return _Taken(concat([one.rows, other.rows]), both, one.loose)
    if len(firsts) != len(ordinals):
        raise DataError("samples of one id stand in this shard, and nothing tells their rows apart",
                        file=shards.path(shard), expected=count(len(ordinals), "sample"),
                        found=len(firsts))  # fmt: skip
    if not hold and not view.copies:
        rows = copied(rows)  # who cannot leave values where they lie does not give them there either
    return _Taken(rows, firsts, not view.declares_types)


def materialised(shards: Shards, table: pa.Table, *, views: bool = False) -> pa.Table:
    """The rows with bytes in the place of references; with `views`, of large values, as views of mapped files."""
    if not any(is_ref(field.type) for field in table.schema):
        return table  # joining its chunks would copy all of it once more
    whole = table.combine_chunks()
    batches = whole.to_batches() or [pa.record_batch([c.combine_chunks() for c in whole.columns], whole.schema)]
    if not views:
        batches = [shards.fetcher.read_large(batch) for batch in batches]
    found = [shards.fetcher.materialise(batch, views=views, earlier=False) for batch in batches]
    if views:  # who takes rows by number says never that they are used, and each would keep its file open
        shards.fetcher.forget_views()
    return pa.Table.from_batches(found)
