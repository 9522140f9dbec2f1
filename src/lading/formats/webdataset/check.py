"""What in a tar will hurt: compression of the whole, no index where headers are far, samples in several pieces."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.formats.base import LayoutFinding
from lading.formats.webdataset.header_walk import Pass
from lading.formats.webdataset.index import read_idx
from lading.formats.webdataset.samples import KEY, join_rows
from lading.formats.webdataset.walk import TarFile
from lading.storage.concurrent import is_remote
from lading.units import format_bytes

__all__ = ["find_layout_findings"]

_LARGE_WRAP_BYTES = 8 << 20
"""A compressed tar above this hurts: to unpack it for one sample takes longer than a request to a store (50 ms)."""

_LARGE_WALK_BYTES = 8 << 20
"""A tar above this, without an index, hurts where its headers are far away: reading it for one sample takes longer than
a request. On a local disk a walk over headers takes milliseconds."""


def find_layout_findings(tar: TarFile, view: str, *, lower_case: bool) -> Iterator[LayoutFinding]:
    """What will hurt in this tar. Where there is no index, headers of local files are walked over, and no others."""
    entry, source = tar.entry, tar.source
    if entry.wrap:
        if entry.size_bytes > _LARGE_WRAP_BYTES:
            yield LayoutFinding(
                "compressed tars",
                f"{format_bytes(entry.size_bytes)} of {entry.wrap}, more than {format_bytes(_LARGE_WRAP_BYTES)}",
                "For a single sample everything before it is fetched and unpacked, so there is no random access.",
                entry.size_bytes,
            )
        return
    if source.index is None and is_remote(source.store):
        if entry.size_bytes > _LARGE_WALK_BYTES and read_idx(source.store, tar.path, entry.size_bytes) is None:
            yield LayoutFinding(
                "no index of a tar that is far away",
                f"{format_bytes(entry.size_bytes)} with neither .idx nor index, more than "
                f"{format_bytes(_LARGE_WALK_BYTES)}",
                "To count samples or take one, the whole tar is walked over, a request for each few headers.",
                entry.size_bytes,
                remedy="index",
            )
    elif view == "samples":
        yield from _in_pieces(*(_pieces_of(source.index) if source.index is not None else _walked(tar, lower_case)))


def _in_pieces(keys: pa.Array, sample: NDArray[np.int64], field: NDArray[np.int64]) -> Iterator[LayoutFinding]:
    """Keys that come back with fields that they did not have; with fields that they had, they are other samples.

    Args:
        keys: of samples, as their neighbours make them.
        sample: for each member, its sample.
        field: for each member, the number of its field.
    """
    encoded = keys.dictionary_encode()
    number = encoded.indices.to_numpy().astype(np.int64)
    again = np.bincount(number, minlength=1) > 1
    mine = again[number[sample]]
    fields = int(field.max(initial=0)) + 1
    cells, counts = np.unique(number[sample[mine]] * fields + field[mine], return_counts=True)
    others = np.unique(cells[counts > 1] // fields)
    split = np.setdiff1d(np.flatnonzero(again), others)
    if not len(split):
        return
    example = encoded.dictionary[int(split[0])].as_py()
    measured = f"keys that come back with further fields: {len(split):,}, such as {example!r}"
    if len(others):
        measured += f"; with fields that they had: {len(others):,}, so that they cannot be joined by key alone"
    yield LayoutFinding(
        "samples in several pieces",
        measured,
        "Readers of tars take neighbours of one key as a sample, and give each piece as a sample that lacks fields.",
        len(split),
        remedy=None if len(others) else "copy",
        read_options={} if len(others) else {"regroup": True},
    )


def _pieces_of(index: pa.Table) -> tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]:
    """Keys, and sample and field of each member, by an index."""
    names = [name for name in index.column_names if name != KEY]
    there = [np.flatnonzero(index[name].is_valid().to_numpy()) for name in names]
    fields = [np.full(len(rows), number) for number, rows in enumerate(there)]
    nothing = np.zeros(0, np.int64)
    keys = index[KEY].combine_chunks()
    return keys, np.concatenate([nothing, *there]), np.concatenate([nothing, *fields])


def _walked(tar: TarFile, lower_case: bool) -> tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]:
    """Keys, and sample and field of each member, by the headers; of none, where no key comes back."""
    walk = Pass(tar, lower_case=lower_case, on_duplicate="error")
    for _ in walk.rows():
        pass
    again = Pass(tar, lower_case=lower_case, on_duplicate="error")
    rows = join_rows(again.held_rows() if walk.returning else [])
    return rows.keys, np.cumsum(rows.new) - 1, rows.field.astype(np.int64)
