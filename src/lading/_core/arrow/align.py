"""Align schemas: unify the schemas of many files, and make tables fit a schema.

`reconcile_schema` and `align_table` follow the peer's rules for the item table, and also work for any other.
`union_schema` finds one schema for files that differ, before any of their rows are read.

Columns of references (`lading.ref`) and of views represent bytes: they are never cast, and fit every binary target.

Source: nemo-curator 1.4.0, stages/interleaved/utils/schema.py.
"""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from lading._core.arrow.batches import with_columns
from lading._core.arrow.casts import rebuilt
from lading._core.arrow.references import is_ref
from lading._core.arrow.views import child_fields, is_bytes, is_text, join, with_child_fields
from lading._core.features.casts import cast_column
from lading._core.features.items import INTERLEAVED_SCHEMA, RESERVED, without_source
from lading._core.features.types import FEATURE_KEY, Feature, feature_of
from lading._core.units import count
from lading.errors import DuplicateField, SchemaMismatch, Unrepresentable, UsageError, errors_at
from lading.options import SchemaPolicy

__all__ = [
    "align_table",
    "as_text",
    "reconcile_schema",
    "refuse_bare",
    "refuse_duplicate_names",
    "union_schema",
]

_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)
_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


def reconcile_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with the reserved columns of the item table in their own types, and no dictionaries.

    Reserved columns that are large (or references) stay so, because a smaller type might not hold them. Other columns
    keep their types, without dictionary encoding. No column is added; metadata stay.
    """
    _refuse_repeated_names(schema)
    return pa.schema([_reconciled(field) for field in schema], metadata=schema.metadata)


def _reconciled(field: pa.Field) -> pa.Field:
    plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if field.name not in RESERVED:
        return field.with_type(plain)
    own = INTERLEAVED_SCHEMA.field(field.name)
    large = pa.types.is_large_string(plain) or pa.types.is_large_binary(plain)
    keep = is_ref(plain) or plain == _LARGE.get(own.type)
    kind = plain if keep else _LARGE[own.type] if large and own.type in _LARGE else own.type
    return pa.field(field.name, kind, own.nullable, field.metadata)


def align_table(table: _Rows, target: pa.Schema) -> _Rows:
    """Return the rows with the columns of the target, in its order.

    Missing columns become nulls, other columns are left out, types are cast. Every cast is checked. Metadata of the
    rows stay: in the schema the rows' metadata win, in fields the target's, also in nested fields that are not cast.
    Cast columns take memory; the rest are shared.

    Raises:
        SchemaMismatch: a value does not fit the type of its column, or a column that may not be null is missing or
            holds a null; names column, first bad row, types.
        DuplicateField: a column appears twice.
        Unrepresentable: rows would be left without a column.
    """
    refuse_bare(table.num_rows, len(target))
    _refuse_repeated_names(table.schema)
    _refuse_repeated_names(target)
    fields, columns = [], []
    for field in target:
        at = table.schema.get_field_index(field.name)
        column = pa.nulls(table.num_rows, field.type) if at < 0 else cast_column(table.column(at), field)
        _refuse_nulls(column, field, missing=at < 0)
        own = {} if at < 0 else table.schema.field(at).metadata or {}
        column = _meaning(column, field.type)
        fields.append(pa.field(field.name, column.type, field.nullable, {**own, **(field.metadata or {})}))
        columns.append(column)
    metadata = {**(target.metadata or {}), **(table.schema.metadata or {})}
    return type(table).from_arrays(columns, schema=pa.schema(fields, metadata=metadata))


def _meaning(column: Any, kind: pa.DataType) -> Any:
    """Return a column of this type, with the metadata nested in the type, or its own where the type has none."""
    alike = column.type != kind or column.type.equals(kind, check_metadata=True)
    if alike or not pa.types.is_nested(kind):
        return column
    kind = _widened(kind, column.type)
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_meaning(chunk, kind) for chunk in column.chunks], kind)
    return rebuilt(column, kind, _meaning)  # a view would have a null too many where a map has no entries


def refuse_bare(rows: int, columns: int) -> None:
    """Raise Unrepresentable for rows without a column: Arrow's tables lose the number of such rows."""
    if rows and not columns:
        raise Unrepresentable("samples without a field cannot be kept or compared", expected="one column at least",
                              found=count(rows, "sample"), advice="Give them a column, such as __key__.")  # fmt: skip


