"""Types that the caller names for some columns; all other columns stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.references import is_ref
from lading._core.arrow.views import is_bytes
from lading._core.features.casts import cast_column
from lading._core.features.natural import is_meaning, known_feature
from lading._core.features.stored_values import is_payload
from lading._core.features.types import FEATURE_KEY, feature_of
from lading._core.formats.base import Change, Scan, SchemaBefore
from lading._core.storage.fetch import Fetcher

__all__ = ["OtherTypes", "fetched_column", "retyped"]

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
    return bool(field.type == asked.type) and not feature_of(field).is_json


def fetched_column(rows: pa.RecordBatch | pa.Table, fetcher: Fetcher) -> Any:
    """Return the payload of the only column, which holds references, as bytes."""
    batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
    chunks = [fetcher.materialise(batch, earlier=False).column(0) for batch in batches]
    return pa.chunked_array(chunks, pa.large_binary()) if isinstance(rows, pa.Table) else chunks[0]


@dataclass(frozen=True, slots=True)
class OtherTypes(Change):
    """Other types for some columns of a shard.

    Attributes:
        types: the types, by column.
        fetcher: reads payload that becomes another type than bytes.
        path: path of the shard, for errors.
        fills: whether a column that the shard lacks is added as nulls.
    """

    types: pa.Schema
    fetcher: Fetcher
    path: str
    fills: bool

    def schema_after(self, before: SchemaBefore) -> pa.Schema:
        """Return the exact schema of all rows."""
        return retyped(before(), self.types, fills=self.fills)

    def needed(self, scan: Scan, before: SchemaBefore) -> Scan:
        """Return the scan of the shard's own columns, in its own types."""
        schema = None if scan.schema is None else self._as_stored(scan.schema, before)
        return replace(scan, columns=self._present(scan.columns, before), schema=schema)

    def _present(self, columns: Sequence[str] | None, before: SchemaBefore) -> Sequence[str] | None:
        """Return the columns to ask of the shard."""
        if columns is None or not self.fills or not any(name in columns for name in self.types.names):
            return columns
        known = before().names
        return [name for name in columns if name in known or name not in self.types.names]

    def _as_stored(self, schema: pa.Schema, before: SchemaBefore) -> pa.Schema:
        """Return a schema with the shard's own types of the named columns, without those that the shard lacks."""
        named = {*self.types.names}
        own = before() if named & {*schema.names} else schema
        fields = [own.field(f.name) if f.name in named else f for f in schema
                  if f.name not in named or f.name in own.names]  # fmt: skip
        return pa.schema(fields, metadata=schema.metadata)

    def apply(self, rows: _Rows, columns: Sequence[str] | None, numbers: NDArray[np.int64]) -> _Rows:
        """Return the rows with their new types.

        Raises:
            SchemaMismatch: a value does not fit.
        """
        wanted = self.types
        if columns is not None:
            wanted = pa.schema([field for field in wanted if field.name in columns])
        target = retyped(rows.schema, wanted, fills=self.fills)
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
            column = fetched_column(rows.select([field.name]), self.fetcher)
        return cast_column(column, field, before=before)
