"""What the page shows of a value: text, a number, the facts of a medium, the length of bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.references import is_ref, unpack
from lading._core.arrow.views import is_bytes, is_text, join, list_lengths, present, slices, take_rows
from lading._core.content.field_paths import parse_field
from lading._core.content.media_info import MediaInfo
from lading._core.content.nested import plain, plain_type
from lading._core.content.preview import described
from lading._core.dataset.opened import OpenDataset
from lading._core.dataset.values.field_values import ITEMS, field_values
from lading._core.dataset.values.media_headers import media_facts
from lading._core.features.base import Feature
from lading._core.features.items import KEY, METADATA_POSITION, PAYLOAD
from lading._core.features.mds_values import parse_array
from lading._core.features.natural import has_items, is_media, known_feature
from lading._core.features.types import decode
from lading._core.tables.media_columns import media_lengths
from lading.errors import LadingError, UsageError

__all__ = [
    "LONG",
    "SHORT",
    "CellKind",
    "CellLimits",
    "PageCell",
    "cells_of",
    "column_kinds",
    "holds_arrays",
    "keys_of",
    "npy_of",
]  # fmt: skip

CellKind: TypeAlias = Literal[
    "null", "text", "json", "value", "image", "audio", "video", "bytes", "array", "list", "items", "error"
]
_TEXT_BYTES = 1 << 20
_FAILURES = (LadingError, pa.ArrowException, ValueError, OverflowError, RecursionError)
_NPY = b"\x93NUMPY"
_INSIDE = "field"
"""Name of a column of fields: it says nothing about their type, as that of a file does."""

_ITEM_FACTS = ("modality", "position", "content_type", "source_ref", "text_content", "materialize_error")


@dataclass(frozen=True, slots=True)
class PageCell:
    """What the page shows of a value.

    Attributes:
        kind: what it is.
        text: the text, JSON as text, a number as text; or an error.
        length: of the whole text in characters, of bytes in bytes, of a list in items; None if unknown.
        facts: of a medium, such as width and height.
        items: of a list or a document, the first ones. Of a document, `item` of their facts is the row to ask for.
    """

    kind: CellKind
    text: str | None = None
    length: int | None = None
    facts: dict[str, Any] | None = None
    items: list[PageCell] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return what the page gets, without what is not there."""
        found = {name: value for name, value in asdict(self).items() if value is not None}
        if self.items is not None:
            found["items"] = [item.as_json() for item in self.items]
        return found


_NULL = PageCell("null")


@dataclass(frozen=True, slots=True)
class CellLimits:
    """How much of a value the page gets.

    Attributes:
        characters: of a text.
        items: of a list or a document.
    """

    characters: int
    items: int


SHORT: Final = CellLimits(400, 8)
"""Of a value among those of many samples."""
LONG: Final = CellLimits(200_000, 2_000)
"""Of a value of the one sample that is shown."""


def column_kinds(data: OpenDataset, schema: pa.Schema) -> list[dict[str, str]]:
    """Return name, kind and type of each column of a schema of the rows."""
    layout = data.shards.row_layout
    items = [{"name": "items", "kind": "items", "type": "items"}] if layout.has_items else []
    return items + [
        {"name": field.name, "kind": _kind(field), "type": known_feature(field).kind}
        for field in schema
        if field.name not in layout.reserved
    ]


def keys_of(data: OpenDataset, rows: pa.RecordBatch) -> list[str | None]:
    """Return the key of each sample; None where it has none."""
    layout = data.shards.row_layout
    if layout.key not in rows.schema.names:
        return [None] * (len(layout.bounds(rows)) - 1)
    return [None if key is None else str(key) for key in layout.keys(rows).to_pylist()]


def cells_of(
    data: OpenDataset, rows: pa.RecordBatch, columns: Sequence[str] | None, limits: CellLimits
) -> list[dict[str, PageCell]]:
    """Return what the page shows of each sample, by column.

    Args:
        data: the dataset.
        rows: of whole samples.
        columns: those to show, and fields inside them such as `json.lang`; None for all columns.
        limits: how much of each value.
    """
    layout = data.shards.row_layout
    bounds = layout.bounds(rows)
    found: list[dict[str, PageCell]] = [{} for _ in bounds[1:]]
    cut = _Cut(data, limits)
    firsts = take_rows(rows, bounds[:-1]) if layout.has_items else rows
    own = [name for name in rows.schema.names if name not in layout.reserved]
    names = [name for name in own if name != KEY] if columns is None else list(dict.fromkeys(columns))
    for name in names:
        if name in own:
            column = cut.column(firsts, rows.schema.field(name))
        elif layout.has_items and name == ITEMS:
            continue
        else:
            column = cut.fields(rows, bounds[:-1], name)
        for cells, cell in zip(found, column, strict=True):
            cells[name] = cell
    if layout.has_items and (columns is None or ITEMS in columns):
        for cells, (start, stop) in zip(found, pairwise(bounds.tolist()), strict=True):
            cells[ITEMS] = cut.document(rows.slice(start, stop - start))
    return found


