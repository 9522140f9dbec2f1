"""How many rows of a Parquet file to decode at once, from its footer and the headers of its pages.

pyarrow decodes as many rows as it is told to, however large they are. Sizes in the footer are of whole column chunks.
Where these are small, a mean is good enough; in a large row group, or where dictionary values may repeat without end,
the headers of the pages ahead tell what the next rows come to. A page is 1 MiB or so, and its header some 30 bytes.

Source: parquet-format 2.11.0 `parquet.thrift` (PageHeader); the Thrift compact protocol,
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from lading.errors import CorruptShard, LimitExceeded
from lading.formats._parquet_input import Input

__all__ = ["SAFE_BYTES", "Chunk", "DictionaryPage", "Pages", "Run", "find_chunk", "plan_runs", "rows_of_step"]

SAFE_BYTES = 72 << 20
"""What may be decoded without a look at the sizes of its pages: a row group as lading writes them by default."""

_BOMB_RATIO = 1000
_HEADER_BYTES = 128
_MAX_HEADER_BYTES = 16 << 20
_MAX_DEPTH = 8
_INTEGER_BITS = 64

# Fields of PageHeader, DataPageHeader and DataPageHeaderV2.
_UNPACKED, _PACKED, _DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 2, 3, 5, 7, 8
_NUM_VALUES, _ENCODING, _ENCODING_V2 = 1, 2, 4
_FROM_DICTIONARY = (2, 8)
"""Encodings PLAIN_DICTIONARY and RLE_DICTIONARY."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A column chunk, by the footer.

    Attributes:
        group: its row group.
        leaf: its column, counting leaves of nested fields.
        column: the column's path.
        start: first byte in the file.
        stop: byte after the last.
        num_rows: rows of the row group.
        num_values: values, nulls among them; more than rows in a list.
        nbytes: about what it decodes to, if no value of a dictionary repeats.
        flat: whether a value is a row.
        repeats: whether it has a dictionary of values of any length.
    """

    group: int
    leaf: int
    column: str
    start: int
    stop: int
    num_rows: int
    num_values: int
    nbytes: int
    flat: bool
    repeats: bool

    @property
    def most_bytes(self) -> int:
        """What it may decode to: each value may be the whole of the dictionary."""
        return self.num_values * self.nbytes if self.repeats else self.nbytes


@dataclass(frozen=True, slots=True)
class Run:
    """Row groups that are decoded in one pass.

    Attributes:
        groups: their numbers.
        num_rows: rows in all of them.
        chunks: the column chunks to decode.
        watched: those of them whose pages are to be looked at first.
    """

    groups: tuple[int, ...] = ()
    num_rows: int = 0
    chunks: tuple[Chunk, ...] = ()
    watched: tuple[Chunk, ...] = ()

    @property
    def nbytes(self) -> int:
        """About what it decodes to."""
        return sum(chunk.nbytes for chunk in self.chunks)

    @property
    def most_bytes(self) -> int:
        """What it may decode to."""
        return sum(chunk.most_bytes for chunk in self.chunks)

    @property
    def leaves(self) -> list[int]:
        """The columns to decode, ascending."""
        return [chunk.leaf for chunk in self.chunks if chunk.group == self.groups[0]]

    @property
    def name(self) -> str:
        """What to call it in an error."""
        first, last = min(self.groups), max(self.groups)
        return f"row group {first}" if first == last else f"row groups {first} to {last}"


@dataclass(frozen=True, slots=True)
class DictionaryPage:
    """Sizes in the header of a dictionary page: unpacked, in the file, and the number of values."""

    unpacked_bytes: int
    packed_bytes: int
    num_values: int


def find_chunk(file: Input, metadata: pq.FileMetaData, group: int, leaf: int) -> Chunk:
    """A column chunk by the footer. Raises CorruptShard if it does not lie in the file."""
    found = metadata.row_group(group).column(leaf)
    column = metadata.schema.column(leaf)
    first, dictionary = found.data_page_offset, found.dictionary_page_offset
    start = dictionary if dictionary is not None and 0 < dictionary < first else first
    chunk = Chunk(
        group=group,
        leaf=leaf,
        column=column.path,
        start=start,
        stop=start + found.total_compressed_size,
        num_rows=metadata.row_group(group).num_rows,
        num_values=found.num_values,
        # Offsets and unpacked numbers take memory that is not in the pages.
        nbytes=found.total_uncompressed_size + 8 * found.num_values,
        flat=column.max_repetition_level == 0,
        repeats=bool(found.has_dictionary_page) and column.physical_type == "BYTE_ARRAY",
    )
    if not 0 <= start <= chunk.stop <= file.size_bytes or min(chunk.num_values, chunk.nbytes) < 0:
        raise CorruptShard(
            f"row group {group}: a column chunk that cannot be",
            file=file.path,
            offset=start,
            column=chunk.column,
            expected=f"a range of 0 to {file.size_bytes}",
            found=f"{start} to {chunk.stop}, {chunk.num_values} values",
        )
    return chunk


def plan_runs(runs: Iterable[Run], *, safe_bytes: int, step_bytes: int) -> Iterator[Run]:
    """The same row groups: small neighbours as one run, and in large ones what is to be watched. Empty ones go."""
    waiting: Run | None = None
    for run in runs:
        if waiting is not None:
            joined = Run(waiting.groups + run.groups, waiting.num_rows + run.num_rows, waiting.chunks + run.chunks)
            if joined.nbytes <= step_bytes and joined.most_bytes <= safe_bytes:
                waiting = joined
                continue
            yield waiting
            waiting = None
        if run.most_bytes > safe_bytes:
            watched = tuple(c for c in run.chunks if c.nbytes > step_bytes or c.most_bytes > safe_bytes)
            yield Run(run.groups, run.num_rows, run.chunks, watched)
        elif run.num_rows:
            waiting = run
    if waiting is not None:
        yield waiting


def rows_of_step(run: Run, pages: Sequence[Pages], limit: int) -> int:
    """How many rows to decode next, so that they take about `limit` bytes; one at least.

    From the mean size of a row, and for the watched chunks from the very pages that are next, so that a stretch of
    large rows among small ones is taken in small steps.
    """
    mean = sum(chunk.nbytes for chunk in run.chunks if chunk not in run.watched)
    rows = max(1, run.num_rows * limit // mean) if mean else run.num_rows
    if pages:
        rows = min(rows, *(cursor.fit(limit) for cursor in pages))
        while rows > 1 and (cost := sum(cursor.cost(rows) for cursor in pages)) > limit:
            rows = max(1, min(rows - 1, rows * limit // cost))
    return rows


class Pages:
    """What the next rows of a column chunk decode to, by the headers of its pages, read as far ahead as asked.

    Args:
        file: where the chunk lies.
        chunk: the chunk.
        value_bytes: bytes to reckon for each value that comes out of the chunk's dictionary.
    """

    def __init__(self, file: Input, chunk: Chunk, value_bytes: Callable[[Chunk, DictionaryPage], int]) -> None:
        self._file, self._chunk, self._value_bytes = file, chunk, value_bytes
        self._at = chunk.start
        self._ahead: deque[tuple[int, int]] = deque()
        self._dictionary_value = 0

    def fit(self, limit: int) -> int:
        """Rows of the next whole pages that take `limit` bytes; of one larger page, its share; one at least."""
        rows = total = i = 0
        while i < len(self._ahead) or self._look_ahead():
            page_rows, page_bytes = self._ahead[i]
            if total + page_bytes > limit:
                return rows or max(1, page_rows * limit // page_bytes)
            rows, total, i = rows + page_rows, total + page_bytes, i + 1
        return max(rows, 1)

    def cost(self, rows: int) -> int:
        """Bytes of the next rows."""
        total = i = 0
        while rows > 0 and (i < len(self._ahead) or self._look_ahead()):
            page_rows, page_bytes = self._ahead[i]
            total += page_bytes if rows >= page_rows else page_bytes * rows // page_rows
            rows, i = rows - page_rows, i + 1
        return total

    def advance(self, rows: int) -> None:
        """Leave rows behind."""
        while rows > 0 and (self._ahead or self._look_ahead()):
            page_rows, page_bytes = self._ahead.popleft()
            if rows < page_rows:
                left = page_rows - rows
                self._ahead.appendleft((left, page_bytes * left // page_rows))
            rows -= page_rows

    def _look_ahead(self) -> bool:
        """Read headers up to that of the next data page; False if there is none."""
        while self._at < self._chunk.stop:
            header = self._header()
            unpacked, packed = header[_UNPACKED], header[_PACKED]
            if _DICTIONARY_PAGE in header:
                page = DictionaryPage(unpacked, packed, header[_DICTIONARY_PAGE].get(_NUM_VALUES, 0))
                self._dictionary_value = self._value_bytes(self._chunk, page)
            data = header.get(_DATA_PAGE) or header.get(_DATA_PAGE_V2)
            if data is not None:
                encoding = data.get(_ENCODING if _DATA_PAGE in header else _ENCODING_V2)
                self._ahead.append(self._sizes(data[_NUM_VALUES], unpacked, encoding))
                return True
        return False

    def _sizes(self, values: int, unpacked: int, encoding: int | None) -> tuple[int, int]:
        """Rows of a data page, and bytes that they decode to."""
        chunk = self._chunk
        rows = values if chunk.flat else values * chunk.num_rows // max(chunk.num_values, 1)
        repeated = values * self._dictionary_value if encoding in _FROM_DICTIONARY else 0
        return max(rows, 1), unpacked + 8 * values + repeated

    def _header(self) -> dict[int, Any]:
        """The next page header; the cursor then stands behind its page."""
        size = _HEADER_BYTES
        while True:
            data = bytes(self._file.read_at(self._at, min(size, self._chunk.stop - self._at)))
            try:
                header, length = _parse_struct(data, 0, 0)
                break
            except IndexError:
                if len(data) < size or size >= _MAX_HEADER_BYTES:
                    raise self._bad("a page header without an end") from None
                size *= 16
            except ValueError as error:
                raise self._bad(f"no page header ({error})") from None
        self._check(header)
        self._at += length + int(header[_PACKED])
        return header

    def _check(self, header: dict[int, Any]) -> None:
        unpacked, packed = header.get(_UNPACKED, -1), header.get(_PACKED, -1)
        data = header.get(_DATA_PAGE) or header.get(_DATA_PAGE_V2)
        if min(unpacked, packed) < 0 or (data is not None and data.get(_NUM_VALUES, -1) < 0):
            raise self._bad("a page header without sizes")
        if unpacked > SAFE_BYTES and unpacked > _BOMB_RATIO * packed:
            raise LimitExceeded(
                f"row group {self._chunk.group}: a page unpacks to more than {_BOMB_RATIO} times its size",
                file=self._file.path,
                offset=self._at,
                column=self._chunk.column,
                found=f"{packed} bytes for {unpacked}",
            )

    def _bad(self, what: str) -> CorruptShard:
        place = f"row group {self._chunk.group}"
        return CorruptShard(f"{place}: {what}", file=self._file.path, offset=self._at, column=self._chunk.column)


def _parse_struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Fields of a struct by number, and where it ends. Integers and structs have values, the rest is stepped over.

    Raises:
        IndexError: the data end first.
        ValueError: no struct, or one that nests too deep.
    """
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deep")
    fields: dict[int, Any] = {}
    number = 0
    while (head := data[at]) != 0:
        delta, kind = head >> 4, head & 15
        if delta:
            number, at = number + delta, at + 1
        else:
            number, at = _parse_integer(data, at + 1)
        fields[number], at = _parse_value(data, at, kind, depth)
    return fields, at + 1


def _parse_value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    match kind:
        case 1 | 2:  # a boolean is its type
            return kind == 1, at
        case 3:
            return data[at], at + 1
        case 4 | 5 | 6:
            return _parse_integer(data, at)
        case 7:
            return None, at + 8
        case 8:
            length, at = _parse_varint(data, at)
            return None, at + length
        case 12:
            return _parse_struct(data, at, depth + 1)
    raise ValueError(f"field of type {kind}")


def _parse_integer(data: bytes, at: int) -> tuple[int, int]:
    value, at = _parse_varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _parse_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[at]) & 0x80:
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if shift >= _INTEGER_BITS:
            raise ValueError("an integer of more than 64 bits")
    return value | byte << shift, at + 1
