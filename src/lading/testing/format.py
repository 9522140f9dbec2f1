"""What every shard format must do, as tests: subclass `FormatTests`, name the format.

    class TestMyFormat(FormatTests):
        fmt = FORMAT

Everything runs in memory, through a mapped file and through ranges. Where a format cannot do what the kit takes for
granted, it says so in the attributes below, and the kit goes by them.
"""

# ruff: noqa: D102, PLR2004 - a test's name is its documentation, and expected values stand where they are compared

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from lading._core.arrow import views
from lading._core.arrow.references import CODECS, FileEntry, files_of, is_ref, unpack
from lading._core.codecs import decode_range, stream_decoder
from lading._core.formats.base import Scan, ShardFacts, ShardFile, ShardReader
from lading._core.formats.findings import Level
from lading._core.formats.format import AnyFormat
from lading._core.storage.base import Store
from lading._core.storage.memory import MemoryStore
from lading._core.storage.wrappers import CountingStore
from lading.errors import LadingError, NotFound, Unrepresentable, UsageError

__all__ = ["FormatTests", "WrittenShard", "read_rows", "write_shard"]

_ALL = 1 << 40
_KEYS = ("a", "é", "e\u0301", "日本", "🎉", "with space", "folder/a", "100%", "-", "quo'te\"", "k" * 90)
_LARGE_ROWS = 40
_SLACK_BYTES = 64 << 10
_HELD_BYTES = 4 << 20
"""Most bytes that a compressor holds back, of any codec."""
_SIZES = (0, 1, 11, 12, 13, 511, 512, 513, 4096, 10_000)


class WrittenShard:
    """A shard in memory.

    Attributes:
        store: where it lies.
        path: its path.
        facts: what the writer said.
        refs: what `write` gave, a table a batch; None in it where it gave nothing.
        data: the file.
    """

    def __init__(self, path: str, facts: ShardFacts, refs: list[pa.Table | None], data: bytes) -> None:
        self.path, self.facts, self.refs, self.data = path, facts, refs, data
        self.store: Store = MemoryStore({path: data})

    def damaged(self, data: bytes) -> WrittenShard:
        """The same with other bytes in the file."""
        return WrittenShard(self.path, self.facts, self.refs, data)


