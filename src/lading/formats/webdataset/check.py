"""Checks of tars: the `.tar.idx`, members behind the end of the archive, and layout findings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.errors import DataError, NotFound, StoreError
from lading.formats.base import Finding, Level, ShardFile
from lading.formats.webdataset.header_walk import Pass
from lading.formats.webdataset.index import read_idx, sidecar_path
from lading.formats.webdataset.reader import ReadOptions, open_reader
from lading.formats.webdataset.samples import KEY, join_rows
from lading.formats.webdataset.walk import (
    CONCATENATED,
    LONE_END,
    NO_END,
    TarFile,
    behind_end,
    find_behind,
    find_open_end,
    open_tar,
)
from lading.storage.concurrent import is_remote
from lading.storage.stores import without_query
from lading.units import format_bytes

__all__ = ["check_shard", "find_sidecar"]

_LARGE_WRAP_BYTES = 8 << 20
"""Decompressing a larger tar for one sample takes longer than a request to a store (50 ms)."""

_LARGE_WALK_BYTES = 8 << 20
"""Reading a larger remote tar for one sample takes longer than a request. A walk over the headers of a local tar takes
milliseconds."""


def check_shard(file: ShardFile, options: ReadOptions, level: Level) -> Iterator[Finding]:
    """Yield layout findings; or problems of the `.tar.idx` and of the end of the archive."""
    tar = open_tar(file, mmap=options.mmap, on_concatenated=options.on_concatenated)
    if level is Level.LAYOUT:
        yield from _check_layout(tar, options)
        return
    # Documents that were read by an index were counted without the end of the tar.
    if CONCATENATED in (file.reported or {}) or (file.view != "samples" and file.index is not None):
        yield from (Finding.of(error) for error in [find_behind(tar)] if error is not None)
    if NO_END in (file.reported or {}):
        yield from (Finding.of(error) for error in [find_open_end(tar)] if error is not None)
    sidecar = find_sidecar(file, options)
    if sidecar is not None:
        yield Finding("", checked="sidecars")
        if file.reported is None or file.view != "samples":  # reading samples compares the sidecar
            yield from _check_sidecar(file, options, sidecar)
    if LONE_END in (file.reported or {}):
        error = behind_end(tar)
        if error is not None:
            yield Finding.of(error)


def find_sidecar(file: ShardFile, options: ReadOptions) -> str | None:
    """Return the path of the `.tar.idx`, if it exists and the options use it; compressed tars have none."""
    path = sidecar_path(file.path)
    if options.sidecar == "ignore" or without_query(file.path) != file.path:
        return None
    with suppress(StoreError):  # a path that is not a regular file is an error of the sidecar
        try:
            file.store.head(path)
        except NotFound:
            return None
    return None if open_tar(file, mmap=options.mmap).entry.wrap else path


def _check_sidecar(file: ShardFile, options: ReadOptions, sidecar: str) -> Iterator[Finding]:
    """Compare the sidecar with the headers. After the rows were read, damage of the tar itself is known."""
    try:
        open_reader(file, options).count_samples()
    except (DataError, StoreError) as error:
        if file.reported is None or error.file == sidecar:
            yield Finding.of(error)


# Layout


def _check_layout(tar: TarFile, options: ReadOptions) -> Iterator[Finding]:
    """Yield what makes random access slow. Without an index, this walks over the headers of a local tar only."""
    entry, source = tar.entry, tar.source
    size = format_bytes(entry.size_bytes)
    if entry.wrap:
        if entry.size_bytes > _LARGE_WRAP_BYTES:
            yield Finding(
                "compressed tars",
                measured=f"{size} of {entry.wrap}, at most {format_bytes(_LARGE_WRAP_BYTES)}",
                why="There is no random access: a single sample costs all bytes before it.",
                weight=entry.size_bytes,
                fix="copy",
            )
    elif source.index is None and is_remote(source.store):
        if entry.size_bytes > _LARGE_WALK_BYTES and read_idx(source.store, tar.path, entry.size_bytes) is None:
            yield Finding(
                "remote tar without an index",
                measured=f"{size} with neither .idx nor index, at most {format_bytes(_LARGE_WALK_BYTES)}",
                why="To count samples or to read one, all headers are fetched, a few a request.",
                weight=entry.size_bytes,
                fix="index",
            )
    elif source.view == "samples" and not options.regroup:
        yield from _split_samples(*(_fields_of(source.index) if source.index is not None else _walked(tar, options)))
    walked = not is_remote(source.store) and (not entry.wrap or entry.size_bytes <= _LARGE_WRAP_BYTES)
    if walked and find_behind(tar) is not None:
        yield Finding(
            "several tars in one file",
            measured="members behind the end of the first tar",
            why="Most readers, webdataset among them, stop at the first end. They miss the samples behind it.",
            weight=entry.size_bytes,
            fix="copy",
            read_options={"on_concatenated": "read"},
        )


def _split_samples(keys: pa.Array, sample: NDArray[np.int64], field: NDArray[np.int64]) -> Iterator[Finding]:
    """Yield keys that appear again with new fields. A key that appears again with an earlier field is another sample.

    Args:
        keys: keys of samples; neighbouring members of one key are a sample.
        sample: for each member, the number of its sample.
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
    measured = f"keys that return with further fields: {len(split):,}, such as {example!r}"
    if len(others):
        measured += f"; with the same fields: {len(others):,}, so samples cannot be joined by key alone"
    yield Finding(
        "samples in several pieces",
        measured=measured,
        why="Readers of tars join neighbours of one key. They return each piece as a sample that lacks fields.",
        weight=len(split),
        fix=None if len(others) else "copy",
        read_options={} if len(others) else {"regroup": True},
    )


def _fields_of(index: pa.Table) -> tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]:
    """Return the keys, and the sample and field of each member, by an index."""
    names = [name for name in index.column_names if name != KEY]
    there = [np.flatnonzero(index[name].is_valid().to_numpy()) for name in names]
    fields = [np.full(len(rows), number) for number, rows in enumerate(there)]
    nothing = np.zeros(0, np.int64)
    keys = index[KEY].combine_chunks()
    return keys, np.concatenate([nothing, *there]), np.concatenate([nothing, *fields])


def _walked(tar: TarFile, options: ReadOptions) -> tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]:
    """Return the same by the headers; nothing if no key appears again."""
    walk = Pass(tar, lower_case=options.lower_case, on_duplicate="error")
    for _ in walk.rows():
        pass
    again = Pass(tar, lower_case=options.lower_case, on_duplicate="error")
    rows = join_rows(again.held_rows() if walk.returning else [])
    return rows.keys, np.cumsum(rows.new) - 1, rows.field.astype(np.int64)