@dataclass(frozen=True, slots=True)
class _Cut:
    """Makes cells that are not longer than the page asks for.

    Attributes:
        data: the dataset.
        limits: how much of each value.
    """

    data: OpenDataset
    limits: CellLimits

    def column(self, rows: pa.RecordBatch, field: pa.Field) -> list[PageCell]:
        """The cells of a column. Where a value cannot be read, its cell says why."""
        try:
            return self._column(rows, field)
        except _FAILURES as error:
            if rows.num_rows > 1:
                return [cell for row in range(rows.num_rows) for cell in self.column(rows.slice(row, 1), field)]
            return [_failed(error)]

    def fields(self, rows: pa.RecordBatch, firsts: NDArray[np.int64], name: str) -> list[PageCell]:
        """The cells of a field inside a column, of the first row of each sample. Null where a shard lacks the column.

        Args:
            rows: of whole samples.
            firsts: the first row of each sample.
            name: such as `json.lang`, `jpg.width` or `items.image`.
        """
        try:
            path = parse_field(name, rows.schema.names)
            if path.column not in rows.schema.names:
                known = self.data.first_schema.names
                if path.column not in known:
                    raise UsageError("no such column", expected=", ".join(known), found=repr(path.column))
                return [_NULL] * len(firsts)
            [values] = field_values(rows, [name], self.data.shards.fetcher)
            of_samples = pa.RecordBatch.from_arrays([values.take(pa.array(firsts))], [_INSIDE])
            return self.column(of_samples, of_samples.schema.field(0))
        except _FAILURES as error:
            if len(firsts) > 1:
                ends = [*firsts[1:].tolist(), rows.num_rows]
                samples = [rows.slice(start, stop - start) for start, stop in zip(firsts.tolist(), ends, strict=True)]
                return [cell for sample in samples for cell in self.fields(sample, np.zeros(1, np.int64), name)]
            return [_failed(error)]

    def _column(self, rows: pa.RecordBatch, field: pa.Field) -> list[PageCell]:
        column, kind, feature = rows.column(field.name), plain_type(field.type), known_feature(field)
        if pa.types.is_null(kind):
            return [_NULL] * rows.num_rows
        if has_items(kind):
            return self._lists(rows, plain(column), feature)
        if is_media(kind):
            return self._media(rows.schema, column, feature.medium)
        if is_ref(kind) or is_bytes(kind):
            return self._bytes(rows, field.name, feature)
        is_json = feature.is_json or isinstance(field.type, pa.JsonType)
        if is_json or is_text(kind):
            texts = plain(column.storage if isinstance(column, pa.ExtensionArray) else column).to_pylist()
            return [_NULL if text is None else self._text("json" if is_json else "text", text) for text in texts]
        return [_NULL if not value.is_valid else self._plain(value, feature) for value in column]

    def document(self, rows: pa.RecordBatch) -> PageCell:
        """The cell of a document: its items in order."""
        places = np.flatnonzero(rows.column("position").to_numpy() != METADATA_POSITION)
        shown = take_rows(rows, places[: self.limits.items])
        payload = next((field for field in shown.schema if field.name == PAYLOAD), None)
        media = [_NULL] * shown.num_rows if payload is None else self.column(shown, payload)
        facts = shown.select([name for name in _ITEM_FACTS if name in shown.schema.names]).to_pylist()
        made = []
        for place, of_item, medium in zip(places.tolist(), facts, media, strict=False):
            text, failed = of_item.pop("text_content", None), of_item.get("materialize_error")
            cell = medium
            if text is not None:
                cell = self._text("text", text)
            elif failed:
                cell = PageCell("error", failed)
            told = {name: value for name, value in of_item.items() if value is not None}
            made.append(replace(cell, facts={**(cell.facts or {}), **told, "item": place}))
        return PageCell("items", length=len(places), items=made)

    def _lists(self, rows: pa.RecordBatch, column: pa.Array, feature: Feature) -> list[PageCell]:
        made, start, lengths = [], 0, list_lengths(column).tolist()
        whole, medium = column.flatten(), None if feature.item is None else feature.item.medium
        for there, length in zip(present(column).tolist(), lengths, strict=True):
            items = self._media(rows.schema, whole.slice(start, min(length, self.limits.items)), medium)
            made.append(PageCell("list", length=length, items=items) if there else _NULL)
            start += length
        return made

    def _bytes(self, rows: pa.RecordBatch, name: str, feature: Feature) -> list[PageCell]:
        is_array, is_number = holds_arrays(feature), (feature.mds_encoding or "").startswith("str_")
        if not (feature.is_written_as_text or is_array or is_number):
            return self._media(rows.schema, rows.column(name), feature.medium)
        lengths, there = self._lengths(rows.schema, rows.column(name))
        if is_array:
            return [
                PageCell("array", length=n) if is_there else _NULL for n, is_there in zip(lengths, there, strict=True)
            ]
        kind: CellKind = "json" if feature.is_json else "value" if feature.is_scalar or is_number else "text"
        is_short = np.array([n is None or n <= _TEXT_BYTES for n in lengths]) & there
        short = self.data.materialise(take_rows(rows, np.flatnonzero(is_short)), columns=[name]).column(name)
        texts = iter(slices(join(short)))
        return [
            self._text(kind, bytes(next(texts) or b"").decode("utf-8", "replace")) if read
            else PageCell("bytes", length=length) if is_there else _NULL
            for read, is_there, length in zip(is_short.tolist(), there, lengths, strict=True)
        ]  # fmt: skip

    def _media(self, schema: pa.Schema, column: pa.Array, medium: str | None) -> list[PageCell]:
        facts = media_facts(column, schema, self.data.shards.fetcher)
        lengths, there = self._lengths(schema, column)
        return [
            _medium(fact, length, medium) if is_there else _NULL
            for fact, length, is_there in zip(facts, lengths, there, strict=True)
        ]

    def _lengths(self, schema: pa.Schema, column: pa.Array) -> tuple[list[int | None], NDArray[np.bool_]]:
        """The lengths of bytes, None where they are compressed, and which are there at all."""
        lengths = media_lengths(column, schema, self.data.shards.fetcher)
        stored = plain(column)
        data = plain(stored.field("bytes")) if pa.types.is_struct(stored.type) else stored
        there = present(stored) & (unpack(data).valid if is_ref(data.type) else present(data))
        return lengths.to_pylist(), there

    def _text(self, kind: CellKind, text: str) -> PageCell:
        cut = text[: self.limits.characters]
        return PageCell(kind, cut, len(text) if len(cut) < len(text) else None)

    def _plain(self, value: pa.Scalar, feature: Feature) -> PageCell:
        python = (value.value if isinstance(value, pa.ExtensionScalar) else value).as_py()
        if feature.labels is not None and isinstance(python, int) and 0 <= python < len(feature.labels):
            return PageCell("value", str(python), facts={"label": feature.labels[python]})
        if isinstance(python, (dict, list)):
            python = decode(feature, python)
            cell = self._text("json", json.dumps(python, default=_described, ensure_ascii=False))
            return cell if cell.length is None else replace(cell, facts={"in_table": True})
        return PageCell("value", str(python))


