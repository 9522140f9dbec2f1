"""Documents and their media as columns, from any kind of file. See `_core.formats.media_archive.format`.

A document's text, media and metadata are empty if its file omits them, as JSON Lines do, or has a null.

Source: datatrove 0.10.1, data.py (`Document`, `Media`), pipeline/readers/jsonl.py and pipeline/writers/disk_base.py.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.arrow.casts import cast, first_refused
from lading._core.arrow.json_columns import is_json_type, is_nested_json
from lading._core.arrow.views import is_bytes, is_text, present
from lading._core.features.types import Json, Place, feature_of, with_feature
from lading.errors import CorruptShard, DataError, SchemaMismatch, Unrepresentable

__all__ = [
    "BYTES",
    "FAILED",
    "MEDIA",
    "MISSING",
    "PLACE",
    "PLAIN_ROWS",
    "by_number",
    "document_columns",
    "documents_of",
    "is_documents",
    "media_column",
    "media_lists",
    "media_parts",
    "stored_columns",
    "stored_media",
    "with_bytes",
    "with_fields",
]

MISSING, FAILED = "media without path or offset, without bytes", "media that could not be read"
"""Names of the counts of media without bytes."""

BYTES, PLACE = "media_bytes", ("path", "offset", "length")
"""Fields of a media: its bytes, and their location."""

PLAIN_ROWS = b"lading.rows"
"""Key of a schema's metadata, with any value: these documents are arbitrary rows, in which null differs from empty."""

MEDIA = pa.struct(
    [
        pa.field("id", pa.string()),
        pa.field("type", pa.int64()),
        pa.field("url", pa.string()),
        pa.field("alt", pa.string()),
        with_feature(pa.field("path", pa.string()), Place()),
        with_feature(pa.field("offset", pa.int64()), Place()),
        with_feature(pa.field("length", pa.int64()), Place()),
        pa.field(BYTES, pa.large_binary()),
        with_feature(pa.field("metadata", pa.string()), Json()),
    ]
)
"""A media in JSON Lines; documents in Parquet have types of their own."""

_EMPTY: dict[str, tuple[pa.Field, Any]] = {
    "text": (pa.field("text", pa.string()), ""),
    "media": (pa.field("media", pa.list_(MEDIA)), None),
    "metadata": (with_feature(pa.field("metadata", pa.string()), Json()), "{}"),
}
"""Fields that a file omits if empty, and their empty values."""

_FIELDS = tuple(field.name for field in MEDIA)
_INTEGERS, _TEXTS = (int,), (str,)
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("id", "url", "alt", "path", BYTES), _TEXTS),
    **dict.fromkeys(("type", "offset", "length"), _INTEGERS),
}


def document_columns(schema: pa.Schema, *, sparse: bool, kept: Collection[str] | None = None) -> pa.Schema:
    """Return the columns of documents, from those of their file.

    Args:
        schema: schema of the file.
        sparse: whether the file omits empty fields.
        kept: names of the written columns, if known: other fields were not omitted.

    Raises:
        SchemaMismatch: a `media` column that does not hold media.
    """
    fields = [_media_field(field) if field.name == "media" else field for field in schema]
    if sparse:
        fields = [_EMPTY[f.name][0] if f.name in _EMPTY and pa.types.is_null(f.type) else f for f in fields]
        absent = [name for name in _EMPTY if name not in schema.names and (kept is None or name in kept)]
        fields += [_EMPTY[name][0] for name in absent]
    return pa.schema(fields, metadata=schema.metadata)


