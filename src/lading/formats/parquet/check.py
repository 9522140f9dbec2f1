"""What in a Parquet file will hurt, by its footer alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.formats.base import LayoutFinding
from lading.formats.layout_findings import large_strings, large_unit
from lading.formats.parquet.footer import Footer, read_page_facts
from lading.formats.parquet.input import Input, damage
from lading.formats.parquet.schema import leaves_by_field
from lading.units import format_bytes

__all__ = ["find_layout_findings"]

_SMALL_GROUP_BYTES = 1 << 20
"""A row group below this hurts: it takes a store longer to answer the request (30 ms and more) than to send it."""

_FEW_GROUPS = 16
"""As many small row groups as this hurt nobody: their requests are made at once."""

_LARGE_PAGE_BYTES = 64 << 20
"""A page above this hurts: it has to be fetched and unpacked for a single value. Pages are meant to have 1 MiB, and
pyarrow makes them of 1,024 values if these are large, unless it is told otherwise."""


def find_layout_findings(file: Input, footer: Footer) -> list[LayoutFinding]:
    """What will hurt in this file."""
    if not len(footer.num_rows):
        return []
    told = read_page_facts(file, footer)
    unpacked, values = footer.chunks[:, :, 2], footer.chunks[:, :, 3]
    decoded = np.maximum(unpacked, told[:, :, 0])
    return [
        *large_unit("row group", decoded.sum(axis=1), footer.num_rows),
        # Values of a dictionary that repeat without end take few bytes, and are many all the same.
        *_small_groups((decoded + 8 * values).sum(axis=1)),
        *_large_pages(footer, unpacked, np.stack([told[:, :, 1], values - told[:, :, 2]])),
        *_large_strings(file, footer, decoded),
    ]


def _small_groups(size_bytes: NDArray[np.int64]) -> Iterator[LayoutFinding]:
    count, mean = len(size_bytes), int(size_bytes.mean())
    if count > _FEW_GROUPS and mean < _SMALL_GROUP_BYTES:
        measured = f"{count:,} row groups of {format_bytes(mean)} in the mean, less than "
        yield LayoutFinding(
            "small row groups",
            measured + format_bytes(_SMALL_GROUP_BYTES),
            "Each is a request for each column, so that readers of a store wait most of the time.",
            count,
        )


def _large_pages(footer: Footer, unpacked: NDArray[np.int64], told: NDArray[np.int64]) -> Iterator[LayoutFinding]:
    """The largest page of several values, where the footer tells how many pages there are."""
    pages, there = told
    strings = np.array([column.kind == "BYTE_ARRAY" for column in footer.columns], np.bool_)
    mean = np.where((pages > 0) & (there >= 2 * pages) & strings, unpacked // np.maximum(pages, 1), 0)
    if not mean.size or mean.max() <= _LARGE_PAGE_BYTES:
        return
    group, leaf = np.unravel_index(int(mean.argmax()), mean.shape)
    size = int(mean[group, leaf])
    column, limit = footer.columns[int(leaf)].path, format_bytes(_LARGE_PAGE_BYTES)
    yield LayoutFinding(
        "large pages",
        f"row group {group}, column {column!r}: {format_bytes(size)} a page, more than {limit}",
        "A page is the least that can be read: a single value costs all of it, in bytes and in memory.",
        size,
    )


def _large_strings(file: Input, footer: Footer, decoded: NDArray[np.int64]) -> Iterator[LayoutFinding]:
    with damage(file.path, "the schema"):
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
    """Types of the Parquet columns that a type is held in."""
    if isinstance(kind, pa.BaseExtensionType):
        yield from _leaf_types(kind.storage_type)
    elif pa.types.is_nested(kind):
        for i in range(kind.num_fields):
            yield from _leaf_types(kind.field(i).type)
    else:
        yield kind
