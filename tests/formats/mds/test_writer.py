"""Writing MDS: what is refused, where shards end, what is taken from files. The peer's bytes: `tests/interop`."""

from __future__ import annotations

import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lading
from golden_cases import Golden
from lading._core.features.types import Array, Text, with_feature
from lading._core.formats.mds import writer
from lading._core.formats.mds.format import FORMAT
from lading._core.storage.memory import MemoryStore
from lading.errors import LimitExceeded, MissingExtra, Unrepresentable, UsageError
from lading.testing import CountingStore

_SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def _table(count: int, size: int = 10) -> pa.Table:
    return pa.table([pa.array(range(count)), pa.array(["x" * size] * count)], schema=_SCHEMA)


def _write(out: Path, table: pa.Table, **options: Any) -> list[dict[str, Any]]:
    with lading.writer(out, format="mds", options=options) as writer:
        writer.write_batch(table)
    index = json.loads((out / "index.json").read_text())
    return list(index["shards"])


def test_shards_end_where_the_limit_says(tmp_path: Path) -> None:
    shards = _write(tmp_path / "new", _table(1000), size_limit="2kb")
    assert sum(shard["samples"] for shard in shards) == 1000
    for shard in shards:
        assert shard["raw_data"]["bytes"] <= 2048
        assert (tmp_path / "new" / shard["raw_data"]["basename"]).stat().st_size == shard["raw_data"]["bytes"]
    # One sample more is 8 + 10 bytes of values, 4 of a size and 4 of a place.
    assert all(shard["raw_data"]["bytes"] > 2048 - 26 for shard in shards[:-1])


def test_a_sample_above_the_limit_has_a_shard_of_its_own_and_none_is_empty(tmp_path: Path) -> None:
    shards = _write(tmp_path / "new", _table(3, size=5000), size_limit=1000)
    assert [shard["samples"] for shard in shards] == [1, 1, 1]


def test_a_dataset_without_samples_has_a_schema(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "new", format="mds", schema=_SCHEMA):
        pass
    with lading.open(tmp_path / "new") as dataset:
        assert len(dataset) == 0
        assert dataset.schema.names == ["n", "text"]


def test_a_body_that_fails_publishes_nothing(tmp_path: Path) -> None:
    def fails() -> None:
        with lading.writer(tmp_path / "new", format="mds") as writer:
            writer.write_batch(_table(10))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name, numbers, texts", [
    ("text", [1, 2, 3], ["a", None, "c"]),
    ("n", [1, None, 3], ["a", "b", "c"]),
])  # fmt: skip
def test_nulls_name_column_and_row(name: str, numbers: list[Any], texts: list[Any], tmp_path: Path) -> None:
    table = pa.table([pa.array(numbers), pa.array(texts)], schema=_SCHEMA)
    with pytest.raises(Unrepresentable, match="null") as caught:
        _write(tmp_path / "new", table)
    assert (caught.value.column, caught.value.row) == (name, 1)
    assert list(tmp_path.iterdir()) == []


def test_more_than_a_shard_holds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_BYTES", 3000)
    with pytest.raises(LimitExceeded, match="4 GiB"):
        _write(tmp_path / "new", _table(1, size=4000), size_limit=None)
    assert len(_write(tmp_path / "other", _table(200, size=40), size_limit=None)) > 1


