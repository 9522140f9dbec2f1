"""Hive partitions: columns in the names of folders, as pyarrow, Polars and DuckDB write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import lading
from in_process import by_tasks
from lading.errors import DataError, SchemaMismatch, UsageError

_FOLDERS = (
    "year=2022/lang=en",
    "year=2023/lang=__HIVE_DEFAULT_PARTITION__",
    "year=2023/lang=a%20b%2Fc",
    "year=2023/lang=en",
)


def _save_arrow(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table)


def _save_lines(table: pa.Table, path: Path) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))


_SAVE: dict[str, Callable[[pa.Table, Path], object]] = {
    "parquet": pq.write_table,
    "arrow": _save_arrow,
    "csv": pyarrow.csv.write_csv,
    "jsonl": _save_lines,
}


@pytest.fixture(params=_SAVE)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Four files of two rows, in a folder of the name of their format."""
    root = tmp_path / request.param
    for number, name in enumerate(_FOLDERS):
        (root / name).mkdir(parents=True)
        rows = pa.table({"n": [f"{number}a", f"{number}b"]})
        _SAVE[request.param](rows, root / name / f"part-0.{request.param}")
    return root


def rows(source: Any, **opening: Any) -> list[dict[str, Any]]:
    with lading.open(source, **opening) as dataset:
        return pa.Table.from_batches(list(dataset.batches(shards_per_batch=None))).to_pylist()


def by_pyarrow(folder: Path) -> list[dict[str, Any]]:
    if folder.name == "jsonl":
        folder = folder.with_name("parquet")
        for number, name in enumerate(_FOLDERS):
            (folder / name).mkdir(parents=True)
            pq.write_table(pa.table({"n": [f"{number}a", f"{number}b"]}), folder / name / "part-0.parquet")
    found: list[dict[str, Any]] = (
        pyarrow.dataset.dataset(folder, format=folder.name, partitioning="hive").to_table().to_pylist()
    )
    return found


def key(row: dict[str, Any]) -> str:
    return str(row["n"])


def test_rows_are_those_of_pyarrow(folder: Path) -> None:
    expected = sorted(by_pyarrow(folder), key=key)
    assert sorted(rows(folder), key=key) == expected
    assert sorted(rows(f"{folder}/*/*/*"), key=key) == expected
    assert sorted(rows(sorted(folder.glob("*/*/*"))), key=key) == expected
    assert [(f.name, f.type) for f in lading.open(folder).schema] == [
        ("n", pa.string()), ("year", pa.int32()), ("lang", pa.string())
    ]  # fmt: skip


def test_every_face_has_the_columns(folder: Path, tmp_path: Path) -> None:
    with lading.open(folder) as dataset:
        every = list(dataset)
        assert [dataset[i] for i in range(8)] == every
        assert dataset.take([7, 0], columns=["year", "lang"]).to_pylist() == [
            {name: every[i].get(name) for name in ("year", "lang")} for i in (7, 0)
        ]
        assert sum(len(batch) for batch in dataset.batches(columns=["year"], max_rows=1)) == 8
    for name in ("parquet", "webdataset"):
        workers = 2 if (folder.name, name) == ("csv", "parquet") else 1
        done = lading.convert(
            folder, tmp_path / "out" / name, format=name, verify=True, **by_tasks(workers), shard_size=1
        )
        assert (done.samples, done.verified) == (8, True)
        assert lading.open(tmp_path / "out" / name).columns == ["n", "year", "lang"]
        assert lading.diff(folder, tmp_path / "out" / name).equal
    assert [name for name, *_ in lading.info(folder).columns] == ["n", "year", "lang"]
    assert lading.verify(folder, deep=True).findings == []
    assert lading.salvage(folder, tmp_path / "saved").samples == 8
    assert lading.open(tmp_path / "saved").columns == ["n", "year", "lang"]


def test_an_option_turns_partitions_off(folder: Path) -> None:
    assert lading.open(folder, hive_partitioning=False).columns == ["n"]
    assert lading.open(folder / "year=2022").columns == ["n", "lang"]
    assert lading.open(folder / "year=2022" / "lang=en").columns == ["n"]


def test_other_partitions_are_not_opened(folder: Path, tmp_path: Path) -> None:
    """Their files are junk, so that whoever opens one fails."""
    for name in (_FOLDERS[1], _FOLDERS[2]):
        [file] = (folder / name).iterdir()
        file.write_bytes(b"\0 junk")
    for condition in ("lang == 'en'", "lang == 'en' and n != '0a' or year == 1", pc.field("lang") == "en"):
        with lading.open(folder).where(condition) as dataset:
            found = [row["n"] for row in dataset]
            assert found == ([] if "n !=" in str(condition) else ["0a"]) + ["0b", "3a", "3b"]
            assert (len(dataset), dataset[1]["n"]) == (len(found), found[1])
            assert lading.info(dataset).samples == len(found)
            assert lading.convert(
                dataset, tmp_path / "out", format="jsonl", overwrite=True, verify=True
            ).samples == len(found)
    with lading.open(folder).where("year == 1999") as dataset:
        assert (list(dataset), dataset.columns) == ([], ["n", "year", "lang"])


