"""The footer of a Parquet file: pyarrow's metadata, and the places of the column chunks.

Source: parquet-format 2.11.0 `parquet.thrift` (FileMetaData, RowGroup, ColumnChunk, ColumnMetaData).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lading._core.arrow.types import supported
from lading._core.formats.parquet.input import TAIL_BYTES, Input, damage
from lading._core.formats.parquet.thrift import structs_of_list
from lading.errors import CorruptShard, DataError, LadingError

__all__ = [
    "MAGIC",
    "MAGIC_ENCRYPTED",
    "ColumnChunk",
    "Footer",
    "LeafColumn",
    "chunk_facts",
    "count_errors",
    "count_rows",
    "decoded_bytes",
    "read_footer",
    "read_page_facts",
    "read_statistics",
]

MAGIC = b"PAR1"
MAGIC_ENCRYPTED = b"PARE"
"""Magic of a file with an encrypted footer."""

_ENDING_BYTES = 8
_MIN_FILE_BYTES = 12
_MIN_THRIFT_BYTES = 16 << 20
_ROWS_OF_BYTE = 10_000
"""Maximum rows for each byte of a file; writers of nothing but nulls stay below: row groups of a million in 150 bytes.
"""

# Fields of FileMetaData, RowGroup, ColumnChunk, ColumnMetaData.
_ROW_GROUPS, _COLUMNS, _GROUP_ROWS, _META_DATA, _CRYPTO = 4, 1, 3, 3, 8
_ENCODINGS, _CODEC, _NUM_VALUES, _UNPACKED, _PACKED, _DATA_PAGE, _DICTIONARY_PAGE = 2, 4, 5, 6, 7, 9, 11
_STATISTICS, _ENCODING_STATS, _SIZE_STATISTICS = 12, 13, 16
_NUM_FACTS, _VALUES = 6, 3
# Fields of Statistics, SizeStatistics, PageEncodingStats; types of pages that hold rows.
_NULL_COUNT, _VALUE_BYTES, _PAGE_TYPE, _PAGE_COUNT = 3, 1, 1, 3
_DATA_PAGES = (0, 3)
_NEVER_REPEAT = frozenset({0, 3, 4, 5, 6, 9})
"""Encodings that store every value: PLAIN, RLE, BIT_PACKED, DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY,
BYTE_STREAM_SPLIT. In DELTA_BYTE_ARRAY each value shares a prefix with the one before."""
_WIDTHS = {"INT96": 12}
"""Bytes of a value of types larger than the 8 bytes that are always counted."""
_MAX_TOLD = 1 << 40


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """A column chunk.

    Attributes:
        group: its row group.
        leaf: its column, counting the leaves of nested fields.
        column: the column's path.
        start: first byte in the file.
        stop: byte after the last.
        num_rows: rows of the row group.
        num_values: values, nulls included; more than rows in a list.
        nbytes: approximate decoded size, if no dictionary value repeats and no null is of a fixed list in others.
        flat: whether each row has one value.
        repeats: whether it has values of any length that may be stored once for many: by a dictionary, or as prefixes.
        value_bytes: as in `LeafColumn`; so are `row_values` and `null_values`.
        kind: Parquet's physical type.
        max_level: how many of its levels may be null.
        codec: number of its compression.
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
    value_bytes: int = 0
    row_values: int = 1
    null_values: int = 1
    kind: str = ""
    max_level: int = 0
    codec: int = 0

    @property
    def most_bytes(self) -> int:
        """Return the maximum decoded size: each value may be the whole dictionary, or represent a whole list."""
        return self.nbytes * self.null_values * (self.num_values if self.repeats else 1)


@dataclass(frozen=True, slots=True)
class LeafColumn:
    """A leaf of a file's schema.

    Attributes:
        path: its path.
        kind: Parquet's physical type.
        flat: whether each row has one value.
        max_level: how many of its levels may be null.
        value_bytes: memory of a value, null or not, if it is fixed and more than 8 bytes.
        row_values: values a row, if it is nested in fixed lists only; else one.
        null_values: values that a null may expand to, if fixed lists are in or around others; else one.
    """

    path: str
    kind: str
    flat: bool
    max_level: int
    value_bytes: int = 0
    row_values: int = 1
    null_values: int = 1


