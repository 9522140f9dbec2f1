"""Pack item rows into one row a sample, as `_core.interleaved.packed` reads them.

The JSON is built by column. Payload in files stays there; payload in memory is copied at most once, in the order of the
items.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.arrow.byte_ranges import ByteRanges, ChunkedRanges
from lading._core.arrow.json_columns import is_json_type
from lading._core.arrow.json_text import glued, joined_runs
from lading._core.arrow.references import is_ref
from lading._core.arrow.views import byte_lengths, is_bytes, join, present, row_bytes
from lading._core.features.items import sample_starts, split_rows
from lading._core.features.types import feature_of
from lading._core.formats.base import Ranges, single_ranges
from lading._core.interleaved.packed import CONTENT, LENGTH, PACKED_SCHEMA
from lading.errors import DataError, LadingError, SchemaMismatch, Unrepresentable

__all__ = ["check_columns", "pack", "packed_ids", "packed_items"]

_PART_BYTES, _ITEM_BYTES = 4 << 20, 64
"""Bytes of text, and additional bytes an item, that become JSON at once, which takes several times their memory."""

_APART = ("sample_id", "binary_content")


def check_columns(schema: pa.Schema) -> None:
    """Raise Unrepresentable for an item column that JSON cannot hold exactly; SchemaMismatch for a missing one."""
    for name in ("sample_id", "position", "modality"):
        if name not in schema.names:
            raise SchemaMismatch("items need this column", column=name, found=schema.names)
    for field in schema:
        if field.name == LENGTH:
            raise Unrepresentable(
                "the name of this column is used for the length of an item's payload", column=field.name
            )
        plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        held = (
            is_bytes(plain) or is_ref(plain) or pa.types.is_null(plain)
            if field.name == "binary_content"
            else _is_json(field)
        )
        if not held:
            raise Unrepresentable("JSON cannot hold this type exactly", column=field.name, found=field.type)


def _is_json(field: pa.Field) -> bool:
    return feature_of(field).is_json or is_json_type(field.type)


def pack(batch: pa.RecordBatch, ranges: Ranges) -> tuple[pa.RecordBatch, Ranges]:
    """Return one row a sample of `PACKED_SCHEMA`, and the places of its content; the batch holds whole samples.

    Payload comes as bytes, as views, which are copied, or as ranges of files, which stay there.

    Raises:
        DataError: a row without id, position or modality.
        Unrepresentable: a column that JSON cannot hold; invalid JSON in a JSON column. Names column, row.
    """
    ids, bounds = packed_ids(batch)
    payload = single_ranges(ranges).get("binary_content")
    content, sizes = _content(batch, bounds) if payload is None else _content_in_files(payload, bounds)
    there = content if isinstance(content, pa.Array) else pa.array([b""] * len(ids), pa.large_binary())
    packed = pa.record_batch([ids, packed_items(batch, bounds, sizes), there], schema=PACKED_SCHEMA)
    return packed, {} if isinstance(content, pa.Array) else {CONTENT: content}


def packed_ids(batch: pa.RecordBatch) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the ids of the samples of a batch, and the bounds of their rows: sample i is `bounds[i]:bounds[i + 1]`.

    Raises:
        DataError: a row without id, position or modality.
        Unrepresentable: a column that JSON cannot hold.
    """
    check_columns(batch.schema)
    for name in ("position", "modality"):
        if batch.column(name).null_count:
            raise DataError("an item lacks what every item has", column=name, found="null",
                            row=int(np.argmin(present(batch.column(name)))))  # fmt: skip
    starts = sample_starts(batch.column("sample_id"))
    ids = batch.column("sample_id").take(pa.array(starts)).cast(pa.string())
    return ids, np.append(starts, batch.num_rows)


def packed_items(batch: pa.RecordBatch, bounds: NDArray[np.int64], sizes: pa.Array | None) -> pa.Array:
    """Return the items of samples as JSON, `large_string`.

    Args:
        batch: the items.
        bounds: as `packed_ids` returns them.
        sizes: length of each item's payload, null without one; None if no item has a payload.

    Raises:
        Unrepresentable: invalid JSON in a JSON column; names column and row.
    """
    texts = batch.drop_columns([name for name in _APART if name in batch.schema.names])
    parts = [pa.array([], pa.large_string())]
    rows = split_rows(bounds[:-1], row_bytes(texts) + _ITEM_BYTES, max_bytes=_PART_BYTES).tolist()
    for start, stop in pairwise(rows):
        runs = bounds[(bounds >= start) & (bounds <= stop)] - start
        lengths = None if sizes is None else sizes.slice(start, stop - start)
        parts.append(_items(texts.slice(start, stop - start), lengths, runs, start))
    return pa.concat_arrays(parts)


