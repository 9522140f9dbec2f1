"""Types of JSON columns: structs, lists and scalars that hold the values of the first samples exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from lading._core.arrow import json_text
from lading._core.arrow.json_columns import build_column
from lading._core.arrow.views import LIST_TYPES, is_bytes, is_text
from lading._core.content.nested import plain
from lading._core.features.json_inside import holds_json_text, with_texts_inside
from lading._core.features.types import Json, with_feature
from lading.errors import DataError, LadingError, SchemaMismatch

__all__ = ["json_documents", "json_field", "json_texts", "json_values", "narrowed"]

_MOST_NAMES = 512
_EXACT = 1 << 53
_BROKEN = 'Correct it, or write json="text" to get JSON as it is stored.'
_TEXT, _LONG_TEXT = pa.string(), pa.large_string()


def json_field(name: str, documents: Sequence[Any]) -> pa.Field:
    """Return the field of a column whose type holds these JSON values exactly; JSON text where no other type does.

    JSON text is for values of several kinds, integers beyond 64 bits, objects without names or with more than 512, and
    values that are null everywhere.

    Args:
        name: of the column.
        documents: the values, as Python's.
    """
    values = [each for each in documents if each is not None]
    kinds = {*map(type, values)} - {NoneType}
    if kinds == {dict}:
        names = list(dict.fromkeys(chain.from_iterable(values)))
        if 0 < len(names) <= _MOST_NAMES and all(map(json_text.is_unicode, names)):
            inside = [json_field(each, [value.get(each) for value in values]) for each in names]
            return pa.field(name, pa.struct(inside))
    if kinds == {list}:
        item = json_field("item", list(chain.from_iterable(values)))
        return pa.field(name, pa.list_(item))
    kind = _scalar_type(values, kinds)
    return with_feature(pa.field(name, _TEXT), Json()) if kind is None else pa.field(name, kind)


def _scalar_type(values: list[Any], kinds: set[type]) -> pa.DataType | None:
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64() if all(-(1 << 63) <= value < 1 << 63 for value in values) else None
    if kinds in ({float}, {int, float}):
        exact = all(type(value) is float or abs(value) <= _EXACT for value in values)
        return pa.float64() if exact else None
    return _TEXT if kinds == {str} and all(map(json_text.is_unicode, values)) else None


def _only_fields(field: pa.Field, whole: pa.Field) -> bool:
    """Return whether a field has some of the fields of a whole one, and no part of an object inside them.

    Then objects may have other names, which nobody asked for.
    """
    if not pa.types.is_struct(field.type) or field.type == whole.type:
        return not _holds_objects(field.type)
    return all(_only_fields(child, whole.type.field(child.name)) for child in field.type)


def _holds_objects(kind: pa.DataType) -> bool:
    if isinstance(kind, LIST_TYPES):
        return _holds_objects(kind.value_type)
    return bool(pa.types.is_struct(kind))


def json_values(texts: pa.Array, field: pa.Field, whole: pa.Field) -> pa.Array:
    """Return JSON texts as values of a field's type; a null and an empty text are null.

    Args:
        texts: large_string or large_binary.
        field: the column, perhaps with some of its fields alone.
        whole: the column with all of its fields: others are a misfit where an object is asked for as a whole.

    Raises:
        DataError: a text is invalid JSON; names the row.
        SchemaMismatch: a value does not fit the type; names the row and the field.
    """
    found = _fast(texts, field, whole)
    return _slow(texts, field, whole) if found is None else found


def _fast(texts: pa.Array, field: pa.Field, whole: pa.Field) -> pa.Array | None:
    """Return the values as pyarrow parses them; None where its answer may differ from that of `_slow`."""
    may_have_others = _only_fields(field, whole)
    target = field if may_have_others else whole
    is_simple = pa.types.is_struct(target.type) and not holds_json_text(target)
    lines = _as_lines(texts) if is_simple and len(texts) else None
    if lines is None:
        return None
    parsing = arrow_json.ParseOptions(
        pa.schema(list(target.type)), newlines_in_values=True,
        unexpected_field_behavior="ignore" if may_have_others else "error",
    )  # fmt: skip
    reading = arrow_json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    try:
        table = arrow_json.read_json(pa.BufferReader(lines), reading, parsing)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    columns = [column.combine_chunks() for column in table.columns]
    if len(table) != len(texts) or any(map(_may_be_rounded, columns)):
        return None
    mask = texts.is_null() if texts.null_count else None
    return narrowed(pa.StructArray.from_arrays(columns, fields=list(target.type), mask=mask), field)


def _as_lines(texts: pa.Array) -> pa.Buffer | None:
    """Return texts of objects one after another, `{}` for a null; None where one is no object or invalid UTF-8.

    A parser that finds as many objects as there are texts has found one in each: a text that ends inside an object is
    followed by `{`, and JSON allows none there.
    """
    try:
        known = texts.cast(_LONG_TEXT)
    except pa.ArrowInvalid:
        return None
    known = pc.ascii_trim(known.fill_null("{}"), " \t\r\n")
    if not pc.all(pc.and_(pc.starts_with(known, "{"), pc.ends_with(known, "}"))).as_py():
        return None
    lines = pc.binary_join_element_wise(known, pa.scalar("", _LONG_TEXT), pa.scalar("\n", _LONG_TEXT))
    _, offsets, data = lines.buffers()
    first, last = np.frombuffer(offsets, np.int64)[lines.offset : lines.offset + len(lines) + 1][[0, -1]].tolist()
    return data.slice(first, last - first)


def _may_be_rounded(column: pa.Array) -> bool:
    """Return whether floats are so large that the text may have been a long integer, or are infinite."""
    if pa.types.is_floating(column.type):
        return bool(pc.any(pc.greater_equal(pc.abs(column), float(_EXACT))).as_py())
    if pa.types.is_struct(column.type) or isinstance(column.type, LIST_TYPES):
        return any(_may_be_rounded(child) for child in _inside(column))
    return False


def _inside(column: pa.Array) -> Iterator[pa.Array]:
    yield from column.flatten() if pa.types.is_struct(column.type) else [column.flatten()]


def narrowed(column: pa.Array, field: pa.Field) -> pa.Array:
    """Return a column of structs with the fields of a type alone."""
    if column.type == field.type or not pa.types.is_struct(field.type):
        return column
    children = [narrowed(column.field(child.name), child) for child in field.type]
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(field.type), mask=mask)


def _slow(texts: pa.Array, field: pa.Field, whole: pa.Field) -> pa.Array:
    """Return the values through Python's, one by one."""
    documents = json_documents(texts)
    documents = [_pruned(each, field, whole) for each in documents]
    ready = with_texts_inside(documents, field)
    plain = _without_json(field)
    try:
        return _in_type(build_column(plain, ready, ""), field)
    except SchemaMismatch:
        pass
    for row, value in enumerate(ready):
        try:
            build_column(plain, [value], "")
        except SchemaMismatch as error:
            place, found, kind = _misfit(value, plain, field.name)
            raise SchemaMismatch(
                "a JSON value does not fit the type that the first 1,000 samples have", column=place, row=row,
                expected=kind, found=found or str(error)[:80],
                advice="--json-as text gives all of the JSON as text.",
            ) from None  # fmt: skip
    raise AssertionError("values fit one by one, and not together")