def as_text(batch: pa.RecordBatch, target: pa.Schema | None) -> pa.RecordBatch:
    """Return the batch with bytes columns as text where the target has text: they were references when aligned.

    Raises:
        SchemaMismatch: invalid UTF-8; names column and row.
    """
    wanted = {field.name: field for field in target or () if is_text(field.type)}
    texts = [(i, wanted[f.name]) for i, f in enumerate(batch.schema) if is_bytes(f.type) and f.name in wanted]
    return with_columns(batch, {i: cast_column(join(batch.column(i)), field) for i, field in texts})


def _refuse_repeated_names(schema: pa.Schema) -> None:
    name, count = Counter(schema.names).most_common(1)[0] if len(schema) else ("", 1)
    if count > 1:
        raise DuplicateField("the table has this column more than once", column=name, found=f"{count} times")


def refuse_duplicate_names(schema: pa.Schema) -> None:
    """Raise DuplicateField for two columns of one name, or two fields of a struct, at any depth."""
    _refuse_repeated_names(schema)
    for field in schema:
        with errors_at(column=field.name):
            _refuse_repeated_names_in(field.type)


def _refuse_repeated_names_in(kind: pa.DataType) -> None:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    inner = [kind.field(i) for i in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    if pa.types.is_struct(kind) and len({child.name for child in inner}) < len(inner):
        raise DuplicateField("a struct holds a field more than once", found=", ".join(child.name for child in inner))
    for child in inner:
        _refuse_repeated_names_in(child.type)


def _refuse_nulls(column: pa.Array | pa.ChunkedArray, field: pa.Field, *, missing: bool) -> None:
    if field.nullable or not column.null_count:
        return
    if missing:
        raise SchemaMismatch("the column is missing and may not be null", column=field.name, expected=str(field.type))
    row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
    raise SchemaMismatch(
        "a null where none is allowed", column=field.name, row=row, expected=str(field.type), found="null"
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return is_bytes(kind) or bool(pa.types.is_fixed_size_binary(kind))


def _is_text(kind: pa.DataType) -> bool:
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def union_schema(
    schemas: Iterable[tuple[str, pa.Schema]], policy: SchemaPolicy = "union"
) -> tuple[pa.Schema, list[str]]:
    """Return one schema for many files, and their differences, one line a column.

    Types that differ become the smallest type that holds both. Null becomes any type; texts become large_string, bytes
    large_binary. Integers widen within signed or unsigned types, floats to the wider; lists and structs likewise
    inside. Columns come in the order of first appearance. A column, or a field of a struct, that some file lacks may be
    null. If metadata differ, also nested, the first wins. The files table and the lineage, which belong to one file,
    are left out.

    Args:
        schemas: name (for messages) and schema of each file.
        policy: `union` (every column), `intersect` (columns of all files) or `strict` (no difference).

    Raises:
        SchemaMismatch: no type holds both, a number has two labels, or, with `strict`, the files differ; names both
            files, column, types.
        UsageError: an unknown policy.
    """
    if policy not in ("union", "strict", "intersect"):
        raise UsageError("no such schema policy", expected="union, strict, intersect", found=repr(policy))
    distinct = _distinct(schemas)
    total = sum(count for _, _, count in distinct)
    names = dict.fromkeys(name for schema, _, _ in distinct for name in schema.names)
    holding = [({*schema.names}, schema, file, count) for schema, file, count in distinct]
    fields: list[pa.Field] = []
    differences: list[str] = []
    for name in names:
        found = [(schema.field(name), file) for there, schema, file, _ in holding if name in there]
        field, difference = _merged(name, found)
        missing = [(file, count) for there, _, file, count in holding if name not in there]
        if missing:
            then = "left out" if policy == "intersect" else "null there"
            lacking = f"missing in {sum(count for _, count in missing)} of {total} files, first {missing[0][0]}: {then}"
            difference = "; ".join(filter(None, [f"column {name!r} of {found[0][1]}: {lacking}", difference]))
            field = field.with_nullable(True)  # noqa: FBT003 - pyarrow takes it by position only
        if difference and policy == "strict":
            raise SchemaMismatch("files differ in their schema", column=name, found=difference, advice=_ADVICE)
        if difference:
            differences.append(difference)
        if not (missing and policy == "intersect"):
            fields.append(field)
    return pa.schema(fields, metadata=_merged_metadata([schema.metadata for schema, _, _ in distinct])), differences


_ADVICE = "Take every column with --schema union, or those that all files have with --schema intersect."


def _distinct(schemas: Iterable[tuple[str, pa.Schema]]) -> list[tuple[pa.Schema, str, int]]:
    """Return each schema once, with its first file and the number of its files: a million shards have few schemas."""
    seen: dict[bytes, tuple[pa.Schema, str]] = {}
    counts: Counter[bytes] = Counter()
    for file, schema in schemas:
        own = without_source(schema)
        key = own.serialize().to_pybytes()
        if key not in seen:
            _refuse_repeated_names(own)
            seen[key] = (own, file)
        counts[key] += 1
    return [(schema, file, counts[key]) for key, (schema, file) in seen.items()]


def _merged(name: str, found: list[tuple[pa.Field, str]]) -> tuple[pa.Field, str]:
    """Return one field for a column out of the files' fields, and in words how the files differ in it."""
    merged, first_file = found[0]
    kinds = {_spelled(merged.type): f"{_spelled(merged.type)} in {first_file}"}
    for field, file in found[1:]:
        wider = _joined(merged, field)
        if wider is None:
            nested = pa.types.is_nested(merged.type) or pa.types.is_nested(field.type)
            as_text = f"Give the column one type, such as --type {shlex.quote(f'{name}=string')}."
            raise SchemaMismatch(
                f"no type holds the values of both {first_file} and {file}",
                column=name,
                expected=f"{merged.type} ({first_file})",
                found=f"{field.type} ({file})",
                advice="Convert the files of each type to a dataset of their own." if nested else as_text,
            )
        kinds.setdefault(_spelled(field.type), f"{_spelled(field.type)} in {file}")
        merged = wider
    features: dict[str, set[bytes]] = defaultdict(set)
    for place, feature in {entry for field, _ in found for entry in _features_in(field, "")}:
        features[place].add(feature)
    words = [f"column {name!r}: {', '.join(kinds.values())}; {merged.type} is taken"] if len(kinds) > 1 else []
    if any(len(others) > 1 for others in features.values()):
        _refuse_other_labels(name, found)
        words.append(f"column {name!r}: other features; that of {first_file} is taken")
    return merged, "; ".join(words)


def _spelled(kind: pa.DataType) -> str:
    """Return a type as users know it: where bytes are, in a file or in memory, makes no other type."""
    return str(pa.large_binary() if is_ref(kind) else kind)


def _features_in(field: pa.Field, place: str) -> Iterator[tuple[str, bytes]]:
    """Return the features in the metadata of a field and of nested fields, and their places."""
    yield place, (field.metadata or {}).get(FEATURE_KEY, b"")
    named = pa.types.is_struct(field.type)
    for child in child_fields(field.type):
        yield from _features_in(child, f"{place}.{child.name}" if named else f"{place}[]")


def _refuse_other_labels(name: str, found: list[tuple[pa.Field, str]]) -> None:
    """Raise SchemaMismatch if a number has different labels in two files; additional labels are fine."""
    known: dict[str, tuple[tuple[str, ...], str]] = {}
    for field, file in found:
        for place, names in _labels(feature_of(field), ""):
            before, first_file = known.setdefault(place, (names, file))
            if any(one != other for one, other in zip(before, names, strict=False)):
                raise SchemaMismatch(
                    "a number is not the same label in both files", column=name + place,
                    expected=f"{', '.join(before)[:200]} ({first_file})", found=f"{', '.join(names)[:200]} ({file})",
                    advice="Store the names as text, or the numbers by one list, before you join them.",
                )  # fmt: skip


def _labels(feature: Feature, place: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Return the names of labels in a feature, and their places in it."""
    if feature.labels is not None:
        yield place, feature.labels
    if feature.item is not None:
        yield from _labels(feature.item, f"{place}[]")
    for name, inner in feature.children or ():
        yield from _labels(inner, f"{place}.{name}")


def _merged_metadata(metadata: list[dict[bytes, bytes] | None]) -> dict[bytes, bytes] | None:
    merged: dict[bytes, bytes] = {}
    for entry in metadata:
        merged = {**(entry or {}), **merged}
    return merged or None


def _joined(a: pa.Field, b: pa.Field) -> pa.Field | None:
    """Return the field that holds the values of both, with the metadata of both, the first's before the second's."""
    kind = _widened(a.type, b.type)
    nullable = a.nullable or b.nullable or pa.types.is_null(a.type) or pa.types.is_null(b.type)
    return None if kind is None else pa.field(a.name, kind, nullable, _merged_metadata([a.metadata, b.metadata]))


def _widened(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Return the smallest type that holds the values of both; None if there is none."""
    if a.equals(b, check_metadata=True) or pa.types.is_null(b):
        return a
    if a == b:
        inner = [_joined(*both) for both in zip(child_fields(a), child_fields(b), strict=True)]
        return with_child_fields(a, inner) if inner else a
    if pa.types.is_null(a):
        return b
    return next((wider for rule in _RULES if (wider := rule(a, b)) is not None), None)


def _wider_text(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    return pa.large_string() if _is_text(a) and _is_text(b) else None


def _wider_bytes(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    return pa.large_binary() if all(_is_bytes(kind) or is_ref(kind) for kind in (a, b)) else None


def _wider_number(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    for family in (pa.types.is_signed_integer, pa.types.is_unsigned_integer, pa.types.is_floating):
        if family(a) and family(b):
            return a if a.bit_width >= b.bit_width else b
    return None


def _wider_dictionary(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if not (pa.types.is_dictionary(a) or pa.types.is_dictionary(b)):
        return None
    plain = (kind.value_type if pa.types.is_dictionary(kind) else kind for kind in (a, b))
    return _widened(*plain)


def _wider_list(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    lists = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)
    if not (isinstance(a, lists) and isinstance(b, lists)):
        return None
    inner = _joined(a.value_field, b.value_field)
    if inner is None:
        return None
    small = isinstance(a, pa.ListType) and isinstance(b, pa.ListType)
    return pa.list_(inner) if small else pa.large_list(inner)


def _wider_struct(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if not (pa.types.is_struct(a) and pa.types.is_struct(b)):
        return None
    if any(len({child.name for child in kind}) < kind.num_fields for kind in (a, b)):
        return None
    ours, theirs = ({child.name: child for child in kind} for kind in (a, b))
    children = []
    for name in ours | theirs:
        nothing = pa.field(name, pa.null())
        wider = _joined(ours.get(name, nothing), theirs.get(name, nothing))
        if wider is None:
            return None
        children.append(wider)
    return pa.struct(children)


_RULES: tuple[Callable[[pa.DataType, pa.DataType], pa.DataType | None], ...] = (
    _wider_text,
    _wider_bytes,
    _wider_number,
    _wider_dictionary,
    _wider_list,
    _wider_struct,
)
