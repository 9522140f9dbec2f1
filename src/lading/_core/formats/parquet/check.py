"""Findings of Parquet files, by the footer alone: counts that differ, and layout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.formats.base import ShardFile
from lading._core.formats.findings import Finding, Level
from lading._core.formats.layout_findings import large_strings, large_unit
from lading._core.formats.parquet.footer import Footer, count_errors, read_footer, read_page_facts
from lading._core.formats.parquet.input import Input, damage, open_input
from lading._core.formats.parquet.options import ReadOptions
from lading._core.formats.parquet.schema import leaves_by_field
from lading._core.units import format_bytes
from lading.errors import DataError, StoreError

__all__ = ["check_shard"]

_SMALL_GROUP_BYTES = 1 << 20
"""A store takes longer to answer a request (30 ms and more) than to send a row group smaller than this."""

_FEW_GROUPS = 16
"""The requests for so many small row groups run at once."""

_LARGE_PAGE_BYTES = 64 << 20
"""Readers fetch and decompress a whole page for a single value. Pages are meant to have 1 MiB; pyarrow writes pages of
1,024 large values by default."""


def check_shard(file: ShardFile, options: ReadOptions, level: Level) -> Iterator[Finding]:
    """Yield layout findings of row groups, pages and columns; or counts of the footer that differ."""
    if level is Level.BESIDE:
        return
    if level is not Level.LAYOUT:
        with suppress(DataError, StoreError), closing(open_input(file, mmap=options.mmap)) as source:  # reading reports
            yield from map(Finding.of, count_errors(source.path, read_footer(source)))
        return
    with closing(open_input(file, mmap=options.mmap)) as source:
        footer = read_footer(source)
        if not len(footer.num_rows):
            return
        stored = read_page_facts(source, footer)
        uncompressed, values = footer.chunks[:, :, 2], footer.chunks[:, :, 3]
        decoded = np.maximum(uncompressed, stored[:, :, 0])
        yield from large_unit("row group", decoded.sum(axis=1), footer.num_rows)
        # A dictionary that repeats takes few bytes for many values.
        yield from _small_groups((decoded + 8 * values).sum(axis=1))
        yield from _large_pages(footer, uncompressed, np.stack([stored[:, :, 1], values - stored[:, :, 2]]))
        yield from _large_strings(source, footer, decoded)


def _small_groups(size_bytes: NDArray[np.int64]) -> Iterator[Finding]:
    count, mean = len(size_bytes), int(size_bytes.mean())
    if count > _FEW_GROUPS and mean < _SMALL_GROUP_BYTES:
        yield Finding(
            "small row groups",
            measured=f"{count:,} row groups with a mean of {format_bytes(mean)}, "
            f"at least {format_bytes(_SMALL_GROUP_BYTES)}",
            why="Each takes one request for each column, so readers of a store mostly wait.",
            weight=count,
            fix="copy",
        )


def _large_pages(footer: Footer, uncompressed: NDArray[np.int64], stored: NDArray[np.int64]) -> Iterator[Finding]:
    """Yield the largest page of several values, where the footer has the number of pages."""
    pages, present = stored
    strings = np.array([column.kind == "BYTE_ARRAY" for column in footer.columns], np.bool_)
    mean = np.where((pages > 0) & (present >= 2 * pages) & strings, uncompressed // np.maximum(pages, 1), 0)
    if not mean.size or mean.max() <= _LARGE_PAGE_BYTES:
        return
    group, leaf = np.unravel_index(int(mean.argmax()), mean.shape)
    size = int(mean[group, leaf])
    column, limit = footer.columns[int(leaf)].path, format_bytes(_LARGE_PAGE_BYTES)
    yield Finding(
        "large pages",
        measured=f"row group {group}, column {column!r}: {format_bytes(size)} a page, at most {limit}",
        why="A page is the smallest unit of reading: a single value costs the bytes and the memory of a whole page.",
        weight=size,
        fix="copy",
    )


def _large_strings(source: Input, footer: Footer, decoded: NDArray[np.int64]) -> Iterator[Finding]:
    with damage(source.path, "the schema"):
        schema = footer.metadata.schema.to_arrow_schema()
    names = [(name, leaf) for field, leaves in zip(schema, leaves_by_field(schema), strict=True)
             for name, leaf in zip(_leaf_types(field.type), leaves, strict=True)]  # fmt: skip
    short = [leaf for kind, leaf in names if pa.types.is_string(kind) or pa.types.is_binary(kind)]
    if short:
        sizes = decoded[:, short]
        group, at = np.unravel_index(int(sizes.argmax()), sizes.shape)
        column = footer.columns[short[int(at)]].path
        yield from large_strings(f"row group {group}", column, int(sizes[group, at]))


def _leaf_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the types of the Parquet columns that store a type."""
    if isinstance(kind, pa.BaseExtensionType):
        yield from _leaf_types(kind.storage_type)
    elif pa.types.is_nested(kind):
        for i in range(kind.num_fields):
            yield from _leaf_types(kind.field(i).type)
    else:
        yield kind
