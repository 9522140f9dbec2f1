"""Readers of interleaved documents as stages of NeMo Curator's pipelines, with its names.

Source: nemo-curator 1.4.0, stages/interleaved/io/reader.py and stages/interleaved/io/readers.
"""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import orjson
import pyarrow as pa

from lading._core.api.dataset import Dataset
from lading._core.api.opening import open_dataset
from lading._core.arrow.align import align_table, union_schema
from lading._core.arrow.references import files_of, is_ref
from lading._core.features.items import (
    INTERLEAVED_SCHEMA,
    LINEAGE_KEY,
    RESERVED,
    format_source_ref,
    parse_source_ref,
    sample_starts,
    split_rows,
)
from lading._core.storage.roots import folder_of
from lading._core.storage.stores import Stores, resolve
from lading._core.units import parse_bytes
from lading.compat.curator_schema import target_schema, warn_of_both
from lading.compat.curator_stages import (
    CompositeStage,
    FileGroupTask,
    InterleavedBatch,
    ProcessingStage,
    storage_options,
    stores_of,
)
from lading.errors import SourceNotFound, UsageError, errors_at, missing_extra
from lading.options import InterleavedOptions

__all__ = [
    "InterleavedParquetReader",
    "InterleavedParquetReaderStage",
    "InterleavedWebdatasetReader",
    "InterleavedWebdatasetReaderStage",
    "without_references",
]

_NAMES = InterleavedOptions()
_UNNAMED = "members that no JSON names, dropped"


@dataclass
class _ReaderStage(ProcessingStage[FileGroupTask, InterleavedBatch]):
    """Reads the files of a task. The rows are whole documents, in the peer's columns and types.

    Attributes:
        read_kwargs: `{"storage_options": {…}}`, as fsspec takes them.
        schema: columns of all rows: missing columns are nulls, others are dropped.
        schema_overrides: types of some columns; all others are kept. With `schema`, a warning; `schema` holds.
        name: name of the stage.
    """

    read_kwargs: dict[str, Any] = field(default_factory=dict)
    schema: pa.Schema | None = None
    schema_overrides: dict[str, pa.DataType] | None = None
    name: str = "base_interleaved_reader"

    def __post_init__(self) -> None:
        self.storage_options = storage_options(self.read_kwargs, "read_kwargs")
        warn_of_both(self.schema, self.schema_overrides)

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return what a task needs."""
        return ["data"], []

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return what a task has then."""
        return ["data"], ["sample_id", "position", "modality"]

    @abstractmethod
    def _read(self, path: str, stores: Stores) -> pa.Table:
        """Return the rows of a file."""

    @property
    @abstractmethod
    def max_batch_bytes(self) -> int | str | None:
        """Bytes of a batch: a field of each stage, at the peer's place."""

    def process(self, task: FileGroupTask) -> InterleavedBatch | list[InterleavedBatch]:
        """Return the rows of the task's files: one batch, or with `max_batch_bytes` as many as that takes.

        `source_files` of a batch are the files of its rows; `path::split_00001` of one of several batches.

        Example: `InterleavedParquetReaderStage().process(FileGroupTask("mint", ["curated/0.parquet"]))`

        Raises:
            DataError: a file is damaged, or holds no such rows; names the file.
            SchemaMismatch: a value does not fit the type of its column.
        """
        _check_max_batch_bytes(self.max_batch_bytes)
        files = list(task.data)
        stores = stores_of([*map(folder_of, files)], self.storage_options)
        tables = [self._read(path, stores) for path in files]
        rows = self._joined(files, tables)
        with errors_at(file=", ".join(files)):
            bounds = _bounds(rows, self.max_batch_bytes)
        ends = np.cumsum([table.num_rows for table in tables])
        batches = []
        for number, (first, stop) in enumerate(pairwise(bounds)):
            sources = files
            if len(bounds) > 2:  # noqa: PLR2004 - several batches
                begin, end = np.searchsorted(ends, [first, stop - 1], side="right")
                sources = [f"{path}::split_{number:05d}" for path in files[begin : end + 1]]
            told = {**task._metadata, "source_files": list(sources)}  # noqa: SLF001 - the peer's field
            if self.storage_options:
                told["source_storage_options"] = self.storage_options
            batches.append(InterleavedBatch(
                dataset_name=task.dataset_name, data=rows.slice(first, stop - first), _metadata=told,
                _stage_perf=task._stage_perf,  # noqa: SLF001 - the peer's field
            ))  # fmt: skip
        return batches if len(batches) > 1 else batches[0]

    def _joined(self, files: list[str], tables: list[pa.Table]) -> pa.Table:
        """Return the rows of all files, with the columns that are asked for."""
        if not tables:
            return target_schema(INTERLEAVED_SCHEMA, self.schema, self.schema_overrides).empty_table()
        schemas = [(path, table.schema) for path, table in zip(files, tables, strict=True)]
        target = target_schema(union_schema(schemas)[0], self.schema, self.schema_overrides)
        aligned = []
        for path, table in zip(files, tables, strict=True):
            with errors_at(file=path):
                aligned.append(align_table(table, target))
        return pa.concat_tables(aligned).replace_schema_metadata(None).combine_chunks()