@dataclass(frozen=True, slots=True)
class Footer:
    """The contents of a footer.

    Attributes:
        metadata: for pyarrow. Asking it for a column chunk is not safe.
        columns: the leaves of the schema.
        num_rows: rows of each row group.
        chunks: `[row group, column, fact]`: first byte, bytes, unpacked bytes, values, whether some may be stored once
            for many, codec.
        start: its first byte in the file.
        length: its bytes.
        encrypted: the columns that are encrypted in a row group.
    """

    metadata: pq.FileMetaData
    columns: Sequence[LeafColumn]
    num_rows: NDArray[np.int64]
    chunks: NDArray[np.int64]
    start: int
    length: int
    encrypted: frozenset[int] = frozenset()

    def chunk(self, group: int, leaf: int) -> ColumnChunk:
        """Return a column chunk."""
        column = self.columns[leaf]
        start, packed, unpacked, values, repeats, codec = self.chunks[group, leaf].tolist()
        num_rows = int(self.num_rows[group])
        return ColumnChunk(
            group=group,
            leaf=leaf,
            column=column.path,
            start=start,
            stop=start + packed,
            num_rows=num_rows,
            num_values=values,
            nbytes=decoded_bytes(unpacked, max(values, num_rows * column.row_values), column.value_bytes),
            flat=column.flat,
            repeats=bool(repeats) and column.kind == "BYTE_ARRAY",
            value_bytes=column.value_bytes,
            row_values=column.row_values,
            null_values=column.null_values,
            kind=column.kind,
            max_level=column.max_level,
            codec=codec,
        )


def decoded_bytes(unpacked: int, values: int, value_bytes: int) -> int:
    """Return the approximate decoded size of values that are stored in so many bytes, or are nulls.

    Offsets and bit-packed numbers take memory that is not in the pages; nulls of a fixed size as much as values.
    """
    return max(unpacked, values * value_bytes) + 8 * values


def read_footer(file: Input, *, inside: bool = True) -> Footer:
    """Return the footer of an open file.

    Args:
        file: the file.
        inside: whether column chunks must be inside it, as they are unless it was cut.

    Raises:
        CorruptShard: it is damaged, or the file is not a Parquet file.
        DataError: it is encrypted, or has a type that pyarrow does not have.
        LimitExceeded: it is larger than `footer_bytes`, has more columns than `table_columns`, or more rows than
            `bare_rows` beyond what the file can hold.
    """
    start, length = _place(file)
    file.expect([(min(start, max(file.size_bytes - TAIL_BYTES, 0)), file.size_bytes)])
    with damage(file.path, "the footer", offset=start):
        reader = _opened(file, start, length)
        schema = reader.metadata.schema
        found = len(schema)
        if found > file.limits.table_columns:
            del reader, schema  # an error keeps this frame, and a salvage keeps several errors
            raise file.limits.exceeded("table_columns", "too many columns", file=file.path, found=found)
        leaves = [schema.column(i) for i in range(len(schema))]
        columns = [
            LeafColumn(
                leaf.path,
                leaf.physical_type,
                leaf.max_repetition_level == 0,
                leaf.max_definition_level,
                max(leaf.length, _WIDTHS.get(leaf.physical_type, 0)),
            )
            for leaf in leaves
        ]
    rows, chunks, encrypted = _row_groups(file, start, length, len(columns))
    footer = Footer(reader.metadata, columns, rows, chunks, start, length, encrypted)
    _check(file, footer, inside=inside)
    return footer


def count_rows(file: Input) -> int:
    """Return the rows of all row groups, for a fifth of the time of `read_footer`. Raises as that."""
    start, length = _place(file)
    with damage(file.path, "the footer", offset=start):
        metadata = _opened(file, start, length).metadata
        rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    if min(rows, default=0) < 0 or sum(rows) > _most_rows(file):
        read_footer(file)  # which raises the error
    return sum(rows)