def stored_columns(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a JSON Lines file with these documents: media are JSON."""
    at = schema.get_field_index("media")
    return schema if at < 0 else schema.set(at, with_feature(pa.field("media", pa.string()), Json()))


def stored_media(item: pa.StructType) -> pa.StructType:
    """Return the type of media in JSON Lines, whose numbers have 64 bits.

    Raises:
        Unrepresentable: a field of media that JSON Lines cannot hold; names it.
    """
    for child in item:
        if not _is_of(child, _STORED):
            raise Unrepresentable(
                "media in JSON Lines have no such field", column=f"media.{child.name}", found=_values_of(child),
                expected=MEDIA.field(child.name).type if child.name in _FIELDS else ", ".join(_FIELDS),
                advice="Write documents as Parquet with --to-option documents=parquet.",
            )  # fmt: skip
    return pa.struct([f.with_type(pa.int64()) if pa.types.is_integer(_values_of(f)) else f for f in item])


def _is_of(child: pa.Field, types: _Types) -> bool:
    """Return whether a field has the name and the type of one of these."""
    kind = _values_of(child)
    test = next((test for names, test in types if child.name in names), None)
    return test is not None and (pa.types.is_null(kind) or test(kind))


def _values_of(child: pa.Field) -> pa.DataType:
    return child.type.value_type if pa.types.is_dictionary(child.type) else child.type


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_any_bytes(kind: pa.DataType) -> bool:
    return bool(is_bytes(kind) or is_text(kind) or pa.types.is_fixed_size_binary(kind))


_Types: TypeAlias = tuple[tuple[Sequence[str], Callable[[pa.DataType], bool]], ...]

_STORED: _Types = (
    (("id", "url", "alt", "path"), is_text),
    (("type", "offset", "length"), pa.types.is_integer),
    ((BYTES,), _is_any_bytes),
    (("metadata",), lambda kind: is_text(kind) or is_json_type(kind) or is_nested_json(kind)),
)
"""Types that fields of media may have in JSON Lines."""

_READ: _Types = (
    (("path",), lambda kind: is_text(kind) or is_bytes(kind)),
    (("offset", "length"), _is_number),
    ((BYTES,), _is_any_bytes),
)
"""Types that are also read: pandas makes numbers double if some are missing, and some writers do not mark texts."""


def _media_field(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_null(kind) or is_text(kind):
        return _EMPTY["media"][0]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = kind.value_type
        if pa.types.is_null(item):
            return _EMPTY["media"][0]
        if pa.types.is_struct(item) and {"path", "offset", BYTES} & {child.name for child in item}:
            return pa.field("media", pa.list_(_item_type(item)), metadata=field.metadata)
    raise SchemaMismatch("documents hold a list of media", column="media", expected=str(MEDIA), found=str(kind)[:200])


def _item_type(item: pa.StructType) -> pa.StructType:
    """Return the type of media with these fields: with bytes and locations."""
    own = {name: MEDIA.field(name) for name in (*PLACE, BYTES)}
    for child in item:
        if child.name in own and not _is_of(child, _READ):
            raise SchemaMismatch("a field of media has another type", column=f"media.{child.name}",
                                 expected=str(MEDIA.field(child.name).type), found=str(child.type)[:200])  # fmt: skip
    return pa.struct([*(own.pop(child.name, child) for child in item), *own.values()])


def documents_of(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Return documents of rows of a file, with the existing ones of these `document_columns`.

    Raises:
        CorruptShard: invalid media; the row is that of the batch.
    """
    may_be_null = PLAIN_ROWS in (columns.metadata or {})
    found = [_column(batch, field, may_be_null=may_be_null) for field in columns]
    fields = [field.with_type(column.type) for field, column in zip(columns, found, strict=True)]
    return pa.RecordBatch.from_arrays(found, schema=pa.schema(fields, metadata=columns.metadata))


def _column(batch: pa.RecordBatch, field: pa.Field, *, may_be_null: bool) -> pa.Array:
    at = batch.schema.get_field_index(field.name)
    given = batch.column(at) if at >= 0 else pa.nulls(batch.num_rows)
    if field.name == "media":
        return _media(given, field.type)
    if pa.types.is_null(given.type):
        given = cast(given, field.type)
    if may_be_null or field.name not in _EMPTY or not given.null_count:
        return given
    if pa.types.is_struct(given.type):
        return pa.Array.from_buffers(given.type, len(given), [None], children=given.flatten())
    encoded = pa.types.is_dictionary(given.type)
    if not is_text(given.type.value_type if encoded else given.type):
        return given
    empty = _EMPTY[field.name][1] or ('""' if feature_of(field).is_json else "")
    filled = given.cast(pa.large_string()).fill_null(empty)
    return (filled.dictionary_encode() if encoded else filled).cast(given.type)


def _media(given: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return media in the type of their column."""
    if pa.types.is_null(given.type):
        return media_column([None] * len(given))
    if is_text(given.type):
        return media_column([None if t is None else _json(t, i) for i, t in enumerate(given.to_pylist())])
    item = kind.value_type
    values, bounds = media_parts(given)
    if pa.types.is_null(values.type):
        values = pa.nulls(len(values), item)
    if values.null_count:
        raise _misfit("a media that is null", int(np.searchsorted(bounds, np.argmin(present(values)), "right")) - 1)
    children = [_cast(values, bounds, own) for own in item]
    return _listed(pa.StructArray.from_arrays(children, fields=list(item)), bounds)


def _cast(items: pa.StructArray, bounds: NDArray[np.int64], own: pa.Field) -> pa.Array:
    if items.type.get_field_index(own.name) < 0:
        return pa.nulls(len(items), own.type)
    given = items.field(own.name)
    try:
        return given.cast(own.type)
    except pa.ArrowInvalid as error:
        row = int(np.searchsorted(bounds, first_refused(given, lambda part: part.cast(own.type)), "right")) - 1
        raise _misfit(
            f"a media whose {own.name} is not {own.type}", row, own.name, str(error)[:80], str(own.type)
        ) from None


def _json(text: str, row: int) -> Any:
    try:
        return json_text.loads(text)
    except DataError:
        raise _misfit("media must be a list", row, found=repr(text[:40])) from None


def media_column(lists: Sequence[Any]) -> pa.Array:
    """Return a column of `MEDIA` lists from JSON values; None and a missing value are empty lists.

    Raises:
        CorruptShard: a value is not a list of media; names the row.
    """
    for row, value in enumerate(lists):
        if not (value is None or isinstance(value, list)) or not all(type(one) is dict for one in value or ()):
            raise _misfit("media must be a list of objects", row, found=type(value).__name__)
    sizes = np.array([len(value or ()) for value in lists], np.int64)
    flat: list[dict[str, Any]] = list(chain.from_iterable(value or () for value in lists))
    row_of = np.repeat(np.arange(len(lists)), sizes)
    unknown = set().union(*flat) - {*_FIELDS}
    if unknown:
        at = next(i for i, one in enumerate(flat) if unknown & one.keys())
        name = min(unknown & flat[at].keys())
        raise _misfit("a media with a field that media do not have", int(row_of[at]), name, repr(name),
                      ", ".join(_FIELDS))  # fmt: skip
    children = [_child(field, [one.get(field.name) for one in flat], row_of) for field in MEDIA]
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    return _listed(pa.StructArray.from_arrays(children, fields=list(MEDIA)), bounds)


def _child(field: pa.Field, values: list[Any], row_of: NDArray[np.int64]) -> pa.Array:
    name = field.name
    if name == "metadata":
        return pa.array([None if v is None else json_text.dumps(v) for v in values], field.type)
    allowed = {*_KINDS[name], type(None)}
    wrong = {*map(type, values)} - allowed
    try:
        if not wrong:
            return pa.array(
                values if name != BYTES else [None if v is None else _unpacked(v) for v in values], field.type
            )
    except (ValueError, OverflowError):
        pass
    at = next(i for i, value in enumerate(values) if type(value) in wrong or not _fits(name, value))
    what = "base64" if name == BYTES else "a text" if _KINDS[name] is _TEXTS else "a whole number of 64 bits"
    raise _misfit(f"a media whose {name} is not {what}", int(row_of[at]), name, repr(values[at])[:40], what)


def _fits(name: str, value: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 63
    if name != BYTES:
        return json_text.is_unicode(value)
    try:
        _unpacked(value)
    except ValueError:
        return False
    return True


def _unpacked(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _misfit(
    what: str, row: int, name: str = "media", found: str = "", expected: str = "a list of media"
) -> CorruptShard:
    return CorruptShard(
        what, row=row, column=name if name == "media" else f"media.{name}", expected=expected, found=found
    )


def media_lists(ids: pa.Array, kinds: pa.Array, payload: pa.Array, bounds: NDArray[np.int64]) -> pa.ListArray:
    """Return a column of `MEDIA` lists with inline bytes and no other fields.

    Args:
        ids: id of each media.
        kinds: type of each, as numbers.
        payload: the bytes of each.
        bounds: start of the media of each document, and the end.
    """
    count = len(payload)
    columns = {
        "id": ids.cast(pa.string()),
        "type": kinds.cast(pa.int64()),
        "url": pa.array([""] * count, pa.string()),
        "metadata": pa.array(["{}"] * count, pa.string()),
        BYTES: payload,
    }
    children = [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in MEDIA]
    ends = pa.array(bounds.astype(np.int32))
    return pa.ListArray.from_arrays(ends, pa.StructArray.from_arrays(children, fields=list(MEDIA)))


def media_parts(lists: pa.Array) -> tuple[pa.StructArray, NDArray[np.int64]]:
    """Return all media of a column; those of document i are `bounds[i]` to `bounds[i + 1]`."""
    bounds = np.asarray(lists.offsets.to_numpy(), np.int64)
    return lists.values[int(bounds[0]) : int(bounds[-1])], bounds - bounds[0]


def by_number(numbers: NDArray[np.int64], count: int) -> Iterator[NDArray[np.int64]]:
    """Return for each number below `count` its positions, ascending; negative numbers are skipped."""
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(count + 1)).tolist()
    return (order[first:end] for first, end in pairwise(bounds))


def _listed(items: pa.Array, bounds: NDArray[np.int64]) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(bounds.astype(np.int32)), items, pa.list_(items.type))


def with_bytes(media: pa.Array, content: Sequence[bytes | None]) -> pa.Array:
    """Return a column of media with these bytes, one value a media in order, where it had none."""
    own = media_parts(media)[0].field(BYTES)
    read = pa.array(content, own.type)
    return with_fields(media, {BYTES: read if own.null_count == len(own) else pc.coalesce(read, own)})


def with_fields(media: pa.Array, fields: Mapping[str, pa.Array]) -> pa.Array:
    """Return a column of media with some fields replaced, one value a media in order."""
    items, bounds = media_parts(media)
    children = [fields[own.name] if own.name in fields else items.field(own.name) for own in items.type]
    return _listed(pa.StructArray.from_arrays(children, fields=list(items.type)), bounds)


def is_documents(schema: pa.Schema) -> bool:
    """Whether rows are documents with media already."""
    return "media" in schema.names
