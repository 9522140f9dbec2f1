"""Splits in the names of files and folders, and the format that is named in a folder of several."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import lading
from lading._core.cli.main import app
from lading._core.dataset.source.split_names import splits_of_names
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import SeveralSplits, SourceNotFound, UnknownFormat, UsageError
from numbered import read_numbers as read
from tars import tar_of


def put(root: Path, *names: str) -> Path:
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"n": [number]}), root / name)
    return root


# What datasets 5.2.0 gives: data_files.py, `get_data_patterns`.
@pytest.mark.parametrize(
    "names, splits",
    [
        (["data/train-00000-of-00002.csv", "data/train-00001-of-00002.csv", "data/test-00000-of-00001.csv"],
         {"train": [0, 1], "test": [2]}),
        (["data/random-00000-of-00001.csv", "data/train-00000-of-00001.csv", "data/a.b-00000-of-00001.csv"],
         {"train": [1], "a.b": [2], "random": [0]}),
        (["train/a.tar", "training-2/b.tar", "dev-clean/c.tar", "x/val2017/d.tar", "my_test/e.tar", "r/f.tar"],
         {"train": [0, 1], "validation": [2, 3], "test": [4]}),
        (["train_0.csv", "imdb-test.csv", "c4 eval.1.csv", "latest.csv", "tests.csv"], {"train": [0], "test": [1, 2]}),
        (["train/test.csv", "train/b.csv"], {"train": [0, 1]}),
        (["Train.csv", "shard-000000.tar"], {}),
        (["split=train/a.csv"], {}),
    ],
)  # fmt: skip
def test_names_mean_what_datasets_takes_them_for(names: list[str], splits: dict[str, list[int]]) -> None:
    assert splits_of_names(names) == splits
    assert list(splits_of_names(names)) == list(splits)


@pytest.mark.interop
def test_datasets_itself_finds_these_splits(tmp_path: Path) -> None:
    from datasets.data_files import DataFilesDict, get_data_patterns

    folders = (
        ["data/train-00000-of-00001.parquet", "data/extra-00000-of-00001.parquet"],
        ["train/a.parquet", "training-2/b.parquet", "dev-clean/c.parquet", "x/val2017/d.parquet", "my_test/e.parquet"],
        ["train_0.parquet", "imdb-test.parquet", "c4 eval.1.parquet", "latest.parquet", "trainer.parquet"],
    )
    for number, names in enumerate(folders):
        root = put(tmp_path / str(number), *names)
        found = DataFilesDict.from_patterns(get_data_patterns(str(root)), str(root))
        expected = {
            split: sorted(Path(file).relative_to(root).as_posix() for file in files) for split, files in found.items()
        }
        mine = splits_of_names(names)
        assert {split: sorted(names[n] for n in numbers) for split, numbers in mine.items()} == expected


def test_a_folder_of_several_splits_says_what_to_type(tmp_path: Path) -> None:
    root = put(
        tmp_path / "set", "data/train-0.parquet", "data/train-1.parquet", "data/test-0.parquet", "data/more.parquet"
    )
    with pytest.raises(SeveralSplits, match=r"train, test.*split='train'") as told:
        lading.open(root)
    assert told.value.splits == ["train", "test"]
    assert (read(root, split="train"), read(root, split="test")) == ([0, 1], [2])
    assert read(f"{root}/data/*.parquet") == [3, 2, 0, 1]
    assert lading.info(root, split="train").counts == {"files of no split, left out": 1}
    for wrong in ("validation", "more"):
        with pytest.raises(SourceNotFound, match="no such split; expected train, test"):
            lading.open(root, split=wrong)
    with pytest.raises(UsageError, match="part of a folder"):
        lading.open(f"{root}/data/*.parquet", split="train")
    with pytest.raises(SourceNotFound, match=r"no such split.*read all of them"):
        lading.open(put(tmp_path / "plain", "part-0.parquet", "part-1.parquet"), split="train")


@pytest.mark.soak
def test_every_verb_takes_the_split(tmp_path: Path) -> None:
    root = put(tmp_path / "set", "train-0.parquet", "test-0.parquet")
    assert lading.verify(root, split="test", deep=True).samples == 1
    assert lading.digest(root, split="test") == lading.digest(root / "test-0.parquet")
    assert lading.salvage(root, tmp_path / "saved", split="test").samples == 1
    assert lading.diff(root, root, options=({"split": "test"}, {"split": "test"})).equal
    lading.convert(root, tmp_path / "one", format="jsonl", split="test", verify=True)
    assert read(tmp_path / "one") == [1]
    done = lading.convert(root, tmp_path / "all", format="mds", verify=True)
    assert {name: one.samples for name, one in done.splits.items()} == {"train": 1, "test": 1}
    assert (read(tmp_path / "all", split="train"), read(tmp_path / "all" / "test")) == ([0], [1])
    shown = CliRunner().invoke(app, ["info", str(root), "--split", "train", "--json"])
    assert json.loads(shown.stdout)["samples"] == 1


def test_splits_in_another_store(tmp_path: Path) -> None:
    root = put(tmp_path / "set", "train/a.parquet", "val/b.parquet")
    files = {f"memory://far/{path.relative_to(root)}": path.read_bytes() for path in root.rglob("*.parquet")}
    stores = Stores({"memory://far": MemoryStore(files)})
    with pytest.raises(SeveralSplits):
        lading.open("memory://far", stores=stores)
    assert read("memory://far", stores=stores, split="validation") == [1]
    assert read("memory://far", stores=stores, split="val") == [1]


def test_caches_of_map_are_left_aside(tmp_path: Path) -> None:
    """A builder cache of datasets, after `.map()` with one process and with two."""
    root = tmp_path / "csv" / "default-67ea6e9b5f89d2ff" / "0.0.0" / "7067e4b2"
    root.mkdir(parents=True)
    names = ["csv-train", "csv-unsup-00000-of-00002", "csv-unsup-00001-of-00002", "cache-c8a16fe0c330a8fd",
             "cache-ddf524f64c42fa61_00000_of_00002"]  # fmt: skip
    for number, name in enumerate(names):
        table = pa.table({"n": [number]})
        with pa.ipc.new_stream(root / f"{name}.arrow", table.schema) as file:
            file.write_table(table)
    told = {"builder_name": "csv", "features": {"n": {"dtype": "int64", "_type": "Value"}},
            "splits": {name: {"name": name} for name in ("train", "unsup")}}  # fmt: skip
    (root / "dataset_info.json").write_text(json.dumps(told))
    for folder in (root, tmp_path):
        with pytest.raises(SeveralSplits, match="train, unsup"):
            lading.open(folder)
        assert (read(folder, split="train"), read(folder, split="unsup")) == ([0], [1, 2])
        assert lading.info(folder, split="train").counts == {"caches of other programs, left out": 2}
    assert read(f"{root}/cache-*.arrow") == [3, 4]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A folder as img2dataset leaves it."""
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(2):
        tar = tar_of((f"{number}a.jpg", b"\xff\xd8"), (f"{number}a.txt", b"one"))
        (folder / f"0000{number}.tar").write_bytes(tar)
        (folder / f"0000{number}_stats.json").write_text('{"count": 1}')
        put(folder, f"0000{number}.parquet")
    return folder


@pytest.mark.parametrize("pattern", ["", "/*", "/0*"])
def test_the_named_format_chooses_its_files(mixed: Path, pattern: str, tmp_path: Path) -> None:
    source = f"{mixed}{pattern}"
    with lading.open(source, format="webdataset").with_decode(False) as dataset:
        assert [row["__key__"] for row in dataset] == ["0a", "1a"]
    assert lading.info(source, format="wds").counts == {"files about shards next to them (img2dataset), left out": 4}
    assert read(source, format="parquet") == [0, 0]
    assert lading.verify(source, format="webdataset", deep=True).ok
    assert lading.convert(source, tmp_path / "out" / "x", format="jsonl", source_format="parquet").samples == 2
    assert lading.open(source).format == "webdataset"  # the others are about the tars
    put(mixed, "00002.parquet")
    with pytest.raises(UnknownFormat, match=r"1 parquet, 2 webdataset\. .*format='(parquet|webdataset)'"):
        lading.open(source).with_decode(False)


def test_a_named_format_that_is_not_there(mixed: Path) -> None:
    with pytest.raises(SourceNotFound, match=r"no shard of the format csv.*2 webdataset"):
        lading.open(mixed, format="csv")
