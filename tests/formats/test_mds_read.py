"""Reading MDS beyond the golden values: stores, ranges, options, what an index and its shards must agree on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lading
from golden_cases import Golden
from lading.errors import DataError, SidecarMismatch, SourceNotFound, UsageError
from lading.features import Array, Bytes, Encoded, Image, Json, Text, feature_of
from lading.ref import is_ref
from lading.store.memory import MemoryStore
from lading.store.open import Stores
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
    with pytest.raises(SourceNotFound, match="train"):
        lading.open(golden("mds") / "splits")


def test_columns_asked_for(golden: Golden) -> None:
    with lading.open(golden("mds") / "comp-none") as dataset:
        [first, *_] = dataset.batches(columns=["n", "key"])
        assert first.schema.names == ["key", "n"]
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
        assert len(dataset.listing) == len(json.loads((copied / "index.json").read_text())["shards"])
        with pytest.raises(lading.LadingError, match=r"shard\.00000\.mds"):
            next(iter(dataset))
