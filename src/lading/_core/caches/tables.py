"""Fit record batches and tables to the schema of a cache, and cut large ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow.casts import first_refused
from lading._core.arrow.older import data_bytes
from lading._core.arrow.text_checks import is_checked, refuse_bad_values
from lading._core.caches.columns import stored_column
from lading._core.caches.layout import Features, schema_of
from lading._core.caches.videos import is_video_cell, wrong_cells
from lading._core.features.base import Feature
from lading._core.features.encode import VIDEO_FIELDS
from lading.errors import LadingError, SchemaMismatch, Unrepresentable, UsageError, errors_at

__all__ = ["Rules", "check_keys", "cut_tables"]

_MOST_BYTES = 32 << 20
"""Batches written by one call, which no signal interrupts."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules from rows to batches.

    Attributes:
        batch_rows, batch_bytes: a batch ends when it reaches either.
        workers: threads that encode.
        drop_unknown: leave out keys that are not columns.
        fill_missing: null for columns that a row does not have.
        assets: folder for the files of videos.
    """

    batch_rows: int
    batch_bytes: int
    workers: int = 1
    drop_unknown: bool = False
    fill_missing: bool = False
    assets: str | None = None


def check_keys(row: Mapping[str, Any], features: Features) -> None:
    """Raise SchemaMismatch, with the column, unless a row has the columns and no other keys."""
    missing = [name for name in features if name not in row]
    if missing:
        raise SchemaMismatch("a row without a column", column=missing[0], expected=list(features),
                             found=list(map(str, row)), advice='Give null for it, or on_missing="null".')  # fmt: skip
    unknown = [str(name) for name in row if name not in features]
    if unknown:
        raise SchemaMismatch("a row with a key that is not a column", column=unknown[0], expected=list(features),
                             advice='Name it in the features, or on_unknown="drop".')  # fmt: skip


def cut_tables(
    items: Iterable[Any], features: Features, rules: Rules, settle: Callable[[], None]
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield rows with the columns of the cache, in its types and order, and how many make a batch.

    They are slices of the given ones if nothing must change. Between two items `settle` is called.

    Raises:
        SchemaMismatch: columns are missing or unknown.
        Unrepresentable: values do not fit. Both name the row; if no row of a table fits, because of its columns or
            types, the first.
        UsageError: something else than batches and tables.
    """
    schema = schema_of(features)
    row = 0
    with ThreadPoolExecutor(1) as thread:
        for item in items:
            if not isinstance(item, (pa.RecordBatch, pa.Table)):
                raise UsageError("rows and batches do not go together", row=row, expected="a batch or a table",
                                 found=type(item).__name__)  # fmt: skip
            # Concurrent with the writing, of which it takes a fifth; an error ends the build all the same.
            looked = thread.submit(refuse_bad_values, item, _is_checked)
            try:
                try:
                    for batch in _batches(_fitted(item, features, schema, rules)):
                        yield from _cut(batch, rules)
                finally:
                    looked.result()  # first, because it names the row of an invalid value
            except LadingError as error:
                error.row = row + (error.row or 0)
                raise
            row += len(item)
            settle()


def _is_checked(kind: pa.DataType) -> bool:
    return is_checked(kind) or bool(pa.types.is_time(kind))


def _batches(given: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
    return [given] if isinstance(given, pa.RecordBatch) else given.to_batches()


def _cut(batch: pa.RecordBatch, rules: Rules) -> Iterator[tuple[pa.RecordBatch, int]]:
    each = data_bytes(batch) // max(len(batch), 1) + 1
    step = max(min(rules.batch_rows, rules.batch_bytes // each), 1)
    # Many at once: Python's work for each of 500 batches of 1,000 small rows is a tenth of the time to write them.
    many = step * max(_MOST_BYTES // (step * each), 1)
    return ((batch.slice(start, many), step) for start in range(0, len(batch), many))


def _fitted(
    given: pa.RecordBatch | pa.Table, features: Features, schema: pa.Schema, rules: Rules
) -> pa.RecordBatch | pa.Table:
    """Return a batch or table with the columns of the cache, in its types."""
    names = given.schema.names
    if len(set(names)) < len(names):
        raise SchemaMismatch("a column appears twice", found=names)
    row = dict.fromkeys(names)
    if rules.fill_missing:
        row = dict.fromkeys(features) | row
    check_keys({name: None for name in row if not rules.drop_unknown or name in features}, features)
    columns = []
    for stored in schema:
        name, kind = stored.name, stored.type
        if name not in names:
            columns.append(pa.nulls(len(given), kind))
            continue
        with errors_at(column=name):
            columns.append(_fitted_column(given.column(name), stored, features[name]))
    return type(given).from_arrays(columns, schema=schema)


def _fitted_column(column: Any, field: pa.Field, feature: Feature) -> Any:
    """Return a column in the type of the cache, its values checked. Raises Unrepresentable, with the first bad row."""

    def fitted(part: Any) -> Any:
        found = stored_column(part, field, feature)
        _check_values(found, feature)
        return found

    try:
        return fitted(column)
    except Unrepresentable:
        fitted(column[:0])  # which raises if no row fits, because of its type
        row = first_refused(column, fitted, Unrepresentable)
        with errors_at(row=row):
            fitted(column[row : row + 1])  # which raises the error of this value
        raise


def _check_values(column: Any, feature: Feature) -> None:
    """Raise Unrepresentable if values, also nested ones, have the right type and are invalid for their feature.

    Rows are checked while they are encoded; tables are not encoded.
    """
    for leaf, part in feature.leaf_columns(column):
        if is_video_cell(part.type):
            for chunk in part.chunks if isinstance(part, pa.ChunkedArray) else [part]:
                _check_stored_videos(chunk)
        leaf.check_column(part)


def _check_stored_videos(column: pa.StructArray) -> None:
    """Raise Unrepresentable if videos are not inline, or do not match their size and SHA-256."""
    parts = dict(zip(VIDEO_FIELDS, column.flatten(), strict=True))
    path = parts["path"].drop_null()
    if len(path):
        raise Unrepresentable(
            "a video in a file of its own, which does not come with a table", found=str(path[0])[:80],
            advice="Give rows, or the bytes.",
        )  # fmt: skip
    inside = pc.and_(pc.fill_null(pc.equal(parts["mode"], "bytes"), fill_value=False), parts["bytes"].is_valid())
    outside = pc.index(pc.or_(inside, column.is_null()), value=False).as_py()
    if outside >= 0:
        raise Unrepresentable(
            "a video that is not inside", expected="the mode 'bytes', and bytes",
            found=f"the mode {parts['mode'][outside]}" + ", no bytes" * (not parts["bytes"][outside].is_valid),
        )  # fmt: skip
    for _, error in wrong_cells(column):
        raise Unrepresentable(error.message, expected=error.expected, found=error.found)
