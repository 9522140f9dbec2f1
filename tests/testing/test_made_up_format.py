"""A new format is one file and one `register`: this one is made up, whole, and passes the kit.

"TOY1"
record     uint32 length of the header, header, values one after another
           header: JSON list of [name, size]; the first value is the key
end        uint32 0, uint32 number of records
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import lading
from lading._core.arrow import views
from lading._core.arrow.references import FileEntry, make_refs, with_files
from lading._core.formats import registry
from lading._core.formats.base import DEFAULT_SCAN, Scan, ShardFacts, ShardFile, ShardReader, ShardWriter
from lading._core.formats.format import AnyFormat, Format, FormatInfo, NoOptions
from lading._core.storage.base import Sink
from lading._core.storage.memory import MemoryStore
from lading.errors import CorruptShard, Unrepresentable, UsageError
from lading.testing import FormatTests
from lading.testing.format import write_shard

_MAGIC = b"TOY1"
_KEY = "__key__"


class ToyFormat(Format[NoOptions, NoOptions]):
    info = FormatInfo(
        name="toy", extensions=(".toy",), write_options=NoOptions, fixed_schema=False, shard_name="toy-{}"
    )

    def matches(self, path: str, head: bytes) -> bool:
        return head.startswith(_MAGIC)

    def open(self, file: ShardFile, options: NoOptions) -> ShardReader:
        return ToyReader(file)

    def create(self, sinks: Sequence[Sink], schema: pa.Schema, options: NoOptions) -> ShardWriter:
        for field in schema:
            if field.name != _KEY and field.type not in (pa.binary(), pa.large_binary(), pa.binary_view()):
                raise Unrepresentable("toy holds bytes only", column=field.name, found=field.type)
        return ToyWriter(*sinks)


class ToyReader(ShardReader):
    def __init__(self, source: ShardFile) -> None:
        self._source = source
        info = source.info or source.store.head(source.path)
        self._file = FileEntry(source.path, size_bytes=info.size_bytes, version=info.version)
        self._rows = list(self._scan())

    def _scan(self) -> Iterator[dict[str, tuple[int, int]]]:
        at, count = len(_MAGIC), 0
        if self._take(0, at) != _MAGIC:
            raise CorruptShard("no toy shard", file=self._file.url, offset=0)
        while True:
            [size] = struct.unpack("<I", self._take(at, 4))
            if not size:
                break
            header = self._header(at + 4, size)
            at, row = at + 4 + size, {}
            for name, length in header:
                row[name] = (at, length)
                at += length
            count += 1
            yield row
        [said] = struct.unpack("<I", self._take(at + 4, 4))
        if said != count or at + 8 != self._file.size_bytes:
            raise CorruptShard("the end is not as it should be", file=self._file.url, offset=at)

    def _header(self, at: int, size: int) -> list[tuple[str, int]]:
        try:
            header = [(str(name), int(length)) for name, length in orjson.loads(self._take(at, size))]
        except ValueError as error:
            raise CorruptShard("the header is no JSON", file=self._file.url, offset=at) from error
        if [name for name, _ in header[:1]] != [_KEY] or min(length for _, length in header) < 0:
            raise CorruptShard("the header has no key, or a size below zero", file=self._file.url, offset=at)
        return header

    def _take(self, at: int, size: int) -> bytes:
        if size > self._file.size_bytes - at:
            raise CorruptShard("the file ends too early", file=self._file.url, offset=at)
        [data] = self._source.store.get_ranges(self._file.url, [(at, size)])
        return bytes(data)

    def schema(self) -> pa.Schema:
        return self.index().schema

    def num_rows(self) -> int:
        return len(self._rows)

    def index(self) -> pa.Table:
        return self.read()

    def read(self, rows: NDArray[np.int64] | None = None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
        names = list(dict.fromkeys(name for row in self._rows for name in row)) or [_KEY]
        wanted = names if scan.columns is None else list(scan.columns)
        picked = self._rows if rows is None else [self._rows[row] for row in rows.tolist()]
        table = pa.table([self._column(name, picked) for name in wanted], names=wanted)
        return table.cast(with_files(table.schema, [self._file]))

    def _column(self, name: str, rows: list[dict[str, tuple[int, int]]]) -> pa.Array:
        if name == _KEY:
            try:
                return pa.array([self._take(*row[name]).decode() for row in rows], pa.string())
            except UnicodeDecodeError as error:
                raise CorruptShard("a key is no text", file=self._file.url) from error
        places = np.array([row.get(name, (0, 0)) for row in rows], np.int64).reshape(-1, 2)
        for at, length in places.tolist():
            if length > self._file.size_bytes - at:
                raise CorruptShard("the file ends too early", file=self._file.url, offset=at)
        return make_refs(places[:, 0], places[:, 1], valid=np.array([name in row for row in rows], np.bool_))

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        start = 0
        while start < len(self._rows):
            stop, total = start, 0
            while stop < len(self._rows) and stop - start < scan.max_rows:
                total += sum(length for name, (_, length) in self._rows[stop].items() if name != _KEY)
                if total > scan.max_bytes and stop > start:
                    break
                stop += 1
            yield from self.read(np.arange(start, stop), scan).to_batches()
            start = stop


class ToyWriter(ShardWriter):
    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._count = self._payload = 0
        sink.write([_MAGIC])

    def write(self, batch: pa.RecordBatch) -> pa.Table:
        parts = {name: views.slices(batch.column(name)) for name in batch.schema.names}
        places = {name: np.zeros((batch.num_rows, 2), np.int64) for name in parts}
        for row in range(batch.num_rows):
            values = {name: part for name, column in parts.items() if (part := column[row]) is not None}
            header = orjson.dumps([(name, value.nbytes) for name, value in values.items()])
            self._sink.write([struct.pack("<I", len(header)), header])
            for name, value in values.items():
                places[name][row] = self._sink.tell(), value.nbytes
                self._sink.write([value])
                self._payload += value.nbytes
        self._count += batch.num_rows
        columns = [
            batch.column(name)
            if name == _KEY
            else make_refs(
                places[name][:, 0],
                places[name][:, 1],
                valid=np.asarray(batch.column(name).is_valid().to_numpy(zero_copy_only=False), np.bool_),
            )
            for name in batch.schema.names
        ]
        return pa.table(columns, names=batch.schema.names)

    def bytes_written(self) -> int:
        return self._sink.tell()

    def close(self) -> ShardFacts:
        self._sink.write([struct.pack("<II", 0, self._count)])
        return ShardFacts(self._count, self._sink.tell(), self._payload)


TOY: AnyFormat = ToyFormat()


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is registered here is not known to other tests."""
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))


