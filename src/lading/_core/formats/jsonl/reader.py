"""Read JSON Lines: columns, batches, random access. See `_core.formats.jsonl.format`."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.arrow.casts import unregistered_type
from lading._core.arrow.json_columns import build_column, column_type, kinds_of
from lading._core.codecs import ENDINGS
from lading._core.features.items import split_rows
from lading._core.features.stored_values import rows_schema
from lading._core.formats.base import DEFAULT_SCAN, Recovered, Scan, ShardReader
from lading._core.formats.jsonl.array import array_blocks, begins_array, elements
from lading._core.formats.jsonl.base64_values import from_base64, holds_base64
from lading._core.formats.jsonl.one_object import ObjectMembers, is_rows, members_of, one_object_error
from lading._core.formats.stored_types import with_stored_types
from lading._core.formats.text_lines import (
    BOM,
    MAX_TOLD,
    LineBlock,
    TextFile,
    changed,
    laid_end_to_end,
    line_blocks,
    to_utf8,
    too_long,
)
from lading._core.storage.fetch import Fetcher
from lading._core.storage.stores import without_query
from lading.errors import (
    CorruptShard,
    DataError,
    DuplicateField,
    LadingError,
    LimitExceeded,
    SchemaMismatch,
    UsageError,
    errors_at,
    without_frames,
)

__all__ = ["JSON_NAMES", "JsonlReader", "ReadOptions", "is_json_name"]

JSON_NAMES = tuple(".json" + packed for packed in ("", *ENDINGS.values()))
"""Endings of files that may hold one array, or an object a line."""

_MAX_CELLS = 4 << 20
_UNIT_BYTES = 32 << 10
_FEW_ROWS = 4096
_FIRST_ROWS = 16
_FEW_LINES = 32
_BLANK = b" \t\r"
_BLANKS = np.frombuffer(_BLANK, np.uint8)
_SHOWN = 60
_MOST_BLANK = 1 << 20
"""Blanks behind which the first bracket is not looked for."""
_ESCAPED = re.compile(rb'\\["\\]')

_INDEX_SCHEMA = pa.schema([(name, pa.int64()) for name in ("first_line", "first_row", "num_rows", "offset", "length")])
_SCHEMA_KEY, _ARRAY_KEY = b"lading.jsonl.schema", b"lading.jsonl.array"
_NO_OBJECT = "no JSON object"


def is_json_name(path: str) -> bool:
    """Return whether a file is named `.json`, compressed or not."""
    return without_query(path).lower().endswith(JSON_NAMES)


def _other_name(path: str) -> str:
    """Return a name for JSON Lines made of this file, as a shell takes it."""
    stem, dot, rest = path.rpartition(".json")
    return shlex.quote(f"{stem if dot else path}{'.lines' if rest.startswith('l') else ''}.jsonl")


def _advice(path: str, what: str, text: bytes, *, is_array: bool) -> str:
    """Return what to do about a line, or an element, that is no row."""
    if "invalid UTF-8" in what:
        return f"Bring the file to UTF-8, from Windows for example with: {to_utf8(path, 'WINDOWS-1252')}"
    source, target = shlex.quote(path), _other_name(path)
    if is_array and what == _NO_OBJECT:
        return f"To read each element as a row with one value: jq -c '.[] | {{value: .}}' {source} > {target}"
    if is_array:
        return "Mend or drop the element, or what follows the end of the array."
    if "Extra data" in what or text.rstrip()[-1:] in (b"{", b"[", b","):
        return f"If the file holds JSON, but not an object a line: jq -c . {source} > {target}"
    return "Mend or drop the line; the last line of a file may have been cut."


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Read options of JSON Lines: there are none."""


@dataclass(frozen=True, slots=True)
class _Lines:
    """Lines that are not blank: text, offset in the stream, and number, counted from 1."""

    texts: list[bytes]
    offset: NDArray[np.int64]
    number: NDArray[np.int64]

    def __getitem__(self, which: NDArray[np.int64]) -> _Lines:
        return _Lines([self.texts[i] for i in which.tolist()], self.offset[which], self.number[which])


