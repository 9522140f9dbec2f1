"""Checks of tars: the `.tar.idx`, members behind the end of the archive, and layout findings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np

from lading._core.features.row_layout import row_layout
from lading._core.formats.base import ShardFile
from lading._core.formats.findings import Finding, Level
from lading._core.formats.webdataset.header_walk import RETURNING, Pass
from lading._core.formats.webdataset.index import read_idx, samples_behind, samples_listed, sidecar_path
from lading._core.formats.webdataset.pieces import Pieces, in_pieces, pieces_by_headers, pieces_by_index
from lading._core.formats.webdataset.reader import ReadOptions
from lading._core.formats.webdataset.samples import KEY
from lading._core.formats.webdataset.stored_types import open_reader
from lading._core.formats.webdataset.walk import (
    CONCATENATED,
    LONE_END,
    NO_END,
    TarFile,
    behind_end,
    find_behind,
    find_open_end,
    open_tar,
)
from lading._core.storage.concurrent import is_remote
from lading._core.storage.stores import without_query
from lading._core.units import format_bytes
from lading.errors import DataError, NotFound, StoreError

__all__ = ["check_shard"]

_LARGE_WRAP_BYTES = 8 << 20
"""Decompressing a larger tar for one sample takes longer than a request to a store (50 ms)."""

_LARGE_WALK_BYTES = 8 << 20
"""Reading a larger remote tar for one sample takes longer than a request. A walk over the headers of a local tar takes
milliseconds."""


def check_shard(file: ShardFile, options: ReadOptions, level: Level) -> Iterator[Finding]:
    """Yield layout findings; or what the `.tar.idx` of a damaged tar lists; or what reading rows does not raise."""
    if level is Level.BESIDE:
        listed = samples_listed(file.store, file.path, file.limits)
        yield from () if listed is None else (Finding("", listed_samples=listed),)
        return
    tar = open_tar(file, mmap=options.mmap, on_concatenated=options.on_concatenated)
    yield from _check_layout(tar, options) if level is Level.LAYOUT else _check_rest(tar, file, options)


def _check_rest(tar: TarFile, file: ShardFile, options: ReadOptions) -> Iterator[Finding]:
    """Yield problems of the `.tar.idx`, of the end of the archive, and of samples in pieces."""
    # Documents that were read by an index were counted without the end of the tar.
    of_items = row_layout(file.view).has_items
    if CONCATENATED in (file.reported or {}) or (of_items and file.index is not None):
        yield from (Finding.of(error) for error in [find_behind(tar)] if error is not None)
    if NO_END in (file.reported or {}):
        yield from (Finding.of(error) for error in [find_open_end(tar)] if error is not None)
    if RETURNING in (file.reported or {}) and not options.regroup:
        yield from _in_pieces(tar, pieces_by_headers(tar, lower_case=options.lower_case))
    walked = file.index if file.reported is None and not options.regroup else None
    if walked is not None and KEY in walked.column_names:
        yield from _in_pieces(tar, pieces_by_index(walked))
    sidecar = _find_sidecar(file, options)
    if sidecar is not None:
        yield Finding("", checked="sidecars")
        if file.reported is None or of_items:  # reading samples compares the sidecar
            yield from _check_sidecar(replace(file, index=None), options, sidecar)
    if LONE_END in (file.reported or {}):
        error = behind_end(tar)
        if error is not None:
            yield Finding.of(error)


def _in_pieces(tar: TarFile, pieces: Pieces | None) -> Iterator[Finding]:
    if pieces is not None:
        yield Finding.of(in_pieces(tar.path, pieces))


def _find_sidecar(file: ShardFile, options: ReadOptions) -> str | None:
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
        if error.file == sidecar:
            lost = _cut_off(file, options)
            yield Finding(error.message, error, checked="sidecars", lost_samples=lost)
        elif file.reported is None:
            yield Finding.of(error)


def _cut_off(file: ShardFile, options: ReadOptions) -> int:
    """Return how many samples a longer `.tar.idx` lists after those of the tar; 0 for a tar that cannot be read."""
    with suppress(DataError, StoreError):
        tar = open_tar(file, mmap=options.mmap, on_concatenated=options.on_concatenated)
        walk = Pass(tar, lower_case=options.lower_case, on_duplicate=options.on_duplicate)
        starts = np.concatenate([np.zeros(0, np.int64), *(rows.start[rows.new] for rows in walk.rows())])
        return samples_behind(file.store, file.path, starts, walk.end, file.limits)
    return 0


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
    elif not row_layout(source.view).has_items and not options.regroup:
        yield from _split_samples(_pieces(tar, options) if source.index is None else pieces_by_index(source.index))
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


def _pieces(tar: TarFile, options: ReadOptions) -> Pieces | None:
    """Find samples in several pieces, holding keys only if some return."""
    walk = Pass(tar, lower_case=options.lower_case, on_duplicate="error")
    for _ in walk.rows():
        pass
    return pieces_by_headers(tar, lower_case=options.lower_case) if walk.returning else None


def _split_samples(pieces: Pieces | None) -> Iterator[Finding]:
    """Yield that members of a sample do not stand together, if so."""
    if pieces is None:
        return
    measured = f"keys that return with further fields: {pieces.keys:,}, such as {pieces.example!r}"
    if pieces.others:
        measured += f"; with the same fields: {pieces.others:,}, so samples cannot be joined by key alone"
    yield Finding(
        "samples in several pieces",
        measured=measured,
        why="Readers of tars join neighbours of one key. They return each piece as a sample that lacks fields.",
        weight=pieces.keys,
        fix=None if pieces.others else "copy",
        read_options={} if pieces.others else {"regroup": True},
    )
