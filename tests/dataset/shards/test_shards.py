"""The shard object: what users of MosaicML's readers know, by the same names."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

import lading
from golden_cases import Golden
from lading.errors import DataError, DatasetReplaced, UsageError


@pytest.mark.parametrize("case", ["comp-none", "comp-zstd3", "text-json", "text-xsv-zstd"])
def test_samples_one_by_one(golden: Golden, case: str) -> None:
    with lading.open(golden("mds") / case) as dataset:
        every = [shard.get_item(i) for shard in dataset.shards for i in range(shard.size)]
        assert repr(every) == repr(list(dataset))
        shard = dataset.shards[0]
        assert repr(shard.decode_sample(shard.get_sample_data(1))) == repr(shard[1])
        assert len(list(shard)) == shard.size == len(shard)
        for wrong in (-1, shard.size):
            with pytest.raises(IndexError):
                shard.get_sample_data(wrong)


def test_bytes_of_a_sample_are_those_of_the_file(golden: Golden) -> None:
    folder = golden("mds") / "fixed-only"
    data = (folder / "shard.00000.mds").read_bytes()
    with lading.open(folder) as dataset:
        shard = dataset.shards[0]
        whole = b"".join(shard.get_sample_data(i) for i in range(len(shard)))
    assert data.endswith(whole)
    assert len(whole) == len(shard) * (2 + 8 + 4 + 8)


def test_other_bytes_are_no_sample(golden: Golden) -> None:
    with lading.open(golden("mds") / "comp-none") as dataset:
        shard = dataset.shards[1]
        data = shard.get_sample_data(0)
        for wrong in (b"", data[:5], data[:-1], data + b"x"):
            with pytest.raises(DataError, match=r"shard\.00001\.mds"):
                shard.decode_sample(wrong)


def test_sizes(golden: Golden) -> None:
    folder = golden("mds") / "comp-zstd3"
    with lading.open(folder) as dataset:
        shard = dataset.shards[0]
        packed = (folder / "shard.00000.mds.zstd").stat().st_size
        assert (shard.get_raw_size(), shard.get_zip_size()) == (3314, packed)
        assert shard.get_max_size() == shard.get_persistent_size(keep_zip=True) == 3314 + packed
        assert shard.get_persistent_size(keep_zip=False) == 3314
    with lading.open(sorted(folder.glob("*.zstd"))) as alone:
        assert (alone.shards[0].get_raw_size(), alone.shards[0].get_zip_size()) == (3314, packed)
    with lading.open(golden("mds") / "text-json") as plain:
        assert (plain.shards[0].get_raw_size(), plain.shards[0].get_zip_size()) == (400 + 190, None)


def test_shards_of_other_formats(golden: Golden) -> None:
    path = golden("arrow") / "plain-ipc" / "t.parquet"
    with lading.open(path) as dataset:
        shard = dataset.shards[0]
        assert shard.get_item(0) == dataset[0]
        assert shard.get_raw_size() == shard.get_max_size() == path.stat().st_size
        assert shard.get_zip_size() is None
        shard.validate(allow_unsafe_types=False)
        with pytest.raises(UsageError, match="one piece"):
            shard.get_sample_data(0)
        with pytest.raises(UsageError, match="one piece"):
            shard.decode_sample(b"")


def test_pickles_are_unsafe(golden: Golden) -> None:
    with lading.open(golden("mds") / "pickle") as dataset:
        with pytest.raises(UsageError, match="code") as caught:
            dataset.shards[0].validate(allow_unsafe_types=False)
        assert caught.value.column == "obj"
        dataset.shards[0].validate(allow_unsafe_types=True)
        assert all(isinstance(sample["obj"], bytes) for sample in dataset)


def test_nothing_of_the_owners_is_removed(golden: Golden) -> None:
    folder = golden("mds") / "comp-none"
    before = sorted(folder.iterdir())
    with lading.open(folder) as dataset:
        for refused in (dataset.shards[0].evict, lambda: dataset.shards[0].set_up_local(set(), safe_keep_zip=False)):
            with pytest.raises(UsageError, match="in place"):
                refused()
    assert sorted(folder.iterdir()) == before


def test_a_shard_that_was_streamed_is_opened_again(golden: Golden) -> None:
    with lading.open(golden("mds") / "comp-none") as dataset:
        first = dataset[0]
        assert sum(batch.num_rows for batch in dataset.batches()) == len(dataset)
        assert repr(dataset[0]) == repr(first)
        assert repr(dataset[-len(dataset)]) == repr(first)
        for wrong in (len(dataset), -len(dataset) - 1):
            with pytest.raises(IndexError):
                dataset[wrong]


def test_a_file_that_is_cut_meanwhile_is_an_error(golden: Golden, tmp_path: Path) -> None:
    source = golden("mds") / "fixed-only"
    for path in source.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with lading.open(tmp_path) as dataset:
        assert dataset[0]
        with (tmp_path / "shard.00000.mds").open("r+b") as file:
            file.truncate(200)
        with pytest.raises(DataError, match="changed while it was open"):
            dataset[9]


@pytest.mark.soak
@pytest.mark.parametrize("name, most", [("webdataset", 80), ("mds", 80), ("arrow", 80), ("parquet", 64)])
def test_shards_stay_open_where_they_take_little_memory(tmp_path: Path, name: str, most: int) -> None:
    rows = pa.table({"txt": [str(i) for i in range(160)]})
    with lading.writer(tmp_path / "out", format=name, rows_per_shard=2) as writer:
        for batch in rows.to_batches():
            writer.write_batch(batch)
    with lading.open(tmp_path / "out") as ds:
        for _ in range(2):
            assert [ds[i]["txt"] for i in range(0, 160, 2)] == [str(i) for i in range(0, 160, 2)]
        assert ds._rows.shards.num_open == most
        assert ds.take([*range(159, -1, -1)])["txt"].cast(pa.string()).to_pylist() == rows["txt"].to_pylist()[::-1]


@pytest.mark.soak
def test_shards_that_take_much_memory_do_not_all_stay_open(tmp_path: Path) -> None:
    """Unpacked shards of 2.2 MB each, of which those stay open that 128 MB hold."""
    batch = pa.record_batch({"data": [bytes(2_200_000)]})
    with lading.writer(tmp_path / "out", format="mds", rows_per_shard=1, options={"compression": "zstd"}) as writer:
        for _ in range(70):
            writer.write_batch(batch)
    with lading.open(tmp_path / "out") as ds:
        assert {len(ds[i]["data"]) for i in range(70)} == {2_200_000}
        assert ds._rows.shards.num_open == 60


def test_a_shard_that_is_replaced_between_two_readings_is_an_error(tmp_path: Path) -> None:
    for folder, values in (("in", "ab"), ("other", "cd")):
        with lading.writer(tmp_path / folder, format="mds", rows_per_shard=1) as writer:
            for value in values:
                writer.write({"txt": value})
    dataset = lading.open(tmp_path / "in")
    assert [dataset[0], dataset[1]] == [{"txt": "a"}, {"txt": "b"}]
    dataset._rows.shards.drop_oldest()
    first = tmp_path / "in" / "shard.00000.mds"
    other = (tmp_path / "other" / first.name).rename(first)
    os.utime(other, ns=(0, 1))
    with pytest.raises(DatasetReplaced, match=r"shard\.00000\.mds: the file was replaced or changed"):
        dataset[0]
    assert lading.open(tmp_path / "in")[0] == {"txt": "c"}
