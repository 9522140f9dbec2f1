"""Types in which values are read back from files that do not store all types, and the header of `.npy` files."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pyarrow as pa

from lading._core.arrow.references import RefType, is_ref
from lading._core.arrow.types import arrow_type
from lading._core.arrow.views import child_fields, is_bytes, with_child_fields
from lading._core.features.types import (
    NUMBER_TYPES,
    Feature,
    feature_of,
    with_feature,
)
from lading.errors import UsageError, WrongFeature

__all__ = [
    "declared_field",
    "is_payload",
    "is_payload_field",
    "npy_head",
    "npy_header",
    "restored_type",
    "rows_schema",
]


def is_payload(kind: pa.DataType) -> bool:
    """Whether the values are bytes of any length, which need not be read to be given: they stay references."""
    return is_ref(kind) or is_bytes(kind)


def restored_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which values are read back: no dictionaries and views, bytes as large_binary."""
    types = pa.types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return restored_type(kind.value_type)
    if is_payload(kind):
        return pa.large_binary()
    if types.is_string_view(kind):
        return pa.large_string()
    inner = [child.with_type(restored_type(child.type)) for child in child_fields(kind)]
    return with_child_fields(kind, inner) if inner else kind


def npy_head(field: pa.Field) -> tuple[bytes, int] | None:
    """Return the `.npy` header for bytes that are values of arrays of one type and shape, and their length.

    With the header before the bytes, a member is a `.npy` file, and the value is a range of it. None for other fields.
    """
    name, extents = (feature_of(field).array if is_payload(field.type) else None) or (None, None)
    if name not in NUMBER_TYPES or extents is None or None in extents:
        return None
    dtype, shape = np.dtype(name).newbyteorder("<"), tuple(int(extent or 0) for extent in extents)
    return npy_header(dtype, shape), math.prod(shape) * dtype.itemsize


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return a `.npy` header."""
    told = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, told)
    return buffer.getvalue()


def rows_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema in which rows are read back: no dictionaries and views, bytes as large_binary."""
    return pa.schema([field.with_type(_restored_type(field)) for field in schema], metadata=schema.metadata)


def _restored_type(field: pa.Field) -> pa.DataType:
    return pa.large_binary() if is_payload_field(field) else restored_type(field.type)


def is_payload_field(field: pa.Field) -> bool:
    """Whether the values of a column are bytes that text cannot be, in a dictionary or not."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if not (is_bytes(kind) or pa.types.is_fixed_size_binary(kind) or isinstance(kind, RefType)):
        return False
    feature = feature_of(field)
    return feature.is_bytes or feature.is_media


def declared_field(name: str, kind: str | pa.DataType | Feature) -> pa.Field:
    """Return the field of a column that a user declares by a feature, an Arrow type, or the name of a type.

    Example:
        declared_field("score", "float32")
        declared_field("thumbnail", Image())  # large_binary, tagged as an image

    Raises:
        UsageError: there is no such type, or values of the feature can only be read.
    """
    kind = arrow_type(kind) if isinstance(kind, str) else kind
    if isinstance(kind, pa.DataType):
        return pa.field(name, pa.large_binary() if is_bytes(kind) else kind)
    try:
        return with_feature(pa.field(name, _declared_type(kind)), kind)
    except WrongFeature:
        expected = "the name of a type such as int64, an Arrow type, or a feature such as Image()"
        raise UsageError("not the type of a column", column=name, expected=expected, found=f"{kind!r:.80}") from None


def _declared_type(feature: Any) -> pa.DataType:
    """Return the type of a declared column, whose fields have features too. Raises WrongFeature."""
    if not isinstance(feature, Feature):
        raise WrongFeature("not a feature", found=repr(feature))
    if feature.item is not None:
        return pa.list_(with_feature(pa.field("item", _declared_type(feature.item)), feature.item))
    if feature.children is not None:
        return pa.struct(
            [with_feature(pa.field(name, _declared_type(inner)), inner) for name, inner in feature.children]
        )
    return feature.to_arrow_type()
