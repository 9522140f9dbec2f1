"""Plan how to write each column of a Parquet file, from its first values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lading._core.arrow import views
from lading._core.features.types import feature_of
from lading._core.formats.parquet.options import WITH_LEVELS, WriteOptions
from lading.errors import DataError, UsageError

__all__ = [
    "ColumnPlan",
    "check_columns",
    "expands",
    "leaf_arrays",
    "plan_columns",
    "shrinking",
    "uncompressed",
    "values_at_once",
]

_EXPANDING = ("gzip", "brotli", "zstd")
"""Codecs with levels; the same may expand by more than 1,000 times, as snappy and lz4 never do."""
_SAFE_RATIO = 900
"""Readers refuse large pages that expand by more than 1,000 times; levels and lengths are in a page, too."""
_MIN_VALUE_BYTES = 512
"""Smaller values count as this size: checking a page's size every 1,024 values is often enough."""
_MIN_REPEATS = 8
_PAYLOAD_BYTES = 64
"""Binary values with a larger average are payload; smaller ones are ids, hashes and the like."""
_TEXT_BYTES = 1024
_TRIAL_VALUES = 16
_TRIAL_BYTES = 16 << 10
_WORTHWHILE = 0.9
_COUNTABLE = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_temporal,
)
"""Types that `count_distinct` supports."""


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """How one Parquet column is written.

    Attributes:
        path: its path in Parquet's schema.
        column: the column of the rows that it stores, or a part of.
        codec: compression.
        level: level of the codec, None for its default.
        dictionary: whether values repeat enough for a dictionary.
        statistics: whether minimum and maximum are written; not for payload, where they are long and useless.
        value_bytes: size of its larger values.
        sample_bytes: bytes of the sampled values.
        ratio: approximate bytes in the file for each byte of values.
    """

    path: str
    column: str
    codec: str
    level: int | None
    dictionary: bool
    statistics: bool
    value_bytes: int
    sample_bytes: int
    ratio: float


def check_columns(options: WriteOptions, schema: pa.Schema) -> None:
    """Raise UsageError if a compression is given for a missing column."""
    for column in options.compression if isinstance(options.compression, Mapping) else ():
        if column not in schema.names:
            raise UsageError("compression is given for a missing column", found=repr(column), expected=schema.names)


def plan_columns(sample: pa.RecordBatch, options: WriteOptions) -> list[ColumnPlan]:
    """Return a plan for every Parquet column, in their order.

    Args:
        sample: the first rows, in the types that are written, with features in the metadata of their fields.
        options: write options.
    """
    leaves = [
        (field, values)
        for field, column in zip(sample.schema, sample.columns, strict=True)
        for values in leaf_arrays(column)
    ]
    paths = _paths(sample.schema)
    return [_plan(path, field, values, options) for path, (field, values) in zip(paths, leaves, strict=True)]


def uncompressed(plan: ColumnPlan) -> ColumnPlan:
    """Return a plan that stores each value as it is."""
    return replace(plan, codec="none", level=None, dictionary=False, ratio=1.0)


def expands(column: pa.ChunkedArray, plan: ColumnPlan, least_bytes: int) -> bool:
    """Return whether a page with a row of at least so many bytes may expand so much that readers refuse it.

    Large bytes and texts are compressed to find out; other large rows, such as lists, count as such.
    """
    if plan.codec not in _EXPANDING:
        return False
    single = views.is_bytes(column.type) or views.is_text(column.type)
    for chunk in column.chunks:
        sizes = views.row_bytes(pa.record_batch([chunk], ["values"]))
        for row in np.flatnonzero(sizes >= least_bytes).tolist():
            [value] = views.slices(chunk.slice(row, 1)) if single else [None]
            if value is None or len(value) > _SAFE_RATIO * len(_coder(plan).compress(value)):
                return True
    return False


def _coder(plan: ColumnPlan) -> pa.Codec:
    return pa.Codec(plan.codec) if plan.level is None else pa.Codec(plan.codec, plan.level)