def _content_in_files(payload: ByteRanges, bounds: NDArray[np.int64]) -> tuple[ChunkedRanges, pa.Array]:
    """As `_content`, for payload in files."""
    there = payload.there
    before = np.append(0, np.cumsum(there))
    return ChunkedRanges(payload[there], before[bounds]), pa.array(payload.length, mask=~there)


def _content(batch: pa.RecordBatch, bounds: NDArray[np.int64]) -> tuple[pa.Array, pa.Array | None]:
    """Return the concatenated payload of each sample's items, and the length of each item's, null without one."""
    count, place = len(bounds) - 1, batch.schema.get_field_index("binary_content")
    if place < 0 or batch.column(place).null_count == batch.num_rows:
        return pa.array([b""] * count, pa.large_binary()), None
    column = join(batch.column(place)).cast(pa.large_binary())
    length, there = byte_lengths(column), present(column)
    _, places, body = column.buffers()
    ends = np.frombuffer(places, np.int64)[column.offset : column.offset + len(column) + 1]
    if int(ends[-1] - ends[0]) != int(length.sum()):  # there may be bytes under a null
        _, places, body = column.fill_null(b"").buffers()
        ends = np.frombuffer(places, np.int64)
    own = pa.py_buffer(np.ascontiguousarray(ends[bounds]))
    content = pa.Array.from_buffers(pa.large_binary(), count, [None, own, body or pa.py_buffer(b"")])
    return content, pa.array(length, mask=~there)


def _items(texts: pa.RecordBatch, lengths: pa.Array | None, runs: NDArray[np.int64], first: int) -> pa.LargeStringArray:
    """Return the JSON of samples: item i is row `first` + i, sample j has the items `runs[j]:runs[j + 1]`."""
    members: list[pa.LargeStringArray] = []
    for field, column in zip(texts.schema, texts.columns, strict=True):
        if field.name != "position" and column.null_count < len(column):
            members.append(_member(field.name, column, _json_texts(field, column, first)))
    if lengths is not None and lengths.null_count < len(lengths):
        members.append(_member(LENGTH, lengths, lengths.cast(pa.large_string())))
    try:
        position = texts.column("position").cast(pa.int32()).cast(pa.large_string())
    except pa.ArrowInvalid as error:
        raise Unrepresentable("a position is a number of 32 bits", column="position", found=str(error)) from None
    objects = glued('{"position": ', position, *members, "}")
    return glued("[", joined_runs(objects, runs), "]")


def _member(name: str, column: pa.Array, texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """Return a name and its value in each object, after a comma; nothing where the column is null."""
    said = glued(f", {json_text.dumps(name)}: ", texts.fill_null("null") if texts.null_count else texts)
    return pc.if_else(column.is_valid(), said, pa.scalar("", pa.large_string())) if column.null_count else said


def _json_texts(field: pa.Field, column: pa.Array, first: int) -> pa.LargeStringArray:
    """Return JSON texts of the values of a column. Raises Unrepresentable for invalid JSON in a JSON column."""
    if not feature_of(field).is_json:
        return json_text.dumps_each(join(column))
    column = join(column.storage if isinstance(column.type, pa.BaseExtensionType) else column)
    texts = column.cast(pa.large_string())
    at = np.flatnonzero(present(texts))
    documents = texts.drop_null().cast(pa.large_binary()).to_pylist()
    values, plain = _values(field.name, documents, at + first)
    twice = json_text.find_repeated_name(documents, values)
    if twice is not None:
        raise Unrepresentable("an object has a name twice", column=field.name, row=int(at[twice[0]]) + first,
                              found=repr(twice[1]), expected="names that differ")  # fmt: skip
    if plain:
        return texts
    # Some texts are valid JSON only by themselves: after a byte order mark.
    whole = np.full(len(texts), None, object)
    whole[at] = [json_text.dumps(value) for value in values]
    return pa.array(whole, pa.large_string())


def _values(name: str, texts: Sequence[bytes], rows: NDArray[np.int64]) -> tuple[list[Any], bool]:
    """Return the values of JSON texts, and whether all are plain in the sense of `loads_plain`."""
    values = json_text.loads_plain(texts)
    plain = values is not None
    if values is None:
        values = []
        for row, text in zip(rows.tolist(), texts, strict=True):
            try:
                values.append(json_text.loads(text))
            except LadingError as error:
                raise Unrepresentable("a text in a column of JSON is not valid JSON", column=name, row=row,
                                      found=str(error)) from None  # fmt: skip
    return values, plain
