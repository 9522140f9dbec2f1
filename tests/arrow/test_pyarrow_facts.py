"""What lading takes for granted of pyarrow and fsspec. A test that fails here names a decision to look at again."""

from __future__ import annotations

import base64
import io
import mmap
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lading.errors import ShortRead

_MB = 1 << 20


_POOLS: list[pa.MemoryPool] = []
"""Pools outlive what was allocated of them."""


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """The default pool for one test, with its own high-water mark."""
    before = pa.default_memory_pool()
    _POOLS.append(pa.proxy_memory_pool(pa.system_memory_pool()))
    pa.set_memory_pool(_POOLS[-1])
    yield _POOLS[-1]
    pa.set_memory_pool(before)


def _views(count: int, size: int, body: pa.Buffer) -> pa.Array:
    """`count` values of `size` bytes of one buffer, one after another."""
    view = np.zeros((count, 4), np.int32)
    view[:, 0] = size
    view[:, 1] = np.frombuffer(body, np.int32, 1)[0]
    view[:, 3] = np.arange(count) * size
    return pa.Array.from_buffers(pa.binary_view(), count, [None, pa.py_buffer(view), body])


def _parquet(table: pa.Table, **options: Any) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        writer.write_table(table, row_group_size=max(table.num_rows, 1))
    return sink.getvalue()


# Views: "made by materialise at the last step before a sink, and crosses no filter, take or process".

_VIEWS = pa.array([b"x" * 20, None, b"abc"], pa.binary_view())
_HOLDERS: dict[str, Any] = {
    "view": _VIEWS,
    "string view": _VIEWS.cast(pa.string_view()),
    "list": pa.array([[b"x" * 20], None, []], pa.list_(pa.binary_view())),
    "struct": pa.array([{"a": b"x" * 20}, None, {"a": None}], pa.struct([("a", pa.binary_view())])),
    "table": pa.table({"n": [1, 2, 3], "v": _VIEWS}),
    "batch": pa.record_batch({"n": [1, 2, 3], "v": _VIEWS}),
}


@pytest.mark.parametrize("holder", _HOLDERS)
def test_views_and_what_holds_them_have_no_take_and_no_filter(holder: str) -> None:
    column = _HOLDERS[holder]
    with pytest.raises(pa.ArrowNotImplementedError, match="no kernel"):
        column.take(pa.array([0]))
    with pytest.raises(pa.ArrowNotImplementedError, match="no kernel"):
        column.filter(pa.array([True, False, True]))


@pytest.mark.parametrize("holder", ["table", "batch"])
def test_tables_with_views_cannot_be_sorted(holder: str) -> None:
    with pytest.raises(pa.ArrowNotImplementedError, match="no kernel"):
        _HOLDERS[holder].sort_by("n")


@pytest.mark.parametrize(
    "kernel",
    [
        pc.sort_indices,
        pc.binary_length,
        pc.count_distinct,
        pc.min_max,
        pc.drop_null,
        lambda column: pc.fill_null(column, b""),
        lambda column: pc.if_else(pc.is_valid(column), column, column),
        lambda column: pc.is_in(column, value_set=column),
    ],
)
def test_kernels_that_views_lack(kernel: Callable[[pa.Array], Any]) -> None:
    with pytest.raises(pa.ArrowNotImplementedError, match="no kernel"):
        kernel(_VIEWS)


def test_views_cast_compare_and_concatenate() -> None:
    values = _VIEWS.to_pylist()
    for kind in (pa.binary(), pa.large_binary()):
        assert _VIEWS.cast(kind).to_pylist() == values
        assert pa.array(values, kind).cast(pa.binary_view()).equals(_VIEWS)
    assert pc.equal(_VIEWS, _VIEWS).to_pylist() == [True, None, True]
    assert pa.concat_arrays([_VIEWS, _VIEWS.slice(1)]).to_pylist() == values + values[1:]
    assert _VIEWS.slice(1).to_pylist() == values[1:]


