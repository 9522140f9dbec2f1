"""Rows of samples as Python values: what `ds[i]` and iteration give."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import repeat
from typing import Any

import pyarrow as pa

from lading._core.arrow.references import files_of, is_ref
from lading._core.arrow.types import uncut_values
from lading._core.arrow.views import is_bytes
from lading._core.content.media_files import MEDIA_OF_ITEMS, BrokenFile, Opening, media_features, open_media
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.values.field_values import BROKEN_VALUE, ITEMS
from lading._core.features.items import KEY, PAYLOAD, lineage_of
from lading._core.features.row_layout import RowLayout
from lading._core.features.types import Feature, decode, feature_of
from lading.errors import DataError, LadingError, errors_at

__all__ = ["absent_where_null", "media_of", "members_among", "rows_as_dicts", "samples_as_dicts", "with_media"]


def samples_as_dicts(
    shards: Shards, table: pa.Table, *, media: Opening | None = None, keep_broken: bool = False
) -> list[dict[str, Any]]:
    """The samples of a table of rows: a dict each, as `ds[i]` gives it; options as of `rows_as_dicts`."""
    if not table.num_columns:  # its batches would not tell how many rows there are
        return [{} for _ in range(table.num_rows)]
    layout = shards.row_layout
    of_rows = None if layout.has_items else media
    rows = [
        row
        for batch in table.to_batches()
        for row in rows_as_dicts(shards, batch, media=of_rows, keep_broken=keep_broken)
    ]
    samples = layout.as_samples(rows, layout.firsts(table))
    if media is None or not layout.has_items:
        return samples
    opened = media_of(table.schema, layout)
    with errors_at(file=_file_of(table.schema)):  # of fields of documents
        return [with_media(sample, opened, media, keep_broken=keep_broken) for sample in samples]


def rows_as_dicts(
    shards: Shards, batch: pa.RecordBatch, *, raw: bool = False, media: Opening | None = None, keep_broken: bool = False
) -> Iterator[dict[str, Any]]:
    """The rows of a batch, a dict each. Errors name the file of the rows.

    Args:
        shards: whose rows they are.
        batch: the rows.
        raw: decode nothing.
        media: how images, audio and videos are opened (`_core.content.media_files`); None for bytes.
        keep_broken: give media that cannot be opened as a `BrokenFile` instead of an error.
    """
    with errors_at(file=_file_of(batch.schema)):
        rows = _dicts(shards, batch, raw=raw)
        opened = media_of(batch.schema, shards.row_layout) if media else {}
        if media is None or not opened:
            yield from rows
        else:
            yield from (with_media(row, opened, media, keep_broken=keep_broken) for row in rows)


def _file_of(schema: pa.Schema) -> str | None:
    files = lineage_of(schema)
    return files[0] if len(files) == 1 else None


def media_of(schema: pa.Schema, layout: RowLayout) -> dict[str, Feature | None]:
    """The features of the fields whose media are opened, by name; None for the items of documents."""
    own = media_features({field.name: feature_of(field) for field in schema})
    return {**own, ITEMS: None} if layout.has_items else {**own}


def with_media(
    sample: dict[str, Any], media: Mapping[str, Feature | None], opening: Opening, *, keep_broken: bool = False
) -> dict[str, Any]:
    """The sample with its media opened. Raises DataError, with the sample's key and the column, unless kept broken.

    Those of items are always kept.
    """
    for name, feature in media.items():
        if name in sample and feature is None:
            for item in sample[name]:  # one broken image does not take the document
                kind = MEDIA_OF_ITEMS.get(item.get("modality"))
                with_media(item, {} if kind is None else {PAYLOAD: kind}, opening, keep_broken=True)
        elif name in sample and feature is not None:
            try:
                sample[name] = open_media(feature, sample[name], opening)
            except LadingError as error:
                if not keep_broken or not isinstance(error, DataError):
                    raise error.at(column=name, sample=sample.get(KEY)) from None
                if isinstance(sample[name], (bytes, memoryview)):
                    sample[name] = BrokenFile(bytes(sample[name]), error)
    return sample


def _dicts(shards: Shards, batch: pa.RecordBatch, *, raw: bool) -> Iterator[dict[str, Any]]:
    names, files = batch.schema.names, files_of(batch.schema)
    columns = [
        shards.fetcher.values(column, files) if is_ref(column.type) else _python(name, column)
        for name, column in zip(names, batch.columns, strict=True)
    ]
    rows = zip(*columns, strict=True) if columns else repeat((), batch.num_rows)
    absent = absent_where_null(shards, batch)
    if raw and not absent:
        yield from map(dict, map(zip, repeat(names), rows))  # no step of Python a sample
        return
    features = [feature_of(field) for field in batch.schema]
    pickles = bool(shards.format_options.get("allow_pickle"))  # an option only of formats that have pickles
    key = names.index(KEY) if KEY in names else None
    for row in rows:
        cells = zip(names, features, row, strict=True)
        try:
            sample = {
                n: value if raw else _decoded(n, f, value, pickles)
                for n, f, value in cells
                if value is not None or n not in absent
            }
        except LadingError as error:
            error.advice = error.advice or BROKEN_VALUE
            raise error.at(sample=None if key is None else row[key]) from None
        yield sample


def absent_where_null(shards: Shards, batch: pa.RecordBatch | pa.Table) -> Collection[str]:
    """The columns whose nulls are left out of dicts: fields of items, and members that samples of tars may lack."""
    if shards.has_items:
        return frozenset(batch.schema.names)
    if not shards.takes_any_fields:
        return ()
    return [name for name in members_among(batch.schema) if batch.column(name).null_count]


def members_among(schema: pa.Schema) -> set[str]:
    """The columns that are members of samples where these may have any members: columns of bytes."""
    return {field.name for field in schema if is_ref(field.type) or is_bytes(field.type)}


def _python(name: str, column: pa.Array) -> list[Any]:
    """The values of a column. Raises DataError for what Python cannot have: a date before the year 1, nanoseconds."""
    if isinstance(column.type, pa.ExtensionType):  # who registered the type may give other values, and only of some
        column = column.storage
    try:
        return uncut_values(column)
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise DataError("Python cannot hold this value", column=name, found=str(error)[:200]) from error


def _decoded(name: str, feature: Feature, value: Any, pickles: bool) -> Any:
    try:  # not `errors_at`, which costs as much as most decoding
        return decode(feature, value, allow_pickle=pickles)
    except LadingError as error:
        raise error.at(column=name) from None
