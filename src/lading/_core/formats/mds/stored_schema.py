"""Restore rows of MDS as they were written, by the manifest: order, features and types.

Payload stays in place, so bytes of any length become large_binary, and arrays bytes; dictionaries become their values.
Bools, lists and structs are JSON in MDS. Arrays that MDS stores with their shape become `.npy` files, or lists, again.
Everything else is cast, which copies no text.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lading._core.arrow import json_text
from lading._core.arrow.json_columns import build_column
from lading._core.arrow.references import is_ref
from lading._core.arrow.views import child_fields, is_bytes, is_text, places, plain_type
from lading._core.features.mds_arrays import array_encoding, from_ndarray
from lading._core.features.mds_values import parse_array
from lading._core.features.natural import known_feature
from lading._core.features.types import decode, feature_of, with_feature
from lading.errors import CorruptShard, DataError

__all__ = ["given_field", "in_type", "is_rearranged", "written_schema"]


def written_schema(rows: pa.Schema) -> pa.Schema:
    """Return the schema in which rows of this schema are read back."""
    return pa.schema([_written_field(field) for field in rows], metadata=rows.metadata)


def _written_field(field: pa.Field) -> pa.Field:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    feature = known_feature(field)
    if isinstance(kind, pa.FixedShapeTensorType):
        return with_feature(field.with_type(pa.large_binary()), feature)
    if isinstance(kind, pa.ExtensionType) and feature.array is not None:  # of datasets, where it is imported
        return with_feature(field.with_type(kind.storage_type), feature)
    return field.with_type(pa.large_binary() if is_bytes(kind) or is_ref(kind) else plain_type(kind))


def given_field(own: pa.Field, written: pa.Field) -> pa.Field:
    """Return the field of a column: its own type (references, views) if that was written, else the written one.

    Args:
        own: the shard's field.
        written: the field in `written_schema`.
    """
    stays = is_bytes(written.type) and (is_bytes(own.type) or is_ref(own.type)) and not is_rearranged(own, written)
    kind = own.type if stays else written.type
    other = not stays and not is_text(kind) and (is_text(own.type) or bool(child_fields(kind)))  # has another feature
    return written.with_type(kind).with_metadata({**({} if other else own.metadata or {}), **(written.metadata or {})})


def is_rearranged(own: pa.Field, written: pa.Field) -> bool:
    """Return whether a shard holds the arrays of a column as other bytes than those that were written."""
    feature = known_feature(written)
    if known_feature(own) == feature or feature.array is None or not is_bytes(written.type):
        return False
    return parse_array(_encoding(own)) is not None


def _encoding(own: pa.Field) -> str:
    """Return the encoding of a shard's column of arrays, or of other values without an Arrow type; else nothing."""
    feature = known_feature(own)
    if feature.array is not None:
        return array_encoding(feature) or ""
    return feature.mds_encoding or ""


def in_type(column: pa.Array, field: pa.Field, own: pa.Field) -> pa.Array:
    """Return the values in the type of a field; text stays large if it exceeds 2 GiB.

    Args:
        column: the values as the shard has them.
        field: as `given_field` gives it.
        own: the shard's field.

    Raises:
        CorruptShard: a value does not fit.
    """
    try:
        if is_rearranged(own, field):
            return _rearranged(column, field, own)
        if column.type == field.type:
            return column
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


def _rearranged(column: pa.Array, field: pa.Field, own: pa.Field) -> pa.Array:
    """Return arrays as the bytes that were written. Raises DataError."""
    feature, encoding = feature_of(field), _encoding(own)
    views = places(column).views()
    return pa.array([None if view is None else from_ndarray(feature, encoding, view) for view in views], field.type)


def _parsed(column: pa.Array, field: pa.Field) -> pa.Array:
    """Return lists or structs of their JSON. Raises DataError."""
    return build_column(field, [None if text is None else json_text.loads(text) for text in column.to_pylist()], "")


def _lists(column: pa.Array, field: pa.Field, own: pa.Field) -> pa.Array:
    """Return lists of the values that hold them, such as `list[jpeg]`, or of arrays. Raises DataError."""
    feature = feature_of(own)
    found = [None if value is None else decode(feature, value) for value in column.to_pylist()]
    return pa.array([value.tolist() if isinstance(value, np.ndarray) else value for value in found], field.type)
