"""Rows of samples by ordinal, out of many shards, in the order asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.align import align_table, union_schema
from lading.errors import DataError
from lading.interleaved import sample_firsts, sample_rows
from lading.json_columns import fit_json, union_json_schemas
from lading.layouts.protocol import LooseView, View
from lading.layouts.samples import SamplesView
from lading.manifest import lookup
from lading.ref import concat, is_ref
from lading.source import Listing
from lading.views import is_view, reorder, settled

__all__ = ["HasSamples", "lying_rows", "taken_rows"]

_SHARED_ROWS = 4096
"""Rows of which some are worth a thread."""
_SMALL, _WIDE = (pa.binary(), pa.string()), (pa.large_binary(), pa.large_string())


class HasSamples(Protocol):
    """What taking samples asks their dataset for.

    Attributes:
        listing: the shards.
        view: how rows are taken.
    """

    listing: Listing
    view: str

    @property
    def schema(self) -> pa.Schema:
        """The columns of all shards."""

    def path(self, shard: int) -> str:
        """Path of a shard."""

    def sample_ends(self) -> NDArray[np.int64]:
        """Number of samples in each shard and all before it."""

    def counted_shard(self, shard: int) -> View:
        """A shard, open, that holds as many samples as it should."""

    def materialised(self, table: pa.Table, *, views: bool = False) -> pa.Table:
        """The rows with bytes in the place of references."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """Rows of a shard.

    Attributes:
        rows: perhaps with references or views.
        firsts: the first row of each sample.
        stored: the columns, in types without references and views.
        in_place: whether values were left where they lie, as that saves something.
        loose: whether types are what the values happen to be.
    """

    rows: pa.Table
    firsts: NDArray[np.int64]
    stored: pa.Schema
    in_place: bool
    loose: bool


def taken_rows(
    dataset: HasSamples, wanted: NDArray[np.int64], columns: Sequence[str] | None, target: pa.Schema | None, *,
    views: bool,
) -> pa.Table:  # fmt: skip
    """Rows of samples with their bytes, as `Dataset.take`; in the columns of the target, if there is one."""
    if target is not None:
        lying, _ = lying_rows(dataset, wanted, columns, target)
        return dataset.materialised(lying, views=views)
    try:
        return _settled_rows(dataset, wanted, columns, views=views, in_place=True)
    except pa.ArrowInvalid:
        # Text that is no UTF-8: where it stands is known when each shard's is copied by itself.
        return _settled_rows(dataset, wanted, columns, views=views, in_place=False)


def _settled_rows(
    dataset: HasSamples, wanted: NDArray[np.int64], columns: Sequence[str] | None, *, views: bool, in_place: bool
) -> pa.Table:
    lying, small = lying_rows(dataset, wanted, columns, in_place=in_place)
    return settled(dataset.materialised(lying, views=views), small, shown=views)


def lying_rows(
    dataset: HasSamples, wanted: NDArray[np.int64], columns: Sequence[str] | None, target: pa.Schema | None = None, *,
    in_place: bool = True,
) -> tuple[pa.Table, Collection[str]]:  # fmt: skip
    """The rows, perhaps with references or views, and columns of text and bytes that are small in all shards.

    With `in_place=False` values are copied where a shard's reader may leave them.
    """
    asked, place = np.unique(wanted, return_inverse=True)
    shard, ordinal = lookup(dataset.sample_ends(), asked)
    begins = np.flatnonzero(np.diff(shard, prepend=-1))
    numbers = shard[begins].tolist() or [*range(len(dataset.listing))][:1]
    parts, firsts, count, loose = [], [], 0, False
    small, wide = set[str](), set[str]()
    in_place = in_place and target is None
    for taken in _taken(dataset, numbers, np.split(ordinal, begins[1:]), columns, in_place=in_place):
        loose = taken.loose
        wide |= {field.name for field in taken.stored if field.type in _WIDE}
        small |= {field.name for field in taken.stored if taken.in_place and field.type in _SMALL}
        firsts.append(taken.firsts + count)
        parts.append(taken.rows)
        count += taken.rows.num_rows
    if not parts:
        return dataset.schema.empty_table(), small
    small -= wide
    told = {(field.name, is_ref(field.type), is_view(field.type)) for part in parts for field in part.schema}
    if len(told) > len({name for name, *_ in told}) and not loose:
        # Some have references or views where others have bytes.
        parts = [settled(dataset.materialised(part), small) for part in parts]
    # Shards may differ in types: to the first one's, values would be cut.
    if target is None and loose:
        schema = union_json_schemas(part.schema for part in parts)
        parts = [fit_json(part, schema) for part in parts]
    else:
        schema = target or union_schema((dataset.path(i), part.schema) for i, part in enumerate(parts))[0]
    table = concat([align_table(part, schema) for part in parts])
    if np.array_equal(asked, wanted):
        return table, small
    rows = place if count == len(asked) else sample_rows(np.append(np.concatenate(firsts), count), place)
    return reorder(table, rows), small


def _taken(
    dataset: HasSamples, shards: Sequence[int], ordinals: Sequence[NDArray[np.int64]], columns: Sequence[str] | None,
    *, in_place: bool,
) -> Iterator[_Taken]:  # fmt: skip
    """Rows of each shard, in order."""

    def take(shard: int, mine: NDArray[np.int64]) -> _Taken:
        view = dataset.counted_shard(shard)
        lying = view.read_in_place(mine, columns) if in_place and isinstance(view, SamplesView) else None
        rows = view.read(mine, columns) if lying is None else lying
        firsts = sample_firsts(rows, dataset.view)
        if len(firsts) != len(mine):
            raise DataError("samples of one id stand in this shard, and nothing tells their rows apart",
                            file=dataset.path(shard), expected=f"{len(mine)} samples", found=len(firsts))  # fmt: skip
        loose = isinstance(view, LooseView) and not view.declares_types()
        return _Taken(rows, firsts, rows.schema if lying is None else view.schema(), lying is not None, loose)

    threads = min(len(shards), pa.cpu_count()) if sum(map(len, ordinals)) >= _SHARED_ROWS else 1
    if threads > 1 and _reads_in_place(dataset.counted_shard(shards[0])):
        # Page faults are half of it: 20,000 texts out of four shards take two threads 20 ms, and one 31.
        with ThreadPoolExecutor(threads, "lading-take") as pool:
            yield from pool.map(take, shards, ordinals)
    else:
        yield from map(take, shards, ordinals)


def _reads_in_place(view: View) -> bool:
    return isinstance(view, SamplesView) and view.reads_in_place
