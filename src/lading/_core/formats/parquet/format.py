"""Parquet: columns in row groups, pages in columns, and a footer that says where they are.

    "PAR1"
    row group 0      column chunk 0: [dictionary page] data page, data page …   column chunk 1 …
    row group 1 …
    [column indexes, offset indexes]
    footer           Thrift FileMetaData: schema, row groups, column chunks, key-value metadata
    uint32           length of the footer
    "PAR1"

pyarrow reads and writes the pages, except pages of large values that are read as views
(`_core.formats.parquet.payload`). This package decides how much at a time. Reading holds one batch and its last page,
never a row group: a file of one 5 GB row group takes no more memory than one of many small ones. Writing sizes row
groups in bytes and pages so that no reader has to hold more than about 1 MiB of media to get at one value.

How pyarrow 26 is used here, and why. Seconds to read 0.93 GB of images in pages of 1 MiB, on one of 2 cores, page cache
warm, where a plain copy takes 0.5:

- `pre_buffer=False`, 256 KiB of buffer a column: 0.12. Over a memory map 0.17, since touching fresh pages costs more
  than `pread` into memory that stays in the processor's cache, and maps count as resident memory. So `mmap` is off.
- Decoding with two threads gains nothing, the work being copies; and there must be no thread pool before a fork.
- Steps of 2 MB 0.12, of 6 MB 0.15, of 24 MB 0.18: `large_binary` grows by doubling, into fresh memory. With jemalloc
  the same takes 0.45. Views do not grow and take 0.12 with any step and pool.
- Page checksums: nothing where the file has none, 0.2 where it has; they are verified. To write them would take as
  long as half of the rest, and the manifest has hashes of whole files: they are not written.
- Writing views takes 0.4, `large_binary` 0.55, pages of 4 MiB instead of 1 take 0.7.

Source: https://parquet.apache.org/docs/file-format/ and parquet-format 2.11.0 `parquet.thrift`; pyarrow 26.0.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from lading._core.features.huggingface import (
    BY_DEFAULT_KEY,
    HUGGINGFACE_KEY,
    huggingface_schema,
    left_out,
    media_schema,
)
from lading._core.formats.base import Recovered, ShardFile
from lading._core.formats.dataset_index import DatasetIndex, ListedShard
from lading._core.formats.findings import Finding, Level
from lading._core.formats.format import Format, FormatInfo, Heads, Written
from lading._core.formats.parquet.check import check_shard
from lading._core.formats.parquet.delta_log import is_log, list_table, schema_of_table
from lading._core.formats.parquet.delta_rows import DeltaReader
from lading._core.formats.parquet.footer import MAGIC, MAGIC_ENCRYPTED, count_rows, read_footer
from lading._core.formats.parquet.input import open_input
from lading._core.formats.parquet.options import ReadOptions, WriteOptions
from lading._core.formats.parquet.reader import ParquetReader
from lading._core.formats.parquet.recover import recover_groups
from lading._core.formats.parquet.schema import check_schema
from lading._core.formats.parquet.writer import ParquetWriter
from lading._core.storage.base import Sink, Store, aborting
from lading._core.storage.memory import MemoryStore
from lading.errors import LadingError, errors_at
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = ["FORMAT", "ParquetFormat", "ParquetReader", "ParquetWriter", "ReadOptions", "WriteOptions"]


class DeltaIndex(DatasetIndex):
    """The log of a Delta Lake table."""

    def shards(self, store: Store, path: str, head: bytes, limits: Limits = DEFAULT_LIMITS) -> list[ListedShard] | None:
        """Return the files of a table, at the version of a file of its log; see `delta_log`."""
        return list_table(store, path, limits) if is_log(path) else None

    def schema(self, store: Store, path: str, limits: Limits = DEFAULT_LIMITS) -> pa.Schema | None:
        """Return the columns of a table."""
        return schema_of_table(store, path, limits) if is_log(path) else None


def _count_rows(file: ShardFile, options: ReadOptions) -> int | None:
    """Return the rows of a file by its footer; None for files of a log, which may delete rows, and chosen rows."""
    if file.entry or options.filter is not None or options.row_groups is not None:
        return None
    with closing(open_input(file, mmap=False)) as source:
        return count_rows(source)


class ParquetFormat(Format[ReadOptions, WriteOptions]):
    """Parquet files. They have no sidecars. The log of a Delta Lake table is an index of a dataset."""

    info = FormatInfo(
        name="parquet",
        extensions=(".parquet",),
        read_options=ReadOptions,
        write_options=WriteOptions,
        stores_structs=True,
        hive_partitions=True,
        leftovers=r"_SUCCESS|_metadata|_common_metadata|\..*\.crc",  # of Spark and Dask
    )
    index = DeltaIndex()
    heads = Heads(_count_rows)

    def matches(self, path: str, head: bytes) -> bool:
        """By the magic; by the name too, so that a damaged file is called damaged, not unknown."""
        return head[:4] in (MAGIC, MAGIC_ENCRYPTED) or path.lower().endswith(self.info.extensions)

    def open(self, file: ShardFile, options: ReadOptions) -> ParquetReader:
        """Open a shard (`ReadOptions`); reads its footer.

        Raises:
            UsageError: a missing row group, a filter that does not fit.
            CorruptShard: the footer is damaged; the file is not a Parquet file.
            DataError: the footer is encrypted.
            LimitExceeded: the footer is larger than `footer_bytes`, or has more columns than `table_columns`.
        """
        source = open_input(file, mmap=options.mmap)
        try:
            if file.entry:
                return DeltaReader(source, read_footer(source), options, file)
            return ParquetReader(source, read_footer(source), options, file.row_filter, file.span, file.predicate)
        except LadingError:
            source.close()
            raise

    def checks(self, file: ShardFile, options: ReadOptions, level: Level) -> Iterator[Finding]:
        """Yield layout findings of row groups, pages and columns, by the footer."""
        return check_shard(file, options, level)

    def create(self, sinks: Sequence[Sink], schema: pa.Schema, options: WriteOptions) -> ParquetWriter:
        """Begin a shard (`WriteOptions`).

        Raises:
            UsageError: a codec that is not known.
            Unrepresentable: references, two columns of one name, or a type that Parquet (or datasets) does not have.
        """
        [sink] = sinks
        check_schema(schema)
        with errors_at(file=sink.path):
            if options.huggingface is None:
                schema = media_schema(schema)
            elif options.huggingface:
                schema = huggingface_schema(schema)
        return ParquetWriter(sink, schema, options)

    def written(self, schema: pa.Schema, options: WriteOptions) -> Written:
        """Return the columns of videos, of which datasets stores a part (`left_out`), and the types of a file."""
        reduced = left_out(schema) if options.huggingface else ()
        return Written(reduced_columns=reduced, schema=partial(self._schema_read, schema, options))

    def _schema_read(self, schema: pa.Schema, options: WriteOptions) -> pa.Schema:
        """Return the types that a file has: bytes as large_binary, few dictionaries."""
        store = MemoryStore()
        with aborting(store.put_stream("rows.parquet")) as sink:
            self.create([sink], schema, options).close()
            sink.close()
        found = self.open(ShardFile(store, "rows.parquet"), ReadOptions()).schema()
        return pa.schema([f.with_type(found.field(f.name).type) for f in schema], metadata=schema.metadata)

    def recover(
        self, file: ShardFile, options: ReadOptions, *, schema: pa.Schema | None = None, failed: bool = True
    ) -> Recovered | None:
        """Return the row groups at their places; see `_core.formats.parquet.recover`. Raises CorruptShard."""
        with closing(open_input(file, mmap=options.mmap)) as opened:
            recovered = recover_groups(opened)
        some_groups = options.row_groups is not None or options.filter is not None
        return replace(recovered, unit_rows=np.zeros(0, np.int64)) if some_groups else recovered

    def options_like(self, source: ShardFile, view: str) -> dict[str, Any]:
        """Whether the file has the features of Hugging Face's datasets."""
        with closing(open_input(source, mmap=False)) as file:
            metadata = read_footer(file).metadata.metadata or {}
        return {"huggingface": True} if HUGGINGFACE_KEY in metadata and BY_DEFAULT_KEY not in metadata else {}


FORMAT = ParquetFormat()
"""The format that the registry loads."""
