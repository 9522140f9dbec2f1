"""Read CSV: header, batches, random access. See `_core.formats.csv.format`."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow.casts import first_refused
from lading._core.arrow.types import arrow_type
from lading._core.features.items import split_rows
from lading._core.formats.base import DEFAULT_SCAN, Recovered, Scan, ShardReader
from lading._core.formats.csv.dialect import Dialect, QuoteState
from lading._core.formats.csv.header import column_names, delimiter_advice, other_delimiter
from lading._core.formats.csv.recover import next_line, recover_records
from lading._core.formats.csv.scan import Records, record_blocks, scan
from lading._core.formats.refused import duplicate_columns, first_of_each, refuse_columns
from lading._core.formats.text_lines import BOM, LineBlock, TextFile, changed, parse_delimiter, too_long
from lading.errors import CorruptShard, DataError, LimitExceeded, SchemaMismatch, UsageError

__all__ = ["OTHER_DELIMITER", "UNENDED", "CsvReader", "ReadOptions"]

OTHER_DELIMITER = "files of one column, whose header holds another delimiter (read option delimiter)"
"""Name of a count for files whose header holds a usual delimiter, but not that of the options."""

UNENDED = "files without a line end after their last record, perhaps cut"
"""Name of a count for such files."""

_UNIT_BYTES = 256 << 10
_WINDOW_BYTES = 1 << 20
_FEW_ROWS = 4096
_SHOWN = 60
_INDEX_SCHEMA = pa.schema([(name, pa.int64()) for name in ("first_line", "first_row", "num_rows", "offset", "length")])


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How CSV is read.

    Attributes:
        delimiter: Character between values: one ASCII character, or `tab`. By default a tab in files named `.tsv`, else
            a comma.
        types: Arrow types by column, as in `{"n": "int64", "day": "date32"}`. By default all columns are text.
        unended: A last line without a line end is `read`, and counted; or an `error`, since the file may be truncated.
        quoting: With `none`, quotes are plain characters. By default they may stand around a value.
        header: `line` if the first line holds the names of the columns; `none` (or false) if it is a record. By default
            `none` if `names` is given, else `line`.
        names: Names of all columns, as in `["caption", "url"]`. Without a header the default is `f0`, `f1` ….
        escape: Character that makes the next character a part of the value: one ASCII character, such as a backslash.
    """

    delimiter: str | int | None = None
    types: Mapping[str, str] | None = None
    unended: Literal["read", "error"] = "read"
    quoting: Literal["standard", "none"] = "standard"
    header: Literal["line", "none"] | bool | None = None
    names: Sequence[str] | None = None
    escape: str | int | None = None

    def __post_init__(self) -> None:
        """Refuse unknown words."""
        if self.delimiter is not None:
            parse_delimiter(self.delimiter)
        if self.unended not in ("error", "read"):
            raise UsageError("no such policy", expected="read or error", found=f"unended={self.unended!r}")
        if self.quoting not in ("standard", "none"):
            raise UsageError("no such quoting", expected="standard or none", found=f"quoting={self.quoting!r}")
        if self.header not in ("line", "none", None, True, False):
            raise UsageError("no such header", expected="line or none", found=f"header={self.header!r}")
        if self.escape is not None:
            parse_delimiter(self.escape, "escape")
        given = () if isinstance(self.names, str) else self.names
        if given is not None and (not given or "" in given or len({*given}) < len(given)):
            raise UsageError("names must be different texts", expected='such as ["caption", "url"]',
                             found=f"names={self.names!r}"[:_SHOWN])  # fmt: skip
        types = {} if self.types is None else self.types
        if not isinstance(types, Mapping) or not all(isinstance(kind, str) for kind in types.values()):
            raise UsageError(
                "types must map column names to types", expected='such as {"n": "int64"}', found=f"types={self.types!r}"
            )

    @property
    def has_header(self) -> bool:
        """Return whether the first line holds the names of the columns."""
        return self.names is None if self.header is None else self.header in ("line", True)


