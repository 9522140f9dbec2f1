"""Restore rows of MDS as they were written, by the manifest: order, features and types.

Payload stays in place, so bytes of any length become large_binary, and arrays bytes; dictionaries become their values.
Bools, lists and structs are JSON in MDS.
Everything else is cast, which copies no text.
"""

from __future__ import annotations

import pyarrow as pa

from lading.arrow import json_text
from lading.arrow.json_columns import build_column
from lading.arrow.references import is_ref
from lading.arrow.views import child_fields, is_bytes, is_text, plain_type
from lading.errors import CorruptShard, DataError
from lading.features.types import decode, feature_of, with_feature

__all__ = ["given_field", "in_type", "written_schema"]


def written_schema(rows: pa.Schema) -> pa.Schema:
    """Return the schema in which rows of this schema are read back."""
    return pa.schema([_written_field(field) for field in rows], metadata=rows.metadata)


def _written_field(field: pa.Field) -> pa.Field:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if isinstance(kind, pa.FixedShapeTensorType):
        return with_feature(field.with_type(pa.large_binary()), feature_of(field))
    return field.with_type(pa.large_binary() if is_bytes(kind) or is_ref(kind) else plain_type(kind))


def given_field(own: pa.Field, written: pa.Field) -> pa.Field:
    """Return the field of a column: its own type (references, views) if that was written, else the written one.

    Args:
        own: the shard's field.
        written: the field in `written_schema`.
    """
    stays = is_bytes(written.type) and (is_bytes(own.type) or is_ref(own.type))
    kind = own.type if stays else written.type
    other = not stays and not is_text(kind) and (is_text(own.type) or bool(child_fields(kind)))  # has another feature
    return written.with_type(kind).with_metadata({**({} if other else own.metadata or {}), **(written.metadata or {})})


def in_type(column: pa.Array, field: pa.Field, own: pa.Field) -> pa.Array:
    """Return the values in the type of a field; text stays large if it exceeds 2 GiB.

    Args:
        column: the values as the shard has them.
        field: as `given_field` gives it.
        own: the shard's field.

    Raises:
        CorruptShard: a value does not fit.
    """
    if column.type == field.type:
        return column
    try:
        if not child_fields(field.type):
            return column.cast(field.type)
        return _parsed(column, field) if is_text(column.type) else _lists(column, field, own)
    except DataError as error:
        raise CorruptShard("a value is not of the type that the manifest tells", column=field.name,
                           expected=field.type, found=str(error)) from None  # fmt: skip
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        if is_text(column.type) and is_text(field.type):
            return column
        raise CorruptShard("a value is not of the type that the manifest tells", column=field.name,
                           expected=field.type, found=str(error)) from None  # fmt: skip


def _parsed(column: pa.Array, field: pa.Field) -> pa.Array:
    """Return lists or structs of their JSON. Raises DataError."""
    return build_column(field, [None if text is None else json_text.loads(text) for text in column.to_pylist()], "")


def _lists(column: pa.Array, field: pa.Field, own: pa.Field) -> pa.Array:
    """Return lists of the values that hold them, such as `list[jpeg]`. Raises DataError."""
    feature = feature_of(own)
    return pa.array([None if value is None else decode(feature, value) for value in column.to_pylist()], field.type)
