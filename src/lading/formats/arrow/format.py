"""Arrow files and streams, in caches of stable-datasets, in folders of Hugging Face's datasets, or by themselves.

    file       "ARROW1", a stream, a footer that lists its messages, "ARROW1"      (`lading.formats.arrow.blocks`)
    stream     messages: the schema, dictionaries, record batches
    dataset    files and `_metadata.json`, or streams, `state.json` and `dataset_info.json`    (`_arrow_index`)

A record batch is the unit: of a mapped file it is used where it lies, nothing copied; of a file on a store that cannot
map, or one whose buffers are compressed, it is fetched and unpacked as a whole. Places and sizes are checked before
they are believed, and what a batch holds before it is touched (`_arrow_decode`).

Source: https://arrow.apache.org/docs/format/Columnar.html; stable-datasets f38ac71; datasets 5.2.0; pyarrow 26.0.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa

from lading.arrow.ipc import CONTINUED, MAGIC
from lading.errors import DataError, LadingError, StoreError
from lading.features.huggingface import huggingface_schema, left_out
from lading.formats.arrow.assets import with_assets, wrong_assets
from lading.formats.arrow.claims import false_columns
from lading.formats.arrow.index import (
    CACHE_INDEX,
    SPLITS_INDEX,
    STATE_INDEX,
    list_arrow,
    listed_schema,
    write_indexes,
    write_splits,
)
from lading.formats.arrow.reader import ArrowReader, ReadOptions
from lading.formats.arrow.recover import may_hold_dictionary, resync_messages, resync_stream
from lading.formats.arrow.schema import check_schema, given_schema, stored_schema
from lading.formats.arrow.writer import ArrowWriter, WriteOptions
from lading.formats.base import LayoutFinding, ListedShard, Recovered, ShardFacts, ShardSource, map_file, parse_options
from lading.limits import DEFAULT_LIMITS, Limits
from lading.storage.base import Sink, Store

__all__ = ["FORMAT", "ArrowFormat", "ArrowReader", "ArrowWriter", "ReadOptions", "WriteOptions"]

_FILM_ROWS, _FILM_BYTES = 4096, 16 << 20


@dataclass(frozen=True, slots=True)
class ArrowFormat:
    """Arrow IPC files and streams."""

    name: str = "arrow"
    extensions: tuple[str, ...] = (".arrow", ".arrows", ".feather", ".ipc")
    indexes: Mapping[str, str] = field(
        default_factory=lambda: {
            CACHE_INDEX: r"shard-\d{5}\.arrow",
            STATE_INDEX: r"data-\d{5}-of-\d{5}\.arrow",
            SPLITS_INDEX: "",
        },
        hash=False,
    )
    splits_index: str = SPLITS_INDEX
    fixed_schema: bool = True
    opens_at_once: bool = True
    copy_options: tuple[Mapping[str, Any], Mapping[str, Any]] = field(default=({}, {}), hash=False)
    whole_options: Mapping[str, Any] = field(default_factory=lambda: {"load_assets": True}, hash=False)
    read_options: type | None = ReadOptions
    write_options: type | None = WriteOptions

    def recognise(self, path: str, head: bytes) -> bool:
        """By the first bytes; by the name too, so that a damaged file is called damaged, not unknown."""
        return head.startswith((MAGIC, CONTINUED)) or path.lower().endswith(self.extensions)

    def list_shards(
        self,
        store: Store,
        path: str,
        head: bytes,  # noqa: ARG002 - contract
        limits: Limits = DEFAULT_LIMITS,
    ) -> list[ListedShard] | None:
        """The shards of a `_metadata.json`, `state.json` or `dataset_dict.json`; see `list_arrow`."""
        return list_arrow(store, path, limits)

    def listed_schema(self, store: Store, path: str, limits: Limits = DEFAULT_LIMITS) -> pa.Schema | None:
        """The columns of a dataset without a shard, where an index tells them; see `listed_schema`."""
        return listed_schema(store, path, limits)

    def false_columns(
        self, store: Store, path: str, shards: Sequence[str], limits: Limits = DEFAULT_LIMITS
    ) -> list[LadingError]:
        """Where features in an index, or in `dataset_info.json` beside it, are not those of the shards."""
        return false_columns(store, path, shards, limits)

    def open_shard(self, source: ShardSource, options: Mapping[str, Any]) -> ArrowReader:
        """Open a file or stream (`ReadOptions`); reads the head of its schema, and a file's footer.

        Raises:
            UsageError: an option that is not known.
            CorruptShard: it is neither, was cut, or its footer is damaged.
            DataError: it is big-endian.
            SidecarMismatch: its columns are not those of the first shard of its dataset.
        """
        return ArrowReader(source, parse_options(self.name, ReadOptions, options))

    def folders_named(self, options: Mapping[str, Any]) -> tuple[Sequence[str], Sequence[str]]:
        """No folder of media; the roots."""
        return (), parse_options(self.name, ReadOptions, options).roots

    def create_shard(self, sink: Sink, schema: pa.Schema, options: Mapping[str, Any]) -> ArrowWriter:
        """Begin a file or stream (`WriteOptions`).

        Raises:
            UsageError: an option or value that is not known.
            Unrepresentable: references, two columns of one name, or a type that datasets does not have.
        """
        chosen = parse_options(self.name, WriteOptions, options)
        check_schema(schema)
        return ArrowWriter(sink, schema, chosen)

    def types_read(self, schema: pa.Schema, options: Mapping[str, Any]) -> pa.Schema:
        """The schema with the types that a file of it has: without views, for datasets in its types."""
        stored = stored_schema(schema)
        if parse_options(self.name, WriteOptions, options).layout == "huggingface":
            stored = huggingface_schema(stored)
        found = given_schema(stored, "", media="stored")
        return pa.schema([f.with_type(found.field(f.name).type) for f in schema], metadata=schema.metadata)

    def write_splits(self, store: Store, folder: str, splits: Sequence[str], options: Mapping[str, Any]) -> bool:
        """Write `dataset_dict.json`, for datasets; others have none."""
        listed = parse_options(self.name, WriteOptions, options).layout == "huggingface"
        if listed:
            write_splits(store, folder, splits)
        return listed

    def left_out(self, schema: pa.Schema, options: Mapping[str, Any]) -> Sequence[str]:
        """For datasets, structs of videos: see `lading.huggingface.left_out`."""
        return left_out(schema) if parse_options(self.name, WriteOptions, options).layout == "huggingface" else []

    def rows_stand_alone(self, path: str, head: bytes) -> bool:  # noqa: ARG002 - the head tells
        """In streams, unless a record batch may need a dictionary that came with another one."""
        return head.startswith(CONTINUED) and not may_hold_dictionary(head)

    def recover(
        self,
        source: ShardSource,
        options: Mapping[str, Any],  # noqa: ARG002 - contract
        *,
        schema: pa.Schema | None = None,
        failed: bool = True,
    ) -> Recovered | None:
        """The messages that are whole, as a stream; see `lading.formats.arrow.recover`. Raises CorruptShard."""
        mapped = map_file(source)
        return resync_messages(mapped, source.path, schema) if failed else resync_stream(mapped, source.path)

    def check_files(
        self, source: ShardSource, options: Mapping[str, Any], *, deep: bool, most: int
    ) -> list[LadingError] | None:
        """What is wrong with the files of videos, by what cells say of them: name, size, checksum if `deep`."""
        found: list[LadingError] = []
        with suppress(DataError, StoreError):  # of the shard itself, which who reads it is told
            with closing(self.open_shard(source, {**options, "load_assets": False})) as reader:
                names, first = with_assets(reader.schema()), 0
                if not names:
                    return None
                for batch in reader.batches(max_rows=_FILM_ROWS, max_bytes=_FILM_BYTES, columns=names):
                    found += islice(wrong_assets(source, batch, first, deep=deep), most - len(found))
                    first += len(batch)
                    if len(found) >= most:
                        break
            return found
        return found or None

    def shard_name(self, number: int) -> str:
        """`shard-00000`, as stable-datasets has it; datasets takes any."""
        return f"shard-{number:05d}"

    def extension(self, options: Mapping[str, Any]) -> str:  # noqa: ARG002 - contract
        """`.arrow`."""
        return self.extensions[0]

    def write_sidecars(self, store: Store, folder: str, shards: Sequence[tuple[str, ShardFacts]]) -> list[str]:
        """Write `_metadata.json`, or of streams `state.json` and `dataset_info.json`."""
        return write_indexes(store, folder, shards)

    def layout_findings(self, source: ShardSource, options: Mapping[str, Any], view: str) -> list[LayoutFinding]:  # noqa: ARG002 - contract
        """Record batches and columns that will hurt, by the heads of messages."""
        with closing(self.open_shard(source, options)) as reader:
            return reader.layout_findings()

    def alike(self, source: ShardSource, view: str) -> dict[str, Any]:  # noqa: ARG002 - in every view
        """Whether it is a stream as Hugging Face's datasets has them."""
        with closing(self.open_shard(source, {"unended": True})) as reader:
            return {"layout": "huggingface"} if reader.is_huggingface else {}


FORMAT = ArrowFormat()
"""The format, as the registry finds it."""
