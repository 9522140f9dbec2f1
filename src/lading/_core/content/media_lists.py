"""Columns of lists of media as members of a tar, or as files: a member an item, and one that lists them.

    key.images.0.jpg    the first item; the ending is what the bytes are
    key.images.1.png    the second
    key.images.json     ["images.0.jpg", "images.1.png"]; null for an item without bytes

Of items with a path (Hugging Face's struct), the list has `{"bytes": "images.0.jpg", "path": "a.jpg"}`. The list tells
an empty one from a null, which has no member.

Tars of other writers may lack the member that lists the items. Then the items are numbered from 0, without a gap, and a
sample without items has a null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.arrow.views import list_lengths, make_lists, present
from lading._core.content.media_info import media_info
from lading._core.features.natural import has_items, is_media, list_of_member
from lading._core.features.types import Sequence, feature_of, with_feature
from lading.errors import DataError, LadingError, Unrepresentable, errors_at

__all__ = [
    "folded",
    "item_members",
    "list_member",
    "members_schema",
    "naming_lists",
    "refuse_taken_names",
    "with_items",
    "with_list",
]

_MEDIA = pa.struct([("bytes", pa.large_binary()), ("path", pa.string())])
_WITHOUT_LISTS = "To read the members as columns of their own, leave out --lists."
_ENDINGS = {"jpeg": "jpg", "tiff": "tif", "matroska": "mkv"}
"""Endings that differ from the name of the format."""
_UNKNOWN = "bin"


def list_member(name: str) -> str:
    """Return the field of the member that lists the items of a column."""
    return f"{name}.json"


def item_members(name: str, members: Iterable[str]) -> list[str]:
    """Return those members that are items of a column."""
    return [member for member in members if list_of_member(member) == name]


def with_list(schema: pa.Schema, name: str, listed: Iterable[bytes | None]) -> pa.Schema:
    """Return the columns of a tar with a list in place of its members, or with a column of nulls if it has none.

    Items are bytes, structs if `listed` has their paths, and nulls if there are none. If the names of all items say
    that they are images, say, the column says so too.

    Args:
        schema: a column a member.
        name: name of the list.
        listed: the members that list the items; read up to the first item.

    Raises:
        DataError: a member is not such a list.
    """
    items = item_members(name, schema.names)
    members = [member for member in schema.names if member in items or member == list_member(name)]
    if not members:
        return schema.append(pa.field(name, pa.null()))
    entries = (entry for text in listed if text is not None for entry in _listed(text))
    first = next((entry for entry in entries if entry is not None), None)
    kind = _MEDIA if isinstance(first, dict) else pa.large_binary() if items else pa.null()
    field = pa.field(name, pa.list_(kind))
    features = {feature_of(schema.field(item)) for item in items}
    if len(features) == 1 and (feature := features.pop()).is_media:
        field = with_feature(field, Sequence(feature))
    fields = [field if member == members[0] else schema.field(member) for member in schema.names
              if member == members[0] or member not in members]  # fmt: skip
    return pa.schema(fields, metadata=schema.metadata)


@contextmanager
def naming_lists(schema: pa.Schema) -> Iterator[None]:
    """Make errors about members of lists name the column of the list.

    Args:
        schema: columns of the rows.
    """
    try:
        yield
    except LadingError as error:
        if error.column is not None and error.column not in schema.names:
            for field in schema:
                if has_items(field.type) and _is_member(error.column, field.name):
                    error.column = field.name
        raise


def _is_member(member: str, of: str) -> bool:
    return member == list_member(of) or list_of_member(member) == of


def refuse_taken_names(schema: pa.Schema) -> None:
    """Raise Unrepresentable for a column, or the member of another list, that has a name of a member of a list."""
    lists = [field.name for field in schema if has_items(field.type)]
    for of in lists:
        names = [*schema.names, *(list_member(name) for name in lists if name != of)]
        taken = [name for name in names if _is_member(name, of)]
        if taken:
            raise Unrepresentable("a column has the name that a member of the list gets", column=of,
                                  found=repr(taken[0])[:80],
                                  advice="Rename one of both with --rename OLD=NEW.")  # fmt: skip


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


def _entries(names: list[str | None], items: pa.StructArray) -> list[Any]:
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
        DataError: a member is not such a list, an item that it names is missing, or it lacks an item; items without
            such a member have a gap. Names file, sample, column.
    """
    names, rows = [*items], len(lists)
    numbers = {name.lower(): number for number, name in enumerate(names)}
    structs, kind = is_media(field.type.value_type), field.type.value_type
    whole = pa.concat_arrays([*items.values()]) if items else pa.nulls(0, pa.large_binary())
    valid = present(whole)
    at, paths, there, lengths = list[int](), list[str | None](), list[bool](), list[int]()
    counts = valid.reshape(len(names), rows).sum(axis=0).tolist()
    for row, (text, count) in enumerate(zip(lists.to_pylist(), counts, strict=True)):
        with errors_at(file=path, sample=keys[row].as_py(), column=field.name):
            if text is None:
                own = [name for number, name in enumerate(names) if count and valid[number * rows + row]]
                entries: list[Any] = _in_order(own)
            else:
                entries = _listed(text)
            lengths.append(len(entries))
            found = [_named(entry, structs=structs) for entry in entries]
            places = [-1 if name is None else numbers.get(name.lower(), -1) * rows + row for name in found]
            for name, place in zip(found, places, strict=True):
                if name is not None and list_of_member(name.lower()) != field.name.lower():
                    raise DataError("an item of a list has no member", expected=f"such as {field.name}.0.jpg",
                                    found=f"{name!r:.80}", advice=_WITHOUT_LISTS)  # fmt: skip
                if name is not None and (place < 0 or not valid[place]):
                    raise DataError("an item of a list has no member", expected="the member that the list names",
                                    found=f"{name!r:.80}")  # fmt: skip
            if len({*places} - {-1}) < count:
                own = [name for number, name in enumerate(names) if valid[number * rows + row]]
                raise DataError("a member is not in the list of items", expected=f"the members {', '.join(own)}",
                                found=f"{text!r:.80}", advice=_WITHOUT_LISTS)  # fmt: skip
            paths += map(_path, entries)
        at += places
        there += [entry is not None for entry in entries]
    chosen = np.array(at, np.int64)
    data = whole.take(pa.array(chosen, mask=chosen < 0))
    if structs:
        values = _structs(kind, data, paths, np.array(there, np.bool_))
    else:
        values = pa.nulls(len(data)) if pa.types.is_null(kind) else data.cast(kind)
    return make_lists(field.type, np.array(lengths, np.int64), values, present(lists) | (np.array(counts) > 0))


