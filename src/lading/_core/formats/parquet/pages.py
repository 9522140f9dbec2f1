"""Decide how many rows of a Parquet file to decode at once, from its footer and the headers of its pages.

pyarrow decodes as many rows as requested, however large they are. Sizes in the footer cover whole column chunks. If
these are small, an average is good enough. In a large row group, or where dictionary values may repeat without bound,
the headers of the next pages show the size of the next rows. A page has about 1 MiB, and its header some 30 bytes.

Source: parquet-format 2.11.0 `parquet.thrift` (PageHeader).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lading._core.formats.parquet.footer import ColumnChunk, decoded_bytes
from lading._core.formats.parquet.input import Input
from lading._core.formats.parquet.thrift import parse_struct
from lading.errors import CorruptShard

__all__ = [
    "DICTIONARY",
    "PLAIN",
    "SAFE_BYTES",
    "GroupSpan",
    "Page",
    "Pages",
    "check_lists",
    "decoded_sizes",
    "first_risk",
    "mean_row_bytes",
    "next_risk",
    "plan_runs",
    "read_pages",
    "rows_of_step",
]

SAFE_BYTES = 72 << 20
"""Bytes that may be decoded without checking page sizes: a row group as lading writes it by default."""

_BOMB_RATIO = 1000
_LEAST_ROW_BYTES = 1 / 8
_HEADER_BYTES = 128

# Fields of PageHeader; of its inner headers, one field each, with the field of their encoding.
_UNPACKED, _PACKED, _CHECKSUM, _NUM_VALUES, _LEVELS = 2, 3, 4, 1, 3
_KINDS = ((5, "data", 2), (7, "dictionary", 2), (8, "data", 4))
_DATA_PAGE_1 = 5

PLAIN = 0
"""Encoding of values one after another."""
DICTIONARY = (2, 8)
"""Encodings PLAIN_DICTIONARY and RLE_DICTIONARY."""
_PREFIXES = 7
"""Encoding DELTA_BYTE_ARRAY."""
_RISK = 8
"""Factor by which the first step may exceed its size, if no header shows the decoded size of a page. If the upper bound
counted, columns of ordinary values would be decoded row by row."""
_MOST_RISK = 1 << 30
"""Factor by which a step may exceed its size after others that were small."""
_GROWTH = 4


@dataclass(frozen=True, slots=True)
class GroupSpan:
    """Row groups that are decoded in one pass.

    Attributes:
        groups: their numbers.
        num_rows: rows in all of them.
        chunks: the column chunks to decode: of the first row group, then of the next.
        watched: those of them whose pages must be checked first.
    """

    groups: tuple[int, ...]
    num_rows: int
    chunks: tuple[ColumnChunk, ...]
    watched: tuple[ColumnChunk, ...] = ()

    def without(self, leaves: Collection[int]) -> GroupSpan:
        """Return the run without some of its columns."""
        kept, watched = (tuple(c for c in of if c.leaf not in leaves) for of in (self.chunks, self.watched))
        return replace(self, chunks=kept, watched=watched)

    @property
    def leaves(self) -> list[int]:
        """Return the columns to decode, ascending."""
        return [chunk.leaf for chunk in self.chunks[: len(self.chunks) // len(self.groups)]]

    @property
    def name(self) -> str:
        """Return the name of the run for errors."""
        first, last = min(self.groups), max(self.groups)
        return f"row group {first}" if first == last else f"row groups {first} to {last}"


@dataclass(frozen=True, slots=True)
class Page:
    """A page, by its header.

    Attributes:
        unpacked_bytes: its size.
        packed_bytes: its size in the file.
        num_values: values in it, nulls included.
        kind: `data`, `dictionary`, or `other`.
        encoding: encoding of the values; −1 if unknown.
        levels: encoding of the definition levels of a data page of version 1; else −1.
        checksum: CRC-32 of the page as stored in the file, if it has one.
        start: first byte after its header.
    """

    unpacked_bytes: int
    packed_bytes: int
    num_values: int
    kind: str
    encoding: int = -1
    levels: int = -1
    checksum: int | None = None
    start: int = -1


def plan_runs(groups: Iterable[GroupSpan], *, safe_bytes: int, step_bytes: int) -> Iterator[GroupSpan]:
    """Return runs: small neighbours joined, and in large row groups the columns to watch. Empty ones are dropped."""
    waiting: list[GroupSpan] = []
    size = most = 0
    for group in groups:
        if not group.num_rows:
            continue
        own_size = sum(chunk.nbytes for chunk in group.chunks)
        own_most = sum(chunk.most_bytes for chunk in group.chunks)
        size, most = size + own_size, most + own_most
        if waiting and (size > step_bytes or most > safe_bytes):
            yield _joined(waiting)
            waiting, size, most = [], own_size, own_most
        if own_most > safe_bytes:
            watched = tuple(c for c in group.chunks if c.nbytes > step_bytes or c.most_bytes > safe_bytes)
            yield replace(group, watched=watched)
            size = most = 0
        else:
            waiting.append(group)
    if waiting:
        yield _joined(waiting)


def _joined(runs: Sequence[GroupSpan]) -> GroupSpan:
    groups = tuple(group for run in runs for group in run.groups)
    return GroupSpan(groups, sum(run.num_rows for run in runs), tuple(chunk for run in runs for chunk in run.chunks))


def mean_row_bytes(run: GroupSpan) -> float:
    """Return the average bytes of a row, for the chunks that are not watched."""
    leaves = {chunk.leaf for chunk in run.watched}
    return sum(chunk.nbytes for chunk in run.chunks if chunk.leaf not in leaves) / max(run.num_rows, 1)


def rows_of_step(mean_bytes: float, pages: Sequence[Pages], limit: int, risk: int) -> int:
    """Return how many rows to decode next, so that they take about `limit` bytes, and at most `risk`; at least one.

    From the average size of a row, and for the watched chunks from the actual next pages, so that a span of large
    rows among small ones is decoded in small steps.
    """
    rows = max(1, int(limit / max(mean_bytes, _LEAST_ROW_BYTES)))
    if pages:
        rows = min(rows, *(cursor.fit(limit) for cursor in pages))
        while rows > 1 and (cost := sum(cursor.cost(rows) for cursor in pages)) > limit:
            rows = max(1, min(rows - 1, rows * limit // cost))
    most = sum(cursor.row_most for cursor in pages)
    return max(1, min(rows, risk // most)) if most else rows


def first_risk(limit: int) -> int:
    """Return the bytes that the first step, with target `limit`, may take."""
    return _RISK * limit


def next_risk(risk: int, found: int, limit: int) -> int:
    """Return the bytes that the next step may take: more if this step (`found` bytes) was small, none if too large."""
    if found > 2 * limit:
        return limit
    return min(_GROWTH * risk, _MOST_RISK) if _GROWTH * found <= limit else risk


class Pages:
    """The size of the next rows of a column, by its pages, read ahead as far as needed.

    Args:
        sizes: for each data page: rows, their bytes, bytes of the unpacked page, and the maximum bytes of a row if the
            total is unknown; else 0.

    Attributes:
        largest_bytes: size of the largest data page so far, unpacked.
        row_most: maximum bytes of a row in the pages so far whose size is unknown.
    """

    def __init__(self, sizes: Iterator[tuple[int, int, int, int]]) -> None:
        self._sizes = sizes
        self._ahead: deque[tuple[int, int]] = deque()
        self.largest_bytes = self.row_most = 0

    def fit(self, limit: int) -> int:
        """Return the rows of the next whole pages within `limit` bytes; of one larger page its share; at least one."""
        rows = total = i = 0
        while i < len(self._ahead) or self._look_ahead():
            page_rows, page_bytes = self._ahead[i]
            if total + page_bytes > limit:
                return rows or max(1, page_rows * limit // page_bytes)
            rows, total, i = rows + page_rows, total + page_bytes, i + 1
        return max(rows, 1)

    def cost(self, rows: int) -> int:
        """Return the bytes of the next rows."""
        total = i = 0
        while rows > 0 and (i < len(self._ahead) or self._look_ahead()):
            page_rows, page_bytes = self._ahead[i]
            total += page_bytes if rows >= page_rows else page_bytes * rows // page_rows
            rows, i = rows - page_rows, i + 1
        return total

    def advance(self, rows: int) -> None:
        """Skip rows."""
        while rows > 0 and (self._ahead or self._look_ahead()):
            page_rows, page_bytes = self._ahead.popleft()
            if rows < page_rows:
                left = page_rows - rows
                self._ahead.appendleft((left, page_bytes * left // page_rows))
            rows -= page_rows

    def _look_ahead(self) -> bool:
        """Read the next data page's header; return False at the end."""
        for rows, size, page_bytes, row_most in self._sizes:
            self._ahead.append((rows, size))
            self.largest_bytes = max(self.largest_bytes, page_bytes)
            self.row_most = max(self.row_most, row_most)
            return True
        return False