class CsvReader(ShardReader):
    """An open CSV file.

    Attributes:
        counts: reports of the last complete pass, by a short phrase.
    """

    def __init__(self, file: TextFile, options: ReadOptions, delimiter: str) -> None:
        self._file, self._options, self._delimiter = file, options, delimiter
        escape = "" if options.escape is None else parse_delimiter(options.escape, "escape")
        if escape == delimiter:
            raise UsageError("one character cannot be the delimiter and the escape", found=f"escape={escape!r}")
        self._dialect = Dialect(delimiter, options.quoting == "standard", escape)
        self._schema: pa.Schema | None = None
        self._other = ""  # the delimiter that the header seems to have
        self._line_end = b"\n"  # known after the header was read
        given = file.source.index
        self._index: pa.Table | None = given if given is not None and given.schema.equals(_INDEX_SCHEMA) else None
        self._read_share = 0.0

    @property
    def read_share(self) -> float:
        """Return the share of the file that is read by the latest batch."""
        return self._read_share

    def schema(self) -> pa.Schema:
        """Return the columns of the header or of `names`, each name once: text, except those with given types."""
        return first_of_each(self._columns())

    def _columns(self) -> pa.Schema:
        if self._schema is None:
            block = next(self._blocks(), None)
            self._schema = self._schema_of(
                None if block is None else self._scan(block), whole=block is None or block.whole
            )
        return self._schema

    def num_rows(self) -> int:
        """Return the number of records after the header; takes a pass over the file, shared with `index`."""
        return int(pc.sum(self.index().column("num_rows"), min_count=0).as_py())

    def index(self) -> pa.Table:
        """Return a row for each part of some 256 KiB: `first_line`, `first_row`, `num_rows`, `offset`, `length`.

        The range counts in the unpacked stream.
        """
        if self._index is None:
            units, row = [], 0
            for records in self._records():
                for start, stop in _slices(records, _FEW_ROWS, _UNIT_BYTES):
                    end = records.offset[stop - 1] + records.size[stop - 1]
                    begin = records.offset[start]
                    units.append([int(records.line[start]), row, stop - start, int(begin), int(end - begin)])
                    row += stop - start
            columns = np.array(units, np.int64).reshape(-1, len(_INDEX_SCHEMA)).T
            self._index = pa.table([pa.array(column) for column in columns], schema=_INDEX_SCHEMA)
        return self._index

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, some MiB at a time. Limits apply to the bytes of records.

        Peak memory: some ten times a block of 4 MiB, or of the longest record.

        Raises:
            CorruptShard: a record is invalid; the message names its line.
            SchemaMismatch: a value does not fit the given type.
        """
        chosen, before = self._chosen(scan.columns), 0.0
        for records in self._records():
            here = self._file.read_share - before
            for start, stop in _slices(records, scan.max_rows, scan.max_bytes):
                self._read_share = before + here * stop / len(records)
                yield self._batch(records, chosen, start, stop)
            before += here

    def read(self, rows: NDArray[np.int64] | None = None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return rows by ordinal; reads the parts of the file that hold them.

        For a compressed file, everything before them is decompressed. Peak memory: the requested rows, and 16 MiB.

        Raises:
            UsageError: an ordinal is outside the shard.
        """
        chosen = self._chosen(scan.columns)
        schema = pa.schema([self._columns().field(column) for column in chosen])
        if rows is None:
            parts = list(self.batches(Scan(schema.names, max_rows=_FEW_ROWS, max_bytes=_UNIT_BYTES)))
            return pa.Table.from_batches(parts, schema)
        wanted = np.asarray(rows, np.int64)
        count = self.num_rows()
        outside = np.flatnonzero((wanted < 0) | (wanted >= count))
        if len(outside):
            raise UsageError("no such row", file=self._file.path, expected=f"0 to {count - 1}",
                             found=int(wanted[outside[0]]))  # fmt: skip
        ordinals, place = np.unique(wanted, return_inverse=True)
        return pa.Table.from_batches(list(self._at(ordinals, chosen)), schema).take(pa.array(place))

    def recover(self, data: NDArray[np.uint8], names: Sequence[str] | None) -> Recovered | None:
        """Return the whole records, behind the header or one of these names; None if all are whole.

        Args:
            data: the file, not compressed.
            names: names of its columns, if a manifest keeps them.

        Raises:
            CorruptShard: the header is damaged, and there are no names.
        """
        mark = len(BOM) if data[: len(BOM)].tobytes() == BOM else 0
        begin, line_end = self._header_end(data)
        head, options = b"", self._options
        try:
            first = LineBlock(data[mark:begin].tobytes(), mark, 1, line_end=line_end)
            records = scan(first, self._dialect, self._file.path) if begin else None
            whole = first.data.endswith((b"\n", b"\r"))
            own = self._schema_of(records, whole=whole) if begin or not options.has_header else None
        except LimitExceeded:
            raise
        except DataError:
            own = None
        count = 0 if own is None else len(own)
        if not options.has_header:
            begin, count = mark, count or len(names or ())
        elif own is None or (names is not None and sorted(own.names) != sorted(names)):
            count = len(names or ())
            cells = ['"' + name.replace('"', '""') + '"' for name in names or ()]
            head = self._delimiter.join(cells).encode() + line_end
            begin = next_line(data, 0, line_end)
        if not count:
            raise CorruptShard("the header is damaged, and nothing else says the names of the columns",
                               file=self._file.path, offset=0)  # fmt: skip
        return recover_records(
            data, self._file.source, dialect=self._dialect, names=count, head=head, begin=begin,
            ended=options.unended == "error", line_end=line_end,
        )  # fmt: skip

    def _header_end(self, data: NDArray[np.uint8]) -> tuple[int, bytes]:
        """Return the end of the first record, 0 if unknown, and the byte that ends lines."""
        piece, quotes = data[: self._file.source.limits.line_bytes], QuoteState(self._dialect)
        for at in range(0, len(piece), _WINDOW_BYTES):
            meant, inside, _ = quotes.feed(piece[at : at + _WINDOW_BYTES])
            ends = np.flatnonzero(((meant == ord("\n")) | (meant == ord("\r"))) & ~inside)
            if len(ends):
                end = at + int(ends[0]) + 1
                if data[end - 1] == ord("\n") or not (end < len(data) and data[end] == ord("\n")):
                    return end, data[end - 1 : end].tobytes()
                return end + 1, b"\n"
        whole = len(piece) == len(data) and not quotes.inside and self._options.unended == "read"
        return len(data) if whole else 0, b"\n"

    def close(self) -> None:
        """Do nothing: nothing is held open."""

    def _at(self, ordinals: NDArray[np.int64], chosen: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Yield rows by ascending ordinals, a part of the file at a time."""
        index = {name: self.index().column(name).to_numpy() for name in _INDEX_SCHEMA.names}
        unit = np.searchsorted(index["first_row"], ordinals, "right") - 1
        touched = np.unique(unit)
        ranges = zip(index["offset"][touched].tolist(), index["length"][touched].tolist(), strict=True)
        for number, data in zip(touched.tolist(), self._file.read_each(list(ranges)), strict=True):
            block = LineBlock(
                data, int(index["offset"][number]), int(index["first_line"][number]), line_end=self._line_end
            )
            quotes = QuoteState(self._dialect)
            quotes.feed(np.frombuffer(data, np.uint8))
            if quotes.inside or quotes.escaping:
                raise changed(self._file.path, block.offset, "quotes that are closed", "one that is not")
            records = self._checked(scan(block, self._dialect, self._file.path), Counter())
            if len(records) != index["num_rows"][number]:
                raise changed(
                    self._file.path, block.offset, f"{index['num_rows'][number]} rows", f"{len(records)} rows"
                )
            mine = np.zeros(len(records), np.bool_)
            mine[ordinals[unit == number] - index["first_row"][number]] = True
            some = records.only(mine)
            yield self._batch(some, chosen, 0, len(some))

    def _records(self) -> Iterator[Records]:
        """Yield the records after the header, a block at a time; all have as many cells as it has names."""
        found: Counter[str] = Counter()
        for number, block in enumerate(self._blocks()):
            found[UNENDED] += not block.whole
            blank = _blank_lines(block.data) if number and len(self._columns()) > 1 else 0
            if blank:
                found["blank lines, skipped"] += blank
                continue
            records = self._scan(block)
            if number == 0:
                self._schema = self._schema_of(records, whole=block.whole)
                records = records.only(np.arange(len(records)) > 0) if self._options.has_header else records
            yield self._checked(records, found, whole=block.whole)
        self._columns()  # a file without a block has no header either
        found[OTHER_DELIMITER] += bool(self._other)
        self.counts = +found

    def _blocks(self) -> Iterator[LineBlock]:
        ended = self._options.unended == "error"
        file = self._file
        for block in record_blocks(file.pieces(), self._dialect, file.path, file.source.limits, ended=ended):
            if block.offset == 0 and block.data.startswith(BOM):
                block = replace(block, data=block.data[len(BOM) :], offset=len(BOM))  # noqa: PLW2901 - the mark is no name
            self._line_end = block.line_end
            yield block

    def _scan(self, block: LineBlock) -> Records:
        try:
            return scan(block, self._dialect, self._file.path)
        except CorruptShard as error:
            if block.line == 1 and self._options.has_header:
                header, *_ = block.data.split(block.line_end, 1)
                self._other = other_delimiter(header.decode(errors="replace"), self._delimiter)
            if self._other:
                error.advice = f"{delimiter_advice(self._other)} {error.advice}"
            raise

    def _schema_of(self, records: Records | None, *, whole: bool) -> pa.Schema:
        """Return the columns: of the first record if it is a header, else of `names`.

        Args:
            records: the first records; None in an empty file.
            whole: whether the last of them has its line end.
        """
        names = self._header(records, whole=whole) if self._options.has_header else self._names(records)
        types = self._options.types or {}
        unknown = types.keys() - {*names}
        if unknown:
            raise UsageError("types names a missing column", file=self._file.path,
                             expected=", ".join(names), found=repr(min(unknown)))  # fmt: skip
        kinds = {name: _type(kind) for name, kind in types.items()}
        return pa.schema([(name, kinds.get(name, pa.string())) for name in names])

    def _header(self, records: Records | None, *, whole: bool) -> list[str]:
        """Return the names in the first record, or those given instead."""
        path, given = self._file.path, self._options.names
        if records is None:
            raise CorruptShard("no header", file=path, offset=0, expected="a line of names")
        count = self._bounded(int(records.first[1]))
        cells = records.cells[:count].to_pylist()
        if given is None and count == 1 == len(records) and not whole:  # any text would be such a file
            raise CorruptShard("line 1: the header has one name and no line end, and no record follows", file=path,
                               offset=0, expected="a line end", found=repr(cells[0])[:_SHOWN],
                               advice="The file may have been cut. If it is complete, add the line end: echo >> "
                               + shlex.quote(path))  # fmt: skip
        if given is None and not any(cells):
            raise CorruptShard(f"line {records.line[0]}: no column has a name", file=path, offset=0,
                               expected="a line of names")  # fmt: skip
        if given is not None and len(given) != count:
            raise SchemaMismatch("the header has another number of columns than the option names", file=path,
                                 expected=f"{len(given)}: {', '.join(given)}"[:_SHOWN], found=count)  # fmt: skip
        names = column_names(cells) if given is None else list(given)
        self._other = other_delimiter(cells[0] or "", self._delimiter) if count == 1 else ""
        return names

    def _names(self, records: Records | None) -> list[str]:
        """Return the names of columns without a header; those of pyarrow (`f0`, `f1` …) if none are given."""
        if self._options.names is not None:
            return list(self._options.names)
        cells = np.empty(0, np.int64) if records is None else np.diff(records.first)
        if records is None or not len(cells):
            raise CorruptShard("no record says how many columns there are", file=self._file.path, offset=0,
                               expected="a record", advice="Name the columns: --option 'names=[\"a\", \"b\"]'."
                               )  # fmt: skip
        several = cells[cells > 1]  # blank lines have one
        single = cells[0] == 1 and records.cells[0].is_valid
        return [f"f{at}" for at in range(self._bounded(int(several[0]) if len(several) and not single else 1))]

    def _bounded(self, count: int) -> int:
        limits = self._file.source.limits
        if count > limits.table_columns:
            raise limits.exceeded("table_columns", "too many columns", file=self._file.path, offset=0, found=count)
        return count

    def _checked(self, records: Records, found: Counter[str], *, whole: bool = True) -> Records:
        """Return the records without blank lines. Raises CorruptShard for a record with too few or too many cells.

        Args:
            records: the records.
            found: counts blank lines.
            whole: whether the last record has its line end.
        """
        expected = len(self._columns())
        cells = np.diff(records.first)
        limits = self._file.source.limits
        too_large = np.flatnonzero(records.size > limits.line_bytes)
        if len(too_large):
            at = int(too_large[0])
            raise too_long(self._file.path, int(records.offset[at]), int(records.line[at]), limits)
        wrong = np.flatnonzero(cells != expected)
        if not len(wrong):
            return records
        blank = np.zeros(len(records), np.bool_)
        single = wrong[cells[wrong] == 1]
        blank[single] = records.cells.take(pa.array(records.first[single])).is_null().to_numpy(zero_copy_only=False)
        bad = wrong[~blank[wrong]]
        if len(bad):
            at = int(bad[0])
            is_cut = not whole and at == len(records) - 1 and bool(cells[at] < expected)
            first = records.cells[int(records.first[at])].as_py() or ""
            source = "the header has" if self._options.has_header else "the first record or the option names has"
            raise CorruptShard(
                f"line {records.line[at]}: too {'few' if cells[at] < expected else 'many'} values",
                file=self._file.path, offset=int(records.offset[at]), expected=f"{expected}, as {source}",
                found=f"{cells[at]}, the first {first[:_SHOWN]!r}",
                advice="The file ends within this line: it was cut. Copy it again." if is_cut else
                delimiter_advice(self._other) if self._other else
                "Quote values that hold a delimiter, or name another one: --option delimiter=tab.",
            )  # fmt: skip
        found["blank lines, skipped"] += int(blank.sum())
        return records.only(~blank)

    def _chosen(self, columns: Sequence[str] | None) -> list[int]:
        """Return columns by number, in the given order; missing ones are left out. Raises DuplicateField."""
        names = self._columns().names
        refuse_columns(duplicate_columns(names), columns, names, self._file.path)
        if columns is None:
            return list(range(len(names)))
        place = {name: at for at, name in enumerate(names)}
        return [place[name] for name in dict.fromkeys(columns) if name in place]

    def _batch(self, records: Records, chosen: Sequence[int], start: int, stop: int) -> pa.RecordBatch:
        known = self._columns()
        schema = pa.schema([known.field(column) for column in chosen])
        cells = zip(schema, records.columns(chosen, start, stop), strict=True)
        lines = records.line[start:stop]
        columns = [found if f.type == found.type else self._cast(found, f, lines) for f, found in cells]
        if columns:
            return pa.RecordBatch.from_arrays(columns, schema=schema)
        return pa.table({"none": pa.nulls(stop - start)}).select([]).to_batches()[0]

    def _cast(self, column: pa.Array, target: pa.Field, lines: NDArray[np.int64]) -> pa.Array:
        try:
            found = column.cast(target.type)
        except pa.ArrowInvalid:
            row: int | None = first_refused(column, lambda part: part.cast(target.type))
        else:
            row = _first_lost(column, found) if pa.types.is_floating(target.type) else None
            if row is None:
                return found
        raise SchemaMismatch(f"line {lines[row]}: a value does not fit the type of its column",
                             file=self._file.path, column=target.name, expected=target.type,
                             found=repr(column[row].as_py())[:_SHOWN])  # fmt: skip


def _blank_lines(data: bytes) -> int:
    """Return the number of lines if all are blank, else 0: scanning line ends takes 30 times their size."""
    if not data.isspace() or data.translate(None, b"\r\n"):
        return 0
    feeds, returns = data.count(b"\n"), data.count(b"\r")
    return max(feeds, returns) if not feeds or not returns or returns == feeds == data.count(b"\r\n") else 0


def _slices(records: Records, max_rows: int, max_bytes: int) -> Iterator[tuple[int, int]]:
    count = len(records)
    if count:
        yield from pairwise(split_rows(np.arange(count), records.size, max_rows=max_rows, max_bytes=max_bytes).tolist())


def _first_lost(texts: pa.StringArray, floats: pa.Array) -> int | None:
    """Return the first number that became infinite, or integer that changed; fractions become the nearest float."""
    values = floats.to_numpy(zero_copy_only=False)
    large = np.flatnonzero(np.abs(values) >= 2 ** (np.finfo(values.dtype).nmant + 1))
    if not len(large):
        return None
    some = texts.take(pa.array(large))
    exact = pc.or_(pc.ascii_is_decimal(pc.ascii_ltrim(some, "+-")), pa.array(np.isinf(values[large])))
    rows = large[exact.to_numpy(zero_copy_only=False)].tolist()
    return next((row for row, text in zip(rows, some.filter(exact).to_pylist(), strict=True)
                 if not _holds(values[row], text)), None)  # fmt: skip


def _holds(value: np.floating[Any], text: str) -> bool:
    """Return whether a float equals its text: `inf`, this integer, or the float's own digits and zeros.

    pyarrow writes the float32 1234567936 as `1234568000`, JavaScript the double 2**60 as `1152921504606847000`.
    """
    if np.isinf(value):
        return "n" in text.lower()
    return Decimal(text) == float(value) or text.lstrip("+") == np.format_float_positional(value, trim="-")


def _type(name: str) -> pa.DataType:
    """Return the Arrow type of this name. Raises UsageError for types to which text cannot be cast."""
    try:
        kind = arrow_type(name)
        pa.array([], pa.string()).cast(kind)
    except (UsageError, pa.ArrowNotImplementedError):
        raise UsageError("a text cannot be read as this type", expected="int64, double, bool, date32 …",
                         found=repr(name)) from None  # fmt: skip
    return kind
