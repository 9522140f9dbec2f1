"""The types in which formats store the values of a feature: text as text, numbers as numbers, media as media.

Between a reader and a writer, values that lie in files are references or bytes, whatever they mean. A format that keeps
types writes the bytes of a text or of JSON as text, and those of an int64 as numbers. Formats of values without parts
(members of a tar, MDS, JSON Lines, CSV) get the bytes of Hugging Face's media, which are structs of bytes and path.
Nothing of the content changes: a text has the digest of its bytes, and a number that of its shortest decimal text.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow.casts import decoded
from lading._core.arrow.views import (
    is_bytes,
    is_list_of_bytes,
    is_text,
    join,
    list_lengths,
    make_lists,
    present,
    with_child_fields,
)
from lading._core.features.casts import shown, text_of_bytes
from lading._core.features.stored_values import is_payload
from lading._core.features.types import Bytes, Feature, Value, feature_of, tag_by_extension
from lading.errors import BadReference, DataError, Unrepresentable

__all__ = [
    "EXTENSION_KEY",
    "extension_of",
    "has_items",
    "has_natural_type",
    "in_natural_type",
    "is_meaning",
    "is_media",
    "is_media_list",
    "is_number",
    "known_feature",
    "lacks_extension",
    "list_of_member",
    "member_name",
    "natural_schema",
    "paths_left_out",
    "whole_number",
    "whole_numbers",
]

EXTENSION_KEY = b"lading.extension"
"""Key of a field's metadata: the extension of files of these media, as in `png`, for formats that name media."""

_NUMBER = Value("int64")
_TEXT, _BYTES = pa.large_string(), pa.large_binary()
_SHORT = r"\A(?:0|-?[1-9][0-9]{0,17})\z"
"""Texts of numbers that an int64 certainly holds."""
_LONG = r"\A-?[1-9][0-9]{18}\z"
_WHOLE_NUMBER = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_LIMITS = np.iinfo(np.int64)
_ITEM = re.compile(r"(.+)\.[0-9]+\.[^.]+")
_ANY_IMAGE = ("image", "img")
"""Names of members that say that they are images, but not of which format."""


def is_meaning(feature: Feature) -> bool:
    """Return whether bytes with this feature are text, JSON or texts of numbers, and not just bytes."""
    return feature.natural_type() is not None


def is_number(feature: Feature) -> bool:
    """Return whether bytes with this feature are texts of whole numbers, such as `cls` in a tar."""
    return feature == _NUMBER


def whole_number(value: bytes | memoryview) -> int | None:
    """Return the int64 whose shortest decimal text these bytes are; None for other bytes, such as `007` or `+5`."""
    if len(value) > len(str(_LIMITS.min)) or not _WHOLE_NUMBER.fullmatch(value):
        return None
    number = int(bytes(value))
    return number if _LIMITS.min <= number <= _LIMITS.max else None


def whole_numbers(column: pa.Array) -> pa.Array:
    """Return the `whole_number` of each value of a column of bytes or text as int64, null for other values."""
    values = join(decoded(column) if pa.types.is_dictionary(column.type) else column).cast(_BYTES)
    short = pc.match_substring_regex(values, _SHORT)
    numbers = pc.if_else(short, values, pa.scalar(None, _BYTES)).cast(_TEXT).cast(pa.int64())
    long = pc.indices_nonzero(pc.match_substring_regex(values, _LONG))
    if not len(long):
        return numbers
    found = numbers.to_pylist()
    for row in long.to_pylist():
        found[row] = whole_number(values[row].as_py())
    return pa.array(found, pa.int64())


def lacks_extension(field: pa.Field) -> bool:
    """Return whether a column holds media whose format neither its name (`jpg`) nor its metadata say."""
    if not (is_payload(field.type) or is_media(field.type)) or EXTENSION_KEY in (field.metadata or {}):
        return False
    return known_feature(field).is_media and not _named(field)


def _named(field: pa.Field) -> str:
    """Return the extension in the name of a column of media; empty if there is none."""
    extension = field.name.rpartition(".")[2].lower()
    known = pa.field(field.name, _BYTES, metadata=tag_by_extension(field.name))
    return extension if feature_of(known).is_media and extension not in _ANY_IMAGE else ""


def extension_of(field: pa.Field) -> str:
    """Return the extension of files of a column's media, by its metadata or its name; empty if it is unknown."""
    return (field.metadata or {}).get(EXTENSION_KEY, b"").decode() or _named(field)


def member_name(field: pa.Field) -> str:
    """Return the name of the members of a column in a tar: with the extension of its media, if its name has none.

    webdataset decodes members by the last extension of their names.
    """
    extension = (field.metadata or {}).get(EXTENSION_KEY, b"").decode()
    return f"{field.name}.{extension}" if extension else str(field.name)


def with_extensions(schema: pa.Schema, extensions: Mapping[str, str]) -> pa.Schema:
    """Return a schema with the extensions of the members of some columns, for `member_name`."""
    fields = [
        field.with_metadata({**(field.metadata or {}), EXTENSION_KEY: extensions[field.name].encode()})
        if field.name in extensions else field
        for field in schema
    ]  # fmt: skip
    return pa.schema(fields, metadata=schema.metadata)


def without_extension(field: pa.Field) -> pa.Field:
    """Return a field without the extension of its members, unless they are media: values of other types may follow."""
    metadata = field.metadata or {}
    if EXTENSION_KEY not in metadata or known_feature(field).is_media:
        return field
    return field.with_metadata({key: value for key, value in metadata.items() if key != EXTENSION_KEY})


