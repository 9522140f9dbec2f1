"""Folders that other programs lay out: tables with a log, and several datasets in one cache."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from lading._core.storage.base import Store, write_file
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import DataError, UnknownFormat, UsageError
from lading.testing import CountingStore
from numbered import read_numbers as read
from tars import tar_of


def put(root: Path, *names: str, **columns: list[int]) -> Path:
    """Write files of these names: Parquet files count up in a column n, others are empty JSON."""
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".parquet"):
            pq.write_table(pa.table(columns or {"n": [number]}), root / name)
        else:
            (root / name).write_text("{}")
    return root


# Names as these programs write them; see the sources in foreign.py.
@pytest.mark.parametrize(
    "names, kind, library, plain",
    [
        (["data/0.parquet", "metadata/00000-9d3b2d4e-4b4c-4b6e-8a54-4e0f9a1f1c5c.metadata.json"],
         "Iceberg", "pyiceberg", "data"),
        (["data/0.parquet", "metadata/v3.gz.metadata.json"], "Iceberg", "pyiceberg", "data"),
        (["a.parquet", ".hoodie/hoodie.properties", ".hoodie/timeline/2.commit"], "Hudi", "hudi", "**/*.parquet"),
        (["bucket-0/data-0.parquet", "snapshot/snapshot-1", "schema/schema-0"], "Paimon", "pypaimon", "**/*.parquet"),
        (["data/0.lance", "_versions/1.manifest", "_deletions/0-1-2.arrow"], "Lance", "pylance", ""),
        (["data/0.lance", "_transactions/0-ab.txn"], "Lance", "pylance", ""),
    ],
)  # fmt: skip
def test_a_table_with_a_log_is_named(tmp_path: Path, names: list[str], kind: str, library: str, plain: str) -> None:
    table = put(tmp_path / "warehouse" / "table", *names)
    for source in (table, tmp_path / "warehouse"):
        for opening in ({}, {"format": "parquet"}):
            with pytest.raises(UsageError, match=kind) as told:
                lading.open(source, **opening)  # type: ignore[arg-type]
            assert told.value.file == str(table)
            assert library in str(told.value.advice)
    with pytest.raises(UsageError, match=kind):
        lading.salvage(table, tmp_path / "saved", progress=False)
    if plain:  # the advice works
        assert f"'{table}/{plain}'" in str(told.value.advice)
        assert len(read(table / plain)) == sum(n.endswith(".parquet") and not n.startswith(("_", ".")) for n in names)


def test_a_delta_table_is_opened_by_its_own_folder(tmp_path: Path) -> None:
    table = put(tmp_path / "warehouse" / "table", "part-0.parquet", "_delta_log/00000000000000000000.json")
    for opening in ({}, {"format": "parquet"}):
        with pytest.raises(UsageError, match=f"Delta Lake.*Open it by its own folder: '{table}'"):
            lading.open(tmp_path / "warehouse", **opening)  # type: ignore[arg-type]
        with pytest.raises(DataError, match="no protocol"):
            lading.open(table, **opening)  # type: ignore[arg-type]
    assert read(table / "**/*.parquet") == [0]


def test_lerobot_is_known_by_its_facts(tmp_path: Path) -> None:
    root = put(tmp_path / "lr", "data/chunk-000/file-000.parquet", "meta/tasks.parquet", "meta/info.json")
    assert len(read(root)) == 2  # info.json says nothing of LeRobot
    (root / "meta/info.json").write_text('{"codebase_version": "v3.0", "fps": 30}')
    with pytest.raises(UsageError, match=r"LeRobot.*lr/data'"):
        lading.open(root)
    assert read(root / "data") == [0]


def test_tables_in_a_remote_folder_take_no_request_more() -> None:
    far: Store = MemoryStore()
    for name in ("part-0.parquet", ".hoodie/hoodie.properties"):
        write_file(far, f"memory://many/{name}", [b"{}"])
    counting = CountingStore(far)
    with pytest.raises(UsageError, match="Hudi"):
        lading.open("memory://many", stores=Stores({"memory://": counting}))
    assert counting.requests["walk"] <= 2  # of them one for a manifest


def test_names_like_those_of_tables_that_are_none(tmp_path: Path) -> None:
    names = ["a.parquet", "snapshot/b.parquet", "metadata/c.metadata.json", "meta/d.json", "_versions/notes.txt"]
    assert len(read(put(tmp_path / "own", *names))) == 2


def build(cache: Path, *names: str) -> None:
    """Write folders as builders of datasets leave them: streams that `dataset_info.json` names, a split each."""
    for number, name in enumerate(names):
        folder = cache / "json" / name / "0.0.0" / "d78d"
        folder.mkdir(parents=True)
        with pa.ipc.new_stream(folder / "json-train.arrow", pa.schema({"n": pa.int64()})) as stream:
            stream.write(pa.record_batch({"n": [number]}))
        splits = {"train": {"name": "train", "num_examples": 1, "dataset_name": "json"}}
        (folder / "dataset_info.json").write_text(json.dumps({"builder_name": "json", "splits": splits}))


@pytest.mark.parametrize("opening", [{}, {"split": "train"}, {"format": "arrow"}])
def test_several_caches_of_builders_are_listed(tmp_path: Path, opening: dict[str, str]) -> None:
    build(tmp_path, "default-1", "default-2")
    with pytest.raises(UsageError, match=r"several datasets.*default-1/0.0.0/d78d, .*default-2/0.0.0/d78d") as told:
        lading.open(tmp_path, **opening)  # type: ignore[arg-type]
    assert read(str(told.value.advice).split(": ")[1], **opening) == [0]
    assert read(tmp_path / "json/default-2", **opening) == [1]


def test_a_cache_that_is_being_built_is_left_out(tmp_path: Path) -> None:
    build(tmp_path, "default-1", "default-2")
    unfinished = tmp_path / "json/default-2/0.0.0/d78d"
    unfinished.rename(unfinished.with_name("d78d.incomplete"))
    assert read(tmp_path) == [0]


def test_several_revisions_in_the_cache_of_the_hub_are_listed(tmp_path: Path) -> None:
    hub = tmp_path / "hub" / "datasets--me--set"
    put(hub, "refs/main", *(f"snapshots/{each * 40}/data/train-00000-of-00001.parquet" for each in "ab"))
    with pytest.raises(UsageError, match=f"several datasets.*snapshots/{'a' * 40}, .*snapshots/{'b' * 40}"):
        lading.open(tmp_path, split="train")
    assert read(hub / "snapshots" / ("a" * 40)) == [1]


def test_several_datasets_of_energon_are_listed(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name / ".nv-meta").mkdir(parents=True)
        (tmp_path / name / "0.tar").write_bytes(tar_of(("0.txt", b"text")))
        (tmp_path / name / ".nv-meta/split.yaml").write_text("split_parts: {train: [0.tar]}\nexclude: []\n")
    with pytest.raises(UsageError, match="several datasets"):
        lading.open(tmp_path)
    assert len(lading.open(tmp_path / "a")) == 1


def test_tables_of_img2dataset_are_about_its_tars(tmp_path: Path) -> None:
    names = ["00000", "00001", "sub/00000"]
    put(tmp_path, *(f"{name}{ending}" for name in names for ending in (".parquet", "_stats.json")), "_tmp/0.feather")
    for name in names:
        (tmp_path / f"{name}.tar").write_bytes(tar_of(("0.txt", name.encode())))
    for source in (tmp_path, f"{tmp_path}/**"):
        with lading.open(source) as dataset:
            assert (dataset.format, len(dataset)) == ("webdataset", 3)
            assert dataset.counts["files about shards next to them (img2dataset), left out"] == 6
    assert len(read(tmp_path, format="parquet")) == 3
    put(tmp_path, "00007.parquet")  # a table without a tar may be data
    with pytest.raises(UnknownFormat, match="several formats; found 1 parquet, 3 webdataset"):
        lading.open(tmp_path)


def test_tars_and_tables_of_one_name_may_be_two_datasets(tmp_path: Path) -> None:
    put(tmp_path, "00000.parquet")
    (tmp_path / "00000.tar").write_bytes(tar_of(("0.txt", b"text")))
    with pytest.raises(UnknownFormat, match=r"several formats.*img2dataset writes them: format='webdataset'") as told:
        lading.open(tmp_path)
    assert "parquet" not in str(told.value.advice)
    put(tmp_path, "1.parquet")
    with pytest.raises(UnknownFormat, match="format='parquet' or format='webdataset'"):
        lading.open(tmp_path)


def test_folders_of_img2dataset_have_their_images(tmp_path: Path) -> None:
    """Of `output_format=files`: a folder of images, a table and counts a shard."""
    names = ["00000", "00001"]
    put(tmp_path, *(f"{name}{ending}" for name in names for ending in (".parquet", "_stats.json")))
    for name in names:
        (tmp_path / name).mkdir()
        for ending in ("jpg", "json", "txt"):
            (tmp_path / name / f"{name}0003.{ending}").write_bytes(b"{}")
    for opening in ({}, {"format": "files"}):
        with lading.open(tmp_path, **opening) as dataset:  # type: ignore[arg-type]
            assert (dataset.format, len(dataset)) == ("files", 2)
            assert dataset.columns == ["__key__", "jpg", "json", "txt"]
            assert dataset.counts["files about shards next to them (img2dataset), left out"] == 4
    assert len(read(tmp_path, format="parquet")) == 2


COCO = b'{"info": {}, "images": [{"id": 1, "file_name": "1.jpg"}], "annotations": [], "categories": []}'
BOX = b"0 0.5 0.5 0.25 1\n"


@pytest.mark.parametrize(
    "name, files, split",
    [
        ("COCO", {"annotations/instances_train2017.json": COCO, "train2017/1.jpg": b"x"}, None),
        ("COCO", {"train/_annotations.coco.json": COCO, "train/1.jpg": b"x", "test/2.jpg": b"x"}, "train"),
        ("YOLO", {"data.yaml": b"", "labels/train/1.txt": b"", "labels/train/2.txt": BOX, "images/train/1.jpg": b"x",
                  "images/train/2.jpg": b"x"}, None),
        ("YOLO", {"train/labels/1.txt": BOX, "train/images/1.png": b"x"}, "train"),
        ("Pascal VOC", {"VOC2012/Annotations/1.xml": b"<annotation>", "VOC2012/JPEGImages/1.jpg": b"x"}, None),
        ("Pascal VOC", {"annotations/1.xml": b'<?xml version="1.0"?>\n<annotation>', "images/1.jpg": b"x"}, None),
    ],
)  # fmt: skip
def test_labels_apart_from_images(tmp_path: Path, name: str, files: dict[str, bytes], split: str | None) -> None:
    root = fill(tmp_path / "set", files)
    with pytest.raises(UsageError, match=f"layout of {name}.*format='files'"):
        lading.open(root, split=split)
    assert lading.open(root, split=split, format="files").format == "files"


@pytest.mark.parametrize(
    "files",
    [
        {"1.jpg": b"x", "1.txt": BOX, "2.jpg": b"x"},  # YOLO next to the images
        {"labels/1.txt": b"a cat, 2 dogs", "images/1.jpg": b"x"},
        {"annotations/1.json": b'{"shapes": []}', "1.jpg": b"x"},
        {"labels/1.txt": BOX, "pictures/2.jpg": b"x"},
        {"metadata.csv": b"file_name,a\n1.jpg,2\n", "1.jpg": b"x", "annotations/all.json": COCO},
    ],
)
def test_labels_that_are_read_as_before(tmp_path: Path, files: dict[str, bytes]) -> None:
    assert lading.open(fill(tmp_path / "set", files)).format == "files"


def fill(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root
