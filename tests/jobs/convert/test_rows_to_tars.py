"""Rows of every format into tars and on to Parquet: one content digest, with any number of workers."""

from __future__ import annotations

import csv
import io
import json
import tarfile
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import lading
from in_process import by_tasks
from lading._core.cli.main import app
from lading._core.jobs.convert.tasks import Piece, Task
from lading._core.pipeline.cutting import Cut
from lading.errors import Unrepresentable

TABLE = pa.table(
    {
        "Id": pa.array(range(240), pa.uint16()),
        "x.y": pa.array([None if i % 7 == 0 else i / 3 for i in range(240)], pa.float32()),
        "when": pa.array([i * 10**12 for i in range(240)], pa.timestamp("us", "UTC")),
        "price": pa.array([Decimal(i).scaleb(-2) for i in range(240)], pa.decimal128(9, 2)),
        "tags": pa.array([["a", None][: i % 3] for i in range(240)], pa.list_(pa.string())),
        "kind": pa.array([["u", "v"][i % 2] for i in range(240)]).dictionary_encode(),
        "png": pa.array([b"%d" % i * 20 for i in range(240)], pa.large_binary()),
        "nothing": pa.nulls(240),
    }
)


def write_parquet(folder: Path) -> None:
    for number in range(4):
        pq.write_table(TABLE.slice(number * 60, 60), folder / f"{number}.parquet")