def test_a_cast_to_views_shares_the_bytes_up_to_offsets_of_31_bits() -> None:
    wide = pa.array([b"x" * 100] * 10, pa.large_binary())
    assert wide.cast(pa.binary_view()).buffers()[2].address == wide.buffers()[2].address
    body = pa.py_buffer(mmap.mmap(-1, 3 << 30))
    ends = pa.py_buffer(np.array([5 << 29, (5 << 29) + 20], np.int64))
    far = pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, body])
    with pytest.raises(pa.ArrowCapacityError, match="too large"):
        far.cast(pa.binary_view())


def test_views_carry_all_of_their_buffers() -> None:
    column = _views(4, 100, pa.py_buffer(bytes(4 * _MB))).slice(0, 1)
    assert column.nbytes > 4 * _MB
    assert len(pickle.dumps(column)) > 4 * _MB
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, pa.schema([("v", pa.binary_view())])) as stream:
        stream.write_batch(pa.record_batch([column], names=["v"]))
    assert len(sink.getvalue()) > 4 * _MB


@pytest.mark.soak
def test_views_go_to_parquet_without_being_joined(pool: pa.MemoryPool, tmp_path: Path) -> None:
    body = pa.py_buffer(np.random.default_rng(1).bytes(48 * _MB))
    table = pa.table({"v": _views(480, 100_000, body)})
    with pq.ParquetWriter(
        tmp_path / "v.parquet", table.schema, store_schema=False, use_dictionary=False, compression="none",
        write_statistics=False, write_batch_size=4,
    ) as writer:  # fmt: skip
        writer.write_table(table, row_group_size=480)
    assert pool.max_memory() < 8 * _MB
    assert pq.read_schema(tmp_path / "v.parquet").field("v").type == pa.binary()
    assert pq.ParquetFile(tmp_path / "v.parquet").read().column("v")[479].as_py() == bytes(body[47_900_000:48_000_000])


# Parquet, written.


def test_a_stored_schema_makes_readers_give_views() -> None:
    table = pa.table({"v": _VIEWS})
    assert pq.read_schema(pa.BufferReader(_parquet(table))).field("v").type == pa.binary_view()


def test_a_schema_may_be_stored_that_is_not_the_writers() -> None:
    told = pa.schema([pa.field("v", pa.large_binary(), metadata={b"k": b"v"})], metadata={b"mine": b"1"})
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, pa.schema([("v", pa.binary_view())]), store_schema=False) as writer:
        writer.add_key_value_metadata({b"mine": b"1", b"ARROW:schema": base64.b64encode(told.serialize().to_pybytes())})
        writer.write_table(pa.table({"v": _VIEWS}))
    assert pq.read_schema(pa.BufferReader(sink.getvalue())).equals(told, check_metadata=True)


def test_without_a_stored_schema_no_metadata_are_written() -> None:
    table = pa.table({"n": [1]}).replace_schema_metadata({b"huggingface": b"{}"})
    assert pq.read_metadata(pa.BufferReader(_parquet(table, store_schema=False))).metadata is None


@pytest.mark.parametrize("at_once, pages", [(1, 30), (10, 3), (1024, 1)])
def test_the_size_of_a_page_is_looked_at_after_so_many_values(at_once: int, pages: int) -> None:
    table = pa.table({"b": [b"x" * 10_000] * 30})
    data = _parquet(
        table, data_page_size=10_000, write_batch_size=at_once, use_dictionary=False, compression="none",
        write_page_checksum=False, write_statistics=False, store_schema=False,
    ).to_pybytes()  # fmt: skip
    # In every header of a data page: encodings PLAIN, RLE, RLE.
    assert data.count(b"\x15\x00\x15\x06\x15\x06") == pages


@pytest.mark.parametrize(
    "kind, given",
    [
        (pa.timestamp("s"), pa.timestamp("ms")),
        (pa.time32("s"), pa.time32("ms")),
        (pa.date64(), pa.date32()),
        (pa.dictionary(pa.int32(), pa.int64()), pa.int64()),
        (pa.dictionary(pa.int32(), pa.large_string()), pa.dictionary(pa.int32(), pa.string())),
    ],
    ids=str,
)
def test_types_that_do_not_come_back(kind: pa.DataType, given: pa.DataType) -> None:
    assert pq.read_schema(pa.BufferReader(_parquet(pa.schema([("c", kind)]).empty_table()))).field("c").type == given


