"""Leave pages unread whose rows a condition drops: a page of nulls stands in place of each of them.

pyarrow reads the pages of a column one after another, and cannot leave one out. So it reads another page at the same
place: with as many values, all null (or empty, where there are no nulls), and the same length, filled up with zeros.

Places of pages come from the offset index, which the writers of lading, Spark and Rust write, and pyarrow only with
`write_page_index`. Without it, a column is left out of the row groups that have no wanted row.

Source: parquet-format 2.11.0 `parquet.thrift` (ColumnChunk, OffsetIndex, PageHeader, DataPageHeaderV2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lading._core.formats.parquet.footer import ColumnChunk, Footer
from lading._core.formats.parquet.input import Input
from lading._core.formats.parquet.thrift import structs_of_list

__all__ = ["Hole", "OffsetIndexes", "find_holes", "may_have_holes"]

_ROW_GROUPS, _COLUMNS, _INDEX_OFFSET, _INDEX_LENGTH = 4, 1, 4, 5
_LOCATIONS, _PAGE_OFFSET, _PAGE_SIZE, _FIRST_ROW = 1, 1, 2, 3
_STAND_IN_BYTES = 64
"""More than the header and the levels of a page of nulls."""
_LENGTH_BYTES = 4
_MIN_VALUE_BYTES = 1 << 10
"""Average bytes of a value that may be left out. For smaller ones, a page rarely has no wanted row."""
_MAX_SIZE = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Hole:
    """A range of a file that is not read.

    Attributes:
        start: first byte.
        stop: byte after the last.
        head: the first bytes of what stands in its place; the rest is zeros.
    """

    start: int
    stop: int
    head: bytes


class OffsetIndexes:
    """The places of pages in a file.

    Args:
        file: the open file.
        footer: its footer.
    """

    def __init__(self, file: Input, footer: Footer) -> None:
        self._file = file
        groups = structs_of_list(file.read_at(footer.start, footer.length), _ROW_GROUPS)
        self._places = [
            [(chunk.get(_INDEX_OFFSET), chunk.get(_INDEX_LENGTH)) for chunk in group[_COLUMNS]] for group in groups
        ]

    def pages(self, chunks: Sequence[ColumnChunk]) -> list[NDArray[np.int64] | None]:
        """Return start, end and first row of each data page of these chunks; None without a sound offset index."""
        places = [self._place(chunk) for chunk in chunks]
        self._file.expect([place for place in places if place is not None])
        return [
            None if place is None else self._pages(chunk, place) for chunk, place in zip(chunks, places, strict=True)
        ]

    def _place(self, chunk: ColumnChunk) -> tuple[int, int] | None:
        offset, length = self._places[chunk.group][chunk.leaf]
        if not isinstance(offset, int) or not isinstance(length, int):
            return None
        inside = 0 < offset <= offset + length <= self._file.size_bytes
        return (offset, offset + length) if inside and 0 < length <= self._file.limits.footer_bytes else None

    def _pages(self, chunk: ColumnChunk, place: tuple[int, int]) -> NDArray[np.int64] | None:
        try:
            found = structs_of_list(self._file.read_at(place[0], place[1] - place[0]), _LOCATIONS)
            listed = [(page[_PAGE_OFFSET], page[_PAGE_SIZE], page[_FIRST_ROW]) for page in found]
            start, size, row = np.array(listed, np.int64).reshape(-1, 3).T
        except (LookupError, TypeError, ValueError, OverflowError):
            return None  # the pages themselves tell more than an index that is damaged
        stops = np.append(start[1:], chunk.stop)
        sound = len(row) and row[0] == 0 and (np.diff(row) > 0).all() and row[-1] < chunk.num_rows
        if not sound or start[0] < chunk.start or (start + size != stops).any():
            return None
        return np.stack([start, stops, row])


def find_holes(
    indexes: OffsetIndexes, chunks: Sequence[ColumnChunk], wanted: Sequence[NDArray[np.bool_]], min_bytes: int
) -> list[Hole]:
    """Return the parts of column chunks that need not be read.

    Args:
        indexes: the places of pages.
        chunks: the column chunks.
        wanted: of each, which rows of its row group are wanted.
        min_bytes: bytes of neighbouring pages that are worth a hole.
    """
    holes: list[Hole] = []
    some: list[tuple[ColumnChunk, NDArray[np.bool_]]] = []
    for chunk, rows in zip(chunks, wanted, strict=True):
        if not may_have_holes(chunk) or chunk.stop - chunk.start < min_bytes or rows.all():
            continue
        if rows.any():
            some.append((chunk, rows))
        else:
            holes += _whole(chunk)
    for (chunk, rows), pages in zip(some, indexes.pages([chunk for chunk, _ in some]), strict=True):
        if pages is not None:
            holes += _of_pages(chunk, rows, pages, min_bytes)
    return sorted(holes, key=lambda hole: hole.start)


def may_have_holes(chunk: ColumnChunk) -> bool:
    """Return whether pages of a chunk may be left out: its values are large, and one a row."""
    large = chunk.nbytes >= _MIN_VALUE_BYTES * chunk.num_values
    return large and chunk.flat and chunk.kind == "BYTE_ARRAY" and chunk.num_values == chunk.num_rows > 0


def _whole(chunk: ColumnChunk) -> Iterator[Hole]:
    """Yield the hole of a whole chunk: all its values in a small page, then a page without values, never read."""
    size = _STAND_IN_BYTES + (0 if chunk.max_level else _LENGTH_BYTES * chunk.num_rows)
    if chunk.stop - chunk.start >= size + _STAND_IN_BYTES:
        rest = chunk.stop - chunk.start - size
        first, last = _page_of_nulls(chunk, chunk.num_rows, size), _page_of_nulls(chunk, 0, rest)
        if first is not None and last is not None:
            yield Hole(chunk.start, chunk.start + size, first)
            yield Hole(chunk.start + size, chunk.stop, last)


def _of_pages(chunk: ColumnChunk, rows: NDArray[np.bool_], pages: NDArray[np.int64], min_bytes: int) -> Iterable[Hole]:
    """Yield holes for runs of neighbouring pages without a wanted row."""
    starts, stops, first = pages.tolist()
    counts = np.diff(np.append(pages[2], chunk.num_rows)).tolist()
    heads = [
        None if there else _page_of_nulls(chunk, count, stop - start)
        for there, count, start, stop in zip(
            np.logical_or.reduceat(rows, first).tolist(), counts, starts, stops, strict=True
        )
    ]
    run: list[Hole] = []
    for start, stop, head in zip([*starts, 0], [*stops, 0], [*heads, None], strict=True):
        if head is not None:
            run.append(Hole(start, stop, head))
            continue
        if run and run[-1].stop - run[0].start >= min_bytes:
            yield from run
        run = []


def _page_of_nulls(chunk: ColumnChunk, count: int, size: int) -> bytes | None:
    """Return the beginning of a page of so many bytes whose values are null, or empty texts; None if it cannot be."""
    levels = _varint(count << 1) + b"\0" if chunk.max_level and count else b""
    nulls, body = (count, levels) if chunk.max_level else (0, b"")
    data = _data_page_header(count, nulls, len(levels))
    for length in range(size - 1, max(size - _STAND_IN_BYTES, 0), -1):  # the header holds the length of what follows
        head = b"\x15\x06" + b"\x15" + _zigzag(length) + b"\x15" + _zigzag(length) + b"\x5c" + data + b"\0"
        if len(head) + length == size:
            fits = length >= len(body) + (0 if chunk.max_level else _LENGTH_BYTES * count)
            return head + body if fits and length <= _MAX_SIZE else None
    return None


def _data_page_header(count: int, nulls: int, level_bytes: int) -> bytes:
    """Return a DataPageHeaderV2: num_values, num_nulls, num_rows, PLAIN, bytes of both levels, not compressed."""
    numbers = (count, nulls, count, 0, level_bytes, 0)
    return b"".join(b"\x15" + _zigzag(number) for number in numbers) + b"\x12\0"


def _zigzag(number: int) -> bytes:
    return _varint(number << 1)


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number >= 1 << 7:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)
