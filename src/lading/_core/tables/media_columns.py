"""Media and other bytes as tables show them: where they are, and what their headers say; or the bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lading._core.arrow.references import FileEntry, Refs, files_of, is_ref, unpack
from lading._core.arrow.views import byte_lengths, join, list_lengths, make_lists, present
from lading._core.content.field_paths import FieldPath
from lading._core.content.nested import plain, value_at
from lading._core.dataset.values.field_values import MEDIA_FACTS
from lading._core.dataset.values.media_headers import media_facts
from lading._core.features.base import Feature
from lading._core.features.natural import in_natural_type, is_media
from lading._core.storage.fetch import Fetcher

__all__ = ["bytes_of", "lists_of_media", "media_lengths", "media_struct", "place_fields"]

_PLACES = {"url": pa.string(), "offset": pa.int64(), "length": pa.int64()}
_LENGTH = pa.struct([pa.field("length", _PLACES["length"])])
_IMAGE = ("format", "width", "height", "frames", "orientation")
_AUDIO = ("format", "duration_s", "sample_rate", "channels", "codec")
_VIDEO = ("format", "width", "height", "duration_s", "frames", "fps", "codec")
_FACTS: dict[str | None, tuple[str, ...]] = {"image": _IMAGE, "audio": _AUDIO, "video": _VIDEO, None: ()}


def place_fields(feature: Feature, *, any_medium: bool) -> pa.DataType:
    """Return the struct of a place and the facts of its medium.

    Args:
        feature: of the column.
        any_medium: whether the bytes may be of any medium, as those of items of documents.
    """
    facts = tuple(dict.fromkeys((*_IMAGE, *_AUDIO, *_VIDEO))) if any_medium else _FACTS[feature.medium]
    return pa.struct(
        [*map(pa.field, _PLACES, _PLACES.values()), *(pa.field(each, MEDIA_FACTS[each]) for each in facts)]
    )


def media_struct(column: pa.Array, kind: pa.StructType, schema: pa.Schema, fetcher: Fetcher) -> pa.StructArray:
    """Return the places and facts of media that a struct type asks for. Headers are read where facts are asked for.

    `url` is the file, `offset` and `length` the range of bytes in it. Bytes without a range of their own have no
    offset: those inside a compressed file or a cell of Parquet.

    Args:
        column: references, bytes, or Hugging Face's structs of bytes and path.
        kind: the fields that are wanted.
        schema: of the column's batch, with its files table.
        fetcher: reads the first bytes behind references.
    """
    column = plain(column)
    names = [child.name for child in kind]
    data = _inner(column)
    found: dict[str, pa.Array] = {}
    if is_ref(data.type):
        found = _places(unpack(data), files_of(schema))
    else:
        there = present(data)
        found = {"url": pa.nulls(len(data), pa.string()), "offset": pa.nulls(len(data), pa.int64())}
        found["length"] = pa.array(byte_lengths(data).astype(np.int64), mask=~there)
    if any(name not in _PLACES for name in names):
        facts = media_facts(data, schema, fetcher)
        for name in names:
            if name not in _PLACES:
                values = [None if fact is None else getattr(fact, name) for fact in facts]
                found[name] = pa.array(values, MEDIA_FACTS[name])
    mask = None if not data.null_count else data.is_null()
    return pa.StructArray.from_arrays([found[name] for name in names], fields=list(kind), mask=mask)


def media_lengths(column: pa.Array, schema: pa.Schema, fetcher: Fetcher) -> pa.Array:
    """Return the lengths of media in bytes, null where unknown, without headers; arguments as `media_struct`."""
    return media_struct(column, _LENGTH, schema, fetcher).field("length")


def _places(refs: Refs, files: Sequence[FileEntry]) -> dict[str, pa.Array]:
    file = np.where(refs.valid, refs.file, 0).clip(0, max(len(files) - 1, 0))
    of_file = np.array([each.size_bytes for each in files] or [-1], np.int64)
    is_plain = np.array([not each.wrap for each in files] or [False], np.bool_)[file]
    whole = (refs.length == -1) & (refs.offset == 0)
    length = np.where(whole, of_file[file], refs.length)
    is_plain &= refs.valid & (refs.codec == 0) & (refs.frame < 0) & (refs.offset >= 0) & (length >= 0)
    urls = pa.array([each.url for each in files], pa.string()) if files else pa.nulls(1, pa.string())
    return {
        "url": urls.take(pa.array(file, mask=~refs.valid)),
        "offset": pa.array(refs.offset.astype(np.int64), mask=~is_plain),
        "length": pa.array(length.astype(np.int64), mask=~(refs.valid & (refs.codec == 0) & (length >= 0))),
    }


def _inner(column: pa.Array) -> pa.Array:
    return plain(value_at(column, FieldPath("", ("bytes",)))) if pa.types.is_struct(column.type) else column


def bytes_of(column: pa.Array, field: pa.Field) -> pa.Array:
    """Return media as the bytes of a field. Raises BadReference for a medium that is a file of its own."""
    column = plain(column)
    return in_natural_type(column, field) if is_media(column.type) else join(column).cast(field.type)


def lists_of_media(column: pa.Array, field: pa.Field, schema: pa.Schema, fetcher: Fetcher) -> pa.Array:
    """Return lists of media as lists of places and facts, or of bytes."""
    column, item = plain(column), field.type.value_field
    items = column.flatten()
    made = media_struct(items, item.type, schema, fetcher) if pa.types.is_struct(item.type) else bytes_of(items, item)
    return make_lists(field.type, list_lengths(column), made, present(column))
