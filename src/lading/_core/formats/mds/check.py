"""Checks of MDS shards: header against index, and the compressed copy of a shard against the shard.

The peer keeps a shard in two forms, as it was written and decompressed. Without `keep_zip` it deletes the compressed
file after decompressing it.

Source: mosaicml-streaming 0.13.0, base/stream.py.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import closing

import orjson

from lading._core.formats.base import ShardFile
from lading._core.formats.findings import Finding, Level
from lading._core.formats.mds.index import meta_name, parse_entry
from lading._core.formats.mds.reader import MdsReader, ReadOptions, parse_object, same_bytes
from lading.errors import CorruptShard, DataError, NotFound, SidecarMismatch, StoreError

__all__ = ["check_shard"]


def check_shard(file: ShardFile, options: ReadOptions, level: Level) -> Iterator[Finding]:
    """Yield where the header contradicts the index; with `DEEP`, where the compressed copy has other bytes.

    The peer keeps both forms with `keep_zip`. With `BESIDE`, yield the path of the other form.
    """
    if level is Level.BESIDE:
        copy = _find_compressed_copy(file)
        yield from () if copy is None else (Finding("", copy=copy),)
    if level in (Level.BESIDE, Level.LAYOUT):
        return
    if file.reported is not None and file.entry and not options.walk_lines:
        yield from _check_header(file, options)
    if level is Level.DEEP:
        yield from _check_compressed_copy(file)


def _check_header(file: ShardFile, options: ReadOptions) -> Iterator[Finding]:
    """Compare the JSON in a shard's header, or in its `.meta`, with the index. An empty header claims nothing.

    The peer writes the same there as in the index, and reads the index alone.
    """
    with closing(MdsReader(file, options)) as reader:
        path, offset, text = reader.header()
    header, entry = parse_object(text), orjson.loads(file.entry)
    if text and header is None:
        yield Finding.of(CorruptShard("the header of the shard is not a JSON object", file=path, offset=offset,
                                      expected="the same as in the index", found=repr(text[:40])))  # fmt: skip
    for name, value in (header or {}).items():
        if name not in entry or value != entry[name]:
            yield Finding.of(SidecarMismatch(
                f"the header of the shard differs from the index: {name[:40]!r}", file=path, offset=offset,
                expected=repr(entry.get(name))[:200], found=repr(value)[:200],
            ))  # fmt: skip


def _find_compressed_copy(file: ShardFile) -> str | None:
    """Return the path of a shard's other form, compressed or not; None if there is none."""
    ending = _ending(file)
    if not ending:
        return None
    raw = file.path.removesuffix(ending)
    path = raw if raw != file.path else raw + ending
    try:
        file.store.head(path)
    except NotFound:
        return None
    return path


def _check_compressed_copy(file: ShardFile) -> Iterator[Finding]:
    """Yield the first file of the other form whose content differs, or that cannot be compared."""
    copy, ending = _find_compressed_copy(file), _ending(file)
    if copy is None:
        return
    entry = parse_entry(file.entry, file.limits)
    files = [(entry.raw, copy), (entry.raw_meta, meta_name(copy, ending if copy.endswith(ending) else ""))]
    for listed, path in files:
        if listed is None:
            continue
        raw = path.removesuffix(ending)
        try:
            if not same_bytes(file, raw, raw + ending, entry.compression, listed):
                yield Finding.of(SidecarMismatch(
                    "the compressed and the decompressed form of the shard hold different bytes", file=path,
                    expected=f"those of {raw if path != raw else raw + ending}",
                ))  # fmt: skip
                return
        except NotFound:
            continue
        except (DataError, StoreError) as error:
            yield Finding.of(error.at(file=path))
            return


def _ending(file: ShardFile) -> str:
    """Return the ending of the compressed form's name; empty if there is no such form."""
    entry = parse_entry(file.entry, file.limits) if file.entry else None
    return "" if entry is None or entry.packed is None else posixpath.splitext(entry.packed.name)[1]
