"""Schema functions of interleaved documents, with the names of NeMo Curator.

Source: nemo-curator 1.4.0, stages/interleaved/utils/schema.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TypeAlias

import pyarrow as pa

from lading._core.arrow.align import align_table as align_strictly
from lading._core.arrow.align import reconcile_schema
from lading._core.features.items import INTERLEAVED_SCHEMA

__all__ = ["SchemaOverrides", "align_table", "resolve_schema", "target_schema", "warn_of_both"]

SchemaOverrides: TypeAlias = Mapping[str, pa.DataType] | None


def resolve_schema(schema: pa.Schema | None, overrides: SchemaOverrides) -> pa.Schema | None:
    """Return the schema; or else the reserved columns with these types, and further columns; or else None.

    Warns if both are given: `schema` holds.

    Example: `resolve_schema(None, {"url": pa.string(), "text_content": pa.large_string()})`
    """
    if schema is not None:
        warn_of_both(schema, overrides)
        return schema
    return _overridden(INTERLEAVED_SCHEMA, overrides) if overrides else None


def align_table(table: pa.Table, target: pa.Schema) -> pa.Table:
    """Return the rows with the columns of the target, in its order.

    Missing columns become nulls, also those that may not be null; other columns are left out, types are cast.

    Example: `align_table(batch.to_pyarrow(), resolve_schema(None, {"url": pa.string()}))`

    Raises:
        SchemaMismatch: a value does not fit the type of its column; names column, first bad row, types.
    """
    padded = [f if f.name in table.schema.names else f.with_nullable(True) for f in target]  # noqa: FBT003 - pyarrow's
    aligned = align_strictly(table, pa.schema(padded, target.metadata))
    own = [found.with_nullable(asked.nullable) for found, asked in zip(aligned.schema, target, strict=True)]
    return pa.Table.from_arrays(aligned.columns, schema=pa.schema(own, aligned.schema.metadata))


def warn_of_both(schema: pa.Schema | None, overrides: SchemaOverrides) -> None:
    """Warn if both are given."""
    if schema is not None and overrides:
        warnings.warn("schema and schema_overrides are both given; schema holds", stacklevel=4)


def _overridden(schema: pa.Schema, overrides: SchemaOverrides) -> pa.Schema:
    """Return a schema with other types of some columns; those that it lacks follow."""
    found = {one.name: one for one in schema}
    for name, kind in (overrides or {}).items():
        found[name] = found[name].with_type(kind) if name in found else pa.field(name, kind)
    return pa.schema(list(found.values()))


def target_schema(own: pa.Schema, schema: pa.Schema | None, overrides: SchemaOverrides) -> pa.Schema:
    """Return the columns of rows: those of `schema`; or their own and all reserved ones, with overridden types."""
    if schema is not None:
        return schema
    absent = [one for one in INTERLEAVED_SCHEMA if one.name not in own.names]
    return _overridden(pa.schema([*reconcile_schema(own), *absent]), overrides)
