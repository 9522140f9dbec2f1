"""Payload of a Parquet column in its pages: views of a page instead of a copy of every value.

pyarrow reads a page, unpacks it, and then copies each value out of it, twice for values of a dictionary. For large
values the pages suffice: a loop reads the lengths between them (a quarter of a microsecond a value), and the values are
views. That takes half the time and a third of the memory. Fresh memory costs most: files that pyarrow writes by default
have pages of 25 MB and more.

Source: parquet-format 2.11.0 `Encodings.md` (PLAIN, RLE / bit-packing hybrid) and `parquet.thrift`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.views import from_ranges
from lading._core.formats.parquet.footer import ColumnChunk
from lading._core.formats.parquet.input import Input, damage
from lading._core.formats.parquet.pages import DICTIONARY, PLAIN, Page, read_pages
from lading._core.formats.parquet.thrift import parse_varint
from lading.errors import errors_at

__all__ = ["PayloadPages", "payload_pages"]

_MIN_VALUE_BYTES = 2 << 10
"""Average packed bytes of a value from which the loop over lengths pays off."""
_CODECS = {0: None, 1: "snappy", 6: "zstd"}
_RLE = 3
_PLAIN_DICTIONARIES = (PLAIN, 2)
"""Encodings by which a dictionary page marks plain values; the second is an old name."""
_MAX_WIDTH = 32
_LENGTH = struct.Struct("<I").unpack_from
_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True)
class _Values:
    """Values in an unpacked page: the place of each."""

    data: pa.Buffer
    offset: NDArray[np.int64]
    length: NDArray[np.int64]


def payload_pages(file: Input, chunks: Sequence[ColumnChunk]) -> PayloadPages | None:
    """Return a column of consecutive row groups to be read as views; None if pyarrow must decode it.

    Supported are plain or dictionary pages (version 1) of large values, at most one level deep, uncompressed or
    compressed with snappy or zstd, in a local file: reading the headers of a remote one would fetch it twice. Reads the
    headers of all pages.

    Raises:
        CorruptShard, LimitExceeded: a page header is damaged, or claims too much.
    """
    if file.is_remote or not all(_may_be_taken(chunk) for chunk in chunks):
        return None
    pages: list[tuple[ColumnChunk, Page]] = []
    for chunk in chunks:
        found = _known_pages(file, chunk)
        if found is None:
            return None
        pages += [(chunk, page) for page in found]
    return PayloadPages(file, pages)


def _may_be_taken(chunk: ColumnChunk) -> bool:
    large = chunk.stop - chunk.start >= _MIN_VALUE_BYTES * chunk.num_values
    whole = chunk.flat and chunk.num_values == chunk.num_rows > 0
    return large and whole and chunk.kind == "BYTE_ARRAY" and chunk.max_level <= 1 and chunk.codec in _CODECS


def _known_pages(file: Input, chunk: ColumnChunk) -> list[Page] | None:
    """Return the pages of a chunk, dictionary first; None if a page is of an unsupported kind."""
    pages: list[Page] = []
    left, may_refer = chunk.num_values, False
    for page in read_pages(file, chunk):
        if page.kind == "dictionary":
            known = not pages and page.encoding in _PLAIN_DICTIONARIES and 0 <= page.num_values <= chunk.num_values
            may_refer = True
        else:
            refers = page.encoding in DICTIONARY
            known = page.kind == "data" and page.levels == _RLE and 0 < page.num_values <= left
            known &= may_refer if refers else page.encoding == PLAIN
            left, may_refer = left - page.num_values, refers
        if not known or page.start + page.packed_bytes > chunk.stop:
            return None
        pages.append(page)
    return None if left else pages


class PayloadPages:
    """The values of a column, row by row, as views of its pages. Holds the current page and the dictionary.

    Args:
        file: the open file.
        pages: the pages of all chunks, each with its chunk.
    """

    def __init__(self, file: Input, pages: Sequence[tuple[ColumnChunk, Page]]) -> None:
        self._file, self._all, self._pages = file, pages, iter(pages)
        self._dictionary: _Values | None = None
        self._left: pa.Array | None = None

    def sizes(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield for `Pages` the sizes of the pages. Dictionary values are shared, so they count once, as their page."""
        before = 0
        for _, page in self._all:
            if page.kind == "dictionary":
                before = page.unpacked_bytes
            else:
                yield page.num_values, before + page.unpacked_bytes, page.unpacked_bytes, 0
                before = 0

    def take(self, rows: int) -> pa.Array:
        """Return the next rows as `binary_view`; a view keeps its whole page in memory.

        Raises:
            CorruptShard: a page is damaged; names its row group, its column and its start.
        """
        parts: list[pa.Array] = []
        while rows:
            page = self._next_page() if self._left is None else self._left
            parts.append(page[:rows])
            self._left = page[rows:] if rows < len(page) else None
            rows -= len(parts[-1])
            del page  # released before the next is unpacked
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)

    def _next_page(self) -> pa.Array:
        while True:
            chunk, page = next(self._pages)  # they hold as many values as rows
            what = f"row group {chunk.group}: a page"
            with errors_at(column=chunk.column), damage(self._file.path, what, offset=page.start):
                if page.encoding not in DICTIONARY:
                    self._dictionary = None  # the pages that refer to it come first
                data = _unpacked(self._file, chunk, page)
                if page.kind == "dictionary":
                    self._dictionary = _plain(data, 0, page.num_values)
                else:
                    return self._rows(data, chunk, page)

    def _rows(self, data: pa.Buffer, chunk: ColumnChunk, page: Page) -> pa.Array:
        view, valid, at = memoryview(data).cast("B"), np.ones(page.num_values, np.bool_), 0
        if chunk.max_level:
            size = int.from_bytes(view[:_LENGTH_BYTES], "little")
            at = _LENGTH_BYTES + size
            if at > data.size:
                raise pa.ArrowInvalid("levels run past the end of the page")
            valid = _hybrid(view[_LENGTH_BYTES:at], 1, page.num_values).astype(np.bool_)
        count = int(np.count_nonzero(valid))
        plain = page.encoding == PLAIN
        values = _plain(data, at, count) if plain else _looked_up(self._dictionary, view[at:], count)
        offset, length = np.zeros((2, page.num_values), np.int64)
        offset[valid], length[valid] = values.offset, values.length
        return from_ranges(values.data, offset, length, valid)