@pytest.mark.parametrize("kind", [pa.list_view(pa.large_string()), pa.large_list_view(pa.string())], ids=str)
def test_there_is_no_cast_to_list_views(kind: pa.DataType) -> None:
    for column in (pa.array([["a"]], pa.list_view(pa.string())), pa.array([["a"]]), pa.nulls(1)):
        with pytest.raises(pa.ArrowNotImplementedError):
            column.cast(kind)


def test_a_cast_of_list_views_to_lists_loses_values() -> None:
    views = pa.array([["a"], None, [], ["b", "c"]], pa.list_view(pa.string()))
    assert views.cast(pa.list_(pa.string())).to_pylist() == [["a"], None, [], []]


def test_a_cast_of_dictionaries_to_nulls_loses_their_values() -> None:
    assert pa.array(["x", "y"]).dictionary_encode().cast(pa.null()).to_pylist() == [None, None]


def test_dictionaries_of_halves_become_others_when_they_are_joined() -> None:
    parts = [pa.array([half], pa.float16()).dictionary_encode() for half in (-2.0, 0.5)]
    assert pa.concat_arrays(parts).to_pylist() != [-2.0, 0.5]


def test_a_cast_of_nulls_in_lists_in_structs_makes_lists_that_are_too_long() -> None:
    rows = [{"a": [None], "b": 1}, {"a": [None, None], "b": 2}]
    given = pa.array(rows, pa.struct([("a", pa.list_(pa.null())), ("b", pa.int8())]))
    with pytest.raises(pa.ArrowInvalid):
        given.cast(pa.struct([("a", pa.list_(pa.null())), ("b", pa.int16())])).validate(full=True)


@pytest.mark.parametrize("kind", [pa.list_(pa.list_(pa.null())), pa.list_(pa.list_(pa.null()), 2)], ids=str)
def test_a_cast_to_other_lists_makes_lists_of_nulls_in_them_too_long(kind: pa.DataType) -> None:
    rows = [[[None], [None, None]]] * 3
    given = pa.large_list(kind.value_type) if pa.types.is_fixed_size_list(kind) else pa.list_(kind.value_type, 2)
    with pytest.raises(pa.ArrowInvalid, match="child array invalid"):
        pa.array(rows, given)[1:].cast(kind).validate(full=True)


def test_a_cast_of_lists_forgets_where_their_run_ends_begin() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3, 4], pa.int32()), pa.array([0, 1, 2, 3]))
    ends = pa.array([0, 2, 4], pa.int32())
    pairs = [pa.FixedSizeListArray.from_arrays(runs, 2), pa.ListArray.from_arrays(ends, runs)]
    for column in pairs:
        assert column[1:].cast(pa.large_list(runs.type)).to_pylist() == [[0, 1]]
    entries = pa.struct([pa.field("key", pa.int64(), nullable=False), ("value", runs.type)])
    [found] = pa.MapArray.from_arrays(ends, pa.array(range(4)), runs)[1:].cast(pa.list_(entries)).to_pylist()
    assert found == [{"key": 2, "value": 0}, {"key": 3, "value": 1}]


@pytest.mark.parametrize("kind", [pa.list_(pa.int8()), pa.struct([("x", pa.int8())]), pa.uuid(), pa.null()], ids=str)
def test_dictionaries_of_such_values_are_not_joined(kind: pa.DataType) -> None:
    parts = [pa.DictionaryArray.from_arrays(pa.array([None], pa.int32()), pa.nulls(n, kind)) for n in (1, 2)]
    with pytest.raises(pa.ArrowNotImplementedError, match="Unification"):
        pa.concat_arrays(parts)


