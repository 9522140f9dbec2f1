"""Read WARC: batches, index, random access. See `_core.formats.warc.format`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.features.types import Json, with_feature
from lading._core.formats.base import DEFAULT_SCAN, Scan, ShardFile, ShardReader
from lading._core.media.warc import (
    RecordSource,
    WarcRecord,
    bare_uri,
    header_lines,
    http_parts,
    payload_of,
    read_record,
)
from lading.errors import CorruptShard, LadingError, UsageError, errors_at
from lading.limits import raised_by

__all__ = ["WarcShardReader"]

SCHEMA = pa.schema(
    [
        pa.field("record_type", pa.string()),
        pa.field("record_id", pa.string()),
        pa.field("uri", pa.string()),
        pa.field("date", pa.string()),
        pa.field("content_type", pa.string()),
        with_feature(pa.field("headers", pa.string()), Json()),
        pa.field("http_status", pa.int32()),
        with_feature(pa.field("http_headers", pa.string()), Json()),
        pa.field("content", pa.large_binary()),
    ]
)
_WINDOW_BYTES, _NEAR_BYTES = 4 << 20, 256 << 10
_BETWEEN = b"\r\n"
_STATUS_DIGITS = 3
_UNDECODED = "responses that are not encoded as their headers say, kept as they were sent"


class _Window:
    """A file read by range, some bytes ahead.

    Attributes:
        size_bytes: its size.
    """

    def __init__(self, file: ShardFile, ahead: int) -> None:
        self._file, info = file.pinned()
        self.size_bytes, self._ahead = info.size_bytes, ahead
        self._base, self._data = 0, memoryview(b"")

    def read(self, offset: int, length: int, /) -> memoryview:
        """Return exactly these bytes."""
        at = offset - self._base
        if at < 0 or at + length > len(self._data):
            size = min(max(length, self._ahead), self.size_bytes - offset)
            [data] = self._file.get_ranges([(offset, size)])
            self._base, self._data, at = offset, memoryview(data), 0
        return self._data[at : at + length]


class WarcShardReader(ShardReader):
    """An open WARC file.

    Attributes:
        counts: reports of the last complete pass, by a short phrase.
    """

    def __init__(self, file: ShardFile) -> None:
        self._file, info = file.pinned()
        self._size = info.size_bytes
        given = file.index
        self._index = given if given is not None and "record_offset" in given.column_names else None

    def schema(self) -> pa.Schema:
        """Return the columns, which all files have."""
        return SCHEMA

    def num_rows(self) -> int:
        """Return the number of records; takes a pass over the file, shared with `index`."""
        return len(self.index())

    def index(self) -> pa.Table:
        """Return `record_offset`, where each record begins in the file, and `num_rows`, which is 1."""
        if self._index is None:
            places = np.fromiter((at for at, _ in self._records()), np.int64)
            self._index = pa.table({"record_offset": places, "num_rows": np.ones(len(places), np.int64)})
        return self._index

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all records in order. Peak memory: `max_bytes`, or the largest record, and 4 MiB.

        Raises:
            CorruptShard: a record is damaged or cut; earlier ones are yielded first.
            LimitExceeded: a record is larger than `range_bytes`.
        """
        rows, size, found = list[dict[str, Any]](), 0, Counter[str]()
        records, broken = self._records(), None
        while True:
            try:
                _, record = next(records, (0, None))
                row = None if record is None else self._row(record, found)
            except LadingError as error:
                broken, row = error, None
            if row is None:
                break
            more = len(row["content"]) + len(row["headers"]) + len(row["http_headers"] or "")
            if rows and (len(rows) == scan.max_rows or size + more > scan.max_bytes):
                yield _batch(rows, scan.columns)
                rows, size = [], 0
            rows.append(row)
            size += more
        if rows:
            yield _batch(rows, scan.columns)
        if broken is not None:
            raise broken
        self.counts = found

    def read(self, rows: NDArray[np.int64] | None = None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return records by ordinal, in the given order; each is read by its place in the file.

        Raises:
            UsageError: an ordinal is outside the shard.
        """
        places = self.index().column("record_offset").to_numpy()
        wanted = np.arange(len(places)) if rows is None else np.asarray(rows, np.int64)
        outside = np.flatnonzero((wanted < 0) | (wanted >= len(places)))
        if len(outside):
            raise UsageError("no such row", file=self._file.path, expected=f"0 to {len(places) - 1}",
                             found=int(wanted[outside[0]]))  # fmt: skip
        window, found = _Window(self._file, _NEAR_BYTES), Counter[str]()
        made = [self._row(self._record(window, at)[0], found) for at in places[wanted].tolist()]
        return pa.Table.from_batches([_batch(made, scan.columns)])

    def _records(self) -> Iterator[tuple[int, WarcRecord]]:
        """Yield all records, and where each begins."""
        window, at = _Window(self._file, _WINDOW_BYTES), 0
        if not window.size_bytes:
            raise CorruptShard("the file is empty", file=self._file.path, expected="a WARC record", offset=0)
        while at < window.size_bytes:
            if bytes(window.read(at, 1)) in _BETWEEN:  # some programs write more line ends than two
                at += 1
                continue
            record, size = self._record(window, at)
            yield at, record
            at += size

    def _record(self, window: _Window, at: int) -> tuple[WarcRecord, int]:
        """Return the record at a place, and the bytes that it takes in the file."""
        source = RecordSource(window, at)
        try:
            with errors_at(file=self._file.path), raised_by("range_bytes"):
                return read_record(source, self._file.limits), source.taken
        except CorruptShard as error:
            error.offset = at  # codecs count offsets in unpacked bytes
            raise

    def _row(self, record: WarcRecord, found: Counter[str]) -> dict[str, Any]:
        limits = self._file.limits
        with errors_at(file=self._file.path), raised_by("range_bytes"):
            head, body = http_parts(record, limits)
            try:
                content = payload_of(record, limits)
            except CorruptShard:
                content = body
                found[_UNDECODED] += 1
        own = header_lines(record.head)
        first = {name.lower(): value for name, value in reversed(own)}
        status_line, _, http = (head or b"").partition(b"\n")
        status = status_line.split()[1:2] if head is not None else []
        return {
            "record_type": first.get("warc-type"),
            "record_id": first.get("warc-record-id"),
            "uri": bare_uri(first["warc-target-uri"]) if "warc-target-uri" in first else None,
            "date": first.get("warc-date"),
            "content_type": first.get("content-type"),
            "headers": _json(own),
            "http_status": next((int(s) for s in status if s.isdigit() and len(s) == _STATUS_DIGITS), None),
            "http_headers": None if head is None else _json(header_lines(http)),
            "content": content,
        }


def _json(headers: Sequence[tuple[str, str]]) -> str:
    """Return headers as a JSON object; the values of a name that comes again are a list."""
    values: dict[str, Any] = {}
    for name, value in headers:
        if name not in values:
            values[name] = value
        elif isinstance(values[name], list):
            values[name].append(value)
        else:
            values[name] = [values[name], value]
    return orjson.dumps(values).decode()


def _batch(rows: Sequence[dict[str, Any]], columns: Sequence[str] | None) -> pa.RecordBatch:
    names = SCHEMA.names if columns is None else [name for name in dict.fromkeys(columns) if name in SCHEMA.names]
    schema = pa.schema([SCHEMA.field(name) for name in names])
    if not names:
        return pa.table({"none": pa.nulls(len(rows))}).select([]).to_batches()[0]
    return pa.RecordBatch.from_arrays([pa.array([row[f.name] for row in rows], f.type) for f in schema], schema=schema)