def _named(entry: Any, *, structs: bool) -> str | None:
    named = entry.get("bytes") if structs and isinstance(entry, dict) else entry
    if named is not None and not isinstance(named, str):
        raise DataError("an item of a list has no member", expected="the name of a member", found=f"{named!r:.80}",
                        advice=_WITHOUT_LISTS)  # fmt: skip
    return named


def _path(entry: Any) -> str | None:
    path = entry.get("path") if isinstance(entry, dict) else None
    if path is not None and not isinstance(path, str):
        raise DataError("the path of an item is not a text", expected="a text, or null", found=f"{path!r:.80}",
                        advice=_WITHOUT_LISTS)  # fmt: skip
    return path


def _in_order(members: list[str]) -> list[str]:
    """Return items that no member lists by their numbers. Raises DataError for a gap."""
    by_number = {int(name.rsplit(".", 2)[1]): name for name in members}
    if sorted(by_number) != [*range(len(members))]:
        raise DataError("the items of a list are not numbered 0, 1, 2 …", found=", ".join(members)[:80],
                        expected=f"{len(members)} items without a gap", advice=_WITHOUT_LISTS)  # fmt: skip
    return [by_number[number] for number in range(len(members))]


def _listed(text: bytes) -> list[Any]:
    try:
        entries = json_text.loads(text)
    except DataError as error:
        raise DataError("the list of items is not valid JSON", expected="a JSON list",
                        found=error.message) from None  # fmt: skip
    if not isinstance(entries, list):
        raise DataError("not a list of items", expected="a JSON list of names of members", found=repr(text[:40]),
                        advice=_WITHOUT_LISTS)  # fmt: skip
    return entries


def _structs(kind: pa.StructType, data: pa.Array, paths: list[str | None], there: NDArray[np.bool_]) -> pa.Array:
    given = {"bytes": data, "path": pa.array(paths, pa.large_string())}
    columns = [given[child.name].cast(child.type) for child in kind]
    return pa.StructArray.from_arrays(columns, fields=[*kind], mask=pa.array(~there))