def _check_max_batch_bytes(value: int | str | None) -> None:
    with suppress(UsageError):
        if value is None or parse_bytes(value):
            return
    raise UsageError("not a size of a batch", expected="max_batch_bytes=67108864, or a text such as 64MB",
                     found=f"max_batch_bytes={value!r}")  # fmt: skip


def _bounds(rows: pa.Table, max_batch_bytes: int | str | None) -> list[int]:
    """Return bounds of batches. As in the peer, each row counts as an average one."""
    starts = sample_starts(rows["sample_id"]) if "sample_id" in rows.schema.names else np.arange(rows.num_rows)
    if max_batch_bytes is None or not rows.num_rows:
        return [0, rows.num_rows]
    size = np.full(rows.num_rows, rows.nbytes / rows.num_rows)
    return [int(row) for row in split_rows(starts, size, max_bytes=parse_bytes(max_batch_bytes))]


@dataclass
class InterleavedParquetReaderStage(_ReaderStage):
    """Reads Parquet files of items. Only the columns that are asked for are read, and no reference is followed.

    Attributes:
        fields: passthrough columns to keep beside the reserved ones; absent columns are nulls. By default all.
        max_batch_bytes: bytes of a batch, or a text such as `"512MB"`. A document is never cut.
    """

    fields: tuple[str, ...] | None = None
    max_batch_bytes: int | str | None = None
    name: str = "interleaved_parquet_reader"

    def _read(self, path: str, stores: Stores) -> pa.Table:
        with open_dataset(path, format="parquet", view="samples", hive_partitioning=False, stores=stores) as dataset:
            names = dataset.schema.names
            wanted = names if self.fields is None else [*dict.fromkeys([*RESERVED, *self.fields])]
            present = [name for name in wanted if name in names]
            parts = list(dataset.batches(columns=present, lazy=True))
            rows = pa.Table.from_batches(parts) if parts else dataset.schema.empty_table().select(present)
        for name in self.fields or ():
            if name not in names and name not in RESERVED:
                rows = rows.append_column(name, pa.nulls(rows.num_rows))
        return rows


@dataclass
class InterleavedWebdatasetReaderStage(_ReaderStage):
    """Reads MINT-1T style tars of documents.

    Attributes:
        materialize_on_read: read the bytes of images. By default `source_ref` says where they are, for filters and
            writers.
        max_batch_bytes: bytes of a batch, or a text such as `"512MB"`. A document is never cut.
        json_extensions: extensions of JSON members.
        image_extensions: extensions tried for a document's default image, in this order.
        sample_id_field: JSON field that names the document; None for the name of the JSON member.
        texts_field: JSON field with the texts by position.
        images_field: JSON field with the images by position.
        image_member_field: JSON field that names the member with the default image.
        fields: passthrough fields to keep; absent fields are nulls. By default all.
        per_image_fields: JSON fields with one entry per image.
        per_text_fields: JSON fields with one entry per text.
    """

    materialize_on_read: bool = False
    max_batch_bytes: int | str | None = None
    json_extensions: tuple[str, ...] = _NAMES.json_extensions
    image_extensions: tuple[str, ...] = _NAMES.image_extensions
    sample_id_field: str | None = None
    texts_field: str = "texts"
    images_field: str = "images"
    image_member_field: str | None = None
    fields: tuple[str, ...] | None = None
    per_image_fields: tuple[str, ...] = ()
    per_text_fields: tuple[str, ...] = ()
    name: str = "webdataset_reader"

    def _read(self, path: str, stores: Stores) -> pa.Table:
        with open_dataset(
            path, format="webdataset", view="interleaved", interleaved=_tar_names(self), on_materialize_error="warn",
            stores=stores,
        ) as dataset:  # fmt: skip
            batches = dataset.batches(lazy=not self.materialize_on_read)
            parts = [without_references(part) for part in batches] or [_no_rows(dataset.schema)]
            dropped = dataset.counts[_UNNAMED]
        if dropped:
            warnings.warn(f"{path}: {_UNNAMED}: {dropped}", stacklevel=2)
        return pa.concat_tables(map(pa.table, parts))


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    kinds = [pa.large_binary() if is_ref(one.type) else one.type for one in schema]
    return pa.RecordBatch.from_pylist([], pa.schema([one.with_type(k) for one, k in zip(schema, kinds, strict=True)]))