def list_of_member(name: str) -> str | None:
    """Return the list that a member of a tar is an item of, as `image` for `image.0.jpg`; None for other members."""
    found = _ITEM.fullmatch(name)
    return found and found[1]


def is_media(kind: pa.DataType) -> bool:
    """Return whether a type is Hugging Face's struct of the bytes of a medium and the path of its file."""
    if not pa.types.is_struct(kind) or sorted(child.name for child in kind) != ["bytes", "path"]:
        return False
    return is_bytes(kind.field("bytes").type) and is_text(kind.field("path").type)


def is_media_list(kind: pa.DataType) -> bool:
    """Return whether a type is a list of Hugging Face's structs of bytes and a path."""
    return bool((pa.types.is_list(kind) or pa.types.is_large_list(kind)) and is_media(kind.value_type))


def has_items(kind: pa.DataType) -> bool:
    """Return whether a type is a list of bytes, or of Hugging Face's structs of bytes and a path."""
    return is_list_of_bytes(kind) or is_media_list(kind)


def natural_schema(schema: pa.Schema, *, typed: bool, nested: bool) -> pa.Schema:
    """Return the schema in which a format stores rows; metadata stay.

    Args:
        schema: columns of the rows, with features.
        typed: whether columns have types: otherwise all values are bytes, and stay so.
        nested: whether the format stores structs: otherwise media are their bytes.
    """
    fields = [field.with_type(_natural_type(field, typed=typed, nested=nested)) for field in schema]
    return pa.schema(fields, metadata=schema.metadata)


def _natural_type(field: pa.Field, *, typed: bool, nested: bool) -> pa.DataType:
    if typed and not nested and is_media_list(field.type):
        return with_child_fields(field.type, [field.type.value_field.with_type(_BYTES)])
    media = not nested and is_media(field.type)
    if not (media or (typed and is_payload(field.type))):
        return field.type
    feature = known_feature(field)
    if media:
        return _BYTES if feature.is_media else field.type
    return feature.natural_type() or field.type


def known_feature(field: pa.Field) -> Feature:
    """Return the feature of a field; bytes for one of a later version."""
    try:
        return feature_of(field)
    except DataError:
        return Bytes()


def has_natural_type(field: pa.Field, given: pa.DataType) -> bool:
    """Return whether values of a type become those of a field by `in_natural_type`."""
    if is_payload(given):
        return is_text(field.type) or (field.type == pa.int64() and is_number(known_feature(field)))
    if is_media_list(given):
        return not is_media_list(field.type)
    return is_media(given) and is_bytes(field.type)


def in_natural_type(column: pa.Array, field: pa.Field) -> pa.Array:
    """Return values in the type of a field, for which `has_natural_type`. The bytes of media are not copied.

    Raises:
        Unrepresentable: invalid UTF-8, or bytes that are not the shortest text of a number; names column and row.
        BadReference: a medium whose bytes are in a file of their own.
    """
    if is_media_list(column.type):
        return _lists_of_bytes(column, field)
    if is_bytes(field.type):
        return _bytes_of_media(column, field)
    if field.type == pa.int64():
        return _numbers(column, field)
    try:
        return text_of_bytes(column, field.type)
    except Unrepresentable as error:
        if error.row is not None:
            error.advice = _as_bytes(field.name)
        raise error.at(column=field.name) from None


def paths_left_out(column: pa.Array) -> int:
    """Return how many media of a column have a path, which their bytes do not have."""
    if is_media_list(column.type):
        return paths_left_out(column.flatten())
    if not is_media(column.type):
        return 0
    data, path = column.field("bytes"), column.field("path")
    return int(np.count_nonzero(present(column) & present(data) & present(path)))


def _numbers(column: pa.Array, field: pa.Field) -> pa.Array:
    numbers = whole_numbers(column)
    other = np.flatnonzero(present(column) & ~present(numbers))
    if len(other):
        row = int(other[0])
        raise Unrepresentable("not a number as lading would write it back", column=field.name, row=row,
                              expected="a whole number without zeros before it, spaces or a line end",
                              found=shown(column[row].as_py()),
                              advice=_as_bytes(field.name, "string"))  # fmt: skip
    return numbers


def _bytes_of_media(column: pa.Array, field: pa.Field) -> pa.Array:
    data, path = column.field("bytes"), column.field("path")
    if column.null_count:
        data, path = (pc.if_else(column.is_valid(), part, pa.scalar(None, part.type)) for part in (data, path))
    elsewhere = np.flatnonzero(present(path) & ~present(data))
    if len(elsewhere):
        row = int(elsewhere[0])
        raise BadReference("the bytes of a medium are not in the dataset, but in a file of their own",
                           column=field.name, row=row, found=path[row].as_py(),
                           advice="Write the dataset with its media first: datasets.load_from_disk(…) or "
                           "load_dataset(…), then save_to_disk(…).")  # fmt: skip
    return join(data).cast(field.type)


def _lists_of_bytes(column: pa.Array, field: pa.Field) -> pa.Array:
    lengths = list_lengths(column)
    try:
        items = _bytes_of_media(column.flatten(), field.with_type(field.type.value_type))
    except DataError as error:
        if error.row is not None:
            error.row = int(np.searchsorted(np.cumsum(lengths), error.row, "right"))
        raise
    return make_lists(field.type, lengths, items, present(column))


def _as_bytes(name: str, kind: str = "binary") -> str:
    """Return advice to keep the bytes as they are."""
    return f"Keep the values as they are with --type {shlex.quote(f'{name}={kind}')}."
