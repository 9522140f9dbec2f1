"""Arrow files and streams, in caches of stable-datasets, in folders of Hugging Face's datasets, or by themselves.

    file       "ARROW1", a stream, a footer that lists its messages, "ARROW1"      (`_core.formats.arrow.blocks`)
    stream     messages: the schema, dictionaries, record batches
    dataset    files and `_metadata.json`, or streams, `state.json` and `dataset_info.json`    (`index.py`)

A record batch is the unit. In a mapped file without compression it is used in place, and nothing is copied. Otherwise
it is fetched and decompressed as a whole. Offsets and sizes are checked before they are used, and a batch is checked
before it is touched (`_core.formats.arrow.decode`).

Source: https://arrow.apache.org/docs/format/Columnar.html; stable-datasets f38ac71; datasets 5.2.0; pyarrow 26.0.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa

from lading._core.arrow.ipc import CONTINUED, MAGIC
from lading._core.features.huggingface import huggingface_schema, left_out
from lading._core.formats.arrow.check import check_index_columns, check_shard
from lading._core.formats.arrow.index import (
    CACHE_INDEX,
    INFO_NAME,
    SPLITS_INDEX,
    STATE_INDEX,
    list_arrow,
    list_builder_splits,
    listed_schema,
    write_indexes,
    write_splits,
)
from lading._core.formats.arrow.reader import ArrowReader, ReadOptions, count_rows
from lading._core.formats.arrow.recover import recover_messages
from lading._core.formats.arrow.schema import check_schema, given_schema, stored_schema
from lading._core.formats.arrow.writer import ArrowWriter, WriteOptions
from lading._core.formats.base import Recovered, ShardFacts, ShardFile, map_file
from lading._core.formats.dataset_index import DatasetIndex, ListedShard, SplitList
from lading._core.formats.findings import Finding, Level
from lading._core.formats.format import Format, FormatInfo, Heads, Presets, Written
from lading._core.storage.base import FileInfo, Sink, Store
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = ["FORMAT", "ArrowFormat", "ArrowReader", "ArrowWriter", "ReadOptions", "WriteOptions"]


class ArrowIndex(DatasetIndex):
    """`_metadata.json` of stable-datasets; `state.json`, `dataset_info.json` and `dataset_dict.json` of datasets."""

    names: ClassVar = {
        CACHE_INDEX: r"shard-\d{5}\.arrow",
        STATE_INDEX: r"data-\d{5}-of-\d{5}\.arrow",
        SPLITS_INDEX: "",
    }
    splits_name = SPLITS_INDEX
    split_lists = (INFO_NAME,)

    def shards(self, store: Store, path: str, head: bytes, limits: Limits = DEFAULT_LIMITS) -> list[ListedShard] | None:
        """Return the shards of a `_metadata.json`, `state.json` or `dataset_dict.json`."""
        return list_arrow(store, path, limits)

    def schema(self, store: Store, path: str, limits: Limits = DEFAULT_LIMITS) -> pa.Schema | None:
        """Return the columns that an index gives for a dataset without shards."""
        return listed_schema(store, path, limits)

    def splits(
        self, store: Store, path: str, files: Sequence[FileInfo], limits: Limits = DEFAULT_LIMITS
    ) -> SplitList | None:
        """Return the splits of a cache of a builder of datasets, which `dataset_info.json` names."""
        return list_builder_splits(store, path, files, limits)

    def write(
        self, store: Store, folder: str, shards: Sequence[tuple[str, ShardFacts]], options: WriteOptions | None
    ) -> list[str]:
        """Write `_metadata.json`; for datasets `state.json` and `dataset_info.json`; none for other streams."""
        return [] if options is not None and options.layout == "stream" else write_indexes(store, folder, shards)

    def write_splits(self, store: Store, folder: str, splits: Sequence[str], options: WriteOptions) -> bool:
        """Write `dataset_dict.json` for the layout of datasets; there is no other such index."""
        listed = options.layout == "huggingface"
        if listed:
            write_splits(store, folder, splits)
        return listed

    def checks(
        self, store: Store, path: str, shards: Sequence[str], limits: Limits = DEFAULT_LIMITS
    ) -> Iterator[Finding]:
        """Yield features in an index, or in `dataset_info.json` next to it, that differ from those of the shards."""
        return check_index_columns(store, path, shards, limits)


class ArrowFormat(Format[ReadOptions, WriteOptions]):
    """Arrow IPC files and streams."""

    info = FormatInfo(
        name="arrow",
        extensions=(".arrow", ".arrows", ".feather", ".ipc"),
        read_options=ReadOptions,
        write_options=WriteOptions,
        stores_structs=True,
        presets=Presets(read_whole={"load_assets": True}, write_piped={"layout": "stream"}),
        hive_partitions=True,
        leftovers=r"cache-.*\.arrow",  # of `.map()` and the like of datasets
        opens_at_once=True,
        may_end_early=True,
        shard_name="shard-{:05d}",  # as stable-datasets names shards; datasets takes any name
    )
    index = ArrowIndex()
    heads = Heads(count_rows)

    def matches(self, path: str, head: bytes) -> bool:
        """Whether the first bytes or the name are Arrow's. By its name, a damaged file is reported as damaged."""
        return head.startswith((MAGIC, CONTINUED)) or path.lower().endswith(self.info.extensions)

    def checks(self, file: ShardFile, options: ReadOptions, level: Level) -> Iterator[Finding]:
        """Yield layout findings by the headers of messages, and problems of external videos."""
        return check_shard(file, options, level)

    def open(self, file: ShardFile, options: ReadOptions) -> ArrowReader:
        """Open a file or stream; read the head of its schema, and a file's footer.

        Raises:
            CorruptShard: it is neither, was cut, or its footer is damaged.
            DataError: it is big-endian.
            SidecarMismatch: its columns are not those of the first shard of its dataset.
        """
        return ArrowReader(file, options)

    def create(self, sinks: Sequence[Sink], schema: pa.Schema, options: WriteOptions) -> ArrowWriter:
        """Begin a file or stream.

        Raises:
            UsageError: an option or value that is not known.
            Unrepresentable: references, two columns of one name, or a type that datasets does not have.
        """
        [sink] = sinks
        check_schema(schema)
        return ArrowWriter(sink, schema, options)

    def written(self, schema: pa.Schema, options: WriteOptions) -> Written:
        """Return the columns of videos, of which datasets stores a part (`left_out`), and the types of a file."""
        for_datasets = options.layout == "huggingface"
        return Written(
            reduced_columns=left_out(schema) if for_datasets else (), schema=partial(_schema_read, schema, options)
        )

    def recover(
        self, file: ShardFile, options: ReadOptions, *, schema: pa.Schema | None = None, failed: bool = True
    ) -> Recovered | None:
        """Return the whole messages as a stream; see `_core.formats.arrow.recover`. Raises CorruptShard."""
        return recover_messages(map_file(file), file.path, schema, failed=failed)

    def options_like(self, source: ShardFile, view: str) -> dict[str, Any]:
        """Return the layout of Hugging Face's datasets for a stream of theirs."""
        with closing(self.open(source, ReadOptions(unended=True))) as reader:
            return {"layout": "huggingface"} if reader.is_huggingface else {}


def _schema_read(schema: pa.Schema, options: WriteOptions) -> pa.Schema:
    """Return the types of a file: without views; for datasets in its types."""
    stored = stored_schema(schema)
    if options.layout == "huggingface":
        stored = huggingface_schema(stored)
    found = given_schema(stored, "", media="stored")
    return pa.schema([f.with_type(found.field(f.name).type) for f in schema], metadata=schema.metadata)


FORMAT = ArrowFormat()
"""The format that the registry loads."""