class TestToyFormat(FormatTests):
    fmt = TOY

    def cannot_hold(self) -> dict[str, pa.Schema]:
        return {"score": pa.schema({"__key__": pa.string(), "score": pa.float64()})}


class _NoEnd(ToyReader):
    """Takes whatever is there for all there is."""

    def _scan(self) -> Iterator[dict[str, tuple[int, int]]]:
        try:
            yield from super()._scan()
        except CorruptShard:
            return


class _NoOrder(ToyReader):
    """Gives rows in file order whatever was asked for."""

    def read(self, rows: NDArray[np.int64] | None = None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
        return super().read(None if rows is None else np.sort(rows), scan)


@pytest.mark.parametrize(
    "reader, test",
    [
        (_NoEnd, lambda kit: kit.test_a_cut_file_is_an_error_or_whole(mapped=False)),
        (_NoEnd, lambda kit: kit.test_garbage_is_an_error(mapped=False)),
        (_NoOrder, lambda kit: kit.test_rows_come_in_the_order_asked_for(kit.small(), mapped=True)),
    ],
)
def test_the_kit_catches_a_reader_that(reader: type[ToyReader], test: Callable[[FormatTests], None]) -> None:
    class Broken(ToyFormat):
        def open(self, file: ShardFile, options: NoOptions) -> ShardReader:
            return reader(file)

    class Kit(FormatTests):
        fmt = Broken()

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test(Kit())


class _NoSize(ToyWriter):
    """Says of itself that it wrote nothing."""

    def bytes_written(self) -> int:
        return 0


class _NoPayload(ToyWriter):
    """Counts values wrongly."""

    def close(self) -> ShardFacts:
        return replace(super().close(), payload_bytes=-777)


class _NoHeld(ToyWriter):
    """Cannot say what it holds."""

    def held_bytes(self) -> int:
        raise AssertionError


class _NullsFilled(ToyWriter):
    """Writes a null as no bytes, silently."""

    def write(self, batch: pa.RecordBatch) -> pa.Table:
        filled = [c.fill_null(b"") if views.is_bytes(c.type) else c for c in batch.columns]
        return super().write(pa.record_batch(filled, batch.schema.names))


class _Floats(ToyWriter):
    """Writes any number as the text of a float."""

    def write(self, batch: pa.RecordBatch) -> pa.Table:
        texts = [
            c if c.type == pa.string() else pa.array([repr(float(v)).encode() for v in c.to_pylist()], pa.binary())
            for c in batch.columns
        ]
        return super().write(pa.record_batch(texts, batch.schema.names))


class _Greedy(ToyReader):
    """Fetches the whole file for each row."""

    def _column(self, name: str, rows: list[dict[str, tuple[int, int]]]) -> pa.Array:
        for _ in rows:
            self._take(0, self._file.size_bytes)
        return super()._column(name, rows)


@pytest.mark.parametrize(
    "broken, test",
    [
        (_NoSize, lambda kit: kit.test_large_shards_tell_their_size_while_they_are_written()),
        (_NoPayload, lambda kit: kit.test_equal_rows_give_equal_bytes(kit.small())),
        (_NoHeld, lambda kit: kit.test_equal_rows_give_equal_bytes(kit.small())),
        (_NullsFilled, lambda kit: kit.test_a_null_that_it_does_not_hold_is_refused()),
        (_Floats, lambda kit: kit.test_numbers_are_themselves_or_their_json_or_refused("integer")),
        (_Greedy, lambda kit: kit.test_one_call_reads_no_more_than_the_file()),
    ],
)
def test_the_kit_catches_what(broken: type[Any], test: Callable[[Any], None]) -> None:
    class Broken(ToyFormat):
        def open(self, file: ShardFile, options: NoOptions) -> ShardReader:
            reader: ShardReader = broken(file) if issubclass(broken, ToyReader) else ToyReader(file)
            return reader

        def create(self, sinks: Sequence[Sink], schema: pa.Schema, options: NoOptions) -> ShardWriter:
            writer: ShardWriter = broken(*sinks) if issubclass(broken, ToyWriter) else ToyWriter(*sinks)
            return writer

    class Kit(FormatTests):
        fmt = Broken()
        holds_nulls = False

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test(Kit())


@pytest.mark.parametrize("example", ["one row", "nulls", "keys"])
def test_the_small_example_may_have_any_number_of_rows(example: str) -> None:
    class Kit(FormatTests):
        fmt = TOY

        def small(self) -> pa.Table:
            return self.tables()[example]

    Kit().test_payload_of_any_binary_type()


def test_one_registration_makes_it_known() -> None:
    registry.register(TOY)
    registry.register(TOY)
    assert "toy" in registry.format_names()
    assert registry.get_format("toy") is TOY
    written = write_shard(TOY, TestToyFormat().small(), {})
    assert registry.find_format(written.path, written.data[:1024]) is TOY


def test_a_name_is_taken_once() -> None:
    registry.register(TOY)
    with pytest.raises(UsageError, match="toy"):
        registry.register(ToyFormat())


def test_a_shard_says_what_it_lacks() -> None:
    written = write_shard(TOY, TestToyFormat().small(), {})
    with pytest.raises(CorruptShard) as caught:
        TOY.open(ShardFile(MemoryStore({written.path: written.data[:-1]}), written.path), TOY.read_options({}))
    assert caught.value.offset == len(written.data) - 4


def test_every_verb_takes_it_after_one_registration(tmp_path: Path) -> None:
    registry.register(TOY)
    source = [str(tmp_path / "source" / name) for name in ("shard-000000.tar",)]
    with lading.writer(tmp_path / "source", format="webdataset") as writer:
        for i in range(50):
            writer.write({"__key__": f"{i:02d}", "jpg": bytes([i]) * i * 100, **({"txt": "t"} if i % 7 else {})})
    want = lading.digest(source)
    assert lading.convert(source, tmp_path / "toy", format="toy", verify=True).verified
    assert lading.convert(tmp_path / "toy", tmp_path / "toy2", format="toy", shard_size="40kb", verify=True).shards > 2
    assert lading.convert(tmp_path / "toy2", tmp_path / "parquet", format="parquet", verify=True).verified
    for name in ("toy", "toy2", "parquet"):
        assert lading.digest(tmp_path / name).ordered == want.ordered
        assert lading.verify(tmp_path / name).ok
    assert lading.info(str(tmp_path / "toy2" / "*.toy")).samples == 50
    with lading.open(str(tmp_path / "toy" / "*.toy")) as dataset:
        assert dataset.format == "toy"
        assert dataset[49]["jpg"] == bytes([49]) * 4900
        assert dataset.by_key("07").get("txt") is None
    assert "toy" in registry.format_names()