@pytest.mark.parametrize("options, error", [
    ({"compression": "lz4"}, UsageError),
    ({"compression": "zstd:23"}, UsageError),
    ({"compression": "br:x"}, UsageError),
    ({"compression": "zstd:"}, UsageError),
    ({"compression": "zstd:07"}, UsageError),
    ({"compression": "snappy:0"}, UsageError),
    ({"compression": ["gz"]}, UsageError),
    ({"hashes": "sha1"}, UsageError),
    ({"hashes": 1}, UsageError),
    ({"columns": "str"}, UsageError),
    ({"kind": "parquet"}, UsageError),
    ({"newline": "\n"}, UsageError),
    ({"hashes": ["crc32"]}, UsageError),
    ({"hashes": [["sha1"]]}, UsageError),
    ({"hashes": [1]}, UsageError),
    ({"hashes": ["shake_128"]}, UsageError),
    ({"size_limit": "5gb"}, UsageError),
    ({"size_limit": 0}, UsageError),
    ({"columns": {"other": "str"}}, UsageError),
    ({"columns": {"text": "quux"}}, UsageError),
    ({"columns": {"n": "str"}}, Unrepresentable),
    ({"columns": {"n": "float32"}}, Unrepresentable),
    ({"columns": {"text": "float64"}}, Unrepresentable),
])  # fmt: skip
def test_options_that_cannot_be(options: dict[str, Any], error: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(error):
        _write(tmp_path / "new", _table(1), **options)


def test_snappy_without_its_library_is_an_error_before_a_byte_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    sink = MemoryStore().put_stream("a")
    with pytest.raises(MissingExtra, match="cramjam"):
        FORMAT.create([sink], _SCHEMA, FORMAT.write_options({"compression": "snappy"}))
    assert sink.tell() == 0


def test_an_array_of_another_size_than_its_shape(tmp_path: Path) -> None:
    field = with_feature(pa.field("a", pa.binary()), Array("int16", (2,)))
    table = pa.table([pa.array([b"1234", b"123"])], schema=pa.schema([field]))
    with pytest.raises(Unrepresentable, match="size") as caught:
        _write(tmp_path / "new", table)
    assert (caught.value.column, caught.value.row) == ("a", 1)


@pytest.mark.parametrize("options", [{}, {"nulls": "mask"}])
@pytest.mark.parametrize("dtype", [pa.int32(), pa.float32()])
def test_tensors_with_a_null_among_their_values(dtype: pa.DataType, options: dict[str, Any], tmp_path: Path) -> None:
    storage = pa.array([[1, 2], [3, 4], [5, None]], pa.list_(dtype, 2))[1:]
    tensors = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(dtype, [2]), storage)
    with (
        pytest.raises(Unrepresentable, match="an array with nulls") as caught,
        lading.writer(tmp_path / "out", format="mds", options=options) as writer,
    ):
        writer.write_batch(pa.table({"x": tensors}))
    assert (caught.value.column, caught.value.row) == ("x", 1)
    assert not (tmp_path / "out").exists()


def test_tensors_are_arrays_of_one_shape(tmp_path: Path) -> None:
    values = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    column = pa.FixedShapeTensorArray.from_numpy_ndarray(values)
    shards = _write(tmp_path / "new", pa.table({"t": column}))
    assert shards[0]["column_encodings"] == ["ndarray:float32:2,3"]
    with lading.open(tmp_path / "new") as dataset:
        assert np.array_equal(np.stack([sample["t"] for sample in dataset]), values)


@pytest.mark.soak
def test_payload_goes_from_file_to_file(golden: Golden, tmp_path: Path) -> None:
    source = golden("mds") / "all-encodings"
    lading.convert(source, tmp_path / "new", format="mds", verify=True)
    assert lading.diff(source, tmp_path / "new").equal


@pytest.mark.soak
def test_workers_write_the_same_files(golden: Golden, tmp_path: Path) -> None:
    source = golden("mds") / "comp-none"
    for workers in (1, 2):
        lading.convert(source, tmp_path / str(workers), format="mds", shard_size=8000, workers=workers)
    names = sorted(path.name for path in (tmp_path / "1").iterdir() if path.is_file())
    assert len(names) > 2
    for name in names:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_a_store_that_is_no_disk() -> None:
    store = CountingStore(MemoryStore())
    sink = store.put_stream("far://d/shard.00000.mds")
    writer = FORMAT.create([sink], _SCHEMA, FORMAT.write_options({}))
    writer.write(_table(3).to_batches()[0])
    assert writer.held_bytes() > 0
    facts = writer.close()
    assert sink.close().size_bytes == facts.size_bytes


@pytest.mark.soak
@pytest.mark.parametrize("columns, rows", [(200, 1000), (5000, 100)])
def test_what_is_held_of_narrow_columns_is_their_bytes(columns: int, rows: int) -> None:
    numbers = pa.array(np.zeros(rows, np.uint8))
    batch = pa.record_batch({f"{n}": numbers for n in range(columns)})
    writer = FORMAT.create(
        [MemoryStore().put_stream("far://d/shard.00000.mds")], batch.schema, FORMAT.write_options({})
    )
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        writer.write(batch)
        held = tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes() - before
    finally:
        tracemalloc.stop()
    assert writer.held_bytes() == columns * rows  # a byte each
    assert held < 1.25 * columns * rows  # where the samples lie, too


