"""Arrow schemas and Parquet's: the types in which columns are read, and the metadata of a file."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from lading._core.arrow.references import is_ref, without_files
from lading._core.arrow.views import child_fields, is_bytes, is_text, plain_type, with_child_fields
from lading._core.features.huggingface import from_huggingface, without_default
from lading.errors import Unrepresentable

__all__ = [
    "ARROW_SCHEMA",
    "arrow_types_in",
    "check_schema",
    "file_type",
    "given_schema",
    "leaves_by_field",
    "metadata_of",
    "values_of_leaves",
    "with_leaves",
    "without_leaves",
]

ARROW_SCHEMA = b"ARROW:schema"
"""Key of a file's metadata: the Arrow schema of its writer, as base64 of an IPC message. pyarrow uses it."""


def given_schema(
    natural: pa.Schema, metadata: Mapping[bytes, bytes], *, views: bool, units: Mapping[str, str]
) -> pa.Schema:
    """Return the schema of batches: payload large (or views), other views plain, times in the writer's unit.

    Features in Hugging Face's metadata go into the fields too. A table of files, which only lading's own references
    have, is left out.

    Args:
        natural: pyarrow's schema of the file.
        metadata: key-value metadata of the file.
        views: whether payload that pyarrow returns as views stays so.
        units: units of times that the caller asked for, by column; they replace those of the writer.
    """
    declared = arrow_types_in(metadata)
    declared |= {name: _in_unit(declared[name], unit) for name, unit in units.items() if name in declared}
    fields = [field.with_type(_given_type(field.type, declared.get(field.name), views=views)) for field in natural]
    return without_default(from_huggingface(pa.schema(fields, metadata=without_files(natural.metadata) or None)))


def arrow_types_in(metadata: Mapping[bytes, bytes]) -> dict[str, pa.DataType]:
    """Return types of the columns by name, from the Arrow schema in a file's metadata; nothing without one."""
    if ARROW_SCHEMA not in metadata:
        return {}
    stored = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(metadata[ARROW_SCHEMA])))
    return {field.name: field.type for field in stored}


def _given_type(kind: pa.DataType, declared: pa.DataType | None, *, views: bool) -> pa.DataType:
    if pa.types.is_binary_view(kind) and views:
        return kind
    if pa.types.is_binary(kind):
        return pa.large_binary()
    return plain_type(kind) if declared is None else _with_times(plain_type(kind), declared)


def _with_times(kind: pa.DataType, declared: pa.DataType) -> pa.DataType:
    """Return the type with times in the declared units, at any depth.

    Parquet has no seconds, and pyarrow turns dates in milliseconds into days; it restores neither. For times from a
    dictionary it restores nothing: no zones, and no durations from numbers.
    """
    types = pa.types
    if types.is_dictionary(declared):
        return _with_times(kind, declared.value_type)
    if types.is_duration(declared) and types.is_int64(kind):
        return declared
    if any(test(kind) and test(declared) for test in (types.is_timestamp, types.is_time32, types.is_date)):
        return declared
    inner, own = child_fields(kind), child_fields(declared)
    if type(kind) is not type(declared) or len(inner) != len(own) or not inner:
        return kind
    pairs = zip(inner, own, strict=True)
    return with_child_fields(kind, [a.with_type(_with_times(a.type, b.type)) for a, b in pairs])


def _in_unit(kind: pa.DataType, unit: str) -> pa.DataType:
    """Return a type with its timestamps in a unit, at any depth."""
    if pa.types.is_dictionary(kind):
        return _in_unit(kind.value_type, unit)
    if pa.types.is_timestamp(kind):
        return pa.timestamp(unit, kind.tz)
    inner = [child.with_type(_in_unit(child.type, unit)) for child in child_fields(kind)]
    return with_child_fields(kind, inner) if inner else kind