def test_joined_dictionaries_keep_the_type_of_their_indices() -> None:
    words = [[f"{i}-{n}" for n in range(100)] for i in range(2)]
    parts = [pa.array(part).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())) for part in words]
    with pytest.raises(pa.ArrowInvalid, match="requires a larger index type"):
        pa.concat_arrays(parts)


def test_dictionaries_with_a_null_among_their_values_are_not_joined() -> None:
    parts = [pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([None, text])) for text in "ab"]
    with pytest.raises(pa.ArrowInvalid):
        pa.concat_arrays(parts)


def test_flattened_structs_have_run_ends_that_are_none() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), pa.array(["a", "b"]))
    [flat] = pa.StructArray.from_arrays([runs], ["a"], mask=pa.array([False, True])).flatten()
    with pytest.raises(pa.ArrowInvalid):
        flat.validate()


def test_fields_of_structs_without_rows_have_run_ends_that_are_none() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array(["a"]))
    column = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1], runs)], ["a"])
    with pytest.raises(pa.ArrowInvalid):
        pc.struct_field(column[:0], [0]).validate()


def test_fields_of_structs_that_are_extensions_over_views_lose_their_bytes() -> None:
    kind = pa.opaque(pa.binary_view(), "blob", "me")
    values = pa.ExtensionArray.from_storage(kind, pa.array([b"x" * 14, b"y" * 14], pa.binary_view()))
    with pytest.raises(pa.ArrowInvalid, match="View at slot 0"):
        pc.struct_field(pa.StructArray.from_arrays([values], ["a"]), [0]).validate(full=True)


def test_a_file_does_not_go_on_with_a_dictionary_that_has_no_value() -> None:
    empty = pa.DictionaryArray.from_arrays(pa.array([None], pa.int32()), pa.array([], pa.string()))
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    writer = pa.ipc.new_file(pa.BufferOutputStream(), pa.schema([("d", empty.type)]), options=options)
    writer.write_batch(pa.record_batch([empty], names=["d"]))
    with pytest.raises(pa.ArrowInvalid, match="replacement"):
        writer.write_batch(pa.record_batch([pa.array(["a"]).dictionary_encode()], names=["d"]))


@pytest.mark.soak
def test_lists_of_nothing_end_the_process() -> None:
    made = "import pyarrow as pa; pa.FixedSizeListArray.from_arrays(pa.array([]), type=pa.list_(pa.null(), 0))"
    found = subprocess.run([sys.executable, "-c", made], capture_output=True, check=False)
    assert found.returncode == -signal.SIGFPE


def test_dictionaries_that_allow_no_nulls_lack_the_value_of_structs_that_are_all_null() -> None:
    kind = pa.struct([pa.field("d", pa.dictionary(pa.int8(), pa.string()), nullable=False)])
    column = pq.read_table(_parquet(pa.table({"s": pa.array([None], kind)})))["s"].chunk(0).field("d")
    assert (column.null_count, column.indices.to_pylist(), len(column.dictionary)) == (0, [0], 0)


@pytest.mark.soak
def test_dictionaries_made_one_look_up_what_lies_under_nulls() -> None:
    made = """
        import sys, numpy as np, pyarrow as pa
        wrong = pa.py_buffer(np.array([0, 2_000_000_000], np.int32))
        indices = pa.Array.from_buffers(pa.int32(), 2, [pa.py_buffer(b"\\1"), wrong])
        odd = pa.DictionaryArray.from_arrays(indices, pa.array(["a"]), safe=False)
        parts = [pa.array(["z"]).dictionary_encode(), odd]
        assert pa.concat_arrays(parts).to_pylist() == ["z", "a", None]
        print("joined", flush=True)
        pa.chunked_array(parts).unify_dictionaries()
    """
    found = subprocess.run([sys.executable, "-c", dedent(made)], capture_output=True, check=False, text=True)
    assert (found.stdout, found.returncode) == ("joined\n", -signal.SIGSEGV)


def test_rows_without_columns_are_lost() -> None:
    table = pa.table({"a": [1, 2]}).select([])
    assert table.num_rows == 2
    assert pq.read_metadata(pa.BufferReader(_parquet(table))).num_rows == 0


