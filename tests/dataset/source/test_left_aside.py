"""Tables whose names begin with `_` or a dot are left out of folders, as Spark and pyarrow do."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from pyarrow import feather
from typer.testing import CliRunner

import lading
from lading._core.cli.main import app
from lading._core.storage.base import write_file
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import SourceNotFound
from tars import tar_of

WORDS = "files with names that begin with _ or ., left out"


def put(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"n": [number]})
    match path.suffix:
        case ".parquet":
            pq.write_table(table, path)
        case ".arrow":
            feather.write_feather(table, str(path), compression="uncompressed")
        case ".csv":
            path.write_text(f"n\n{number}\n")
        case _:
            path.write_text(f'{{"n": {number}}}\n')


def read(source: object, **opening: object) -> list[int]:
    with lading.open(source, **opening) as dataset:  # type: ignore[arg-type]
        return [int(row["n"]) for row in dataset]  # a CSV has texts


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv", "jsonl"])
def test_as_pyarrow_and_spark(tmp_path: Path, ending: str) -> None:
    names = ["a", "b_c", "_d", ".e", "_tmp/f", "_tmp/.g", "x/_h", "x/i", "_SUCCESS", ".s/j"]
    for number, name in enumerate(names):
        put(tmp_path / f"{name}.{ending}", number)
    for source in (tmp_path, f"{tmp_path}/**/*.{ending}", f"{tmp_path}/**"):
        assert read(source) == [0, 1, 7]
    assert lading.open(tmp_path).counts == {WORDS: 7}
    assert lading.open(f"{tmp_path}/**").counts == {WORDS: 4}  # those with a dot do not match
    assert f"7 {WORDS}" in CliRunner().invoke(app, ["info", str(tmp_path)]).stdout.replace("  ", " ")
    if ending != "jsonl":
        theirs = pads.dataset(tmp_path, format=ending).to_table()["n"]
        assert theirs.to_pylist() == [0, 1, 7]


def test_typed_names_are_meant(tmp_path: Path) -> None:
    for number, name in enumerate(["a", "_d", "_tmp/f", "x/_h", "_tmp/_z"]):
        put(tmp_path / f"{name}.parquet", number)
    assert read(tmp_path / "_d.parquet") == [1]
    assert read(f"{tmp_path}/*.parquet") == [1, 0]
    assert read([tmp_path / "_d.parquet", tmp_path / "a.parquet"]) == [1, 0]
    assert read(tmp_path / "_tmp") == [2]
    assert read(f"{tmp_path}/**/_*.parquet") == [1, 3]
    assert read(f"{tmp_path}/_tmp/**") == [2]
    assert read(f"{tmp_path}/**/_tmp/*.parquet") == [2]
    assert read(f"{tmp_path}/**/_tmp/_*.parquet") == [4]


def test_only_such_names(tmp_path: Path) -> None:
    put(tmp_path / "_a.parquet", 1)
    with pytest.raises(SourceNotFound, match="1 file whose names begin with _, name the files"):
        lading.open(tmp_path)
    with pytest.raises(SourceNotFound, match="names begin with _"):
        lading.open(f"{tmp_path}/**/*.parquet")


def test_partitions_that_begin_so_stay(tmp_path: Path) -> None:
    put(tmp_path / "_year=2023/a.parquet", 1)
    assert [row["_year"] for row in lading.open(tmp_path)] == [2023]


def test_other_shards_and_loose_files_stay(tmp_path: Path) -> None:
    (tmp_path / "tars/_x").mkdir(parents=True)
    (tmp_path / "tars/_x/_0.tar").write_bytes(tar_of(("0.txt", b"text")))
    assert len(lading.open(tmp_path / "tars")) == 1
    (tmp_path / "photos").mkdir()
    for name in ("_DSC0001.JPG", "_DSC0001.csv", "2.jpg"):
        (tmp_path / "photos" / name).write_bytes(b"x")
    for opening in ({}, {"format": "files"}):
        with lading.open(tmp_path / "photos", **opening).with_decode(False) as photos:  # type: ignore[arg-type]
            assert [row["__key__"] for row in photos] == ["2", "_DSC0001"]
            assert photos.counts == {}


def test_files_of_a_manifest_stay(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", 1)
    for name in ("set/a", "set/_b"):
        lading.open(tmp_path / "a.parquet").write(tmp_path / name, format="parquet", progress=False)
    assert read(tmp_path / "set") == [1, 1]


def test_remote_folders_and_patterns() -> None:
    far = MemoryStore()
    for name in ("a.jsonl", "_b.jsonl", "_tmp/c.jsonl"):
        write_file(far, f"memory://set/{name}", [b'{"n": 1}\n'])
    for source in ("memory://set", "memory://set/**", "memory://set/**/*.jsonl"):
        assert read(source, stores=Stores({"memory://": far})) == [1]
    assert len(read("memory://set/*.jsonl", stores=Stores({"memory://": far}))) == 2


def test_json_of_a_named_format(tmp_path: Path) -> None:
    for number, name in enumerate(["a.json", "_b.json"]):
        put(tmp_path / name, number)
    assert read(tmp_path, format="jsonl") == [0]
