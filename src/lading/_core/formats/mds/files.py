"""What writing MDS shards needs besides samples: options, files, `index.json`.

Source: mosaicml-streaming 0.13.0, base/format/base/writer.py and base/compression.py.
"""

from __future__ import annotations

import bz2
import gzip
import json
import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import orjson
import pyarrow as pa
import zstandard
from numpy.typing import NDArray

from lading._core.arrow.byte_ranges import ByteRanges
from lading._core.codecs import new_hash, pack_snappy
from lading._core.formats.base import ShardFacts
from lading._core.formats.mds.index import (
    INDEX_NAME,
    MDSColumn,
    meta_name,
    parse_config,
    read_mds_index,
)
from lading._core.formats.mds.nulls import check_nulls
from lading._core.storage.base import Buffer, Sink, Store, extents_of, write_file, writes_behind
from lading._core.units import parse_bytes
from lading.errors import DataError, Unrepresentable, UsageError, errors_at
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = [
    "MAX_BYTES",
    "OutFile",
    "WriteOptions",
    "columns_as",
    "files_named",
    "joined_entries",
    "named",
    "save_index",
    "write_index",
]

MAX_BYTES = (1 << 32) - 1
"""Largest file of a shard: its offsets are numbers of 32 bits."""

_LEVELS = {"br": (0, 11, 11), "bz2": (1, 9, 9), "gz": (0, 9, 9), "snappy": (1, 0, 0), "zstd": (1, 3, 22)}
"""Lowest, usual and highest level of each compression; snappy has none."""
_COMPRESSIONS = {*_LEVELS, *(f"{name}:{n}" for name, (low, _, high) in _LEVELS.items() for n in range(low, high + 1))}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How shards are written.

    Attributes:
        columns: MDS encodings by column, as in `{"label": "int", "image": "jpeg"}`: every one that MosaicML has, but
            `pkl`. Values are encoded as MosaicML does, numbers in the named width. By default types and features
            decide.
        compression: Compression of whole shards: `br`, `bz2`, `gz`, `snappy` or `zstd`, with a level as in `zstd:7`. By
            default none. Only plain shards can be mapped.
        hashes: Hashes of each file in the index, such as `sha1` or `xxh64`.
        size_limit: A new shard begins before a sample that would exceed this size; below 4 GiB.
        nulls: Nulls are an `error`; `mask` marks them in an extra column for every column that may be null; a list of
            columns marks only those.
    """

    INSTEAD: ClassVar = {"kind": "MDS is written as `mds`; its kinds json, csv, tsv and xsv are read. Write lines with "
                         "--to jsonl or --to csv."}  # fmt: skip
    """Advice for options that are not there."""

    columns: Mapping[str, str] | None = None
    compression: str | None = None
    hashes: Sequence[str] = ()
    size_limit: int | str | None = "64MB"
    nulls: str | Sequence[str] = "error"

    def __post_init__(self) -> None:
        """Refuse invalid values."""
        if not (self.compression is None or (isinstance(self.compression, str) and self.compression in _COMPRESSIONS)):
            raise UsageError("no such compression", expected=", ".join(f"{f}[:{a}-{b}]" if a < b else f for f, (a, _, b)
                             in _LEVELS.items()), found=f"compression={self.compression!r}")  # fmt: skip
        if isinstance(self.hashes, str) or not isinstance(self.hashes, Sequence):
            raise UsageError("hashes are a list of names", expected='["sha1"]', found=f"hashes={self.hashes!r}")
        if not (self.columns is None or isinstance(self.columns, Mapping)):
            raise UsageError(
                "columns must map names to encodings", expected='{"label": "int"}', found=f"columns={self.columns!r}"
            )
        for name in self.hashes:
            _check_hash(name)
        if self.limit_bytes is not None and not 0 < self.limit_bytes <= MAX_BYTES:
            raise UsageError("not a size of a shard", expected="below 4 GiB", found=f"size_limit={self.size_limit!r}")
        check_nulls(self.nulls)

    @property
    def limit_bytes(self) -> int | None:
        """Return the limit as a number."""
        return None if self.size_limit is None else parse_bytes(self.size_limit)

    @property
    def most_bytes(self) -> int:
        """Return the size at which a shard ends, compressed or not; readers hold a compressed shard in memory."""
        most = MAX_BYTES if self.compression is None else min(MAX_BYTES, DEFAULT_LIMITS.shard_bytes)
        return min(self.limit_bytes or most, most)

    @property
    def ending(self) -> str:
        """Return the ending of the names of compressed files."""
        return "" if self.compression is None else "." + self.compression.split(":")[0]

    def config(self) -> dict[str, Any]:
        """Return these options as part of a shard's entry in the index."""
        return {
            "version": 2, "format": "mds", "compression": self.compression, "hashes": sorted(self.hashes),
            "size_limit": self.limit_bytes,
        }  # fmt: skip


