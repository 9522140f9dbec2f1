"""Readers, writers and schema functions of interleaved documents, with the names of NeMo Curator.

Readers are datasets: their `batches` are what the peer calls an `InterleavedBatch`, with the files of their rows in the
schema's metadata (`lading.source_files`). Writers take such batches.

Source: nemo-curator 1.4.0, stages/interleaved/io and stages/interleaved/utils/schema.py.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from lading.arrow.align import align_table, reconcile_schema
from lading.arrow.references import is_ref
from lading.dataset.dataset import Dataset
from lading.dataset.source.open import open_dataset
from lading.dataset.writing.writer import DatasetWriter
from lading.errors import UsageError
from lading.features.items import INTERLEAVED_SCHEMA, RESERVED
from lading.options import InterleavedOptions, OnError
from lading.storage.base import write_file
from lading.storage.memory import MemoryStore
from lading.storage.stores import Stores

__all__ = [
    "INTERLEAVED_SCHEMA",
    "RESERVED_COLUMNS",
    "InterleavedParquetReader",
    "InterleavedParquetWriter",
    "InterleavedParquetWriterStage",
    "InterleavedWebdatasetReader",
    "InterleavedWebdatasetWriterStage",
    "align_table",
    "reconcile_schema",
    "resolve_schema",
]

RESERVED_COLUMNS = frozenset(RESERVED)
"""Names of the reserved columns."""

FilePaths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
SchemaOverrides: TypeAlias = Mapping[str, pa.DataType] | None

_ROWS = "batch://rows.arrow"
"""Name of the rows of a call in errors."""


def resolve_schema(schema: pa.Schema | None, overrides: SchemaOverrides) -> pa.Schema | None:
    """Return the schema; or else the reserved columns with these types, and further columns; or else None.

    Warns if both are given: `schema` holds.

    Example: `resolve_schema(None, {"url": pa.string(), "text_content": pa.large_string()})`
    """
    if schema is not None:
        if overrides:
            warnings.warn("schema and schema_overrides are both given; schema holds", stacklevel=2)
        return schema
    if not overrides:
        return None
    fields = {field.name: field for field in INTERLEAVED_SCHEMA}
    for name, kind in overrides.items():
        fields[name] = fields[name].with_type(kind) if name in fields else pa.field(name, kind)
    return pa.schema(list(fields.values()))


def InterleavedParquetReader(  # noqa: N802 - the peer's name
    file_paths: FilePaths,
    *,
    fields: Sequence[str] | None = None,
    max_batch_bytes: int | str | None = None,
    schema: pa.Schema | None = None,
    schema_overrides: SchemaOverrides = None,
    on_materialize_error: OnError = "warn",
    **opening: Any,
) -> Dataset:
    """Open Parquet files of items. Only the columns that are asked for are read.

    Example:
        for batch in InterleavedParquetReader("mint/*.parquet", fields=("url",), max_batch_bytes="512MB").batches(): ...

    Args:
        file_paths: files, folders or patterns, as `lading.open` takes them.
        fields: passthrough columns to keep beside the reserved ones; absent columns are nulls. By default all.
        max_batch_bytes: payload of a batch. A document is never cut.
        schema: columns of all rows: missing columns are nulls, others are dropped.
        schema_overrides: types of some columns. With `schema`, a warning; `schema` holds.
        on_materialize_error: for rows with an error. By default they are kept with a warning, for the writer's policy.
        opening: the other arguments of `lading.open`, such as `regroup` or `roots`.
    """
    return open_dataset(
        file_paths, format="parquet", view="interleaved", fields=fields, max_batch_bytes=max_batch_bytes, schema=schema,
        schema_overrides=schema_overrides, on_materialize_error=on_materialize_error, **opening,
    )  # fmt: skip


def InterleavedWebdatasetReader(  # noqa: N802, PLR0913 - the peer's name and arguments
    file_paths: FilePaths,
    *,
    max_batch_bytes: int | str | None = None,
    json_extensions: Sequence[str] = InterleavedOptions().json_extensions,
    image_extensions: Sequence[str] = InterleavedOptions().image_extensions,
    sample_id_field: str | None = None,
    texts_field: str = "texts",
    images_field: str = "images",
    image_member_field: str | None = None,
    fields: Sequence[str] | None = None,
    per_image_fields: Sequence[str] = (),
    per_text_fields: Sequence[str] = (),
    on_materialize_error: OnError = "warn",
    **opening: Any,
) -> Dataset:
    """Open MINT-1T style tars of documents.

    Example: `InterleavedWebdatasetReader("mint/*.tar", sample_id_field="sample_id", fields=("url",))`

    Args:
        file_paths: files, folders or patterns, as `lading.open` takes them.
        max_batch_bytes: payload of a batch. A document is never cut.
        json_extensions: extensions of JSON members.
        image_extensions: extensions tried for a document's default image, in this order.
        sample_id_field: JSON field that names the document; None for the name of the JSON member.
        texts_field: JSON field with the texts by position.
        images_field: JSON field with the images by position.
        image_member_field: JSON field that names the member with the default image.
        fields: passthrough fields to keep; absent fields are nulls. By default all.
        per_image_fields: JSON fields with one entry per image.
        per_text_fields: JSON fields with one entry per text.
        on_materialize_error: as in `InterleavedParquetReader`.
        opening: the other arguments of `lading.open`.
    """
    names = InterleavedOptions(
        json_extensions=tuple(json_extensions), image_extensions=tuple(image_extensions), texts_field=texts_field,
        images_field=images_field, image_member_field=image_member_field, sample_id_field=sample_id_field,
        per_image_fields=tuple(per_image_fields), per_text_fields=tuple(per_text_fields),
        fields=None if fields is None else tuple(fields),
    )  # fmt: skip
    return open_dataset(
        file_paths, format="webdataset", view="interleaved", interleaved=names, max_batch_bytes=max_batch_bytes,
        on_materialize_error=on_materialize_error, **opening,
    )  # fmt: skip


class _Writer(DatasetWriter):
    """Writes batches of items. Rows of one document may be anywhere in a batch, and bytes may be in other files.

    Example:
        with InterleavedParquetWriter("out", on_materialize_error="drop_sample") as writer:
            for batch in InterleavedWebdatasetReader("mint/*.tar").batches():
                writer.write_batch(batch)

    Args:
        path: folder of the new dataset, which appears when the writer is closed without an error.
        schema: columns of all rows: missing columns are nulls, others are dropped.
        schema_overrides: types of some columns. With `schema`, a warning; `schema` holds.
        on_materialize_error: for rows with an error, of an upstream stage or of the fetch: `error`, `warn`, `drop_row`
            or `drop_sample`.
        mode: `error` if the folder is not empty, or `overwrite`.
        roots: folders that `source_ref` may point into, for rows without bytes.
        stores: store of each URL.
        more: the other arguments of `lading.writer`, such as `shard_size` or `rank`.
    """

    _format = ""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        schema: pa.Schema | None = None,
        schema_overrides: SchemaOverrides = None,
        on_materialize_error: OnError = "error",
        mode: Literal["error", "overwrite"] = "error",
        roots: Sequence[str | os.PathLike[str]] = (),
        stores: Stores | None = None,
        **more: Any,
    ) -> None:
        if mode not in ("error", "overwrite"):
            raise UsageError("no such mode: a dataset appears as a whole", expected="error or overwrite",
                             found=f"mode={mode!r}", advice="Write to a new folder, and merge with lading.merge.",
                             )  # fmt: skip
        super().__init__(
            path, format=self._format, view="interleaved", on_error=on_materialize_error, overwrite=mode == "overwrite",
            stores=stores, **more,
        )  # fmt: skip
        self._target, self._given_roots = resolve_schema(schema, schema_overrides), roots
        self._given_stores = stores or Stores()

    def write_batch(self, rows: pa.RecordBatch | pa.Table, **how: Any) -> pa.Table | None:
        """Append the documents of a batch; returns as `lading.writer` does, of the last part.

        Documents are whole within a batch. A later document of the same id is another one, as in the peer.

        Raises:
            BadReference: a row has an error, under `on_materialize_error="error"`. It is a RuntimeError.
            Unrepresentable: a modality that the format does not have. It is a ValueError.
        """
        how.setdefault("duplicate_ids", "apart")
        if not rows.num_rows or any(is_ref(field.type) for field in rows.schema):
            return super().write_batch(rows, **how)
        written = None
        with self._opened(rows) as dataset:
            for batch in dataset.batches(lazy=True):
                written = super().write_batch(batch, **how)
        return written

    def _opened(self, rows: pa.RecordBatch | pa.Table) -> Dataset:
        """Return the rows as a dataset of one file in memory. Its reader aligns, groups and materialises them."""
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as file:
            file.write_table(table)
        store = MemoryStore()
        write_file(store, _ROWS, [sink.getvalue()])
        stores = self._given_stores.and_for({_ROWS: store})
        return open_dataset(
            _ROWS, format="arrow", view="interleaved", regroup=True, schema=self._target, roots=self._given_roots,
            stores=stores,
        )  # fmt: skip


class InterleavedParquetWriter(_Writer):
    """Writes batches of items as Parquet. Arguments as in `InterleavedWebdatasetWriterStage`."""

    _format = "parquet"


class InterleavedWebdatasetWriterStage(_Writer):
    """Writes batches of items as MINT-1T style tars. Only the modalities `metadata`, `text` and `image` fit.

    Keys of members are the quoted `sample_id`. Read them back with `sample_id_field="sample_id"`.
    """

    __doc__ += (_Writer.__doc__ or "").partition("\n")[2]
    _format = "webdataset"


InterleavedParquetWriterStage = InterleavedParquetWriter
"""The name of the class itself in the peer."""