def json_texts(column: pa.Array) -> pa.Array:
    """Return a column of JSON as text or bytes, whatever type the values of a shard have."""
    texts = plain(column)
    if is_text(texts.type) or is_bytes(texts.type):
        return texts
    return pc.if_else(texts.is_valid(), json_text.dumps_each(texts), pa.scalar(None, _LONG_TEXT))


def json_documents(texts: pa.Array) -> list[Any]:
    """Return JSON texts as Python's values; None for a null and an empty text. Raises DataError, with the row."""
    known = [text or b"null" for text in texts.cast(pa.large_binary()).to_pylist()]
    found = json_text.loads_plain(known)
    if found is not None:
        return found
    found = []
    for row, text in enumerate(known):
        try:
            found.append(json_text.loads(text))
        except DataError as error:
            error.offset = None  # of the value, not of the file
            error.advice = error.advice or _BROKEN
            raise error.at(row=row) from None
    return found


def _pruned(value: Any, field: pa.Field, whole: pa.Field) -> Any:
    """Return a value without the fields that nobody asked for."""
    if type(value) is not dict or not pa.types.is_struct(field.type) or field.type == whole.type:
        return value
    fields = [(child, whole.type.field(child.name)) for child in field.type]
    return {child.name: _pruned(value[child.name], child, of) for child, of in fields if child.name in value}


def _without_json(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _bare(field.type))


def _bare(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(child.name, _bare(child.type)) for child in kind])
    return pa.list_(_bare(kind.value_type)) if isinstance(kind, LIST_TYPES) else kind


def _in_type(column: pa.Array, field: pa.Field) -> pa.Array:
    return column if column.type == field.type else column.cast(field.type)


def _misfit(value: Any, field: pa.Field, place: str) -> tuple[str, str, str]:
    """Return the place of a value that does not fit, the value, and its type."""
    if type(value) is dict and pa.types.is_struct(field.type):
        names = {child.name: child for child in field.type}
        for name, each in value.items():
            if name not in names:
                return f"{place}.{name}", f"{each!r:.60}", "no such field"
            if not _fits(each, names[name]):
                return _misfit(each, names[name], f"{place}.{name}")
    if type(value) is list and isinstance(field.type, LIST_TYPES):
        item = field.type.value_field
        for number, each in enumerate(value):
            if not _fits(each, item):
                return _misfit(each, item, f"{place}[{number}]")
    return place, f"{value!r:.60}", str(field.type)


def _fits(value: Any, field: pa.Field) -> bool:
    try:
        build_column(field, [value], "")
    except LadingError:
        return False
    return True