def test_axes_in_another_order_are_refused(tmp_path: Path) -> None:
    kind = pa.fixed_shape_tensor(pa.float32(), [2, 3], permutation=[1, 0])
    column = pa.ExtensionArray.from_storage(kind, pa.array([[0.0] * 6], pa.list_(pa.float32(), 6)))
    with pytest.raises(Unrepresentable, match="axes"):
        _write(tmp_path / "new", pa.table({"t": column}))


@pytest.mark.parametrize("encoding, axes", [
    ("int", [0]),  # as many bytes
    ("ndarray:int32:2", [0]),
    ("ndarray:float32:1,2", [0]),
    ("ndarray:float32:2,2", [1, 0]),
])  # fmt: skip
def test_an_encoding_that_an_array_is_not_of_is_refused(encoding: str, axes: list[int], tmp_path: Path) -> None:
    size = 2 ** len(axes)
    kind = pa.fixed_shape_tensor(pa.float32(), [2] * len(axes), permutation=axes)
    column = pa.ExtensionArray.from_storage(kind, pa.array([[*range(size)]], pa.list_(pa.float32(), size)))
    with pytest.raises(Unrepresentable, match="requested encoding") as caught:
        _write(tmp_path / "new", pa.table({"t": column}), columns={"t": encoding})
    assert caught.value.column == "t"


def test_no_encoding_of_numbers_is_that_of_an_array_of_times(tmp_path: Path) -> None:
    kind = pa.fixed_shape_tensor(pa.time32("s"), [2])
    column = pa.ExtensionArray.from_storage(kind, pa.array([[1, 2]], kind.storage_type))
    with pytest.raises(Unrepresentable, match="requested encoding"):
        _write(tmp_path / "new", pa.table({"t": column}), columns={"t": "ndarray:int32:2"})


def test_bytes_that_are_to_be_text_are_checked(tmp_path: Path) -> None:
    text = with_feature(pa.field("t", pa.binary()), Text())
    good = pa.table([pa.array(["é".encode(), b""])], schema=pa.schema([text]))
    assert _write(tmp_path / "good", good)[0]["column_encodings"] == ["str"]
    with lading.open(tmp_path / "good") as dataset:
        assert [sample["t"] for sample in dataset] == ["é", ""]
    with pytest.raises(Unrepresentable, match="UTF-8"):
        _write(tmp_path / "bad", pa.table([pa.array([b"\xff"])], schema=pa.schema([text])))


@pytest.mark.parametrize("good", [True, False])
def test_text_of_tars_is_checked_where_it_is_large(good: bool, tmp_path: Path) -> None:
    body = b"x" * 20_000 + (b"" if good else b"\xff")
    with lading.writer(tmp_path / "tar", format="webdataset") as writer:
        writer.write_batch(pa.table({"__key__": ["a", "b"], "txt": [body, body[:-1]]}))
    if not good:
        with pytest.raises(Unrepresentable, match="UTF-8"):
            lading.convert(tmp_path / "tar", tmp_path / "new", format="mds")
        return
    lading.convert(tmp_path / "tar", tmp_path / "new", format="mds", verify=True)
    with lading.open(tmp_path / "new") as dataset:
        assert [sample["txt"] for sample in dataset] == [body.decode(), body[:-1].decode()]


def test_values_however_they_are_stored(tmp_path: Path) -> None:
    table = pa.table({
        "words": pa.array(["a", "b", "a"]).dictionary_encode(),
        "numbers": pa.array([5, 6, 5]).dictionary_encode(),
        "fixed": pa.array([b"123", b"456", b"789"], pa.binary(3)),
        "json": pa.array(['{"a": 1}', "[]", "null"], pa.json_()),
    })  # fmt: skip
    shards = _write(tmp_path / "new", table)
    told = dict(zip(shards[0]["column_names"], shards[0]["column_encodings"], strict=True))
    assert told == {"words": "str", "numbers": "int", "fixed": "bytes", "json": "json"}
    with lading.open(tmp_path / "new") as dataset:
        assert dataset[0] == {"fixed": b"123", "json": {"a": 1}, "numbers": 5, "words": "a"}


@pytest.mark.parametrize("feature", [Array("uint8", (None, None)), Array("float32", ()), Array("bool", (2,))])
def test_arrays_that_mds_has_not(feature: Array, tmp_path: Path) -> None:
    table = pa.table([pa.array([b"1234"])], schema=pa.schema([with_feature(pa.field("a", pa.binary()), feature)]))
    with pytest.raises(Unrepresentable, match="column 'a'"):
        _write(tmp_path / "new", table)