def write_shard(
    fmt: AnyFormat, table: pa.Table, options: Mapping[str, Any], *, batch_rows: int = 1 << 30
) -> WrittenShard:
    """A table as one shard of a format, in memory."""
    path = f"some/folder/shard-000000{fmt.endings(fmt.write_options(options))[0]}"
    store = MemoryStore()
    sink = store.put_stream(path)
    writer = fmt.create([sink], table.schema, fmt.write_options(options))
    refs, before, raw = [], writer.bytes_written(), writer.raw_bytes()
    for batch in table.to_batches(max_chunksize=batch_rows):
        refs.append(writer.write(batch))
        written, raw = writer.bytes_written(), writer.raw_bytes()
        assert written >= before or written < raw, "bytes_written falls only where compressed rows replace an estimate"
        assert writer.held_bytes() >= 0
        before = written
    facts = writer.close()
    info = sink.close()
    assert (facts.num_samples, facts.size_bytes) == (table.num_rows, info.size_bytes)
    values = sum(map(_payload_bytes, table.to_batches()))
    assert values <= facts.payload_bytes <= table.nbytes, "payload_bytes are those of the values, keys or not"
    near = abs(info.size_bytes - before) <= max(info.size_bytes // 10, _SLACK_BYTES)
    # A compressor may hold rows back, and then their size is an estimate, at most that of the rows themselves.
    assert near or info.size_bytes < before <= raw < _HELD_BYTES, "bytes_written is far from the size"
    [data] = store.get_ranges(path, [(0, info.size_bytes)])
    return WrittenShard(path, facts, refs, bytes(data))


def read_rows(table: pa.Table | pa.RecordBatch, store: Store) -> list[dict[str, Any]]:
    """Rows as dicts: references resolved by the store, text as its bytes, what is null left out.

    Bytes, text and views of them are one content; so are an absent field and a null.
    """
    columns = {
        field.name: _resolved(table.column(field.name), files_of(table.schema), store)
        if is_ref(field.type)
        else [_plain(value) for value in table.column(field.name).to_pylist()]
        for field in table.schema
    }
    return [
        {name: values[row] for name, values in columns.items() if values[row] is not None}
        for row in range(table.num_rows)
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if item is not None}
    return value


def _resolved(column: pa.Array | pa.ChunkedArray, files: Sequence[FileEntry], store: Store) -> list[bytes | None]:
    """The bytes behind references, taken from whole files; asserts that every one lies inside its file."""
    refs = unpack(column)
    bodies = [_body(file, store) for file in files]
    values: list[bytes | None] = []
    for row in range(len(refs.offset)):
        if not refs.valid[row]:
            values.append(None)
            continue
        body, start, length = bodies[refs.file[row]], int(refs.offset[row]), int(refs.length[row])
        assert 0 <= start <= len(body)
        assert 0 <= length <= len(body) - start
        values.append(decode_range(CODECS[refs.codec[row]], body[start : start + length], _ALL))
    return values


def _body(file: FileEntry, store: Store) -> bytes:
    size = store.head(file.url).size_bytes
    assert file.size_bytes in (-1, size)
    [data] = store.get_ranges(file.url, [(0, size)])
    if not file.wrap:
        return bytes(data)
    decoder = stream_decoder(file.wrap)
    body = b"".join(decoder.feed(data))
    decoder.finish()
    return body


def _payload_bytes(batch: pa.RecordBatch) -> int:
    total = 0
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if is_ref(column.type):
            refs = unpack(column)
            total += int(refs.length[refs.valid & (refs.length > 0)].sum())
        elif views.is_bytes(column.type) or (views.is_text(column.type) and name != "__key__"):
            total += int(views.byte_lengths(column).sum())
    return total


class FormatTests:
    """The contract of `_core.formats.base`, for one format.

    Attributes:
        fmt: the format.
        options: what shards are written with.
        holds_nulls: whether values may be missing.
        holds_bytes: whether values may be any bytes; otherwise the examples hold text.
        index_has_rows: whether `index()` has a row a sample, with references, and `write` gives the same.
        may_end_early: why a file cut at some places reads as a whole one with fewer rows, if the format is such; the
            rows that are read must still be the first ones, the last of them perhaps without some fields.
        other_options: further options to write with, for the round trip (compressions, levels).
    """

    fmt: ClassVar[AnyFormat]
    options: ClassVar[Mapping[str, Any]] = {}
    holds_nulls: ClassVar[bool] = True
    holds_bytes: ClassVar[bool] = True
    index_has_rows: ClassVar[bool] = True
    may_end_early: ClassVar[str] = ""
    other_options: ClassVar[Sequence[Mapping[str, Any]]] = ()

    def tables(self) -> dict[str, pa.Table]:
        """Examples that the format can hold, by name. To add some, extend what this gives."""
        found = {
            "small": _table(
                ["a", "b", "c"], jpg=[b"\xff\xd8one", b"\xff\xd8two", b"\xff\xd8three"], txt=[b"1", b"2", b"3"]
            ),
            "one row": _table(["only"], bin=[b"value"]),
            "keys": _table(list(_KEYS), txt=[key.encode() for key in _KEYS]),
            "sizes": _table([f"s{n}" for n in _SIZES], bin=[_noise(n) for n in _SIZES], txt=[b"x"] * len(_SIZES)),
            "many": _table([f"{n:05}" for n in range(1500)], txt=[b"%d" % n for n in range(1500)]),
        }
        if self.holds_nulls:
            found["nulls"] = _table(
                ["a", "b", "c", "d"], jpg=[b"1", None, b"3", None], json=[None, b"{}", None, b"[]"], txt=[b""] * 4
            )
        return {name: self.fitted(table) for name, table in found.items()}

    def fitted(self, table: pa.Table) -> pa.Table:
        """An example as the format can hold it: text instead of bytes, if it has none."""
        if self.holds_bytes:
            return table
        columns = [_latin(c) if pa.types.is_large_binary(c.type) else c for c in table.columns]
        return pa.table(columns, names=table.column_names)

    def cannot_hold(self) -> dict[str, pa.Schema]:
        """Schemas that the format must refuse, by the column at fault."""
        return {}

    def small(self) -> pa.Table:
        """The example that is cut and damaged."""
        return self.tables()["small"]

    def open(self, written: WrittenShard, *, mapped: bool = True) -> ShardReader:
        """A reader of a shard in memory."""
        return self.fmt.open(
            ShardFile(CountingStore(written.store, mapped=mapped), written.path), self.fmt.read_options({})
        )

    def read_all(self, written: WrittenShard, *, mapped: bool = True) -> list[dict[str, Any]]:
        """All rows, by `batches` with views and without, and by `read`, which must agree."""
        reader = self.open(written, mapped=mapped)
        try:
            streamed, viewed = (
                [
                    row
                    for batch in reader.batches(Scan(max_rows=7, max_bytes=_ALL, views=views))
                    for row in read_rows(batch, written.store)
                ]
                for views in (False, True)
            )
            assert viewed == streamed
            assert read_rows(reader.read(), written.store) == streamed
            return streamed
        finally:
            reader.close()

    def read_or_fail(self, written: WrittenShard, *, mapped: bool) -> list[dict[str, Any]] | None:
        """All rows of a damaged shard; None if that is one of lading's errors, which must name the file."""
        try:
            return self.read_all(written, mapped=mapped)
        except LadingError as error:
            if written.path not in str(error):
                pytest.fail(f"the error names no file: {error}")
            return None

    def problems(self, written: WrittenShard, level: Level, *, mapped: bool) -> list[str]:
        """Return the problems that `Format.checks` finds in a shard whose rows were read."""
        store = CountingStore(written.store, mapped=mapped)
        found = self.fmt.checks(ShardFile(store, written.path, reported={}), self.fmt.read_options({}), level)
        return [finding.problem for finding in found if finding.problem]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Tests that take a `table` run over all examples, those that take `mapped` both ways."""
        if "table" in metafunc.fixturenames:
            tables = self.tables()
            metafunc.parametrize("table", tables.values(), ids=tables.keys())
        if "mapped" in metafunc.fixturenames:
            metafunc.parametrize("mapped", [True, False], ids=["mapped", "ranges"])

    def test_what_is_written_is_read(self, table: pa.Table, mapped: bool) -> None:
        written = write_shard(self.fmt, table, self.options, batch_rows=4)
        reader = self.open(written, mapped=mapped)
        assert reader.num_rows() == table.num_rows
        filled = {name for name in table.column_names if table.column(name).null_count < table.num_rows}
        assert filled <= set(reader.schema().names) <= set(table.column_names)
        reader.close()
        assert self.read_all(written, mapped=mapped) == read_rows(table, written.store)

    def test_other_options_keep_the_rows(self, table: pa.Table) -> None:
        if not self.other_options:
            pytest.skip("this format has no other options to try")
        for more in self.other_options:
            written = write_shard(self.fmt, table, {**self.options, **more})
            assert self.read_all(written) == read_rows(table, written.store), more

    def test_the_schema_is_that_of_the_batches(self, table: pa.Table, mapped: bool) -> None:
        reader = self.open(write_shard(self.fmt, table, self.options), mapped=mapped)
        schema = reader.schema()
        assert reader.read().schema.names == schema.names
        for batch in reader.batches(Scan(max_rows=5, max_bytes=_ALL)):
            for field in batch.schema:
                assert schema.field(field.name).type == field.type
        reader.close()

    def test_payload_of_any_binary_type(self) -> None:
        if not self.holds_bytes:
            pytest.skip("this format holds no bytes")
        table = self.small()
        expected = read_rows(table, MemoryStore())
        for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
            columns = [c.cast(kind) if pa.types.is_large_binary(c.type) else c for c in table.columns]
            padded = pa.table(columns, names=table.column_names)
            last = padded.slice(padded.num_rows - 1)
            batches = [batch.slice(1) for batch in pa.concat_tables([last, padded]).combine_chunks().to_batches()]
            assert self.read_all(write_shard(self.fmt, pa.Table.from_batches(batches), self.options)) == expected

    def test_large_shards_tell_their_size_while_they_are_written(self) -> None:
        table = self._large()
        assert write_shard(self.fmt, table, self.options, batch_rows=4).facts.num_samples == table.num_rows

    def test_one_call_reads_no_more_than_the_file(self) -> None:
        written = write_shard(self.fmt, self._large(), self.options)
        store = CountingStore(written.store)
        reader = self.fmt.open(ShardFile(store, written.path), self.fmt.read_options({}))
        calls: dict[str, Callable[[], object]] = {
            "open": lambda: None,
            "schema": reader.schema,
            "num_rows": reader.num_rows,
            "read of a row": lambda: reader.read(np.array([0])),
            "read of all rows": lambda: reader.read(np.arange(_LARGE_ROWS)),
        }
        for name, call in calls.items():
            call()
            assert store.bytes_read <= len(written.data) + 2 * _SLACK_BYTES, f"{name} reads some of the file twice"
            store.reset()
        reader.close()

    def _large(self) -> pa.Table:
        """Values that no compression makes smaller."""
        values = [_noise(20_000 + row) for row in range(_LARGE_ROWS)]
        return self.fitted(_table([f"{row}" for row in range(_LARGE_ROWS)], bin=values))

    @pytest.mark.parametrize("name", ["integer", "float", "list"])
    def test_numbers_are_themselves_or_their_json_or_refused(self, name: str) -> None:
        examples: dict[str, list[Any]] = {
            "integer": [1, (1 << 53) + 1],
            "float": [0.1, 1 / 3],
            "list": [[1, 2], [(1 << 53) + 1]],
        }
        values = examples[name]
        table = pa.table({"__key__": ["a", "b"], "value": values})
        try:
            written = write_shard(self.fmt, table, self.options)
        except Unrepresentable:
            return
        found = [row["value"] for row in self.read_all(written)]
        assert [repr(json.loads(v) if isinstance(v, bytes) else v) for v in found] == [repr(value) for value in values]

    def test_a_null_that_it_does_not_hold_is_refused(self) -> None:
        if self.holds_nulls:
            pytest.skip("this format holds nulls")
        table = self.fitted(_table(["a", "b"], bin=[b"1", None], txt=[b"", b"2"]))
        with pytest.raises(Unrepresentable):
            write_shard(self.fmt, table, self.options)

    def test_batches_stay_within_their_limits(self, table: pa.Table, mapped: bool) -> None:
        written = write_shard(self.fmt, table, self.options)
        expected = read_rows(table, written.store)
        reader = self.open(written, mapped=mapped)
        few = max(1, table.num_rows // 50)
        for max_rows, max_bytes in (
            (few, _ALL),
            (3 * few, _ALL),
            (1000, 100),
            (few, 1),
            (2 * few, 5000),
            (1 << 20, _ALL),
        ):
            rows = []
            for batch in reader.batches(Scan(max_rows=max_rows, max_bytes=max_bytes)):
                assert 1 <= batch.num_rows <= max_rows
                assert batch.num_rows == 1 or _payload_bytes(batch) <= max_bytes
                rows += read_rows(batch, written.store)
            assert rows == expected
        reader.close()

    def test_one_sample_larger_than_a_batch(self, mapped: bool) -> None:
        big = _noise(300_000)
        table = self.fitted(_table(["a", "b", "c"], bin=[b"small", big, b"small"]))
        written = write_shard(self.fmt, table, self.options)
        reader = self.open(written, mapped=mapped)
        batches = list(reader.batches(Scan(max_rows=100, max_bytes=1000)))
        assert [row for batch in batches for row in read_rows(batch, written.store)] == read_rows(table, written.store)
        assert max(batch.num_rows for batch in batches if _payload_bytes(batch) > 1000) == 1
        reader.close()

    def test_rows_come_in_the_order_asked_for(self, table: pa.Table, mapped: bool) -> None:
        written = write_shard(self.fmt, table, self.options, batch_rows=2)
        expected = read_rows(table, written.store)
        last = len(expected) - 1
        reader = self.open(written, mapped=mapped)
        for rows in ([last, 0, last // 2, last, 0], [0], list(range(last, -1, -1)), []):
            found = reader.read(np.array(rows, np.int64))
            assert read_rows(found, written.store) == [expected[row] for row in rows]
        reader.close()

    def test_only_the_columns_asked_for(self, table: pa.Table) -> None:
        written = write_shard(self.fmt, table, self.options)
        reader = self.open(written)
        for name in reader.schema().names:
            expected = [{k: v for k, v in row.items() if k == name} for row in read_rows(table, written.store)]
            assert reader.read(scan=Scan([name])).column_names == [name]
            assert read_rows(reader.read(scan=Scan([name])), written.store) == expected
            assert read_rows(reader.read(np.array([0]), Scan([name])), written.store) == expected[:1]
            batches = list(reader.batches(Scan([name], max_rows=5, max_bytes=_ALL)))
            assert [row for batch in batches for row in read_rows(batch, written.store)] == expected
            assert all(set(batch.schema.names) <= {name} for batch in batches)
        reader.close()

    def test_the_index_refers_to_the_payload(self, table: pa.Table, mapped: bool) -> None:
        if not self.index_has_rows:
            pytest.skip("this format's index has other rows than samples")
        written = write_shard(self.fmt, table, self.options, batch_rows=3)
        reader = self.open(written, mapped=mapped)
        index = _index_of(reader)
        assert index.num_rows == table.num_rows
        assert read_rows(index, written.store) == read_rows(table, written.store)
        reader.close()
        again = self.fmt.open(ShardFile(written.store, written.path, index=index), self.fmt.read_options({}))
        assert read_rows(again.read(), written.store) == read_rows(table, written.store)
        again.close()

    def test_writing_gives_the_references_that_reading_finds(self, table: pa.Table) -> None:
        if not self.index_has_rows:
            pytest.skip("this format's index has other rows than samples")
        written = write_shard(self.fmt, table, self.options, batch_rows=3)
        reader = self.open(written)
        index = _index_of(reader)
        assert all(refs is not None for refs in written.refs)
        for name in index.column_names:
            given = [_places(refs, name) for refs in written.refs if refs is not None]
            assert [place for places in given for place in places] == _places(index, name)
        reader.close()

    def test_an_index_of_units_covers_all_rows(self, table: pa.Table) -> None:
        if self.index_has_rows:
            pytest.skip("this format's index has a row a sample")
        written = write_shard(self.fmt, table, self.options)
        assert written.refs == [None] * len(written.refs)
        index = _index_of(self.open(written))
        assert pa.compute.sum(index.column("num_rows")).as_py() == table.num_rows

    def test_a_shard_without_rows(self, mapped: bool) -> None:
        written = write_shard(self.fmt, self.small().slice(0, 0), self.options)
        assert written.facts.num_samples == 0
        reader = self.open(written, mapped=mapped)
        assert (reader.num_rows(), reader.read().num_rows, _index_of(reader).num_rows) == (0, 0, 0)
        assert sum(batch.num_rows for batch in reader.batches(Scan(max_rows=10, max_bytes=_ALL))) == 0
        reader.close()

    def test_rows_counted_by_heads_are_those_of_the_shard(self, table: pa.Table) -> None:
        if self.fmt.heads is None:
            pytest.skip("rows of this format are counted by opening its shards")
        written = write_shard(self.fmt, table, self.options, batch_rows=3)
        file = ShardFile(written.store, written.path, written.store.head(written.path))
        assert self.fmt.heads.count_rows(file, self.fmt.read_options({})) == table.num_rows

    def test_a_file_that_is_not_there(self, mapped: bool) -> None:
        store = CountingStore(MemoryStore(), mapped=mapped)
        with pytest.raises(NotFound, match="no-such-file"):
            self.fmt.open(ShardFile(store, "no-such-file"), self.fmt.read_options({})).num_rows()

    def test_a_cut_file_is_an_error_or_whole(self, mapped: bool) -> None:
        written = write_shard(self.fmt, self.small(), self.options)
        expected = read_rows(self.small(), written.store)
        for size in _places_to_cut(len(written.data)):
            rows = self.read_or_fail(written.damaged(written.data[:size]), mapped=mapped)
            if rows is not None and self.may_end_early:
                assert _is_beginning(rows, expected), f"cut at {size}"
            elif rows is not None:
                assert rows == expected, f"cut at {size}"

    def test_a_flipped_byte_is_an_error_or_data(self, mapped: bool) -> None:
        written = write_shard(self.fmt, self.small(), self.options)
        for at in _places_to_cut(len(written.data)):
            data = bytearray(written.data)
            if at < len(data):
                data[at] ^= 0xFF
            self.read_or_fail(written.damaged(bytes(data)), mapped=mapped)

    def test_garbage_is_an_error(self, mapped: bool) -> None:
        written = write_shard(self.fmt, self.small(), self.options)
        for garbage in (b"x", _noise(100), _noise(5000), written.data[:20] + _noise(3000)):
            with pytest.raises(LadingError, match="shard-000000"):
                self.read_all(written.damaged(garbage), mapped=mapped)

    def test_checks_find_nothing_in_a_written_shard(self, table: pa.Table, mapped: bool) -> None:
        written = write_shard(self.fmt, table, self.options)
        assert [self.problems(written, level, mapped=mapped) for level in Level] == [[]] * len(Level)

    def test_checks_of_a_damaged_shard_end_with_findings_or_an_error(self, mapped: bool) -> None:
        written = write_shard(self.fmt, self.small(), self.options)
        for size in _places_to_cut(len(written.data)):
            for level in Level:
                with suppress(LadingError):
                    assert all(self.problems(written.damaged(written.data[:size]), level, mapped=mapped))

    def test_reading_writes_nothing(self, mapped: bool) -> None:
        written = write_shard(self.fmt, self.small(), self.options)
        store = CountingStore(written.store, mapped=mapped)
        reader = self.fmt.open(ShardFile(store, written.path), self.fmt.read_options({}))
        reader.index()
        reader.read()
        list(reader.batches(Scan(max_rows=2, max_bytes=_ALL)))
        reader.close()
        assert set(store.requests) <= {"head", "get_ranges", "walk"}
        assert [info.path for info in written.store.walk("")] == [written.path]

    def test_equal_rows_give_equal_bytes(self, table: pa.Table) -> None:
        first, second = (write_shard(self.fmt, table, self.options, batch_rows=5) for _ in range(2))
        assert first.data == second.data

    def test_an_unknown_option_is_refused(self) -> None:
        with pytest.raises(UsageError, match="no_such_option"):
            self.fmt.read_options({"no_such_option": 1})
        with pytest.raises(UsageError, match="no_such_option"):
            self.fmt.write_options({"no_such_option": 1})

    def test_what_it_cannot_hold_is_refused_before_a_byte_is_written(self) -> None:
        for column, schema in self.cannot_hold().items():
            sink = MemoryStore().put_stream("x")
            with pytest.raises(Unrepresentable, match=column):
                self.fmt.create([sink], schema, self.fmt.write_options(self.options))
            assert sink.tell() == 0

    def test_it_recognises_its_own_files(self, table: pa.Table) -> None:
        written = write_shard(self.fmt, table, self.options)
        head = written.data[:1024]
        assert self.fmt.matches(written.path, head)
        assert self.fmt.index.shards(written.store, written.path, head) is None
        assert all(ending.startswith(".") for ending in self.fmt.endings(self.fmt.write_options(self.options)))
        assert written.path.endswith(self.fmt.info.extensions)
        names = {self.fmt.info.shard_name.format(number) for number in (0, 1, 99_999, 100_000)}
        assert len(names) == 4
        assert not any("/" in name or name.startswith(".") for name in names)
        assert not self.fmt.matches("some/file.unknown", b"\0" * 1024)
        assert not self.fmt.matches("some/file.unknown", b"plain text, and nothing else\n" * 30)
        assert not self.fmt.matches("some/file.unknown", b"")

    def test_sidecars_lie_in_their_folder(self) -> None:
        written = write_shard(self.fmt, self.small(), self.options)
        before = {written.path}
        shards = [(written.path.removeprefix("some/folder/"), written.facts)]
        names = self.fmt.index.write(written.store, "some/folder", shards, self.fmt.write_options(self.options))
        after = {info.path for info in written.store.walk("")}
        assert after - before == set(names)
        assert all(name.startswith("some/folder/") for name in names)
        assert self.read_all(written) == read_rows(self.small(), written.store)


def _table(keys: list[str], **columns: list[bytes] | list[bytes | None]) -> pa.Table:
    payload = {name: pa.array(values, pa.large_binary()) for name, values in columns.items()}
    return pa.table({"__key__": pa.array(keys, pa.string()), **payload})


def _latin(column: pa.ChunkedArray) -> pa.Array:
    """Bytes as text, a character each."""
    return pa.array([None if v is None else v.decode("latin-1") for v in column.to_pylist()], pa.large_string())


def _noise(size: int) -> bytes:
    return np.random.default_rng(size).bytes(size)


def _index_of(reader: ShardReader) -> pa.Table:
    """Return the index of a shard; readers of formats have one."""
    index = reader.index()
    assert index is not None
    return index


def _places(table: pa.Table, name: str) -> list[Any]:
    column = table.column(name)
    if not is_ref(column.type):
        return [_plain(value) for value in column.to_pylist()]
    refs = unpack(column)
    parts = zip(refs.valid, refs.offset, refs.length, refs.codec, strict=True)
    return [(int(offset), int(length), int(codec)) if valid else None for valid, offset, length, codec in parts]


def _places_to_cut(size: int) -> Iterator[int]:
    """Up to some 200 places in a file: its beginning, its end, every 512 bytes, and what lies evenly between."""
    places = {*range(min(40, size)), *range(max(size - 40, 0), size), *range(0, size, 512)}
    places |= {at + 1 for at in range(0, size, 512) if at + 1 < size}
    places |= {*range(0, size, max(size // 60, 1))}
    yield from sorted(places)


def _is_beginning(rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> bool:
    if len(rows) > len(expected):
        return False
    whole, last = rows[:-1], rows[-1:]
    return whole == expected[: len(whole)] and all(
        row.items() <= expected[len(whole)].items() and row.get("__key__") == expected[len(whole)].get("__key__")
        for row in last
    )