def values_at_once(plans: Sequence[ColumnPlan], page_bytes: int) -> int:
    """Return after how many values to check the size of a page, so that no column exceeds a page meanwhile."""
    return min((page_bytes // max(plan.value_bytes, 1) for plan in plans), default=1) or 1


def shrinking(plans: Sequence[ColumnPlan]) -> float:
    """Return the approximate bytes in the file for each byte of values; 1 if unknown."""
    total = sum(plan.sample_bytes for plan in plans)
    return sum(plan.sample_bytes * plan.ratio for plan in plans) / total if total else 1.0


def _paths(schema: pa.Schema) -> list[str]:
    """Return paths of the Parquet columns, from a file without rows: pyarrow chooses the names of nested ones."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema, store_schema=False).close()
    columns = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    return [columns.column(i).path for i in range(len(columns))]


def leaf_arrays(column: pa.Array) -> Iterator[pa.Array]:
    """Return the arrays below a nested one, in Parquet's order; they may hold more than the values of its rows."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        yield from leaf_arrays(column.storage)
    elif pa.types.is_struct(kind):
        for i in range(kind.num_fields):
            yield from leaf_arrays(column.field(i))
    elif pa.types.is_map(kind):
        yield from leaf_arrays(column.keys)
        yield from leaf_arrays(column.items)
    elif pa.types.is_nested(kind):
        yield from leaf_arrays(views.listed_items(column)[0])
    else:
        yield column


def _plan(path: str, field: pa.Field, values: pa.Array, options: WriteOptions) -> ColumnPlan:
    binary = views.is_bytes(values.type)
    sized = binary or views.is_text(values.type)
    sizes = views.byte_lengths(values) if sized else np.broadcast_to(np.int64(8), len(values))
    mean = float(sizes.sum()) / max(len(values) - values.null_count, 1)
    payload = binary and (mean > _PAYLOAD_BYTES or _is_media(field))
    ratio = _trial(values, sizes) if sized else 1.0
    codec = _codec(field.name, options, payload=payload, ratio=ratio)
    return ColumnPlan(
        path=path,
        column=field.name,
        codec=codec,
        level=options.compression_level if codec in WITH_LEVELS else None,
        dictionary=not payload and mean <= _TEXT_BYTES and _repeats(values),
        statistics=not payload,
        value_bytes=_large_value(sizes),
        sample_bytes=int(sizes.sum()),
        ratio=1.0 if codec == "none" else ratio,
    )


def _large_value(sizes: NDArray[np.int64]) -> int:
    """Return the size that one value in twenty exceeds; for many columns a quantile would dominate the cost."""
    if not len(sizes) or sizes.max() <= _MIN_VALUE_BYTES:
        return _MIN_VALUE_BYTES
    return max(int(np.quantile(sizes, 0.95)), _MIN_VALUE_BYTES)


def _is_media(field: pa.Field) -> bool:
    try:
        return feature_of(field).is_media
    except DataError:  # of a later version: its values decide
        return False


def _codec(column: str, options: WriteOptions, *, payload: bool, ratio: float) -> str:
    named = options.compression
    if isinstance(named, Mapping) and column in named:
        return named[column]
    if payload and options.media_compression is not None:
        return options.media_compression
    if payload and ratio > _WORTHWHILE:
        return "none"
    return named if isinstance(named, str) else "zstd"


def _trial(values: pa.Array, sizes: NDArray[np.int64]) -> float:
    """Return the compressed share of some values: zstd compresses the middle of each, each by itself."""
    filled = np.flatnonzero(sizes)
    chosen = filled[np.linspace(0, len(filled) - 1, min(len(filled), _TRIAL_VALUES)).astype(np.int64)]
    codec = pa.Codec("zstd")
    before = after = 0
    for row in chosen.tolist():
        [value] = views.slices(values.slice(row, 1))
        assert value is not None
        start = max(len(value) - _TRIAL_BYTES, 0) // 2
        part = value[start : start + _TRIAL_BYTES]
        before, after = before + len(part), after + len(codec.compress(part))
    return after / before if before else 1.0


def _repeats(values: pa.Array) -> bool:
    """Return whether half of the values are repeats."""
    if pa.types.is_dictionary(values.type):
        return True
    if pa.types.is_binary_view(values.type):
        values = values.cast(pa.large_binary())
    count = len(values) - values.null_count
    if count < _MIN_REPEATS or not any(test(values.type) for test in _COUNTABLE):
        return False
    return bool(pc.count_distinct(values).as_py() * 2 <= count)