def _unpacked(file: Input, chunk: ColumnChunk, page: Page) -> pa.Buffer:
    """Return the bytes of a page; `unpacked_bytes` is its size."""
    body = file.buffer_at(page.start, page.packed_bytes)
    if page.checksum is not None and zlib.crc32(body) != page.checksum & 0xFFFFFFFF:
        raise pa.ArrowInvalid("its checksum is not that of its bytes")
    codec = _CODECS[chunk.codec]
    if codec is None:
        size = body.size
    elif codec == "snappy":
        size, _ = _varint(bytes(body[:10]), 0)  # pyarrow would leave memory uninitialised after a shorter stream
    else:
        size = page.unpacked_bytes  # which its decoder compares
    if size != page.unpacked_bytes:
        raise pa.ArrowInvalid(f"{size} bytes, where its header says {page.unpacked_bytes}")
    return body if codec is None else pa.decompress(body, page.unpacked_bytes, codec=codec)


def _varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    try:
        return parse_varint(data, at)
    except (IndexError, ValueError):
        raise pa.ArrowInvalid("a number without an end") from None


def _plain(data: pa.Buffer, at: int, count: int) -> _Values:
    """Return values one after another, each after its length."""
    view, end = memoryview(data), data.size
    starts: list[int] = []
    # The only loop over values: the start of a value depends on those before it.
    for _ in range(count):
        if at + _LENGTH_BYTES > end:
            raise pa.ArrowInvalid(f"{len(starts)} values, where there should be {count}")
        at += _LENGTH_BYTES
        starts.append(at)
        at += _LENGTH(view, at - _LENGTH_BYTES)[0]
    if at > end:
        raise pa.ArrowInvalid("a value runs past the end of the page")
    offset = np.array(starts, np.int64)
    return _Values(data, offset, np.append(offset[1:] - _LENGTH_BYTES, at) - offset)


def _looked_up(dictionary: _Values | None, data: memoryview, count: int) -> _Values:
    """Return values by their number in the dictionary."""
    if not count:
        return _Values(pa.py_buffer(b""), np.zeros(0, np.int64), np.zeros(0, np.int64))
    if dictionary is None or not data.nbytes:
        raise pa.ArrowInvalid("it refers to a dictionary that is not there, or holds nothing")
    numbers = _hybrid(data[1:], data[0], count)
    if int(numbers.max()) >= len(dictionary.offset):
        raise pa.ArrowInvalid(f"value {int(numbers.max())} of a dictionary of {len(dictionary.offset)}")
    return _Values(dictionary.data, dictionary.offset[numbers], dictionary.length[numbers])


def _hybrid(data: memoryview, width: int, count: int) -> NDArray[np.int64]:
    """Return numbers of `width` bits: runs of one number, and bit-packed groups of eight."""
    if not width:
        return np.zeros(count, np.int64)
    if width > _MAX_WIDTH:
        raise pa.ArrowInvalid(f"numbers of {width} bits")
    parts: list[NDArray[np.int64]] = []
    found = 0
    for number, packed in _runs(data, width):
        wanted = count - found
        if isinstance(packed, int):
            if packed >= 1 << width:
                raise pa.ArrowInvalid(f"{packed}, which has more than {width} bits")
            parts.append(np.full(min(number, wanted), packed))
        else:
            parts.append(_bits(packed[: (wanted * width + 7) // 8], width)[:wanted])
        found += len(parts[-1])
        if found == count:
            break
    if found != count:
        raise pa.ArrowInvalid(f"{found} numbers, where there should be {count}")
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _runs(data: memoryview, width: int) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the length of each run, and its number or its bits."""
    at = 0
    while at < len(data):
        header, at = _varint(data, at)
        size = (header >> 1) * width if header & 1 else (width + 7) // 8
        if not header >> 1 or (at + size > len(data) and not header & 1):
            raise pa.ArrowInvalid("a run of nothing")
        bits = data[at : at + size]
        yield header >> 1, bits if header & 1 else int.from_bytes(bits, "little")
        at += size


def _bits(packed: memoryview, width: int) -> NDArray[np.int64]:
    """Return numbers of `width` bits each, lowest first."""
    bits = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little").astype(np.int64)
    usable = len(bits) // width * width
    numbers: NDArray[np.int64] = bits[:usable].reshape(-1, width) @ (1 << np.arange(width, dtype=np.int64))
    return numbers