def _opened(file: Input, start: int, length: int) -> pq.ParquetReader:
    reader = pq.ParquetReader()
    # A list of a footer cannot have more elements than the footer has bytes, so a false count allocates nothing.
    with supported(file.path, start):
        reader.open(
            file.handle,
            pre_buffer=False,
            thrift_string_size_limit=max(length, _MIN_THRIFT_BYTES),
            thrift_container_size_limit=max(length, 1),
        )
    return reader


def _most_rows(file: Input) -> int:
    return file.limits.bare_rows + _ROWS_OF_BYTE * file.size_bytes


def count_errors(path: str, footer: Footer) -> Iterator[LadingError]:
    """Yield where the counts in a footer differ: of all rows, of a row group, and of the values of its columns.

    Readers follow the row groups.
    """
    total, count = sum(footer.num_rows.tolist()), footer.metadata.num_rows
    if total != count:
        yield CorruptShard("the footer says another number of rows than its row groups have", file=path,
                           offset=footer.start, expected=total, found=count)  # fmt: skip
    for group, leaf in np.argwhere(_wrong_values(footer)).tolist():
        yield CorruptShard(
            f"row group {group}: a column has another number of values than the row group has rows", file=path,
            offset=footer.start, column=footer.columns[leaf].path, expected=int(footer.num_rows[group]),
            found=int(footer.chunks[group, leaf, _VALUES]),
        )  # fmt: skip


def _wrong_values(footer: Footer) -> NDArray[np.bool_]:
    """Return by row group and column where the number of values does not fit the rows; lists have one a row or more."""
    values, rows = footer.chunks[:, :, _VALUES], footer.num_rows[:, None]
    flat = np.array([column.flat for column in footer.columns], np.bool_)
    found: NDArray[np.bool_] = (values < rows) | (flat & (values != rows))
    return found


def read_statistics(file: Input, footer: Footer) -> Iterator[list[dict[int, Any]]]:
    """Yield fields of Statistics for each column, row group by row group; an empty dict if there are none."""
    for group in structs_of_list(file.read_at(footer.start, footer.length), _ROW_GROUPS):
        found = [chunk[_META_DATA].get(_STATISTICS) for chunk in group[_COLUMNS]]
        yield [statistics if isinstance(statistics, dict) else {} for statistics in found]


def read_page_facts(file: Input, footer: Footer) -> NDArray[np.int64]:
    """Return facts of each column chunk, as its writer stored them: `[row group, column, fact]`.

    The facts are bytes of values before encoding (of strings and bytes only), number of data pages, and number of
    nulls; 0 if the footer lacks them.
    """
    facts = [
        [_page_facts(chunk[_META_DATA]) for chunk in group[_COLUMNS]]
        for group in structs_of_list(file.read_at(footer.start, footer.length), _ROW_GROUPS)
    ]
    return np.array(facts, np.int64).reshape(len(footer.num_rows), len(footer.columns), 3)


def _page_facts(chunk: Mapping[int, Any]) -> tuple[int, int, int]:
    stats = chunk.get(_ENCODING_STATS)
    pages = [each for each in stats if isinstance(each, dict)] if isinstance(stats, list) else []
    count = sum(_count_in(each, _PAGE_COUNT) for each in pages if each.get(_PAGE_TYPE) in _DATA_PAGES)
    return _count_in(chunk.get(_SIZE_STATISTICS), _VALUE_BYTES), count, _count_in(chunk.get(_STATISTICS), _NULL_COUNT)


def _count_in(fields: object, number: int) -> int:
    """Return a count in a struct that may be missing or damaged: nothing depends on it."""
    value = fields.get(number) if isinstance(fields, dict) else None
    return value if isinstance(value, int) and 0 <= value < _MAX_TOLD else 0


