"""Shards that lie there in two forms: compressed as they were written, and unpacked as the peer reads them.

Source: mosaicml-streaming 0.13.0, base/stream.py: without `keep_zip` the compressed file goes when it is unpacked.
"""

from __future__ import annotations

import posixpath

from lading.errors import DataError, LadingError, NotFound, SidecarMismatch, StoreError
from lading.formats.base import ShardFile
from lading.formats.mds.index import meta_name, parse_entry
from lading.formats.mds.reader import same_bytes

__all__ = ["compressed_copy_of", "wrong_compressed_copy"]


def compressed_copy_of(source: ShardFile) -> str | None:
    """Path of the other form of a shard; None if it has none, or there is none. Raises DataError, StoreError."""
    ending = _ending(source)
    if not ending:
        return None
    raw = source.path.removesuffix(ending)
    path = raw if raw != source.path else raw + ending
    try:
        source.store.head(path)
    except NotFound:
        return None
    return path


def wrong_compressed_copy(source: ShardFile) -> LadingError | None:
    """The files of the other form, if they are there and do not hold what those of a shard do that can be read.

    Where they cannot be compared, for what it would take to unpack them, that is told.
    """
    twin, ending = compressed_copy_of(source), _ending(source)
    if twin is None:
        return None
    entry = parse_entry(source.entry, source.limits)
    files = [(entry.raw, twin), (entry.raw_meta, meta_name(twin, ending if twin.endswith(ending) else ""))]
    for told, path in files:
        if told is None:
            continue
        raw = path.removesuffix(ending)
        try:
            if not same_bytes(source, raw, raw + ending, entry.compression, told):
                return SidecarMismatch("the two forms of a shard, compressed and not, hold different bytes", file=path,
                                       expected=f"those of {raw if path != raw else raw + ending}")  # fmt: skip
        except NotFound:
            continue
        except (DataError, StoreError) as error:
            return error.at(file=path)
    return None


def _ending(source: ShardFile) -> str:
    """What the name of the compressed form ends with; empty if there is no such form."""
    entry = parse_entry(source.entry, source.limits) if source.entry else None
    return "" if entry is None or entry.packed is None else posixpath.splitext(entry.packed.name)[1]
