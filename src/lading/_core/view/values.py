"""The bytes of one value: whole, or by ranges that are read when they are needed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property, partial
from threading import Lock
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import xxhash

from lading._core.arrow.references import FileEntry, Refs, files_of, is_ref, make_refs, unpack, with_files
from lading._core.arrow.views import is_bytes, is_text, slices
from lading._core.content.field_paths import FieldPath
from lading._core.content.media_info import MediaBytes, MediaInfo, Needed, media_info, probe
from lading._core.content.nested import plain, value_at
from lading._core.dataset.opened import OpenDataset
from lading._core.features.items import PAYLOAD
from lading._core.features.natural import has_items, is_media
from lading._core.view.rows import SelectedSamples
from lading.errors import LimitExceeded, UsageError

__all__ = ["StoredValue", "StoredValues", "ValuePlace", "value_of"]

MOST_WHOLE_BYTES = 256 << 20
"""Bytes of a value that is unpacked for the page: all of them are in memory then."""
_MOST_HELD, _MOST_HELD_BYTES = 256, 64 << 20
_HEAD_BYTES = 512
_MOST_ROUNDS = 12
_ONE_AT_A_TIME = Lock()

_Read: TypeAlias = Callable[[int, int], bytes | memoryview]


@dataclass(frozen=True, slots=True)
class ValuePlace:
    """Where a value is.

    Attributes:
        number: of the sample.
        column: its name; that of a document's items does not matter.
        item: its place, in lists and documents.
    """

    number: int
    column: str
    item: int = 0

    def __str__(self) -> str:
        return f"{self.column} of sample {self.number:,}"


@dataclass(frozen=True, eq=False)
class StoredValue:
    """The bytes of a value.

    Attributes:
        size: number of bytes.
        version: changes when the bytes do.
        held_bytes: those of them that are in memory.
        read: returns a range, given its first byte and the byte behind it. Raises a LadingError where it cannot be
            read.
    """

    size: int
    version: str
    held_bytes: int
    read: _Read

    @cached_property
    def info(self) -> MediaInfo | None:
        """What the header of a medium says, read by small ranges; None for other bytes."""
        known = MediaBytes(self.read(0, min(_HEAD_BYTES, self.size)), self.size)
        for _ in range(_MOST_ROUNDS):
            found = probe(known)
            if not isinstance(found, Needed):
                return found
            known.add(found.offset, self.read(found.offset, min(found.offset + found.length, self.size)))
        return media_info(known.head)

    def whole(self, most_bytes: int = MOST_WHOLE_BYTES) -> bytes | memoryview:
        """Return all bytes. Raises LimitExceeded if there are more than so many."""
        _refuse_above(most_bytes, self.size)
        return self.read(0, self.size)


class StoredValues:
    """The values that were asked for last: a player asks for a video in many ranges."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: OrderedDict[Hashable, StoredValue] = OrderedDict()

    def get(self, key: Hashable, find: Callable[[], StoredValue]) -> StoredValue:
        """Return the value of a key, found by a function unless it is held."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
        found = find()
        with self._lock:
            self._held[key] = found
            while len(self._held) > 1 and (len(self._held) > _MOST_HELD or self._bytes() > _MOST_HELD_BYTES):
                self._held.popitem(last=False)
        return found

    def _bytes(self) -> int:
        return sum(value.held_bytes for value in self._held.values())


def value_of(rows: SelectedSamples, place: ValuePlace, *, shown: bool = False) -> StoredValue:
    """Return a value of a sample.

    What is a range of a file stays there until it is read. Everything else is read at once: a value that is compressed,
    or in a compressed file, or in a table.

    Args:
        rows: the samples.
        place: where the value is.
        shown: take the bytes that were read with the page that has the sample.

    Raises:
        UsageError: there is no such value, or it has no bytes.
        LimitExceeded: it is too large to be unpacked.
        LadingError: it cannot be read.
    """
    where, data, column = str(place), rows.data, place.column
    read = rows.shown if shown else rows.sample
    found = read(place.number, None if data.shards.has_items else [column])
    if data.shards.has_items:
        found = found.slice(place.item, 1)
        column = _column_of_item(found)
    if column not in found.schema.names or not found.num_rows:
        raise UsageError("no such value", found=where)
    values = _bytes_in(found.column(column))
    if has_items(values.type):
        values = _bytes_in(values.flatten().slice(place.item, 1))
    if is_ref(values.type):
        return _referenced(data, values, files_of(found.schema), where)
    if not (is_bytes(values.type) or is_text(values.type)):
        raise UsageError("the value has no bytes of its own", found=f"{where}: {values.type}")
    value = slices(values)[0] if len(values) else None
    return _in_memory(None if value is None else memoryview(bytes(value)), where)  # a view would hold the whole batch


def _column_of_item(item: pa.RecordBatch) -> str:
    """The column of an item's bytes, or of its text."""
    has_text = "text_content" in item.schema.names and item.num_rows and item.column("text_content")[0].is_valid
    return "text_content" if has_text else PAYLOAD


def _bytes_in(column: pa.Array) -> pa.Array:
    """A column as plain bytes or references: of Hugging Face's media, the field of their bytes."""
    column = plain(column)
    return plain(value_at(column, FieldPath("", ("bytes",)))) if is_media(column.type) else column


def _referenced(data: OpenDataset, column: pa.Array, files: tuple[FileEntry, ...], where: str) -> StoredValue:
    refs = unpack(column)
    if refs.valid.tolist() != [True]:
        return _in_memory(None, where)
    [number], [offset], [length] = refs.file.tolist(), refs.offset.tolist(), refs.length.tolist()
    entry = files[number] if 0 <= number < len(files) else FileEntry("")
    size = length if length >= 0 else entry.size_bytes - offset
    if size >= 0 and offset >= 0 and not entry.wrap and not refs.codec[0] and refs.frame[0] < 0:
        version = f"{entry.url}\0{entry.version}\0{entry.size_bytes}\0{offset}\0{size}"
        return StoredValue(
            size, _digest(version.encode("utf-8", "surrogatepass")), 0, partial(_range, data, refs, files)
        )
    _refuse_above(MOST_WHOLE_BYTES, length)
    with _ONE_AT_A_TIME:
        return _in_memory(_read(data, column, files), where)


def _range(data: OpenDataset, refs: Refs, files: tuple[FileEntry, ...], start: int, stop: int) -> memoryview:
    """A part of a range of a file."""
    places = make_refs(refs.offset + start, np.array([stop - start]), file=refs.file, member=refs.member)
    return _read(data, places, files)


def _read(data: OpenDataset, column: pa.Array, files: tuple[FileEntry, ...]) -> memoryview:
    schema = with_files(pa.schema([("value", column.type)]), files)
    [value] = slices(data.materialise(pa.record_batch([column], schema=schema)).column(0))
    assert value is not None
    return value


def _in_memory(value: memoryview | None, where: str) -> StoredValue:
    if value is None:
        raise UsageError("the sample has no value there", found=where)
    return StoredValue(len(value), _digest(value), len(value), lambda start, stop: value[start:stop])


def _digest(data: bytes | memoryview) -> str:
    return xxhash.xxh3_128(data).hexdigest()


def _refuse_above(most_bytes: int, size: int) -> None:
    if size > most_bytes:
        raise LimitExceeded(
            "the value is too large for the page", expected=f"at most {most_bytes:,} bytes", found=f"{size:,} bytes",
            advice="Read the sample in Python: ds[number].",
        )  # fmt: skip