def _place(file: Input) -> tuple[int, int]:
    """Return first byte and length of the footer."""
    size = file.size_bytes
    if size < _MIN_FILE_BYTES:
        raise CorruptShard(
            "too short for a Parquet file", file=file.path, expected=f"{_MIN_FILE_BYTES} bytes or more", found=size
        )
    file.expect([(max(size - TAIL_BYTES, 0), size)])
    ending = file.read_at(size - _ENDING_BYTES, _ENDING_BYTES)
    if ending[4:] == MAGIC_ENCRYPTED:
        raise DataError(
            "the footer of the Parquet file is encrypted, so nothing says its columns",
            file=file.path,
            offset=size - len(MAGIC),
            advice="lading has no keys. Read the file with the program that wrote it, and write it without encryption.",
        )
    if ending[4:] != MAGIC:
        raise CorruptShard(
            "no Parquet file, or a truncated one",
            file=file.path,
            offset=size - len(MAGIC),
            expected=MAGIC,
            found=ending[4:],
        )
    length = int.from_bytes(ending[:4], "little")
    start = size - _ENDING_BYTES - length
    if start < len(MAGIC):
        raise CorruptShard(
            "the footer does not fit into the file",
            file=file.path,
            offset=size - _ENDING_BYTES,
            expected=f"at most {size - _MIN_FILE_BYTES} bytes",
            found=length,
        )
    if length > file.limits.footer_bytes:
        raise file.limits.exceeded("footer_bytes", "the footer is too large", file=file.path, found=length)
    return start, length


def _row_groups(
    file: Input, start: int, length: int, width: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], frozenset[int]]:
    """Return rows of the row groups, facts of their column chunks, and which columns are encrypted."""
    rows: list[int] = []
    encrypted: set[int] = set()
    facts: list[tuple[int, ...]] = []
    try:
        for group in structs_of_list(file.read_at(start, length), _ROW_GROUPS):
            rows.append(group[_GROUP_ROWS])
            facts += [chunk_facts(chunk[_META_DATA]) for chunk in group[_COLUMNS]]
            encrypted.update(leaf for leaf, chunk in enumerate(group[_COLUMNS]) if _CRYPTO in chunk)
        shape = (len(rows), width, _NUM_FACTS)
        return np.array(rows, np.int64), np.array(facts, np.int64).reshape(shape), frozenset(encrypted)
    except LadingError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CorruptShard(
            "the row groups of the footer cannot be read",
            file=file.path,
            offset=start,
            found=f"{type(error).__name__}: {error}",
        ) from error


def chunk_facts(chunk: Mapping[int, Any]) -> tuple[int, ...]:
    """Return first byte, bytes, unpacked bytes, values, whether some may be stored once for many, codec.

    Some writers omit the place of the dictionary: it is at the first page all the same.
    """
    first, dictionary = chunk[_DATA_PAGE], chunk.get(_DICTIONARY_PAGE, 0)
    has_dictionary = 0 < dictionary < first
    start = dictionary if has_dictionary else first
    repeats = has_dictionary or not _NEVER_REPEAT.issuperset(chunk[_ENCODINGS])
    return (start, chunk[_PACKED], chunk[_UNPACKED], chunk[_NUM_VALUES], repeats, chunk[_CODEC])


def _check(file: Input, footer: Footer, *, inside: bool) -> None:
    rows = footer.num_rows
    total = sum(rows.tolist())
    if len(rows) != footer.metadata.num_row_groups or (rows < 0).any():
        raise CorruptShard(
            "the footer lists row groups that cannot be",
            file=file.path,
            offset=footer.start,
            expected=f"{footer.metadata.num_row_groups} of 0 rows or more",
            found=f"{len(rows)} of {rows.min(initial=0)} rows or more",
        )
    most = _most_rows(file)
    if total > most:
        raise file.limits.exceeded("bare_rows", "more rows than the bytes of the file can hold", file=file.path,
                                   offset=footer.start, expected=f"at most {most}", found=total)  # fmt: skip
    first, length, unpacked, values, *_ = np.moveaxis(footer.chunks, -1, 0)
    bad = (first < 0) | (length < 0) | (unpacked < 0) | (values < 0)
    bad |= inside & (first > file.size_bytes - length)
    if bad.any():
        group, leaf = (int(i) for i in np.argwhere(bad)[0])
        raise CorruptShard(
            f"row group {group}: a column chunk that cannot be",
            file=file.path,
            offset=footer.start,
            column=footer.columns[leaf].path,
            expected=f"a range of 0 to {file.size_bytes}",
            found=f"{first[group, leaf]} to {int(first[group, leaf]) + int(length[group, leaf])}",
        )