def file_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which values are stored: `plain_type`, with dictionaries only of top-level text and bytes.

    For others, pyarrow 26 restores no dictionary, and not always their type. Nested dictionaries it reads only from a
    single row group, and only if no data page follows the dictionary-encoded pages.
    """
    kind = plain_type(kind)
    if pa.types.is_dictionary(kind) and (is_text(kind.value_type) or is_bytes(kind.value_type)):
        return kind
    return _decoded(kind)


def _decoded(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return kind.value_type
    inner = [child.with_type(_decoded(child.type)) for child in child_fields(kind)]
    return with_child_fields(kind, inner) if inner else kind


def metadata_of(schema: pa.Schema) -> dict[bytes, bytes]:
    """Return key-value metadata for a file of this schema: the schema's own, and the schema without views.

    Otherwise pyarrow would declare that payload written as views is to be read as views.
    """
    fields = [field.with_type(file_type(field.type)) for field in schema]
    metadata = {key: value for key, value in without_files(schema.metadata).items() if key != ARROW_SCHEMA}
    stored = pa.schema(fields, metadata=metadata)
    return {**metadata, ARROW_SCHEMA: base64.b64encode(stored.serialize().to_pybytes())}


def check_schema(schema: pa.Schema) -> None:
    """Raise Unrepresentable for schemas that Parquet cannot hold: references, equal names, some types."""
    taken: set[pa.DataType] = set()
    for field in schema:
        if is_ref(field.type):
            raise Unrepresentable(
                "a Parquet file holds bytes, not references",
                column=field.name,
                advice="Materialise it first.",
            )
        if len(schema.get_all_field_indices(field.name)) > 1:
            raise Unrepresentable("two columns of one name", column=field.name)
        if _has_empty_arrays(field.type):
            raise Unrepresentable("Parquet does not give back arrays of size 0", column=field.name,
                                  found=str(field.type))  # fmt: skip
        if field.type in taken:
            continue
        taken.add(field.type)
        sink = pa.BufferOutputStream()
        try:
            pq.ParquetWriter(sink, pa.schema([field])).close()
            pq.ParquetFile(pa.BufferReader(sink.getvalue()))  # 100 levels at most, of which a list takes two
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, OSError) as error:
            raise Unrepresentable("Parquet cannot hold this type", column=field.name, found=str(field.type)) from error


def _has_empty_arrays(kind: pa.DataType) -> bool:
    """Return whether a type has lists of fixed size 0: pyarrow 26 writes them, but cannot read a null among them."""
    if isinstance(kind, pa.BaseExtensionType):
        return _has_empty_arrays(kind.storage_type)
    if pa.types.is_fixed_size_list(kind) and kind.list_size == 0:
        return True
    return pa.types.is_nested(kind) and any(_has_empty_arrays(kind.field(i).type) for i in range(kind.num_fields))


def leaves_by_field(schema: pa.Schema) -> list[list[int]]:
    """Return for each field the numbers of its Parquet columns: one, or one for each leaf of a nested type."""
    leaves: list[list[int]] = []
    first = 0
    for field in schema:
        count = _num_leaves(field.type)
        leaves.append(list(range(first, first + count)))
        first += count
    return leaves


def with_leaves(schema: pa.Schema) -> pa.Schema:
    """Return the fields that have Parquet columns: pyarrow leaves out groups without any, such as Go's `struct{}`."""
    some = [field for field in schema if _num_leaves(field.type)]
    return schema if len(some) == len(schema) else pa.schema(some, metadata=schema.metadata)


def without_leaves(kind: pa.DataType) -> bool:
    """Return whether a type has a group without Parquet columns inside."""
    if not _num_leaves(kind):
        return True
    kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    return pa.types.is_nested(kind) and any(without_leaves(kind.field(i).type) for i in range(kind.num_fields))


def values_of_leaves(schema: pa.Schema) -> list[tuple[int, int]]:
    """Return for each Parquet column `row_values` and `null_values`, as a column of the footer has them.

    A null list of fixed size is one value in Parquet, and in Arrow as many as any other.
    """
    return [found for field in schema for found in _values_of_leaves(field.type, 1, varies=False)]


def _values_of_leaves(kind: pa.DataType, fixed: int, *, varies: bool) -> Iterator[tuple[int, int]]:
    if isinstance(kind, pa.BaseExtensionType):
        yield from _values_of_leaves(kind.storage_type, fixed, varies=varies)
    elif pa.types.is_fixed_size_list(kind):
        yield from _values_of_leaves(kind.value_type, fixed * max(kind.list_size, 1), varies=varies)
    elif pa.types.is_nested(kind):
        varies = varies or not pa.types.is_struct(kind)
        for i in range(kind.num_fields):
            yield from _values_of_leaves(kind.field(i).type, fixed, varies=varies)
    else:
        yield (1, fixed) if varies else (fixed, 1)


def _num_leaves(kind: pa.DataType) -> int:
    if isinstance(kind, pa.BaseExtensionType):
        return _num_leaves(kind.storage_type)
    if pa.types.is_nested(kind):
        return sum(_num_leaves(kind.field(i).type) for i in range(kind.num_fields))
    return 1