@dataclass(frozen=True, slots=True)
class _Rows:
    """Documents, with the bytes and the number of each line; `plain` as in `kinds_of`."""

    documents: list[dict[str, Any]]
    size: NDArray[np.int64]
    number: NDArray[np.int64]
    plain: bool

    def columns(self, names: Iterable[str]) -> Iterator[list[Any]]:
        """Return the values of each document, by name; None if missing."""
        wanted = list(names)
        if len(wanted) * len(self.documents) > 8 * sum(map(len, self.documents)):
            sparse = {name: [None] * len(self.documents) for name in wanted}
            for row, document in enumerate(self.documents):
                for name in document.keys() & sparse.keys():
                    sparse[name][row] = document[name]
            yield from sparse.values()
            return
        for name in wanted:
            yield [document.get(name) for document in self.documents]

    def part(self, start: int, stop: int) -> _Rows:
        """Return some of the rows."""
        return _Rows(self.documents[start:stop], self.size[start:stop], self.number[start:stop], self.plain)


class _Survey:
    """The result of a scan of all rows: the types of fields, and where to read."""

    def __init__(self) -> None:
        self._kinds: dict[str, int] = {}
        self._units: list[NDArray[np.int64]] = []
        self.num_rows = 0

    def add(self, lines: _Lines, rows: _Rows) -> None:
        """Count the rows of a block."""
        for start, stop in _slices(rows, len(self._kinds), _FEW_ROWS, _UNIT_BYTES):
            part = rows.part(start, stop)
            names = list(dict.fromkeys(chain.from_iterable(part.documents)))
            for name, values in zip(names, part.columns(names), strict=True):
                self._kinds[name] = self._kinds.get(name, 0) | kinds_of(values, plain=part.plain)
            begin, end = lines.offset[start], lines.offset[stop - 1] + rows.size[stop - 1]
            self._units.append(
                np.array([lines.number[start], self.num_rows + start, stop - start, begin, end - begin], np.int64)
            )
        self.num_rows += len(rows.documents)

    @property
    def num_fields(self) -> int:
        """Return the number of columns."""
        return len(self._kinds)

    def schema(self) -> pa.Schema:
        """Return the columns, by first appearance."""
        return pa.schema([column_type(name, kinds) for name, kinds in self._kinds.items()])

    def index(self, *, is_array: bool) -> pa.Table:
        """Return a row for each part that is read at once; the schema is in its metadata."""
        columns = np.array(self._units, np.int64).reshape(-1, len(_INDEX_SCHEMA)).T
        metadata = {_SCHEMA_KEY: self.schema().serialize().to_pybytes()} | ({_ARRAY_KEY: b"1"} if is_array else {})
        return pa.table([pa.array(column) for column in columns], schema=_INDEX_SCHEMA.with_metadata(metadata))


