"""The columns of several datasets, one after another: of each a type that holds the values of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from lading._core.arrow.align import union_schema
from lading._core.arrow.views import is_bytes, is_text
from lading._core.dataset.transform.part_views import PartSchema
from lading._core.features.items import KEY
from lading._core.features.natural import is_number, known_feature, whole_numbers
from lading._core.features.row_layout import RowLayout
from lading.errors import SchemaMismatch, UsageError

__all__ = ["FirstRows", "columns_of_parts"]

FirstRows = Callable[[Sequence[str], int], pa.RecordBatch | None]
"""What gives the first rows of a part with some of its columns, and with their bytes."""

_LOOKED_AT = 16


def columns_of_parts(
    names: Sequence[str],
    schemas: Sequence[pa.Schema],
    first_rows: Sequence[FirstRows],
    *,
    layout: RowLayout,
    types: pa.Schema | None,
) -> list[PartSchema]:
    """Return the columns that rows of each part get.

    Args:
        names: of the parts, for errors.
        schemas: their own columns, payload as bytes.
        first_rows: of each part, what gives its first rows.
        layout: the meaning of a row.
        types: types that the caller gives to some columns.

    Raises:
        SchemaMismatch: no type holds the values of some columns; names all of them.
        UsageError: no part has a column that is given a type.
    """
    types = pa.schema([]) if types is None else types
    texts = {field.name for schema in schemas for field in schema if is_text(field.type)}
    numbers = {field.name for schema in schemas for field in schema if pa.types.is_integer(field.type)}
    meant = [
        pa.schema([_as_meant(field, texts, numbers, rows) for field in schema])
        for schema, rows in zip(schemas, first_rows, strict=True)
    ]
    known = dict.fromkeys(name for schema in meant for name in schema.names)
    for name in types.names:
        if name not in known:
            raise UsageError("no such column", expected=", ".join(known), found=repr(name))
    fields, misfits = [], []
    for name in known:
        if name in types.names:
            fields.append(types.field(name))
            continue
        mine = [(part, pa.schema([schema.field(name)])) for part, schema in zip(names, meant, strict=True)
                if name in schema.names]  # fmt: skip
        try:
            fields.append(union_schema(mine)[0].field(0))
        except SchemaMismatch as error:
            misfits.append((name, error, mine))
    if misfits:
        raise _misfit(misfits)
    whole = pa.schema(fields)
    keyed = not layout.is_keyed and KEY in whole.names
    return [
        PartSchema(own, whole, f"{number:04}-" if keyed and KEY not in own.names else "")
        for number, own in enumerate(schemas)
    ]


def _as_meant(field: pa.Field, texts: set[str], numbers: set[str], first_rows: FirstRows) -> pa.Field:
    """Return a column of bytes as text or numbers where another part has these, and the bytes mean them."""
    feature = known_feature(field)
    if not is_bytes(field.type):
        return field
    if field.name in numbers and is_number(feature):
        rows = first_rows([field.name], _LOOKED_AT)
        values = None if rows is None else rows.column(field.name).drop_null()
        is_text_only = values is not None and whole_numbers(values).null_count > 0
        return field.with_type(pa.large_string() if is_text_only else pa.int64())
    return field.with_type(pa.large_string()) if field.name in texts and (feature.is_text or feature.is_json) else field


def _misfit(misfits: Sequence[tuple[str, SchemaMismatch, Sequence[tuple[str, pa.Schema]]]]) -> SchemaMismatch:
    """Return one error for all columns for which there is no common type."""
    if len(misfits) == 1 and "label" in misfits[0][1].message:
        return misfits[0][1]
    told = [
        f"{name}: " + ", ".join(f"{schema.field(0).type} in {part}" for part, schema in mine)
        for name, _, mine in misfits
    ]
    names = [name for name, _, _ in misfits]
    return SchemaMismatch(
        "no type holds the values of a column in all datasets" if len(names) == 1
        else "no type holds the values of some columns in all datasets",
        column=", ".join(names), found="; ".join(told),
        advice=f"Give each one type: --type {' --type '.join(f'{name}=string' for name in names)}.",
    )  # fmt: skip
