"""Reading MDS beyond the golden values: stores, ranges, options, what an index and its shards must agree on."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lading
from golden_cases import Golden
from lading._core.arrow.references import is_ref
from lading._core.dataset.query import open_shards
from lading._core.features.types import Array, Bytes, Encoded, Image, Json, Text, feature_of
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import (
    BadReference,
    CorruptShard,
    DataError,
    SeveralSplits,
    SidecarMismatch,
    SourceNotFound,
    UsageError,
)
from lading.testing import CountingStore


def _in_memory(folder: Path) -> CountingStore:
    files = {f"far://d/{path.name}": path.read_bytes() for path in folder.iterdir()}
    return CountingStore(MemoryStore(files))


@pytest.fixture
def copied(golden: Golden, tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden("mds") / "comp-none", tmp_path / "set"))


def _change_index(folder: Path, **changes: Any) -> None:
    index = json.loads((folder / "index.json").read_text())
    index["shards"][0] |= changes
    (folder / "index.json").write_text(json.dumps(index))


@pytest.mark.cases(3)
@pytest.mark.parametrize("case", ["comp-none", "comp-zstd3"])
@pytest.mark.parametrize("place", ["far://", "far://bucket/odd:/"])
def test_a_dataset_at_the_root_of_a_store(golden: Golden, case: str, place: str) -> None:
    """Of one without buckets, as those of fsspec may be; and in a folder whose name ends as such a root does."""
    folder = golden("mds") / case
    stores = Stores({"far://": MemoryStore({f"{place}{path.name}": path.read_bytes() for path in folder.iterdir()})})
    with lading.open(place, stores=stores) as root, lading.open(folder) as near:
        assert len(root) == len(near)
        assert pa.Table.from_batches(root.batches()).to_pylist() == pa.Table.from_batches(near.batches()).to_pylist()


def test_columns_have_the_types_that_mds_means(golden: Golden) -> None:
    with lading.open(golden("mds") / "all-encodings") as dataset:
        schema = dataset.schema
    features = {field.name: feature_of(field) for field in schema}
    assert features["nd_f32_2x3"] == Array("float32", (2, 3))
    assert features["nd"] == Encoded("ndarray")
    assert features["pil"] == Encoded("pil")
    assert features["jpeg"] == features["png"] == Image()
    assert (features["bytes"], features["str"], features["json"]) == (Bytes(), Text(), Json())
    assert schema.field("float16").type == pa.float16()
    assert schema.field("uint64").type == pa.uint64()
    assert schema.field("str_decimal").type == pa.large_string()
    assert is_ref(schema.field("jpeg").type)


@pytest.mark.cases(3)
@pytest.mark.parametrize("case", ["all-encodings", "comp-zstd3", "text-json", "text-xsv-zstd"])
def test_a_store_that_cannot_map_gives_the_same(golden: Golden, case: str) -> None:
    folder = golden("mds") / case
    store = _in_memory(folder)
    stores = Stores({"far": store})
    with lading.open(folder) as near, lading.open("far://d/index.json", stores=stores, mmap=False) as far:
        for options in ({}, {"max_rows": 3}, {"max_bytes": 2000}):
            expected = pa.Table.from_batches(near.batches(**options))
            found = pa.Table.from_batches(far.batches(**options))
            assert repr(found.to_pylist()) == repr(expected.to_pylist())  # NaN is not NaN


def test_a_few_samples_cost_a_few_ranges(golden: Golden) -> None:
    folder = golden("mds") / "comp-none"
    store = _in_memory(folder)
    with lading.open("far://d/index.json", stores=Stores({"far": store}), mmap=False) as dataset:
        before = store.bytes_read
        dataset.take([0])
        size, first = (folder / "shard.00000.mds").stat().st_size, len(dataset.shards[0])
        assert first > 2
        assert store.bytes_read - before < size
        assert store.requests["get_ranges"] < 10


def test_a_shard_by_itself_opens_by_its_own_head(golden: Golden) -> None:
    folder = golden("mds") / "comp-zstd3"
    with lading.open(folder) as dataset, lading.open(sorted(folder.glob("*.zstd"))) as alone:
        assert alone.format == "mds"
        assert list(map(str, alone.samples())) == list(map(str, dataset.samples()))


def test_a_split_shard_by_itself_needs_its_index(golden: Golden) -> None:
    path = golden("mds") / "text-json" / "shard.00000.json"
    with pytest.raises(UsageError, match="index"):
        list(lading.open(path, format="mds").batches())


def test_a_folder_without_an_index_is_none(copied: Path) -> None:
    (copied / "index.json").unlink()
    with pytest.raises(SourceNotFound, match=r"index\.json"):
        lading.open(copied)


def test_a_folder_of_splits_names_them(golden: Golden) -> None:
    with pytest.raises(SeveralSplits, match="split='train'"):
        lading.open(golden("mds") / "splits")


def test_columns_asked_for(golden: Golden) -> None:
    with lading.open(golden("mds") / "comp-none") as dataset:
        [first, *_] = dataset.batches(columns=["n", "key"])
        assert first.schema.names == ["n", "key"]
        assert dataset.take([1], columns=["n"]).column_names == ["n"]
        with pytest.raises(UsageError, match="no column"):
            dataset.take([1], columns=[])


@pytest.mark.parametrize("changes, match", [
    ({"samples": 2}, "number of samples"),
    ({"column_encodings": ["ndarray:float16:8", "bytes", "str", "str", "int"]}, "columns"),
    ({"column_sizes": [16, None, None, None, 4]}, "size"),
])  # fmt: skip
def test_an_index_that_disagrees_with_its_shard(copied: Path, changes: dict[str, Any], match: str) -> None:
    _change_index(copied, **changes)
    with pytest.raises(DataError, match=match) as caught, lading.open(copied) as dataset:
        list(dataset.batches())
    assert "shard.00000.mds" in str(caught.value)


@pytest.mark.parametrize("depth", [300, 900, 2000])
def test_an_index_of_objects_deep_in_each_other(copied: Path, depth: int) -> None:
    index = (copied / "index.json").read_text()
    (copied / "index.json").write_text(index.replace('"samples"', f'"more": {"[" * depth}{"]" * depth}, "samples"', 1))
    with pytest.raises(DataError, match=r"index\.json"):
        lading.open(copied)


def test_hashes_are_looked_at_when_asked_for(golden: Golden, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(golden("mds") / "all-encodings", tmp_path / "set"))
    path = copied / "shard.00001.mds"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with lading.open(copied) as dataset:
        count = sum(batch.num_rows for batch in dataset.batches(lazy=True))
    assert count == len(dataset)
    with (
        pytest.raises(SidecarMismatch, match=r"shard\.00001\.mds"),
        lading.open(copied, options={"verify": True}) as dataset,
    ):
        list(dataset.batches())
    assert any("sha1" in str(finding) or "xxh64" in str(finding) for finding in lading.verify(copied).findings)


def test_reading_writes_nothing(golden: Golden, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(golden("mds") / "raw-and-zip", tmp_path / "set"))
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    with lading.open(folder) as dataset:
        list(dataset)
        dataset.take([0, 1])
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


@pytest.mark.cases(3)
@pytest.mark.parametrize("case", ["comp-none", "comp-zstd3", "text-json", "text-xsv", "fixed-only", "all-encodings"])
def test_to_parquet_nothing_is_lost(golden: Golden, case: str, tmp_path: Path) -> None:
    source, made = golden("mds") / case, tmp_path / "made"
    lading.convert(source, made, format="parquet", verify=True)
    assert lading.diff(source, made).equal
    with lading.open(source) as dataset, lading.open(made) as parquet:
        for one, other in zip(dataset, parquet, strict=True):
            assert one.keys() == other.keys()
            for name, value in one.items():
                if isinstance(value, np.ndarray):
                    assert np.array_equal(value, other[name])
                elif isinstance(value, (bytes, str, int)):
                    assert value == other[name]


def test_an_index_is_listed_without_looking_at_its_shards(copied: Path) -> None:
    for path in copied.glob("*.mds"):
        path.unlink()
    with lading.open(copied, view="samples") as dataset:
        assert len(dataset.shards) == len(json.loads((copied / "index.json").read_text())["shards"])
        with pytest.raises(lading.LadingError, match=r"shard\.00000\.mds"):
            next(iter(dataset))


@pytest.mark.parametrize("value", ["false", "no", 1, None])
def test_options_are_true_or_false(golden: Golden, value: object) -> None:
    for name in ("allow_pickle", "verify"):
        with pytest.raises(UsageError, match="true nor false"):
            list(lading.open(golden("mds") / "pickle", options={name: value}))


@pytest.mark.soak
def test_samples_of_many_columns_take_few_bytes_a_value_on_the_way(tmp_path: Path) -> None:
    rows, columns = 1000, 200
    with lading.writer(tmp_path, format="mds") as writer:
        writer.write_batch(pa.table({f"{n}": [""] * rows for n in range(columns)}))
    with lading.open(tmp_path) as dataset:
        dataset[0]
        tracemalloc.start()
        try:
            [batch] = dataset.batches()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (batch.num_rows, batch.num_columns) == (rows, columns)
    # Where a value begins, and its size; values themselves are Arrow's, which is not counted.
    assert peak < 1.5 * (8 + 4) * rows * columns


@pytest.mark.soak
def test_many_shards_from_many_threads(tmp_path: Path) -> None:
    with lading.writer(tmp_path, format="mds", options={"size_limit": "2kb"}) as writer:
        writer.write_batch(pa.table({"n": pa.array(range(12_000))}))
    with lading.open(tmp_path) as dataset, ThreadPoolExecutor(8) as pool:
        assert len(dataset.shards) > 64
        order = np.random.default_rng(1).integers(0, 12_000, 8000).tolist()
        assert list(pool.map(lambda i: dataset[i]["n"], order)) == order


def test_a_closed_shard_says_so(golden: Golden) -> None:
    dataset = open_shards(golden("mds") / "comp-none")
    reader = dataset.whole_samples(0)
    dataset.close()
    assert reader is not None
    with pytest.raises(UsageError, match="closed"):
        reader.get_sample_data(0)


_CUT = """
import os, sys, lading
ds = lading.open(sys.argv[1]); ds[0]
os.truncate(sys.argv[1] + "/shard.00000.mds", 5000)
for read in (lambda: ds[199_999], lambda: list(ds.batches()), lambda: ds.take([199_999])):
    try:
        read()
    except lading.LadingError:
        print("told")
