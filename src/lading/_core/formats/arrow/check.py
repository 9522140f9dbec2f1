"""Checks of Arrow files and streams: layout, footer, external videos, and the columns that a dataset's index lists.

    dataset_info.json   {"features": {name: feature}, …} next to a `state.json`, which lists no columns itself. datasets
                        refuses a folder whose files have columns of other types, or that lacks this file.
    _metadata.json      `lading`: {"features": …} in caches that lading wrote; the peer's caches have a hash of features
                        that files cannot confirm

`splits` in the `dataset_info.json` of a saved dataset is not checked: datasets writes the counts of the builder there,
whatever was selected, filtered or joined since.

Source: datasets 5.2.0 arrow_dataset.py (`Dataset.__init__`, `save_to_disk`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.ipc import ROWS
from lading._core.arrow.views import same_values
from lading._core.features.huggingface import may_hold
from lading._core.formats.arrow.assets import with_assets, wrong_assets
from lading._core.formats.arrow.blocks import ArrowFile, Blocks, find_blocks
from lading._core.formats.arrow.decode import Decoder
from lading._core.formats.arrow.index import (
    CACHE_INDEX,
    INFO_NAME,
    STATE_INDEX,
    features_beside,
    listed_schema,
    schema_of_shard,
)
from lading._core.formats.arrow.listed import check_footer
from lading._core.formats.arrow.places import arrays_of
from lading._core.formats.arrow.reader import ArrowReader, ReadOptions
from lading._core.formats.base import Scan, ShardFile
from lading._core.formats.findings import Finding, Level
from lading._core.formats.layout_findings import NEAR_BYTES, large_strings, large_unit
from lading._core.storage.base import Store
from lading._core.storage.index_json import as_text
from lading.errors import DataError, NotFound, SidecarMismatch, StoreError
from lading.limits import Limits

__all__ = ["check_index_columns", "check_shard", "find_layout_findings", "longest_column"]

_MOST_COMPRESSED = 64
_SIZE_BYTES = 8
_VIDEO_ROWS, _VIDEO_BYTES = 4096, 16 << 20


def check_shard(file: ShardFile, options: ReadOptions, level: Level) -> Iterator[Finding]:
    """Yield layout findings by the headers of messages; or a footer that contradicts them, and external videos."""
    if level is Level.BESIDE:
        return
    if level is not Level.LAYOUT:
        with suppress(DataError, StoreError):  # reading the shard reports it
            yield from _by_blocks(file, options, check_footer)
        yield from _check_videos(file, options, deep=level is Level.DEEP)
        return
    yield from _by_blocks(file, options, find_layout_findings)


def _by_blocks(
    file: ShardFile, options: ReadOptions, check: Callable[[Blocks, pa.Schema], Iterable[Finding]]
) -> Iterator[Finding]:
    with closing(ArrowFile(file, mmap=options.mmap)) as body:
        blocks = find_blocks(body, unended=options.unended)
        with closing(Decoder(blocks)) as decoder:
            yield from check(blocks, decoder.schema)


def _check_videos(file: ShardFile, options: ReadOptions, *, deep: bool) -> Iterator[Finding]:
    """Compare external videos with their cells: name and size; the checksum too if `deep`.

    Reading reports damage of the shard itself. Videos of rows before the damage are checked.
    """
    with suppress(DataError, StoreError), closing(ArrowReader(file, replace(options, load_assets=False))) as reader:
        names, first = with_assets(reader.schema()), 0
        if names:
            yield Finding("", checked="videos")
            for batch in reader.batches(Scan(names, max_rows=_VIDEO_ROWS, max_bytes=_VIDEO_BYTES)):
                yield from map(Finding.of, wrong_assets(file, batch, first, deep=deep))
                first += len(batch)


# Layout


def find_layout_findings(blocks: Blocks, schema: pa.Schema) -> list[Finding]:
    """Return large record batches, and long columns of 32-bit strings. Of compressed batches, look at the largest."""
    rows = blocks.find_all()
    sizes = np.array([block.body_bytes for block in blocks.batches], np.int64)
    largest = np.argsort(-sizes, kind="stable")[:_MOST_COMPRESSED]
    if len(sizes) and _buffer_bytes(blocks, int(largest[0]))[1]:
        sizes[largest] = [int(_buffer_bytes(blocks, number)[0].sum()) for number in largest.tolist()]
    found = large_unit("record batch", sizes, rows)
    for number in np.flatnonzero(sizes > NEAR_BYTES).tolist()[:1]:
        column, size = longest_column(blocks, number, schema)
        found += large_strings(f"record batch {number}", column, size)
    return found


def _buffer_bytes(blocks: Blocks, number: int) -> tuple[NDArray[np.int64], bool]:
    """Return the uncompressed size of each buffer of a record batch, and whether the buffers are compressed.

    A compressed buffer begins with its uncompressed size, in eight bytes.
    """
    block = blocks.batches[number]
    [head] = blocks.body.peek_each(np.array([block.offset]), np.array([block.meta_bytes]))
    message = blocks.parse(block, head, ROWS)
    assert message.buffers is not None
    size = message.buffers["length"].astype(np.int64)
    if not message.codec:
        return size, False
    compressed = np.flatnonzero(size >= _SIZE_BYTES)
    places = block.offset + block.meta_bytes + message.buffers["offset"][compressed].astype(np.int64)
    heads = blocks.body.peek_each(places, np.full(len(compressed), _SIZE_BYTES))
    stored = np.frombuffer(b"".join(heads), "<i8")
    size[compressed] = np.where(stored < 0, size[compressed] - _SIZE_BYTES, stored)  # -1: the buffer is stored as is
    return size, True


def longest_column(blocks: Blocks, number: int, schema: pa.Schema) -> tuple[str, int]:
    """Return the column of a record batch with the most bytes behind 32-bit offsets, and how many."""
    sizes, _ = _buffer_bytes(blocks, number)
    found, at = ("", 0), 0
    for field in schema:
        for buffers in arrays_of(field.type):
            if buffers is None:
                return found
            for behind in buffers:
                if behind and at < len(sizes) and int(sizes[at]) > found[1]:
                    found = (field.name, int(sizes[at]))
                at += 1
    return found


# Indexes


def check_index_columns(store: Store, path: str, shards: Sequence[str], limits: Limits) -> Iterator[Finding]:
    """Compare the columns in an index, or in `dataset_info.json` next to it, with the first readable shard.

    A saved dataset must have `dataset_info.json`. Opening a shard compares it with the first one.

    Raises:
        DataError, StoreError: the index cannot be read.
    """
    if posixpath.basename(path) != CACHE_INDEX:
        missing = list(_missing_infos(store, path, shards))
        if missing:
            yield from missing
            return
    found = _first_schema(store, shards, limits)
    if found is None:
        return
    shard, schema = found
    if posixpath.basename(path) == CACHE_INDEX:
        listed = listed_schema(store, path, limits)
        if listed is not None:
            yield from _differing(schema, {field.name: field.type for field in listed}, shard, path)
        return
    folder = posixpath.dirname(path if posixpath.basename(path) == STATE_INDEX else shard)
    features = features_beside(store, folder, limits)
    if features is not None:
        yield from _differing(schema, features, shard, posixpath.join(folder, INFO_NAME))


def _missing_infos(store: Store, path: str, shards: Sequence[str]) -> Iterator[Finding]:
    """Yield saved datasets without the file that lists their features."""
    own = [posixpath.dirname(path)] if posixpath.basename(path) == STATE_INDEX else []
    for folder in dict.fromkeys([*own, *map(posixpath.dirname, shards)]):
        info = posixpath.join(folder, INFO_NAME)
        try:
            store.head(info)
        except NotFound:
            yield Finding.of(SidecarMismatch(
                f"the folder has no {INFO_NAME}, without which datasets does not open it", file=info,
                expected=f"the features of the files in {STATE_INDEX}",
            ))  # fmt: skip


def _first_schema(store: Store, shards: Sequence[str], limits: Limits) -> tuple[str, pa.Schema] | None:
    for shard in shards:
        with suppress(DataError, StoreError):  # reading the shard reports it
            return shard, schema_of_shard(store, shard, limits)
    return None


def _differing(schema: pa.Schema, listed: Mapping[str, Any], shard: str, index: str) -> Iterator[Finding]:
    for name in dict.fromkeys([*schema.names, *listed]):
        stored = schema.field(name).type if name in schema.names else None
        if stored is not None and name in listed and _fits(stored, listed[name]):
            continue
        yield Finding.of(SidecarMismatch(
            f"the column in the index differs from that of {shard}", file=index, column=name,
            expected=None if stored is None else str(stored),
            found=_spelled(listed[name]) if name in listed else None,
        ))  # fmt: skip


def _fits(kind: pa.DataType, feature: Any) -> bool:
    return same_values(kind, feature) if isinstance(feature, pa.DataType) else may_hold(kind, feature)


def _spelled(feature: Any) -> str:
    return str(feature) if isinstance(feature, pa.DataType) else as_text(feature)[:200]
