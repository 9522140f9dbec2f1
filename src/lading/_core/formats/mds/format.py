"""MDS, the format of MosaicML Streaming, and its split formats (json, csv, tsv, xsv).

    dataset   a folder with `index.json` (`_core.formats.mds.index`) and its shards, perhaps compressed as a whole
    shard     uint32 n, uint32 offset[n + 1], JSON of the columns, samples; offsets are absolute
    sample    `_core.formats.mds.samples`
    split     a file of lines (`_core.formats.mds.lines`), and `.meta`: uint32 n, uint32 offset[n + 1], JSON

Columns of numbers are numbers, columns of text are text. Other values (bytes, images, arrays, lists, pickles) are
references to their place, and become bytes, tagged with their MDS encoding (`lading.features.Encoded`), from which
`ds[i]` makes Python values. Counts, sizes and columns are checked against the index, hashes too with `verify`. A
compressed shard is decompressed in memory when it is opened; offsets never count in the compressed file. A decompressed
copy next to a compressed shard is read instead of it. Reading writes no files.

Written shards have the peer's bytes (`writer.py`). Split formats are read, not written.

A single shard (`shard.00000.mds`) opens by its own header; a shard of a split format needs its index.

Source: mosaicml-streaming 0.13.0, base/format.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa

from lading._core.features.row_layout import row_layout
from lading._core.formats.base import Recovered, ShardFacts, ShardFile, map_file
from lading._core.formats.dataset_index import DatasetIndex, JoinedIndex, ListedShard
from lading._core.formats.findings import Finding, Level
from lading._core.formats.format import Format, FormatInfo, Written
from lading._core.formats.mds.check import check_shard
from lading._core.formats.mds.files import WriteOptions, files_named, joined_entries, named, save_index, write_index
from lading._core.formats.mds.index import (
    COMPRESSIONS,
    INDEX_NAME,
    KINDS,
    EntryFile,
    MDSEntry,
    list_mds,
    parse_entry,
    read_mds_index,
)
from lading._core.formats.mds.nulls import marks_of
from lading._core.formats.mds.reader import MdsReader, ReadOptions
from lading._core.formats.mds.recover import recover_samples
from lading._core.formats.mds.stored_schema import written_schema
from lading._core.formats.mds.writer import MdsWriter, asked_fields, rounded_columns
from lading._core.storage.base import Sink, Store
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = [
    "FORMAT",
    "EntryFile",
    "MDSEntry",
    "MdsFormat",
    "MdsReader",
    "MdsWriter",
    "ReadOptions",
    "WriteOptions",
    "files_named",
    "joined_entries",
    "parse_entry",
    "read_mds_index",
    "save_index",
    "written_schema",
]


class MdsIndex(DatasetIndex):
    """`index.json`, which has the columns, files and sizes of each shard."""

    names: ClassVar = {INDEX_NAME: ".*"}
    unlisted = tuple(f".{kind}{end}" for kind in KINDS[1:] for end in ("", *map(".{}".format, COMPRESSIONS)))

    def shards(self, store: Store, path: str, head: bytes, limits: Limits = DEFAULT_LIMITS) -> list[ListedShard] | None:
        """Return the shards of an `index.json`."""
        return list_mds(store, path, head, limits)

    def write(
        self, store: Store, folder: str, shards: Sequence[tuple[str, ShardFacts]], options: WriteOptions | None
    ) -> list[str]:
        """Write `index.json`."""
        return write_index(store, folder, shards)

    def join(self, store: Store, folder: str, parts: Sequence[str], limits: Limits = DEFAULT_LIMITS) -> JoinedIndex:
        """Read the `index.json` of each part."""
        entries = joined_entries(store, folder, parts, limits)
        files = [name for entry in entries for name in files_named(entry)]
        samples = sum(entry["samples"] for entry in entries)
        return JoinedIndex(len(entries), samples, files, partial(save_index, store, folder, entries))

    def renamed(self, entry: str, name: str) -> tuple[str, list[str]]:
        """Return the entry with files of this name, as a writer makes it: unpacked, packed and `.meta` files."""
        changed = named(json.loads(entry), name)
        return json.dumps(changed, sort_keys=True), files_named(changed)


class MdsFormat(Format[ReadOptions, WriteOptions]):
    """MDS datasets, split formats included."""

    info = FormatInfo(
        name="mds",
        extensions=(".mds", ".mds.br", ".mds.bz2", ".mds.gz", ".mds.snappy", ".mds.zstd"),
        read_options=ReadOptions,
        write_options=WriteOptions,
        leftovers=r"shard\.\d+\.(?:json|csv|tsv|xsv)(?:\.meta)?(?:\.(?:br|bz2|gz|snappy|zstd))?",
        interleaved="packed",
        self_contained=True,
        restores_types=True,
        shard_name="shard.{:05d}",
    )
    index = MdsIndex()

    def open(self, file: ShardFile, options: ReadOptions) -> MdsReader:
        """Open a shard; read its head, and all of it if it is compressed.

        Raises:
            CorruptShard, SidecarMismatch: it is damaged, or contradicts the index.
        """
        return MdsReader(file, options)

    def written(self, schema: pa.Schema, options: WriteOptions) -> Written:
        """Return the columns whose encodings are asked for, and those of floats that are rounded for them."""
        encodings = options.columns or {}
        return Written(asked_fields=asked_fields(encodings), reduced_columns=rounded_columns(schema, encodings))

    def schema_as_read(self, schema: pa.Schema, options: ReadOptions, *, restored: bool) -> pa.Schema:
        """Return the columns without dictionaries and views, bytes and arrays as large_binary."""
        return written_schema(schema) if restored else schema

    def endings(self, options: WriteOptions) -> tuple[str]:
        """Return `.mds`, and the ending of the compression."""
        return (f".mds{options.ending}",)

    def checks(self, file: ShardFile, options: ReadOptions, level: Level) -> Iterator[Finding]:
        """Yield where the header contradicts the index, and the compressed copy, or that it has other bytes."""
        return check_shard(file, options, level)

    def create(self, sinks: Sequence[Sink], schema: pa.Schema, options: WriteOptions) -> MdsWriter:
        """Create a shard of MDS, which is written when it is closed.

        Raises:
            UsageError: an encoding for a column that is not there.
            Unrepresentable: a column without an MDS encoding.
        """
        return MdsWriter(sinks[0], schema, options)

    def recover(
        self, file: ShardFile, options: ReadOptions, *, schema: pa.Schema | None = None, failed: bool = True
    ) -> Recovered | None:
        """Return the samples that are whole (`mds/recover.py`); None for lines, which are read one by one."""
        if file.entry and parse_entry(file.entry, file.limits).config.format != self.name:
            return None
        return recover_samples(map_file(file), file)

    def options_like(self, source: ShardFile, view: str) -> dict[str, Any]:
        """Return the compression by the ending; by index or header, the columns with null masks.

        Items that are packed into samples have no columns to mark.

        Raises:
            CorruptShard, SidecarMismatch: as `open_shard`, for a shard without an index.
        """
        ending = posixpath.splitext(source.path)[1][1:]
        found: dict[str, Any] = {"compression": ending} if ending in COMPRESSIONS else {}
        if source.entry:
            config = parse_entry(source.entry, source.limits).config
        else:
            with closing(self.open(source, ReadOptions())) as reader:
                config = reader.config
        marked = list(marks_of(config.columns))
        return {**found, "nulls": marked} if marked and row_layout(view).types_by_format else found


FORMAT = MdsFormat()
"""The format that the registry loads."""