def decoded_sizes(
    file: Input, chunk: ColumnChunk, value_bytes: Callable[[ColumnChunk, Page], int]
) -> Iterator[tuple[int, int, int, int]]:
    """Yield for `Pages` the decoded sizes of the pages of a chunk, from their headers, each read on demand.

    Args:
        file: the file of the chunk.
        chunk: the chunk.
        value_bytes: bytes to count for each value from the chunk's dictionary of byte arrays.
    """
    any_length = chunk.kind == "BYTE_ARRAY"
    dictionary_value = 0
    for page in read_pages(file, chunk):
        if page.kind == "dictionary" and any_length:
            dictionary_value = value_bytes(chunk, page)
        elif page.kind == "data":
            values = page.num_values
            rows = values if chunk.flat else values * chunk.num_rows // max(chunk.num_values, 1)
            size = decoded_bytes(page.unpacked_bytes, max(values, rows * chunk.row_values), chunk.value_bytes)
            most = 0 if chunk.null_values == 1 else values * chunk.null_values * max(chunk.value_bytes, 8)
            if any_length and page.encoding in DICTIONARY:
                size += values * dictionary_value
            elif any_length and page.encoding == _PREFIXES:
                most += values * page.unpacked_bytes
            yield max(rows, 1), size, page.unpacked_bytes, most // max(rows, 1)