"""


@pytest.mark.soak
def test_a_head_that_is_cut_meanwhile_kills_nobody(tmp_path: Path) -> None:
    with lading.writer(tmp_path, format="mds") as writer:
        writer.write_batch(pa.table({"n": pa.array(range(200_000)), "text": ["a"] * 200_000}))
    done = subprocess.run([sys.executable, "-c", _CUT, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["told"] * 3), done.stderr


def test_an_unpacked_copy_that_is_not_whole_is_passed_over(golden: Golden, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(golden("mds") / "comp-zstd3", tmp_path / "set"))
    (folder / "shard.00000.mds").write_bytes(b"cut")
    with lading.open(folder) as dataset, lading.open(golden("mds") / "comp-zstd3") as good:
        assert repr(list(dataset)) == repr(list(good))


@pytest.mark.parametrize("index", [
    {"shards": [], "metadata": {}},
    {"name": "shards", "version": 2},
    {"shards": {"a": 1}, "version": 2},
    ["shards"],
])  # fmt: skip
def test_an_index_of_somebody_else(index: object, tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text(json.dumps(index))
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n')
    with lading.open(tmp_path) as dataset:
        assert (dataset.format, list(dataset)) == ("jsonl", [{"n": 1}])


@pytest.mark.parametrize("name", [".", "./", "sub/", "sub/.", "x" * 256, "é" * 128, "sub/" + "x" * 256 + "/a"])
def test_an_index_that_names_what_is_no_file(copied: Path, name: str) -> None:
    [first, *_] = json.loads((copied / "index.json").read_text())["shards"]
    _change_index(copied, raw_data=first["raw_data"] | {"basename": name})
    with pytest.raises(BadReference, match="cannot be a file"):
        lading.open(copied)


def test_lines_of_columns_that_are_no_list(golden: Golden, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(golden("mds") / "text-csv", tmp_path / "set"))
    _change_index(folder, column_names=5)
    with pytest.raises(DataError, match="columns"):
        lading.open(folder)[0]


def test_samples_are_taken_by_whole_numbers(golden: Golden) -> None:
    with lading.open(golden("mds") / "comp-none") as dataset:
        with pytest.raises(UsageError, match="whole"):
            dataset.take([1.7])  # type: ignore[list-item] # what is refused
        assert dataset.take([]).num_rows == 0


def test_an_error_of_one_sample_names_its_row(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out", format="mds", shard_size="1mb") as writer:
        writer.write_batch(pa.table({"text": ["abc", "def", "ghi"]}))
    path = tmp_path / "out" / "shard.00000.mds"
    path.write_bytes(path.read_bytes().replace(b"def", b"d\xfff"))
    with lading.open(tmp_path / "out") as dataset, pytest.raises(CorruptShard, match="invalid UTF-8") as caught:
        dataset[1]
    assert (caught.value.file, caught.value.row, caught.value.column) == (str(path), 1, "text")