@pytest.mark.parametrize(
    "names",
    [
        ["y=1", "y=02", "y=-3"],
        ["y=+1"],
        ["y= 1"],
        ["y=3000000000"],
        ["y=1", "y=x"],
        ["y=0x10"],
        ["y=1.5", "y=true", "y=2024-01-01"],
        ["y="],
        ["y=a=b"],
        ["y=a%zz"],
        ["a%20y=1"],
        ["x/y=1", "z=2"],
        ["y=1/z=2", "z=3/y=4"],
        ["y=1/y=2"],
    ],
)
def test_types_are_those_of_pyarrow(names: list[str], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).mkdir(parents=True)
        pq.write_table(pa.table({"n": [name]}), tmp_path / name / "a.parquet")
    expected = pyarrow.dataset.dataset(tmp_path, format="parquet", partitioning="hive").to_table()
    with lading.open(tmp_path) as dataset:
        assert {f.name: f.type for f in dataset.schema} == {f.name: f.type for f in expected.schema}
    assert sorted(rows(tmp_path), key=key) == sorted(expected.to_pylist(), key=key)


def test_a_file_in_no_partition_has_nulls(tmp_path: Path) -> None:
    (tmp_path / "y=1").mkdir()
    for name in ("y=1/a.parquet", "b.parquet"):
        pq.write_table(pa.table({"n": [name]}), tmp_path / name)
    assert rows(tmp_path) == [{"n": "b.parquet", "y": None}, {"n": "y=1/a.parquet", "y": 1}]
    assert [row["n"] for row in lading.open(tmp_path).where("y is null")] == ["b.parquet"]


def test_a_value_that_is_no_utf8_is_told(tmp_path: Path) -> None:
    (tmp_path / "y=%ff").mkdir()
    pq.write_table(pa.table({"n": [1]}), tmp_path / "y=%ff" / "a.parquet")
    with pytest.raises(DataError, match=r"invalid UTF-8.*hive_partitioning=False"):
        lading.open(tmp_path)


def test_a_column_of_the_file_stays_and_must_agree(tmp_path: Path) -> None:
    """Polars writes the columns into the files too. For pyarrow these are two types, and an error."""
    (tmp_path / "y=1").mkdir()
    pq.write_table(pa.table({"y": [1, None], "n": ["a", "b"]}), tmp_path / "y=1" / "a.parquet")
    assert rows(tmp_path) == [{"y": 1, "n": "a"}, {"y": 1, "n": "b"}]
    assert lading.open(tmp_path).schema.field("y").type == pa.int64()
    pq.write_table(pa.table({"y": [1, 2], "n": ["a", "b"]}), tmp_path / "y=1" / "a.parquet")
    with pytest.raises(SchemaMismatch, match="expected 1, as the folder says, found 2"):
        rows(tmp_path)
    assert rows(tmp_path, hive_partitioning=False)[1]["y"] == 2


def test_interleaved_items_have_the_columns(tmp_path: Path) -> None:
    (tmp_path / "lang=en").mkdir()
    items = {
        "sample_id": ["a", "a"],
        "position": [-1, 0],
        "modality": ["metadata", "text"],
        "text_content": [None, "t"],
    }
    kinds = (pa.string(), pa.int32(), pa.string(), pa.string())
    schema = pa.schema([pa.field(n, kind, n == "text_content") for n, kind in zip(items, kinds, strict=True)])
    pq.write_table(pa.table(items, schema=schema), tmp_path / "lang=en" / "a.parquet")
    with lading.open(tmp_path) as dataset:
        assert dataset.view == "interleaved"
        assert [row["lang"] for batch in dataset.batches() for row in batch.to_pylist()] == ["en", "en"]


def test_datasets_with_manifests_in_partitions_have_the_columns(tmp_path: Path) -> None:
    for lang in ("de", "en"):
        with lading.writer(tmp_path / f"lang={lang}", format="parquet") as writer:
            writer.write_batch(pa.table({"n": [lang]}))
    assert rows(tmp_path) == [{"n": "de", "lang": "de"}, {"n": "en", "lang": "en"}]
    assert rows(tmp_path, hive_partitioning=False) == [{"n": "de"}, {"n": "en"}]


@pytest.mark.parametrize("fmt", ["jsonl", "csv"])
def test_partitions_of_datasets_whose_manifests_hold_the_types_are_not_left_out(fmt: str, tmp_path: Path) -> None:
    for year in (2023, 2024):
        with lading.writer(tmp_path / f"year={year}", format=fmt) as writer:
            writer.write_batch(pa.table({"a": [1, 2]}))
    with pytest.raises(UsageError, match="hive_partitioning=False"):
        lading.open(tmp_path)
    assert lading.open(tmp_path, hive_partitioning=False).schema.names == ["a"]
    with lading.open(f"{tmp_path}/*/*.{fmt}") as dataset:
        assert sorted({row["year"] for row in dataset}) == [2023, 2024]


def test_tars_in_folders_like_partitions_open_with_their_manifests(tmp_path: Path) -> None:
    for run in (1, 2):
        with lading.writer(tmp_path / f"run={run}", format="webdataset") as writer:
            writer.write_batch(pa.table({"__key__": [f"{run}"], "txt": ["x"]}))
    assert lading.open(tmp_path).schema.names == ["__key__", "txt"]