def holds_arrays(feature: Feature) -> bool:
    """Return whether bytes with this feature are arrays: NumPy's files, or values alone."""
    return feature.array is not None or (
        feature.mds_encoding is not None and parse_array(feature.mds_encoding) is not None
    )


def npy_of(feature: Feature, data: bytes | memoryview) -> bytes | memoryview:
    """Return an array as a NumPy file. Raises DataError for bytes that are no array of the feature."""
    if bytes(data[: len(_NPY)]) == _NPY or not holds_arrays(feature):
        return data
    made = io.BytesIO()
    np.save(made, decode(feature, data), allow_pickle=False)
    return made.getvalue()


def _failed(error: Exception) -> PageCell:
    return PageCell("error", str(error) if isinstance(error, LadingError) else f"{type(error).__name__}: {error}")


def _described(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray) else described(value) or str(value)


def _medium(fact: MediaInfo | None, length: int | None, medium: str | None) -> PageCell:
    """The cell of bytes: what their header says, or of what they should be."""
    if fact is None:
        return PageCell("bytes", length=length, facts={"expected": medium} if medium else None)
    facts = {name: value for name, value in asdict(fact).items() if value is not None and name != "kind"}
    return PageCell(fact.kind, length=length, facts=facts)  # type: ignore[arg-type] # as MediaInfo says


def _kind(field: pa.Field) -> CellKind:
    """What the values of a column are, by its type alone."""
    kind, feature = plain_type(field.type), known_feature(field)
    if feature.medium is not None:
        return feature.medium
    if feature.is_json or isinstance(field.type, pa.JsonType):
        return "json"
    if holds_arrays(feature):
        return "array"
    if has_items(kind):
        return "list"
    if is_ref(kind) or is_bytes(kind) or is_media(kind):
        is_value = feature.is_scalar and not is_media(kind)
        return "text" if feature.is_text else "value" if is_value else "bytes"
    return "text" if is_text(kind) else "json" if pa.types.is_nested(kind) else "value"