def check_lists(file: Input, chunks: Iterable[ColumnChunk]) -> None:
    """Raise CorruptShard if pages of lists and the footer differ in their numbers of values.

    Nothing else shows the decoded size of a row of a list: a wrong number may mean gigabytes.
    """
    for chunk in chunks:
        if not chunk.flat:
            found = sum(page.num_values for page in read_pages(file, chunk) if page.kind == "data")
            if found != chunk.num_values:
                raise _bad(file, chunk, chunk.start, f"{found} values in pages, {chunk.num_values} in the footer")


def read_pages(file: Input, chunk: ColumnChunk) -> Iterator[Page]:
    """Yield the pages of a chunk by their headers.

    Raises:
        CorruptShard: a header is damaged.
        LimitExceeded: a page unpacks to a thousand times its size, and more than `page_bytes`; or its header is longer
            than `page_header_bytes`.
    """
    at = chunk.start
    while at < chunk.stop:
        header, length = _parsed_header(file, chunk, at)
        page = _page(header, at + length)
        if min(page.unpacked_bytes, page.packed_bytes, page.num_values) < 0:
            raise _bad(file, chunk, at, "a page header without sizes")
        if page.unpacked_bytes > file.limits.page_bytes and page.unpacked_bytes > _BOMB_RATIO * page.packed_bytes:
            raise file.limits.exceeded(
                "page_bytes",
                f"row group {chunk.group}: a page unpacks to more than {_BOMB_RATIO} times its size",
                file=file.path,
                offset=at,
                column=chunk.column,
                found=f"{page.packed_bytes} bytes for {page.unpacked_bytes}",
            )
        yield page
        at += length + page.packed_bytes


def _parsed_header(file: Input, chunk: ColumnChunk, at: int) -> tuple[dict[int, Any], int]:
    size = _HEADER_BYTES
    while True:
        data = file.read_at(at, min(size, chunk.stop - at))
        try:
            return parse_struct(data, 0)
        except IndexError:
            if len(data) < size:
                raise _bad(file, chunk, at, "a page header without an end") from None
            if size >= file.limits.page_header_bytes:
                raise file.limits.exceeded(
                    "page_header_bytes", f"row group {chunk.group}: a page header is too long", file=file.path,
                    offset=at, column=chunk.column,
                ) from None  # fmt: skip
            size = min(16 * size, max(file.limits.page_header_bytes, size + 1))
        except ValueError as error:
            raise _bad(file, chunk, at, f"no page header ({error})") from None


def _page(header: dict[int, Any], start: int) -> Page:
    """Return a page; sizes missing in the header are −1."""
    sizes = _integer(header, _UNPACKED), _integer(header, _PACKED)
    for number, kind, encoding in _KINDS:
        inner = header.get(number)
        if isinstance(inner, dict):
            levels = _integer(inner, _LEVELS) if number == _DATA_PAGE_1 else -1
            crc = header.get(_CHECKSUM)
            checksum = crc if isinstance(crc, int) else None
            values = _integer(inner, _NUM_VALUES)
            return Page(*sizes, values, kind, _integer(inner, encoding), levels, checksum, start)
    return Page(*sizes, 0, "other")


def _integer(fields: dict[int, Any], number: int) -> int:
    value = fields.get(number)
    return value if isinstance(value, int) else -1


def _bad(file: Input, chunk: ColumnChunk, at: int, what: str) -> CorruptShard:
    return CorruptShard(f"row group {chunk.group}: {what}", file=file.path, offset=at, column=chunk.column)
