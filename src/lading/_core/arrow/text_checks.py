"""Refuse invalid values: pyarrow accepts any bytes in a buffer, and readers do not.

Every writer, in any format, refuses invalid UTF-8, decimals with more digits than their precision, and partial days in
milliseconds: pyarrow would write other values into a Parquet file. A time of day of 24 hours is more than Arrow allows,
but Parquet and tars keep it; only Arrow files refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from lading._core.arrow.views import child_fields, flattened, is_text, listed_items, slices, take_values
from lading.errors import Unrepresentable

__all__ = ["check_names", "holds", "holds_text", "is_checked", "is_utf8", "refuse_bad_values"]

_Test: TypeAlias = Callable[[pa.DataType], bool]

_TEXTS = (pa.string(), pa.large_string(), pa.string_view())
_DECIMALS = (pa.decimal32(1), pa.decimal64(1), pa.decimal128(1), pa.decimal256(1))
_CHECKED = {kind.id for kind in (*_TEXTS, *_DECIMALS, pa.date64())}


def holds_text(kind: pa.DataType) -> bool:
    """Return whether a type is text, or has text inside, as `holds` defines it."""
    return holds(kind, is_text)


def is_checked(kind: pa.DataType) -> bool:
    """Return whether a type can hold invalid values in any format: text, decimals, days in milliseconds."""
    return kind.id in _CHECKED


def holds(kind: pa.DataType, test: _Test) -> bool:
    """Return whether a type, or one inside it, passes: in lists, structs, maps, dictionaries, run ends, extensions."""
    if isinstance(kind, pa.BaseExtensionType):
        return holds(kind.storage_type, test)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return holds(kind.value_type, test)
    return test(kind) or any(holds(child.type, test) for child in child_fields(kind))


def check_names(fields: Iterable[pa.Field]) -> None:
    """Raise UnicodeDecodeError if the name of a field, also a nested one, is invalid UTF-8."""
    for field in fields:
        _check_name(field)


def _check_name(field: pa.Field) -> None:
    str(field.name)
    kind = field.type
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    check_names(kind.field(i) for i in range(kind.num_fields))


def refuse_bad_values(rows: pa.RecordBatch | pa.Table, test: _Test = is_checked) -> None:
    """Raise Unrepresentable for values that their type does not allow; names column and row.

    Values under nulls, and between the lists of a column, are not checked. Text takes 0.04 s a GB of ASCII, 0.3 of
    other, decimals 0.2.

    Args:
        rows: the rows.
        test: selects the types to check, also nested ones.
    """
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if not holds(field.type, test):
            continue
        first = 0
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            if bad := _bad_value(chunk, test):
                kind, found = bad
                row = _first_row(chunk, test)
                raise Unrepresentable(
                    "invalid UTF-8 in a text" if is_text(kind) else f"a value that {kind} does not allow",
                    column=field.name, found=found, row=None if row is None else first + row,
                    advice="Give bytes as a column of bytes." if is_text(kind) else "Cast it to a type that does.",
                )  # fmt: skip
            first += len(chunk)


def _bad_value(column: pa.Array, test: _Test, *, referred: bool = False) -> tuple[pa.DataType, str] | None:
    """Return type and value of the first invalid value, a text as Python has its bytes; None if all are valid."""
    for values in _leaves(column, test, referred=referred):
        try:
            values.validate(full=True)
        except pa.ArrowInvalid as error:
            if not is_text(values.type):
                return values.type, str(error)
            wrong = (value for value in slices(values) if value is not None and not is_utf8(value))
            return values.type, next((repr(bytes(value[:40])) for value in wrong), str(error))
    return None


def is_utf8(value: bytes | memoryview) -> bool:
    """Return whether bytes are valid UTF-8."""
    try:
        bytes(value).decode()
    except UnicodeDecodeError:
        return False
    return True


def _leaves(column: pa.Array, test: _Test, *, referred: bool) -> Iterator[pa.Array]:
    """Yield the arrays of such types in a column; of a dictionary all entries, or in order those `referred` to."""
    kind = column.type
    if not holds(kind, test):
        return
    if test(kind):
        yield column
        return
    if isinstance(kind, pa.BaseExtensionType):
        inner = [column.storage]
    elif pa.types.is_dictionary(kind):
        at = column.indices.drop_null().to_numpy().astype(np.int64) if referred else None
        inner = [column.dictionary if at is None else take_values(column.dictionary, at)]
    elif pa.types.is_run_end_encoded(kind):
        first = column.find_physical_offset()
        inner = [column.values.slice(first, column.find_physical_length())]
    elif pa.types.is_map(kind):
        first, last = (int(column.offsets[at].as_py()) for at in (0, len(column)))
        inner = [part.slice(first, last - first) for part in (column.keys, column.items)]
    else:
        inner = flattened(column) if pa.types.is_struct(kind) else [listed_items(column)[0]]
    for part in inner:
        yield from _leaves(part, test, referred=referred)


def _first_row(column: pa.Array, test: _Test) -> int | None:
    """Return the first row with an invalid value, by bisection; None if only unused dictionary entries are invalid."""
    if not _bad_value(column, test, referred=True):
        return None
    start, stop = 0, len(column)
    while stop - start > 1:
        middle = (start + stop) // 2
        if _bad_value(column.slice(start, middle - start), test, referred=True):
            stop = middle
        else:
            start = middle
    return start
