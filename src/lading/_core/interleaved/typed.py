"""A view whose columns have the types that the caller names; all other columns stay as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.arrow.align import cast_column
from lading._core.arrow.json_columns import is_nested_json
from lading._core.arrow.references import is_ref
from lading._core.arrow.views import is_bytes, is_text, join
from lading._core.features.natural import is_meaning, known_feature
from lading._core.features.stored_values import is_payload
from lading._core.features.types import FEATURE_KEY, Json, feature_of
from lading._core.formats.base import DEFAULT_SCAN, Finding, Scan
from lading._core.interleaved.base import View
from lading._core.interleaved.image_lists import ImageLists
from lading._core.storage.fetch import Fetcher
from lading.errors import errors_at
from lading.options import InterleavedOptions

__all__ = ["TypedView", "cast_values", "retyped"]

_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)


def retyped(schema: pa.Schema, types: pa.Schema, *, fills: bool) -> pa.Schema:
    """Return a schema in which the columns of `types` have those types; with `fills`, absent ones join at the end."""
    fields = [_retyped(field, types) for field in schema]
    fields += [field for field in types if fills and field.name not in schema.names]
    return pa.schema(fields, metadata=schema.metadata)


def _retyped(field: pa.Field, types: pa.Schema) -> pa.Field:
    at = types.get_field_index(field.name)
    if at < 0:
        return field
    asked = types.field(at)
    # Bytes that were asked for do not become text or numbers.
    bare = is_bytes(asked.type) and is_payload(field.type) and is_meaning(known_feature(field))
    if _fits(field, asked) and not bare:
        return field.with_metadata({**(field.metadata or {}), **(asked.metadata or {})})
    own = {key: value for key, value in (field.metadata or {}).items() if key != FEATURE_KEY}  # of the other type
    return field.with_type(asked.type).with_metadata({**own, **(asked.metadata or {})})


def _fits(field: pa.Field, asked: pa.Field) -> bool:
    """Return whether values need no cast; JSON that is to be text becomes the text of its strings."""
    if is_ref(field.type):
        return is_bytes(asked.type)
    return bool(field.type == asked.type) and not isinstance(feature_of(field), Json)


def cast_values(column: Any, before: pa.Field, field: pa.Field) -> Any:
    """Return values in the type of a field. Bytes become their text, JSON strings theirs, lists and structs JSON.

    Args:
        column: the values, in memory.
        before: the field that they had.
        field: the field that they get.

    Raises:
        SchemaMismatch: a value does not fit; names column, row and types.
    """
    if is_bytes(column.type) and not is_bytes(field.type):
        column = cast_column(join(column), field.with_type(pa.large_string()))
    if isinstance(feature_of(before), Json) and is_text(column.type):
        column = pa.array([_plain_text(text) for text in column.to_pylist()], pa.large_string())
    if is_text(field.type) and is_nested_json(column.type):
        texts = [None if value is None else json_text.dumps(value) for value in column.to_pylist()]
        column = pa.array(texts, pa.large_string())
    return cast_column(column, field)


class TypedView(View):
    """A shard with other types for some columns.

    Args:
        view: the shard.
        types: the types, by column.
        fetcher: reads payload that becomes another type than bytes.
        path: of the shard, for errors.
        fills: whether a column that the shard lacks is added as nulls.
    """

    def __init__(self, view: View, types: pa.Schema, fetcher: Fetcher, path: str, *, fills: bool) -> None:
        self._view, self._types, self._fetcher, self._path, self._fills = view, types, fetcher, path, fills
        self.copies, self.has_errors = view.copies, view.has_errors
        self.holds_items, self.has_members = view.holds_items, view.has_members

    @property
    def counts(self) -> Counter[str]:
        """Counts of the shard."""
        return self._view.counts

    @property
    def read_share(self) -> float | None:
        """Return the share of the file that is read by the latest batch."""
        return self._view.read_share

    def schema(self) -> pa.Schema:
        """Return the exact schema of all rows."""
        return retyped(self._view.schema(), self._types, fills=self._fills)

    def index(self) -> pa.Table | None:
        """Return the index of the shard."""
        return self._view.index()

    def samples_at_once(self) -> tuple[int, int, int]:
        """Return how many samples of the shard are read to read one (`View.samples_at_once`)."""
        return self._view.samples_at_once()

    def num_samples(self) -> int:
        """Return the number of samples."""
        return self._view.num_samples()

    def samples_from(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first sample that begins at each of these rows or behind it, and the row where."""
        return self._view.samples_from(rows)

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, with their new types."""
        schema = None if scan.schema is None else self._as_stored(scan.schema)
        first = 0
        for batch in self._view.batches(replace(scan, columns=self._present(scan.columns), schema=schema)):
            with errors_at(file=self._path, first_row=first):
                yield self._made(batch, scan.columns)
            first += batch.num_rows

    def _present(self, columns: Sequence[str] | None) -> Sequence[str] | None:
        """Return the columns to ask of the shard."""
        if columns is None or not self._fills or not any(name in columns for name in self._types.names):
            return columns
        known = self._view.schema().names
        return [name for name in columns if name in known or name not in self._types.names]

    def _as_stored(self, schema: pa.Schema) -> pa.Schema:
        """Return a schema with the shard's own types of the named columns, without those that the shard lacks."""
        named = {*self._types.names}
        own = self._view.schema() if named & {*schema.names} else schema
        fields = [own.field(f.name) if f.name in named else f for f in schema
                  if f.name not in named or f.name in own.names]  # fmt: skip
        return pa.schema(fields, metadata=schema.metadata)

    def read(self, samples: NDArray[Any], scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return the rows of samples by ordinal, with their new types."""
        with errors_at(file=self._path, first_row=None):
            return self._made(self._view.read(samples, Scan(self._present(scan.columns))), scan.columns)

    def _made(self, rows: _Rows, columns: Sequence[str] | None) -> _Rows:
        wanted = self._types
        if columns is not None:
            wanted = pa.schema([field for field in wanted if field.name in columns])
        target = retyped(rows.schema, wanted, fills=self._fills)
        arrays = [
            self._cast(rows, field) if field.name in rows.schema.names else pa.nulls(rows.num_rows, field.type)
            for field in target
        ]
        fields = [field.with_type(array.type) for field, array in zip(target, arrays, strict=True)]
        return type(rows).from_arrays(arrays, schema=pa.schema(fields, metadata=rows.schema.metadata))

    def _cast(self, rows: _Rows, field: pa.Field) -> Any:
        column, before = rows.column(field.name), rows.schema.field(field.name)
        if field.equals(before, check_metadata=True) or _fits(before, field):
            return column
        if is_ref(before.type) and not is_bytes(field.type):
            column = self._fetched(rows.select([field.name]))
        return cast_values(column, before, field)

    def _fetched(self, rows: _Rows) -> Any:
        batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
        chunks = [self._fetcher.materialise(batch, earlier=False).column(0) for batch in batches]
        return pa.chunked_array(chunks, pa.large_binary()) if isinstance(rows, pa.Table) else chunks[0]

    def declares_types(self) -> bool:
        """Return whether the other columns have types of the file."""
        return self._view.declares_types()

    def layout_findings(self) -> Sequence[Finding]:
        """Return problems in the order of rows."""
        return self._view.layout_findings()

    def settled(self, options: InterleavedOptions) -> InterleavedOptions:
        """Return the options completed with what the shard decides."""
        return self._view.settled(options)

    def image_lists(self) -> ImageLists:
        """Return the lists with one entry an image."""
        return self._view.image_lists()

    def detach(self) -> int | None:
        """Close files, and keep what `batches` would look up again."""
        return self._view.detach()

    def close(self) -> None:
        """Close files and maps."""
        self._view.close()


def _plain_text(text: str | None) -> str | None:
    """Return the text of a JSON value: a string's own, the JSON of others."""
    value = None if text is None else json_text.loads(text)
    return value if isinstance(value, str) or value is None else text