def _slices(rows: _Rows, columns: int, max_rows: int, max_bytes: int) -> Iterator[tuple[int, int]]:
    """Return bounds of parts of rows within the limits, also of the number of cells in a table."""
    count = len(rows.documents)
    most = max(1, min(max_rows, _MAX_CELLS // max(columns, 1)))
    if count:
        yield from pairwise(split_rows(np.arange(count), rows.size, max_rows=most, max_bytes=max_bytes).tolist())


class JsonlReader(ShardReader):
    """An open file of JSON Lines.

    Args:
        file: the file.
        decodes: whether bytes of a schema that `batches` and `read` are given are base64 texts in the file.

    Attributes:
        counts: reports of the last complete pass, by a short phrase.
    """

    declares_types = False

    def __init__(self, file: TextFile, *, decodes: bool = False) -> None:
        self._file, self._decodes = file, decodes
        given = file.source.index
        metadata = {} if given is None else given.schema.metadata or {}
        self._index: pa.Table | None = given if _SCHEMA_KEY in metadata else None
        self._is_array = _ARRAY_KEY in metadata
        self._read_share = 0.0

    def as_written(self, rows: pa.Schema, fetcher: Fetcher) -> ShardReader | None:
        """Return a reader of bytes that were written as base64; None if rows need only a cast."""
        if not any(map(holds_base64, rows)):
            return None
        return with_stored_types(JsonlReader(self._file, decodes=True), rows_schema(rows), self._file.path)

    @property
    def read_share(self) -> float:
        """Return the share of the file that is read by the latest batch."""
        return self._read_share

    def schema(self) -> pa.Schema:
        """Return the types that hold all values exactly; takes one pass, shared with `index` and `num_rows`."""
        return pa.ipc.read_schema(pa.py_buffer(self.index().schema.metadata[_SCHEMA_KEY]))

    def first_schema(self) -> pa.Schema | None:
        """Return the schema of the first rows; None if there are none."""
        for block in self._file_blocks():
            lines = self._lines(block)
            if lines.texts:
                self._refuse_one_object(block, lines)
                first = lines[np.arange(min(_FIRST_ROWS, len(lines.texts)))]
                survey = _Survey()
                survey.add(first, self._rows(first))
                return survey.schema()
        return None

    def num_rows(self) -> int:
        """Return the number of lines that are not blank."""
        return int(pa.compute.sum(self.index().column("num_rows"), min_count=0).as_py())

    def index(self) -> pa.Table:
        """Return a row for each part of some 256 KiB: `first_line`, `first_row`, `num_rows`, `offset`, `length`.

        The range counts in the unpacked stream. Built in one pass over the file, which finds the schema too.
        """
        if self._index is None:
            survey = _Survey()
            for lines, rows in self._blocks():
                survey.add(lines, rows)
                self._refuse_many(survey.num_fields, lines)
            self._index = survey.index(is_array=self._is_array)
        return self._index

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, some MiB at a time, each batch with all columns.

        With a schema, no extra pass is needed. Limits apply to the bytes of lines. Peak memory: some ten times a block
        of 4 MiB, or of the longest line.

        Raises:
            CorruptShard, DuplicateField: a line is invalid; the message names it.
            LimitExceeded: a line is too long, or there are too many fields.
            SchemaMismatch: a value does not fit the schema; or all columns are wanted, and a line has another field.
        """
        complete = scan.schema is None or scan.columns is None
        schema = scan.schema or self.schema()
        for rows in self._streamed(scan.max_rows, scan.max_bytes, schema, complete=complete):
            yield self._batch(rows, _chosen(schema, scan.columns))

    def read(self, rows: NDArray[np.int64] | None = None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return rows by ordinal; reads the parts of the file that hold them, and parses only their lines.

        For a compressed file, everything before them is decompressed. Peak memory: the requested rows, and 16 MiB.

        Raises:
            UsageError: an ordinal is outside the shard.
            SchemaMismatch: as `batches`.
        """
        complete = scan.schema is None or scan.columns is None
        schema = scan.schema or self.schema()
        if rows is not None:
            return self._read(schema, rows, scan.columns, complete=complete)
        chosen = _chosen(schema, scan.columns)
        found = self._streamed(_FEW_ROWS, _UNIT_BYTES, schema, complete=complete)
        return _table([self._batch(part, chosen) for part in found], chosen)

    def _read(
        self, schema: pa.Schema, rows: NDArray[np.int64], columns: Sequence[str] | None, *, complete: bool
    ) -> pa.Table:
        wanted = np.asarray(rows, np.int64)
        count = self.num_rows()
        outside = np.flatnonzero((wanted < 0) | (wanted >= count))
        if len(outside):
            raise UsageError("no such row", file=self._file.path, expected=f"0 to {count - 1}",
                             found=int(wanted[outside[0]]))  # fmt: skip
        ordinals, place = np.unique(wanted, return_inverse=True)
        chosen, parts = _chosen(schema, columns), []
        for found in self._at(ordinals):
            if complete:
                self._refuse_new(found, schema)
            parts.append(self._batch(found, chosen))
        return _table(parts, chosen).take(pa.array(place)) if len(chosen) else _without_columns(len(place))

    def close(self) -> None:
        """Do nothing: nothing is held open."""

    def recover(self) -> Recovered | None:
        """Return the lines that are documents; None if all are.

        Raises:
            LimitExceeded: a line is too long.
        """
        offset: list[NDArray[np.int64]] = []
        length: list[NDArray[np.int64]] = []
        lost: list[LadingError] = []
        lost_lines = 0
        for block in self._file_blocks():
            if self._is_array:
                return self._recover_array()
            lines = self._lines(block)
            bad = self._bad_lines(lines)
            size = np.fromiter(map(len, lines.texts), np.int64, len(lines.texts))
            end = np.minimum(lines.offset + size + 1, block.offset + len(block.data))
            begin, good = lines.offset.copy(), np.ones(len(lines.texts), np.bool_)
            lost += [self._error(lines, at) for at in bad[: MAX_TOLD - len(lost)]]
            for at in bad:
                # Of a document that the file's end cuts nothing is wrong but its end: what stands in it is part of it.
                is_last = not block.whole and at == len(lines.texts) - 1
                cut = is_last and self._error(lines, at).offset == block.offset + len(block.data)
                behind = -1 if cut else self._document_in(lines.texts[at])
                begin[at] += max(behind, 0)
                good[at] = behind > 0
            offset.append(begin[good])
            length.append((end - begin)[good])
            lost_lines += len(bad)
        if not lost_lines:
            return None
        file_size = block.offset + len(block.data)
        return laid_end_to_end(np.concatenate(offset), np.concatenate(length), file_size, lost, lost_lines)

    def _recover_array(self) -> Recovered | None:
        """Return the elements that are documents, as an array; None if all are."""
        offset: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        length: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        lost: list[LadingError] = []
        num_lost, end = 0, 0
        for block in self._file_blocks():
            lines = self._lines(block)
            bad = self._bad_lines(lines)
            good = np.setdiff1d(np.arange(len(lines.texts)), bad)
            offset.append(lines.offset[good])
            length.append(np.array([len(lines.texts[at]) for at in good.tolist()], np.int64))
            lost += [self._error(lines, at) for at in bad[: MAX_TOLD - len(lost)]]
            num_lost += len(bad)
            end = block.offset + len(block.data)
            if not block.whole:
                lost.append(self._no_end(end))
        if not lost:
            return None
        places, sizes = np.concatenate(offset), np.concatenate(length)
        target = np.cumsum(sizes + 1) - sizes
        made = [(0, b"["), *((int(at) - 1, b",") for at in target[1:])]
        size = int(target[-1] + sizes[-1]) if len(target) else 1
        stop = int(places[-1] + sizes[-1]) if len(places) else 0
        return Recovered(
            places, target, sizes, size + 1, [*made, (size, b"]")], lost=lost, lost_samples=num_lost, counted=False,
            lost_from=stop if stop < end else None,
        )  # fmt: skip

    def _document_in(self, text: bytes) -> int:
        """Where in a bad line a document begins that goes to its end: only the line end before it is gone; else −1.

        What stands inside a document does not go to the end of its line, if the line has one.
        """
        for at in _may_begin(text):
            alone = _Lines([text[at:]], np.zeros(1, np.int64), np.ones(1, np.int64))
            with suppress(DataError):
                self._rows(alone)
                return at
        return -1

    def _bad_lines(self, lines: _Lines) -> list[int]:
        """Yield the places of invalid lines among these: halves are checked, and few lines one by one."""
        bad: list[int] = []
        parts = [np.arange(len(lines.texts))]
        while parts:
            part = parts.pop()
            if self._are_good(lines[part]):
                continue
            objects = part
            if len(part) <= _FEW_LINES:
                objects = part[[_is_object(lines.texts[at]) for at in part.tolist()]]
            if len(objects) < len(part):
                bad += np.setdiff1d(part, objects).tolist()
                parts.append(objects)
            elif len(part) <= _FEW_LINES:
                bad += [at for at in part.tolist() if not self._are_good(lines[np.array([at])])]
            else:
                parts += np.array_split(part, 2)
        return sorted(bad)

    def _are_good(self, lines: _Lines) -> bool:
        try:
            self._rows(lines)
        except DataError:
            return False
        return True

    def _error(self, lines: _Lines, at: int) -> LadingError:
        """Return the error of an invalid line."""
        try:
            self._rows(lines[np.array([at])])
        except DataError as error:
            return without_frames(error)
        raise AssertionError("the line is bad")

    def _at(self, ordinals: NDArray[np.int64]) -> Iterator[_Rows]:
        """Yield rows by ascending ordinals, a part of the file at a time."""
        index = {name: self.index().column(name).to_numpy() for name in _INDEX_SCHEMA.names}
        unit = np.searchsorted(index["first_row"], ordinals, "right") - 1
        touched = np.unique(unit)
        ranges = zip(index["offset"][touched].tolist(), index["length"][touched].tolist(), strict=True)
        for number, data in zip(touched.tolist(), self._file.read_each(list(ranges)), strict=True):
            lines = self._lines(LineBlock(data, int(index["offset"][number]), int(index["first_line"][number])))
            if len(lines.texts) != index["num_rows"][number]:
                raise changed(self._file.path, int(index["offset"][number]), f"{index['num_rows'][number]} rows",
                              f"{len(lines.texts)} rows")  # fmt: skip
            yield self._rows(lines[ordinals[unit == number] - index["first_row"][number]])

    def _streamed(self, max_rows: int, max_bytes: int, schema: pa.Schema, *, complete: bool = True) -> Iterator[_Rows]:
        """Yield all rows, a part at a time; with a `complete` schema, a row may not have other fields."""
        before = 0.0
        for _, rows in self._blocks():
            if complete:
                self._refuse_new(rows, schema)
            here = self._file.read_share - before
            for start, stop in _slices(rows, len(schema), max_rows, max_bytes):
                self._read_share = before + here * stop / len(rows.documents)
                yield rows.part(start, stop)
            before += here

    def _refuse_new(self, rows: _Rows, schema: pa.Schema) -> None:
        known = {*schema.names}
        if known.issuperset(chain.from_iterable(rows.documents)):
            return
        new = next(name for document in rows.documents for name in document if name not in known)
        raise SchemaMismatch(
            "a line has a field that the file was not said to have", file=self._file.path, column=new,
            expected=", ".join(schema.names),
            advice="It was changed since it was looked at, or a manifest or index beside it is wrong.",
        )  # fmt: skip

    def _blocks(self) -> Iterator[tuple[_Lines, _Rows]]:
        """Yield all rows, a block at a time."""
        found: Counter[str] = Counter()
        for block in self._file_blocks():
            lines = self._lines(block)
            if block.line == 1:
                self._refuse_one_object(block, lines)
            if self._is_array:
                # The last element of an array without an end may be cut.
                lines = lines if block.whole else lines[np.arange(len(lines.texts) - 1)]
                yield lines, self._rows(lines)
                if not block.whole:
                    raise self._no_end(block.offset + len(block.data))
                continue
            blank = block.data.count(b"\n") + (not block.data.endswith(b"\n")) - len(lines.texts)
            if blank:
                found["blank lines, skipped"] += blank
            yield lines, self._rows(lines)
        self.counts = found

    def _file_blocks(self) -> Iterator[LineBlock]:
        """Yield all lines, or all elements of an array, some MiB at a time. Finds out which of both the file holds."""
        pieces, first = self._file.pieces(), b""
        for piece in pieces:
            first += piece
            if len(first) > _MOST_BLANK or first.strip(_BLANK + b"\n" + BOM):
                break
        self._is_array = begins_array(first)
        limits, rest = self._file.source.limits, chain([first], pieces) if first else pieces
        if self._is_array:
            return array_blocks(rest, self._file.path, limits)
        blocks = line_blocks(rest, self._file.path, limits)
        return self._unless_one_object(blocks) if is_json_name(self._file.path) else blocks

    def _unless_one_object(self, blocks: Iterator[LineBlock]) -> Iterator[LineBlock]:
        """Yield blocks. Raises DataError where the first line is too long since all rows are in its object."""
        block = None
        try:
            for block in blocks:
                yield block
        except LimitExceeded:
            members = self._members(None) if block is None else None
            if members is not None and is_rows(members):
                raise one_object_error(members, self._file.path, _other_name(self._file.path)) from None
            raise

    def _members(self, text: bytes | None) -> ObjectMembers:
        """Return the members of the object that a text is; without a text, that the file begins with."""
        pieces = self._file.pieces() if text is None else [text]
        return members_of(pieces, self._file.source.limits.line_bytes)

    def _no_end(self, offset: int) -> CorruptShard:
        return CorruptShard(
            "the array has no end: the file was cut", file=self._file.path, offset=offset, expected="']'",
            found="the end of the file", advice="Copy the file again.",
        )  # fmt: skip

    def _refuse_one_object(self, block: LineBlock, lines: _Lines) -> None:
        """Raise DataError for a `.json` file that is one object over several lines, or one with the rows inside.

        An object in one line is a row, unless it holds a list of objects, or very many members of one kind.
        """
        path = self._file.path
        if self._is_array or block.line > 1 or not lines.texts or not is_json_name(path):
            return
        size = 0 if self._file.entry.wrap else self._file.entry.size_bytes
        is_alone = len(lines.texts) == 1 and (not block.whole or block.offset + len(block.data) == size)
        members = self._members(block.data) if is_alone else None
        if members is None or not is_rows(members):
            with suppress(DataError):
                self._value(lines, 0)
                return
        raise one_object_error(members or self._members(None), path, _other_name(path))

    def _lines(self, block: LineBlock) -> _Lines:
        """Return the lines of a block that are not blank, or the elements of an array."""
        data, limits = block.data, self._file.source.limits
        if self._is_array:
            found = _Lines(*elements(block))
            for at, text in enumerate(found.texts):
                if len(text) > limits.line_bytes:
                    raise too_long(self._file.path, int(found.offset[at]), int(found.number[at]), limits)
            return found
        # Line ends compress to almost nothing: Python code for each line made 30 KB of xz take 30 s.
        if not data or (data.isspace() and len(data) <= limits.line_bytes and not data.translate(None, _BLANK + b"\n")):
            return _Lines([], np.zeros(0, np.int64), np.zeros(0, np.int64))
        codes = np.frombuffer(data, np.uint8)
        end = np.append(np.flatnonzero(codes == ord("\n")), len(data))
        begin = np.append(len(BOM) if block.offset == 0 and data.startswith(BOM) else 0, end[:-1] + 1)
        longest = int(np.argmax(end - begin))
        if end[longest] - begin[longest] > limits.line_bytes:
            raise too_long(self._file.path, block.offset + int(begin[longest]), block.line + longest, limits)
        full = _filled(codes, begin, end)
        texts = [data[first:last] for first, last in zip(begin[full].tolist(), end[full].tolist(), strict=True)]
        return _Lines(texts, block.offset + begin[full], block.line + full)

    def _rows(self, lines: _Lines) -> _Rows:
        """Return the documents of lines.

        Raises:
            CorruptShard, DuplicateField, LimitExceeded: a line is invalid.
        """
        found = json_text.loads_plain(lines.texts)
        plain = found is not None
        values = [self._value(lines, i) for i in range(len(lines.texts))] if found is None else found
        if {*map(type, values)} - {dict}:
            at = next(i for i, value in enumerate(values) if type(value) is not dict)
            raise self._bad(lines, at, _NO_OBJECT)
        names = dict.fromkeys(chain.from_iterable(values))
        self._refuse_many(len(names), lines)
        odd = None if plain else next((name for name in names if not json_text.is_unicode(name)), None)
        if odd is not None:
            at = next(i for i, value in enumerate(values) if odd in value)
            raise self._bad(lines, at, f"a name that is not valid Unicode ({odd!r})")
        self._refuse_repeated_names(lines, values)
        sizes = np.fromiter(map(len, lines.texts), np.int64, len(lines.texts))
        return _Rows(values, sizes, lines.number, plain)

    def _refuse_many(self, fields: int, lines: _Lines) -> None:
        """Raise LimitExceeded for many fields, unless the lines have about as many values as rows times fields."""
        limits = self._file.source.limits
        if fields > limits.json_fields and fields * len(lines.texts) > sum(map(len, lines.texts)):
            raise limits.exceeded("json_fields", "too many fields", file=self._file.path, offset=int(lines.offset[0]),
                                  found=fields)  # fmt: skip

    def _value(self, lines: _Lines, at: int) -> Any:
        try:
            return json_text.loads(lines.texts[at], base=int(lines.offset[at]))
        except DataError as error:
            raise self._bad(lines, at, error.message.replace("of the text", "of the line"), error.offset) from None

    def _refuse_repeated_names(self, lines: _Lines, values: list[Any]) -> None:
        with errors_at(file=self._file.path):
            found = json_text.find_repeated_name(lines.texts, values)
        if found is not None:
            at, name = found
            raise DuplicateField(
                f"line {lines.number[at]}: an object holds a name twice", file=self._file.path,
                offset=int(lines.offset[at]), expected="each name once", found=repr(name)[:_SHOWN],
                advice="Of the two values one would be lost: rename one, or drop it.",
            )  # fmt: skip

    def _bad(self, lines: _Lines, at: int, what: str, offset: int | None = None) -> CorruptShard:
        text = lines.texts[at]
        return CorruptShard(
            f"line {lines.number[at]}: {what}", file=self._file.path,
            offset=int(lines.offset[at]) if offset is None else offset,
            expected="an array of JSON objects" if self._is_array else "one JSON object a line",
            found=f"{text[:_SHOWN]!r}{'…' if len(text) > _SHOWN else ''}",
            advice=_advice(self._file.path, what, text, is_array=self._is_array),
        )  # fmt: skip

    def _batch(self, rows: _Rows, schema: pa.Schema) -> pa.RecordBatch:
        with errors_at(file=self._file.path):
            values = zip(schema, rows.columns(schema.names), strict=True)
            columns = [build_column(field, self._stored(field, found, rows), self._file.path)
                       for field, found in values]  # fmt: skip
        if columns:
            return pa.RecordBatch.from_arrays(columns, schema=schema)
        return _without_columns(len(rows.documents)).to_batches()[0]

    def _stored(self, field: pa.Field, values: list[Any], rows: _Rows) -> list[Any]:
        """Return values with the bytes that are base64 in the file."""
        if not (self._decodes and holds_base64(field)):
            return values
        kind, found = unregistered_type(field.type), []
        for row, value in enumerate(values):
            try:
                found.append(from_base64(value, kind))
            except DataError as error:
                error.message = f"line {rows.number[row]}: {error.message}"
                raise error.at(column=field.name) from None
        return found


def _filled(codes: NDArray[np.uint8], begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers of the lines that hold more than blanks."""
    filled = begin < end
    some = np.flatnonzero(filled)
    blank = np.isin(codes[begin[some]], _BLANKS)
    if blank.any():  # at the beginning of a line; few files have any
        held = np.append(~np.isin(codes, [*_BLANKS, ord("\n")]), False)
        filled &= np.logical_or.reduceat(held, begin)
    return np.flatnonzero(filled)


def _is_object(text: bytes) -> bool:
    """Return whether a line is a JSON object."""
    inner = text.strip(_BLANK + BOM)
    if not (inner.startswith(b"{") and inner.endswith(b"}")):
        return False
    try:
        return type(json_text.loads(text)) is dict
    except DataError:
        return False


_STEPS = np.zeros(256, np.int8)
_STEPS[[*b"{["]], _STEPS[[*b"}]"]] = 1, -1
"""Change of nesting depth for each byte of JSON."""


def _may_begin(text: bytes) -> list[int]:
    """Where, behind its first byte, a document may begin that goes to the end of a line: the `{` of its last `}`.

    Which one that is, goes by whether an even or an odd number of quotes stands before, so there are two at most.
    """
    text = text.rstrip(_BLANK)
    if not text.endswith(b"}") or b"{" not in text[1:]:
        return []
    codes = np.frombuffer(_ESCAPED.sub(b"  ", text), np.uint8)
    steps = _STEPS[codes]
    inside = np.logical_xor.accumulate(codes == ord('"'))
    found = []
    for strings in (inside, ~inside):
        depth = np.cumsum(np.where(strings, 0, steps)[::-1], dtype=np.int32)
        level = np.flatnonzero(depth == 0)
        if len(level) and depth[0] < 0 and codes[-1 - level[0]] == ord("{"):
            found.append(len(codes) - 1 - int(level[0]))
    return sorted(at for at in found if at)


def _table(parts: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches(parts, schema) if len(schema) else _without_columns(sum(map(len, parts)))


def _without_columns(rows: int) -> pa.Table:
    """Return rows without columns."""
    return pa.table({"none": pa.nulls(rows)}).select([])


def _chosen(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Return the existing requested columns, in the given order."""
    if columns is None:
        return schema
    known = {*schema.names}
    return pa.schema([schema.field(name) for name in dict.fromkeys(columns) if name in known])
