"""Columns of lists of media as members of a tar: a member an item, and one that lists them.

    key.images.0.jpg    the first item; the ending is what the bytes are
    key.images.1.png    the second
    key.images.json     ["images.0.jpg", "images.1.png"]; null for an item without bytes

Of items with a path (Hugging Face's struct), the list has `{"bytes": "images.0.jpg", "path": "a.jpg"}`. The list tells
an empty one from a null, which has no member.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading.arrow import json_text
from lading.arrow.views import list_lengths, make_lists, present
from lading.content.media_info import media_info
from lading.errors import DataError
from lading.features.natural import has_items, is_media

__all__ = ["folded", "item_members", "list_member", "members_schema", "with_items"]

_ENDINGS = {"jpeg": "jpg", "tiff": "tif", "matroska": "mkv"}
"""Endings that differ from the name of the format."""
_UNKNOWN = "bin"


def list_member(name: str) -> str:
    """Return the field of the member that lists the items of a column."""
    return f"{name}.json"


def item_members(name: str, members: Iterable[str]) -> list[str]:
    """Return those members that are items of a column."""
    pattern = re.compile(rf"{re.escape(name)}\.[0-9]+\.[^.]+")
    return [member for member in members if pattern.fullmatch(member)]


def members_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema in which the columns of lists of media are the members that list them."""
    fields = [pa.field(list_member(f.name), pa.large_string()) if has_items(f.type) else f for f in schema]
    return pa.schema(fields, metadata=schema.metadata)


def with_items(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with a column a member, in place of each column of lists of media. Copies the bytes of the items."""
    if not any(has_items(field.type) for field in batch.schema):
        return batch
    fields, columns = list[pa.Field](), list[pa.Array]()
    for field, column in zip(batch.schema, batch.columns, strict=True):
        members = _members(field.name, column) if has_items(field.type) else {field: column}
        fields += members
        columns += members.values()
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, metadata=batch.schema.metadata))


def _members(name: str, column: pa.Array) -> dict[pa.Field, pa.Array]:
    rows, items = len(column), column.flatten()
    lengths = list_lengths(column)
    row = np.repeat(np.arange(rows), lengths)
    number = np.arange(len(items)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    structs = pa.types.is_struct(items.type)
    data = (pc.struct_field(items, "bytes") if structs else items).cast(pa.large_binary())
    views = data.to_pylist()
    names = [None if v is None else f"{name}.{i}.{_ending(v)}" for i, v in zip(number.tolist(), views, strict=True)]
    found: dict[str, list[int]] = {}
    for at, member in enumerate(names):
        if member is not None:
            found.setdefault(member, []).append(at)
    listed = _entries(names, items) if structs else names
    ends = np.cumsum(lengths).tolist()
    texts = [
        json_text.dumps(listed[end - length : end]) if there else None
        for end, length, there in zip(ends, lengths.tolist(), present(column).tolist(), strict=True)
    ]
    made = {pa.field(list_member(name), pa.large_string()): pa.array(texts, pa.large_string())}
    for member, places in found.items():
        taken = np.full(rows, -1)
        taken[row[places]] = places
        made[pa.field(member, pa.large_binary())] = data.take(pa.array(taken, mask=taken < 0))
    return made


def _entries(names: Sequence[str | None], items: pa.StructArray) -> list[Any]:
    paths = pc.struct_field(items, "path").to_pylist()
    return [
        {"bytes": name, "path": path} if there else None
        for name, path, there in zip(names, paths, present(items).tolist(), strict=True)
    ]


def _ending(data: bytes) -> str:
    found = media_info(data)
    return _UNKNOWN if found is None else _ENDINGS.get(found.format, found.format)


def folded(field: pa.Field, lists: pa.Array, items: Mapping[str, pa.Array], keys: pa.Array, path: str) -> pa.Array:
    """Return the lists that members represent.

    Args:
        field: name and type of the column.
        lists: the members that list the items, null for a missing one.
        items: bytes of the items (`large_binary`), by the name of their members.
        keys: keys of the samples, for errors.
        path: path of the tar, for errors.

    Raises:
        DataError: a member is not such a list, or an item that it names is missing; names file, sample, column.
    """
    numbers, rows = {name: number for number, name in enumerate(items)}, len(lists)
    structs = is_media(field.type.value_type)
    at, paths, there, lengths = list[int](), list[str | None](), list[bool](), list[int]()
    whole = pa.concat_arrays([*items.values()]) if items else pa.nulls(0, pa.large_binary())
    valid = present(whole)
    for row, text in enumerate(lists.to_pylist()):
        entries = [] if text is None else _listed(text, field, keys[row].as_py(), path)
        lengths.append(len(entries))
        for entry in entries:
            named = entry.get("bytes") if structs and isinstance(entry, dict) else entry
            place = numbers.get(named, -1) * rows + row if isinstance(named, str) else -1
            if named is not None and (place < 0 or not valid[place]):
                raise DataError("an item of a list has no member", file=path, sample=keys[row].as_py(),
                                column=field.name, expected="the member that the list names",
                                found=f"{named!r:.80}")  # fmt: skip
            at.append(place)
            paths.append(entry.get("path") if isinstance(entry, dict) else None)
            there.append(entry is not None)
    places = np.array(at, np.int64)
    data = whole.take(pa.array(places, mask=places < 0))
    values = _structs(field.type.value_type, data, paths, np.array(there, np.bool_)) if structs else data
    return make_lists(field.type, np.array(lengths, np.int64), values.cast(field.type.value_type), present(lists))


def _listed(text: bytes, field: pa.Field, key: str, path: str) -> list[Any]:
    try:
        entries = json_text.loads(text)
    except DataError as error:
        raise DataError("the list of items is not valid JSON", file=path, sample=key, column=field.name,
                        expected="a JSON list", found=error.message) from None  # fmt: skip
    if not isinstance(entries, list):
        raise DataError("not a list of items", file=path, sample=key, column=field.name,
                        expected="a JSON list of names of members", found=repr(text[:40]))  # fmt: skip
    return entries


def _structs(kind: pa.StructType, data: pa.Array, paths: list[str | None], there: NDArray[np.bool_]) -> pa.Array:
    given = {"bytes": data, "path": pa.array(paths, pa.large_string())}
    columns = [given[child.name].cast(child.type) for child in kind]
    return pa.StructArray.from_arrays(columns, fields=[*kind], mask=pa.array(~there))