def _check_hash(name: object) -> None:
    """Raise UsageError for an unknown hash."""
    if not isinstance(name, str):
        raise UsageError("the name of a hash is a text", expected='["sha1"]', found=f"hashes=[{name!r}]")
    try:
        new_hash(name)
    except DataError as error:
        raise UsageError("no such hash", expected=error.expected, found=f"hashes=[{name!r}]") from None


def columns_as(
    schema: pa.Schema, options: WriteOptions, natural: Callable[[pa.Field], str]
) -> list[tuple[pa.Field, MDSColumn]]:
    """Return fields and columns of a shard of these rows, sorted by name.

    Args:
        schema: schema of the rows.
        options: with the requested encodings.
        natural: returns the default encoding of a field.

    Raises:
        Unrepresentable: two columns have one name; and as `natural` raises.
        UsageError: an encoding for a missing column.
        DataError: an unknown encoding.
    """
    asked = options.columns or {}
    for name in asked:
        if name not in schema.names:
            raise UsageError("an encoding is given for a missing column", column=name,
                             expected=", ".join(schema.names))  # fmt: skip
    if len(set(schema.names)) < len(schema.names):
        raise Unrepresentable("two columns have one name", column=next(n for n in schema.names
                              if schema.names.count(n) > 1))  # fmt: skip
    fields = sorted(schema, key=lambda field: field.name)
    encodings = {field.name: asked.get(field.name) or natural(field) for field in fields}
    described = {"format": "mds", "column_names": [*encodings], "column_encodings": [*encodings.values()]}
    return list(zip(fields, parse_config(described, natural=True).columns, strict=True))