# Parquet, read.


def _reader(data: pa.Buffer, **options: Any) -> pq.ParquetReader:
    reader = pq.ParquetReader()
    reader.open(pa.BufferReader(data), pre_buffer=False, **options)
    return reader


def test_the_rows_of_a_step_may_change_while_reading() -> None:
    reader = _reader(_parquet(pa.table({"n": range(1000)})))
    batches = reader.iter_batches(10, [0], use_threads=False)
    found = [next(batches).num_rows]
    for rows in (500, 3):
        reader.set_batch_size(rows)
        found.append(next(batches).num_rows)
    assert found == [10, 500, 3]


@pytest.fixture(scope="module")
def one_row_group(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 32 MB of values in one row group."""
    body = np.random.default_rng(1).bytes(32_000_000)
    rows = pa.array([body[i : i + 100_000] for i in range(0, len(body), 100_000)], pa.large_binary())
    options = {"use_dictionary": False, "compression": "none", "write_batch_size": 8}
    path = tmp_path_factory.mktemp("facts") / "one.parquet"
    path.write_bytes(_parquet(pa.table({"b": rows}), **options))
    return path


def test_a_buffered_reader_holds_a_page_not_a_row_group(one_row_group: Path, pool: pa.MemoryPool) -> None:
    source = pa.OSFile(str(one_row_group))
    reader = pq.ParquetReader()
    reader.open(source, pre_buffer=False, buffer_size=1 << 18)
    assert sum(batch.num_rows for batch in reader.iter_batches(10, [0], use_threads=False)) == 320
    assert pool.max_memory() < 8 * _MB


def test_without_a_buffer_column_chunks_are_read_whole(one_row_group: Path, pool: pa.MemoryPool) -> None:
    source = pa.OSFile(str(one_row_group))
    reader = pq.ParquetReader()
    reader.open(source, pre_buffer=False, buffer_size=0)
    assert next(reader.iter_batches(10, [0], use_threads=False)).num_rows == 10
    assert pool.max_memory() > 30 * _MB


def test_the_type_of_byte_arrays_is_only_asked_for_where_no_schema_is_stored() -> None:
    table = pa.table({"b": [b"x"], "s": ["x"]})
    plain, told = _parquet(table, store_schema=False), _parquet(table)
    views = [pa.binary_view(), pa.string_view()]
    assert _reader(plain, binary_type=pa.binary_view()).schema_arrow.types == views
    assert _reader(told, binary_type=pa.binary_view()).schema_arrow.types == [pa.binary(), pa.string()]


def test_a_dictionary_can_be_had_whole() -> None:
    table = pa.table({"b": [b"long" * 100, *[b"short"] * 99]})
    reader = _reader(_parquet(table), read_dictionary=[0])
    column = next(reader.iter_batches(1, [0], [0], use_threads=False)).column(0)
    assert sorted(map(len, column.dictionary.to_pylist())) == [5, 400]


def test_our_errors_pass_through_pyarrow() -> None:
    class Short(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def seekable(self) -> bool:
            return True

        def seek(self, offset: int, whence: int = 0) -> int:
            return 1000 if whence == 2 else offset

        def tell(self) -> int:
            return 1000

        def read(self, size: int = -1) -> bytes:
            raise ShortRead("too few", file="far.parquet", found=size)

    with pytest.raises(ShortRead, match=r"far\.parquet: too few"):
        pq.ParquetReader().open(pa.PythonFile(Short(), mode="r"))


def test_strings_are_not_checked_when_read() -> None:
    data = _parquet(pa.table({"s": pa.array([b"\xff"]).view(pa.string())}))
    column = next(_reader(data).iter_batches(1, [0], use_threads=False)).column(0)
    with pytest.raises(pa.ArrowInvalid, match="UTF8"):
        column.validate(full=True)


@pytest.mark.mechanism("a crash of pyarrow")
def test_to_ask_for_a_damaged_column_chunk_ends_the_process(tmp_path: Path) -> None:
    """Why the footer is parsed once more. If this fails, `_parquet_thrift` may go."""
    data = bytearray(_parquet(pa.table({"a": pa.array([1, 2], pa.int64())}), store_schema=False).to_pybytes())
    # ColumnMetaData begins with its type: field 1, an integer, INT64. Make it INT32; the schema's own comes before.
    at = data.rindex(b"\x15\x04\x19", 0, len(data) - 8)
    data[at + 1] = 2
    path = tmp_path / "damaged.parquet"
    path.write_bytes(data)
    ask = "import sys, pyarrow.parquet as pq; pq.read_metadata(sys.argv[1]).row_group(0).column(0).statistics"
    done = subprocess.run([sys.executable, "-c", ask, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode < 0
    assert "terminate called" in done.stderr
    with pytest.raises(OSError, match="type"):
        list(_reader(pa.py_buffer(bytes(data))).iter_batches(1, [0], use_threads=False))


def test_pyarrow_does_not_prune_where_there_are_nulls() -> None:
    """Why row groups are pruned by ranges that we read ourselves."""
    from pyarrow import dataset, fs

    table = pa.table({"n": [None, *range(99)]})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=10)
    parquet = dataset.ParquetFileFormat()
    fragment = parquet.make_fragment(pa.BufferReader(sink.getvalue()))
    assert len(fragment.subset(filter=pc.field("n") > 95).row_groups) == 1 + 1

    n = pc.field("n")
    whole = ((n >= 0) & (n <= 9)) | n.is_null()
    each = ((n >= 0) | n.is_null()) & ((n <= 9) | n.is_null())
    found = []
    for known in (whole, each):
        one = parquet.make_fragment("x", fs.LocalFileSystem(), partition_expression=known)
        all_of_it = dataset.FileSystemDataset([one], table.schema, parquet, fs.LocalFileSystem())
        found.append(len(list(all_of_it.get_fragments(filter=n > 95))))
    assert found == [1, 0]


_THREADS = """
import os
import pyarrow as pa, pyarrow.compute as pc
from pyarrow import acero

def threads():
    return len(os.listdir("/proc/self/task"))

table = pa.table({"n": [1, 2]})
before = threads()
source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
project = acero.Declaration("project", acero.ProjectNodeOptions([pc.field("n") > 1], ["keep"]), [source])
project.to_table(use_threads=False)
alone = threads() - before
table.filter(pc.field("n") > 1)
print(alone, threads() - before > alone)
"""


@pytest.mark.soak
def test_a_filter_by_expression_starts_threads() -> None:
    done = subprocess.run([sys.executable, "-c", _THREADS], capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["0", "True"], "")


# Stores.


def test_fsspec_gives_short_data_past_the_end() -> None:
    files = fsspec.filesystem("memory")
    files.pipe("/facts/five", b"12345")
    assert files.cat_file("/facts/five", start=3, end=50) == b"45"
    assert files.cat_ranges(["/facts/five"], [2], [100]) == [b"345"]
    files.rm("/facts", recursive=True)


# Codecs.


@pytest.mark.soak
@pytest.mark.parametrize("method, lost", [("read", 1000), ("read_buffer", 0)])
def test_streams_that_raise_lose_the_bytes_they_made_room_for(method: str, lost: int) -> None:
    """Of 1,000 reads of 1 MiB. Why nothing here is unpacked by `read`."""
    made = """
        import sys, pyarrow as pa

        def address_space():
            return int(open("/proc/self/statm").read().split()[0]) * 4096 >> 20

        def once():
            with pa.CompressedInputStream(pa.BufferReader(b"no brotli"), "brotli") as stream:
                try:
                    getattr(stream, sys.argv[1])(1 << 20)
                except OSError:
                    return
            sys.exit("read")

        once()
        before = address_space()
        for _ in range(1000):
            once()
        print(address_space() - before)
    """
    found = subprocess.run([sys.executable, "-c", dedent(made), method], capture_output=True, check=True, text=True)
    assert int(found.stdout) == pytest.approx(lost, abs=100)