def write_csv(folder: Path) -> None:
    for number in range(4):
        with (folder / f"{number}.csv").open("w", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(["Name", "größe", "seg.txt"])
            rows.writerows([f"{number}, {i}", i / 7, "ja\nnein"] for i in range(60))


def write_jsonl(folder: Path) -> None:
    """Shards that find different types."""
    for number in range(4):
        rows: list[dict[str, Any]] = [
            {"n": i if number % 2 else i / 2, "ok": i % 2 == 0, "deep": {"a": [i, None]}, "t": "é", "none": None}
            for i in range(60)
        ]
        (folder / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_mds(folder: Path) -> None:
    rows = pa.table({name: TABLE[name] for name in ("Id", "png")}).append_column("f", pa.array(np.arange(240.0)))
    arrays = [np.full((2, 3), i, np.float32).reshape(-1) for i in range(240)]
    kind = pa.fixed_shape_tensor(pa.float32(), (2, 3))
    rows = rows.append_column("a", pa.ExtensionArray.from_storage(kind, pa.array(arrays, kind.storage_type)))
    with lading.writer(folder, format="mds", overwrite=True, options={"size_limit": 5_000}) as writer:
        writer.write_batch(rows)


WRITERS = {"parquet": write_parquet, "csv": write_csv, "jsonl": write_jsonl, "mds": write_mds}


@pytest.fixture(params=[*WRITERS])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / str(request.param)
    folder.mkdir()
    WRITERS[request.param](folder)
    return folder


def convert(*words: str) -> None:
    result = CliRunner().invoke(app, ["convert", *words, "--verify"])
    assert result.exit_code == 0, result.output


def tars(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.tar")}


@pytest.mark.soak
def test_there_and_on(source: Path, tmp_path: Path) -> None:
    digest = lading.digest(source)
    one, two, table = (tmp_path / name for name in ("one", "two", "table"))
    size = ("--shard-size", "64kb")
    convert(str(source), str(one), "--to", "webdataset", *size, "--workers", "1")
    convert(str(source), str(two), "--to", "webdataset", *size, "--workers", "2")
    assert len(tars(one)) >= 4
    assert tars(one) == tars(two)
    for name in ("manifest.json", "shards.arrow"):
        assert (one / "_lading" / name).read_bytes() == (two / "_lading" / name).read_bytes()
    convert(str(one), str(table), "--to", "parquet", *size)
    convert(str(one), str(tmp_path / "copy"), "--to", "webdataset", *size)
    for made in (one, table, tmp_path / "copy"):
        assert lading.digest(made) == digest
    with (
        lading.open(source).with_decode(False) as a,
        lading.open(table).with_decode(False) as b,
        lading.open(one).with_decode(False) as c,
    ):
        assert [str(row) for row in a] == [str(row) for row in b] == [str(row) for row in c]
        first = next(iter(a.batches(max_rows=1)))
        assert c.schema.names == first.schema.names
        assert c.schema.types == pa.Table.from_batches(c.batches()).schema.types
    with lading.open(f"{one}/*.tar").with_decode(False) as plain:
        assert [row["__key__"] for row in plain] == [f"{i:09d}" for i in range(240)]


def test_types_of_the_source_come_back(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "in.parquet")
    lading.convert(tmp_path / "in.parquet", tmp_path / "tar", format="webdataset")
    lading.convert(tmp_path / "tar", tmp_path / "out", format="parquet", options={"huggingface": False})
    [path] = (tmp_path / "out").glob("*.parquet")
    found = pq.read_table(path)
    at = TABLE.schema.get_field_index("kind")
    expected = TABLE.set_column(at, "kind", TABLE["kind"].cast(pa.string()))
    assert found.schema.types == expected.schema.types
    assert found.equals(expected)


@pytest.mark.soak
def test_rows_that_are_left_out_leave_gaps_in_the_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys of a task's rows begin with its first row's number in the source, whoever does the task."""
    write_parquet(tmp_path)

    def a_task_a_file(pieces: Sequence[Piece], _shard_bytes: int | None, _rates: object) -> list[Task]:
        return [Task(each.shard, each.shard, each.shard + 1, each.size_bytes, Cut(1000)) for each in pieces]

    monkeypatch.setattr("lading._core.jobs.convert.schedule.plan_tasks", a_task_a_file)
    for workers in (1, 2):
        lading.convert(f"{tmp_path}/*.parquet", tmp_path / f"out{workers}", format="webdataset", shard_size="1kb",
                       where="Id in (58, 59, 118, 119, 178, 179, 238, 239)", **by_tasks(workers))  # fmt: skip
    assert tars(tmp_path / "out1") == tars(tmp_path / "out2")
    with lading.open(tmp_path / "out1").with_decode(False) as ds:
        assert [row["Id"] for row in ds] == [58, 59, 118, 119, 178, 179, 238, 239]
        keys = [key for batch in ds.batches(columns=["__key__"]) for key in batch.column(0).to_pylist()]
    assert keys == [f"{number:09d}" for number in (0, 1, 60, 61, 120, 121, 180, 181)]


def test_keys_and_columns_that_are_asked_for(tmp_path: Path) -> None:
    pq.write_table(TABLE.append_column("__key__", pa.array([f"k{i}" for i in range(240)])), tmp_path / "in.parquet")
    lading.convert(tmp_path / "in.parquet", tmp_path / "out", format="webdataset", columns=["Id"], verify=True)
    with lading.open(tmp_path / "out") as ds:
        assert ds.by_key("k7") == {"Id": 7, "__key__": "k7"}
    lading.convert(tmp_path / "out", tmp_path / "some", format="webdataset", where="Id < 3", verify=True)
    with lading.open(tmp_path / "some") as ds:
        assert list(ds) == [{"Id": i, "__key__": f"k{i}"} for i in range(3)]
        assert ds.schema.types == [pa.string(), pa.uint16()]


def more_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.concat_batches([batch.select(["Id"]), batch.select(["Id"])])


@pytest.mark.soak
def test_a_function_may_make_more_rows(tmp_path: Path) -> None:
    write_parquet(tmp_path)
    lading.convert(
        f"{tmp_path}/*.parquet", tmp_path / "out", format="webdataset", shard_size="10kb", map_batches=more_rows
    )
    with lading.open(tmp_path / "out") as ds:
        assert len(ds) == 480
        keys = [key for batch in ds.batches(columns=["__key__"]) for key in batch.column(0).to_pylist()]
    assert keys == [f"{i:09d}" for i in range(480)]


@pytest.mark.soak
def test_arrays_of_mds_are_npy_files(tmp_path: Path) -> None:
    (tmp_path / "mds").mkdir()
    write_mds(tmp_path / "mds")
    lading.convert(tmp_path / "mds", tmp_path / "tar", format="webdataset")
    with tarfile.open(next((tmp_path / "tar").glob("*.tar"))) as tar:
        file = tar.extractfile("000000003.a")
        assert file is not None
        assert np.array_equal(np.load(io.BytesIO(file.read())), np.full((2, 3), 3, np.float32))
    lading.convert(tmp_path / "tar", tmp_path / "again", format="mds", verify=True)
    assert lading.diff(tmp_path / "mds", tmp_path / "again").equal
    with lading.open(tmp_path / "again") as ds:
        assert np.array_equal(ds[5]["a"], np.full((2, 3), 5, np.float32))


@pytest.mark.parametrize("rows", [1, 0])
def test_a_type_that_no_member_holds_is_refused_before_a_byte_is_written(rows: int, tmp_path: Path) -> None:
    kinds = pa.array([[(b"k", 1)]], pa.map_(pa.binary(), pa.int8()))
    pq.write_table(pa.table({"a": [1], "Map": kinds}).slice(0, rows), tmp_path / "in.parquet")
    with pytest.raises(Unrepresentable, match="column 'Map'"):
        lading.convert(tmp_path / "in.parquet", tmp_path / "out", format="webdataset")
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]