class OutFile:
    """A file of a shard being written: written through, or held completely if it is to be compressed.

    Args:
        sink: the output.
        options: its compression and hashes.

    Attributes:
        size_bytes: bytes written so far, before compression.
        takes_ranges: whether values may be copied from files.
        packs: whether the file is compressed.
    """

    def __init__(self, sink: Sink, options: WriteOptions) -> None:
        self.size_bytes = 0
        self.packs = options.compression is not None
        self._tried: tuple[int, float] = (0, 1.0)
        self.takes_ranges = writes_behind(sink) and options.compression is None and not options.hashes
        self._sink, self._options, self._extents = sink, options, extents_of(sink)
        self._hashes = {name: new_hash(name) for name in options.hashes}
        self._held: list[Buffer] = []
        if options.compression == "snappy":
            pack_snappy(b"")  # a missing package is reported before any work is lost

    def write(self, data: Buffer) -> None:
        """Append bytes; they must stay unchanged until `close`."""
        self.size_bytes += memoryview(data).nbytes
        for each in self._hashes.values():
            each.update(data)
        if self._options.compression is None:
            self._sink.write([data])
        else:
            self._held.append(data)

    def packed_share(self, raw_bytes: int, last: Callable[[], bytes]) -> float:
        """Return the estimated share of its bytes that a file takes when it is compressed, as a trial of it tells.

        Args:
            raw_bytes: size of the file before compression. A trial holds until the file has twice that size.
            last: returns some of its bytes.
        """
        at, share = self._tried
        if self._options.compression is not None and raw_bytes >= 2 * at:
            data = last()
            share = len(_compress(self._options.compression, data)) / len(data) if data else share
            self._tried = (raw_bytes, share)
        return share

    def mark(self, ends: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Mark the ends of rows in the uncompressed file (`ExtentSums.mark` of `_core.storage.extents`)."""
        if self._options.compression is None:
            self._extents.mark(ends, rows)

    def write_pieces(self, pieces: ByteRanges) -> None:
        """Append byte ranges; their sources must stay unchanged until the sink is closed."""
        if self.takes_ranges and writes_behind(self._sink):
            self._sink.write_pieces(pieces)
            self.size_bytes += int(pieces.length.sum())
        else:
            self.write(b"".join(view for view in pieces.views() if view is not None))

    def close(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Finish the file; return its index entries, uncompressed and compressed, without names (see `named`)."""
        raw = {"bytes": self.size_bytes, "hashes": {name: each.hexdigest() for name, each in self._hashes.items()}}
        if self._options.compression is None:
            return raw, None
        packed = _compress(self._options.compression, b"".join(self._held))
        self._held = []
        self._sink.write([packed])
        return raw, {"bytes": len(packed), "hashes": {name: _digest(name, packed) for name in self._hashes}}


def _digest(name: str, data: bytes) -> str:
    taken = new_hash(name)
    taken.update(data)
    return taken.hexdigest()


def _compress(compression: str, data: bytes) -> bytes:
    """Return the bytes of a compressed file; gzip without a time, so that equal data give equal files."""
    family, _, level_text = compression.partition(":")
    level = int(level_text) if level_text else _LEVELS[family][1]
    packers: dict[str, Callable[[], Any]] = {
        "br": lambda: pa.Codec("brotli", level).compress(data, asbytes=True),
        "bz2": lambda: bz2.compress(data, level),
        "gz": lambda: gzip.compress(data, level, mtime=0),
        "snappy": lambda: pack_snappy(data),
        # Threads change the bytes; the peer's reader needs the content size.
        "zstd": lambda: zstandard.ZstdCompressor(level=level, threads=1).compress(data),
    }
    return bytes(packers[family]())


def named(entry: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an entry of the index, its files named after the shard's own, relative to the folder."""
    ending = "" if entry["compression"] is None else "." + entry["compression"].split(":")[0]
    for own, raw in (("data", name.removesuffix(ending)), ("meta", meta_name(name, ending).removesuffix(ending))):
        for key, called in ((f"raw_{own}", raw), (f"zip_{own}", raw + ending)):
            if entry.get(key):
                entry[key]["basename"] = called
    return entry


def joined_entries(
    store: Store, folder: str, parts: Sequence[str], limits: Limits = DEFAULT_LIMITS
) -> list[dict[str, Any]]:
    """Return the shards in the indexes of subfolders, with names relative to the parent folder.

    Raises:
        DataError: a part's index is broken, or of another format.
    """
    entries: list[dict[str, Any]] = []
    for part in parts:
        path = f"{folder}/{part}/{INDEX_NAME}"
        listed = read_mds_index(store, path, limits)
        if listed is None:
            raise DataError("the file is not an index of MDS", file=path)
        for shard in listed:
            entry = orjson.loads(shard.entry)
            for file in _files(entry):
                # All folders between, not only the last one: parts of two may have one name.
                file["basename"] = f"{part}/{file['basename']}"
            entries.append(entry)
    return entries


def files_named(entry: Mapping[str, Any]) -> list[str]:
    """Return the files of a shard in its entry, compressed and not."""
    return [file["basename"] for file in _files(entry)]


def _files(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [entry[key] for key in ("raw_data", "zip_data", "raw_meta", "zip_meta") if entry.get(key)]


def save_index(store: Store, folder: str, entries: Sequence[Mapping[str, Any]]) -> str:
    """Write an `index.json` of these entries; return its path."""
    place = posixpath.join(folder, INDEX_NAME)
    write_file(store, place, [json.dumps({"version": 2, "shards": entries}, sort_keys=True).encode()])
    return place


def write_index(store: Store, folder: str, shards: Sequence[tuple[str, ShardFacts]]) -> list[str]:
    """Write `index.json` for a folder of finished shards; return its path."""
    entries = []
    for path, facts in shards:
        with errors_at(file=path):
            entry = orjson.loads(facts.entry)
        entries.append(named(entry, path.removeprefix(folder.rstrip("/") + "/")))
    return [save_index(store, folder, entries)]