def without_references(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with nulls in place of references; `source_ref` says the same.

    Without offsets in a compressed tar: the peer's stages would read that range of the compressed bytes.
    """
    if any(entry.wrap for entry in files_of(rows.schema)):
        parts, unknown = parse_source_ref(rows["source_ref"]), np.full(rows.num_rows, -1)
        source = format_source_ref(parts.path, parts.member, unknown, unknown, parts.frame)
        at = rows.schema.get_field_index("source_ref")
        rows = rows.set_column(at, rows.schema.field(at), source)
    at = rows.schema.get_field_index("binary_content")
    if not is_ref(rows.schema.field(at).type):
        return rows
    return rows.set_column(at, INTERLEAVED_SCHEMA.field(at), pa.nulls(rows.num_rows, pa.large_binary()))


def _tar_names(reader: InterleavedWebdatasetReaderStage | InterleavedWebdatasetReader) -> InterleavedOptions:
    """Return the names of fields and members in tars."""
    return InterleavedOptions(
        json_extensions=tuple(reader.json_extensions), image_extensions=tuple(reader.image_extensions),
        texts_field=reader.texts_field, images_field=reader.images_field, sample_id_field=reader.sample_id_field,
        image_member_field=reader.image_member_field, fields=reader.fields,
        per_image_fields=tuple(reader.per_image_fields), per_text_fields=tuple(reader.per_text_fields),
        unreferenced="drop",
    )  # fmt: skip


class _Reader(CompositeStage[Any, InterleavedBatch]):
    """The two stages of a reader: one that lists the files, and one that reads them."""

    file_paths: str | list[str]
    files_per_partition: int | None
    blocksize: int | str | None
    read_kwargs: dict[str, Any]
    max_batch_bytes: int | str | None
    file_extensions: list[str]
    _stage: ClassVar[type[_ReaderStage]]
    _format: ClassVar[str]
    _extensions: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        super().__init__()
        given = self.file_paths
        self._paths = [os.fspath(path) for path in (given if isinstance(given, list | tuple) else [given])]
        self.file_paths = self._paths if isinstance(given, list | tuple) else self._paths[0]
        self.storage_options = storage_options(self.read_kwargs, "read_kwargs")
        _check_max_batch_bytes(self.max_batch_bytes)

    def decompose(self) -> list[Any]:
        """Return the stage that lists the files, and the stage that reads them.

        Raises:
            MissingExtra: NeMo Curator is not installed.
        """
        try:
            from lading.compat.curator_listing import ListingStage
        except ImportError as error:
            raise missing_extra(error, "pipelines need NeMo Curator", "nemo_curator",
                                "Install nemo-curator, or use open() or batches().") from error  # fmt: skip
        # The peer compares the last extension only, and would leave out .tar.gz.
        last = dict.fromkeys(f".{extension.rpartition('.')[2]}" for extension in self.file_extensions)
        listing = ListingStage(
            file_paths=self.file_paths, files_per_partition=self.files_per_partition, blocksize=self.blocksize,
            file_extensions=list(last), storage_options=self.storage_options,
        )  # fmt: skip
        return [listing, self._reading()]

    def _reading(self) -> _ReaderStage:
        """Return the stage that reads."""
        own = {one.name for one in fields_of(self._stage)} - {"name"}
        return self._stage(**{name: value for name, value in vars(self).items() if name in own})

    def open(self, **opening: Any) -> Dataset:
        """Return the documents as a dataset: for `where`, `sort`, `write` and all else that lading does.

        Example: `InterleavedWebdatasetReader("mint", fields=("url",)).open().where("n_words > 100")`

        Args:
            opening: further arguments of `lading.open`, such as `roots` or `regroup`. Rows with an error are kept with
                a warning, for the writer's policy; `on_materialize_error` says otherwise.
        """
        stores = stores_of([*self._paths, *map(folder_of, self._paths)], self.storage_options)
        how = {
            "format": self._format, "view": "interleaved", "max_batch_bytes": self.max_batch_bytes, "stores": stores,
            "on_materialize_error": "warn", **self._opening(), **opening,
        }  # fmt: skip
        return open_dataset(self._source(stores), **how)

    def _source(self, stores: Stores) -> str | list[str]:
        """Return the files, chosen by their extensions if these are not the usual ones."""
        wanted = tuple(self.file_extensions)
        if wanted == self._extensions:
            return self.file_paths
        found = []
        for place in self._paths:
            store, path = resolve(place, stores)
            inside = [info.path for info in store.walk(path)]
            found += [name for name in inside if name.endswith(wanted)] if inside else [place]
        if not found:
            raise SourceNotFound("no file has such an extension", file=", ".join(self._paths),
                                 expected=f"file_extensions={list(wanted)}")  # fmt: skip
        return found

    @abstractmethod
    def _opening(self) -> dict[str, Any]:
        """Return the arguments of `lading.open` that only this format has."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches that the reader's stage gives in a pipeline, one file after the other.

        `lading.source_files` in a batch's schema metadata names its file, or the split of the file.

        Example: `for batch in InterleavedParquetReader("curated").batches(): writer.write_batch(batch)`
        """
        stage = self._reading()
        with self.open() as dataset:
            paths = [shard.path for shard in dataset.shards]
        for path in paths:
            found = stage.process(FileGroupTask(dataset_name="", data=[path]))
            for batch in found if isinstance(found, list) else [found]:
                lineage = orjson.dumps(batch._metadata["source_files"])  # noqa: SLF001 - the peer's field
                rows = batch.data.combine_chunks().replace_schema_metadata({LINEAGE_KEY: lineage})
                yield from rows.to_batches()


@dataclass
class InterleavedWebdatasetReader(_Reader):
    """Reads MINT-1T style tars of documents, as the first stage of a pipeline; or by `open` and `batches`.

    Example: `InterleavedWebdatasetReader("mint", max_batch_bytes="256MB", fields=("url",))`

    Attributes:
        file_paths: a folder, pattern or file, or a list of files.
        files_per_partition: files of a task of the pipeline; by default one.
        blocksize: bytes of files of a task of the pipeline, instead.
        max_batch_bytes: see `InterleavedWebdatasetReaderStage`, and for all that follow but these:
        read_kwargs: `{"storage_options": {…}}`, as fsspec takes them.
        file_extensions: extensions of the files to read.
        name: name of the stage.
    """

    file_paths: str | list[str]
    files_per_partition: int | None = None
    blocksize: int | str | None = None
    max_batch_bytes: int | str | None = None
    read_kwargs: dict[str, Any] = field(default_factory=dict)
    materialize_on_read: bool = False
    file_extensions: list[str] = field(default_factory=lambda: [".tar", ".tar.gz", ".tgz"])
    json_extensions: list[str] = field(default_factory=lambda: list(_NAMES.json_extensions))
    image_extensions: list[str] = field(default_factory=lambda: list(_NAMES.image_extensions))
    sample_id_field: str | None = None
    texts_field: str = "texts"
    images_field: str = "images"
    image_member_field: str | None = None
    fields: tuple[str, ...] | None = None
    per_image_fields: tuple[str, ...] = ()
    per_text_fields: tuple[str, ...] = ()
    name: str = "interleaved_webdataset_reader"
    _stage: ClassVar[type[_ReaderStage]] = InterleavedWebdatasetReaderStage
    _format: ClassVar[str] = "webdataset"
    _extensions: ClassVar[tuple[str, ...]] = (".tar", ".tar.gz", ".tgz")

    def _opening(self) -> dict[str, Any]:
        return {"interleaved": _tar_names(self)}


@dataclass
class InterleavedParquetReader(_Reader):
    """Reads Parquet files of items, as the first stage of a pipeline; or by `open` and `batches`.

    Example: `InterleavedParquetReader("curated", fields=("url",), max_batch_bytes="512MB")`

    Attributes:
        file_paths: a folder, pattern or file, or a list of files.
        files_per_partition: files of a task of the pipeline; by default one.
        blocksize: bytes of files of a task of the pipeline, instead.
        fields: see `InterleavedParquetReaderStage`.
        max_batch_bytes: see there.
        read_kwargs: `{"storage_options": {…}}`, as fsspec takes them.
        schema: columns of all rows: missing columns are nulls, others are dropped.
        schema_overrides: types of some columns; all others are kept. With `schema`, a warning; `schema` holds.
        file_extensions: extensions of the files to read.
        name: name of the stage.
    """

    file_paths: str | list[str]
    files_per_partition: int | None = None
    blocksize: int | str | None = None
    fields: tuple[str, ...] | None = None
    max_batch_bytes: int | str | None = None
    read_kwargs: dict[str, Any] = field(default_factory=dict)
    schema: pa.Schema | None = None
    schema_overrides: dict[str, pa.DataType] | None = None
    file_extensions: list[str] = field(default_factory=lambda: [".parquet"])
    name: str = "interleaved_parquet_reader"
    _stage: ClassVar[type[_ReaderStage]] = InterleavedParquetReaderStage
    _format: ClassVar[str] = "parquet"
    _extensions: ClassVar[tuple[str, ...]] = (".parquet",)

    def _opening(self) -> dict[str, Any]:
        return {"fields": self.fields, "schema": self.schema, "schema_overrides": self.schema_overrides}
