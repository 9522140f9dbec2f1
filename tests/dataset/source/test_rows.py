"""Tables, data frames, `datasets.Dataset` and dicts as a source of samples."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from PIL import Image

import lading
from in_process import by_tasks
from lading.errors import CorruptShard, DuplicateField, SchemaMismatch, SourceNotFound, UsageError

_ROWS: list[dict[str, Any]] = [{"id": i, "name": f"n{i % 3}", "tags": ["a"] * (i % 2 + 1)} for i in range(1200)]
_TABLE = pa.Table.from_pylist(_ROWS)


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job=3").mkdir()  # no partition
    monkeypatch.setenv("TMPDIR", str(tmp_path / "job=3"))
    monkeypatch.setattr("tempfile.tempdir", None)


def _file_of(table: pa.Table) -> io.BytesIO:
    written = io.BytesIO()
    with pa.ipc.new_stream(written, table.schema) as writer:
        writer.write_table(table)
    return io.BytesIO(written.getvalue())


@pytest.mark.parametrize(
    "given",
    [
        lambda: _TABLE,
        lambda: _TABLE.combine_chunks().to_batches()[0],
        lambda: _TABLE.to_reader(700),
        lambda: pd.DataFrame(_ROWS),
        lambda: pl.DataFrame(_ROWS),
        lambda: _ROWS,
        lambda: iter(_ROWS),
        _TABLE.to_pydict,
        lambda: _file_of(_TABLE),
        lambda: tuple(_ROWS),
        lambda: [_TABLE.slice(0, 1010), _TABLE.slice(1010)],
        lambda: iter(_TABLE.to_batches(300)),
        lambda: datasets.Dataset.from_list(_ROWS),
        lambda: datasets.Dataset.from_list([*_ROWS, *_ROWS]).select(range(1200, 2400)),
    ],
    ids=["table", "batch", "reader", "pandas", "polars", "list", "generator", "dict", "file", "tuple", "tables",
         "batches", "datasets", "datasets-rows"],
)  # fmt: skip
@pytest.mark.cases(14)
def test_rows_are_samples(given: Callable[[], Any]) -> None:
    ds = lading.open(given())
    assert (len(ds), ds.columns) == (1200, ["id", "name", "tags"])
    assert ds[1134] == _ROWS[1134]
    assert os.environ["TMPDIR"] not in repr(ds)
    assert list(ds.where("id >= 1198")) == _ROWS[1198:]


def test_each_verb_takes_rows(tmp_path: Path) -> None:
    frame = pd.DataFrame({"__key__": ["a", "b"], "txt": ["one", "two"]})
    assert lading.convert(frame, tmp_path / "out.parquet").samples == 2
    assert lading.digest(frame) == lading.digest(str(tmp_path / "out.parquet"))
    both = lading.concat([str(tmp_path / "out.parquet"), frame, [{"__key__": "c", "txt": "three"}]])
    assert [sample["txt"] for sample in both] == ["one", "two", "one", "two", "three"]
    assert [sample["txt"] for sample in lading.open(frame).concat(frame)] == ["one", "two"] * 2
    for scores in (pl.DataFrame({"id": ["b"], "score": [7]}), [{"id": "b", "score": 7}],
                   datasets.Dataset.from_dict({"id": ["b"], "score": [7]})):  # fmt: skip
        joined = lading.open(frame).join(scores, on={"__key__": "id"})
        assert [sample["score"] for sample in joined] == [None, 7]
    with lading.writer(tmp_path / "more.parquet") as writer:
        writer.write_batch(frame)
        writer.write_batch(pl.from_pandas(frame).with_columns(pl.col("txt").str.to_uppercase()))
    assert [sample["txt"] for sample in lading.open(tmp_path / "more.parquet")] == ["one", "two", "ONE", "TWO"]


def test_splits_of_rows_are_written_as_splits(tmp_path: Path) -> None:
    part = datasets.Dataset.from_dict({"a": [1, 2]})
    lading.convert(datasets.DatasetDict({"train": part, "test": part}), tmp_path / "out", format="parquet")
    assert len(datasets.load_dataset(str(tmp_path / "out"), split="test", cache_dir=str(tmp_path / "cache"))) == 2


@pytest.mark.parametrize("name", ["photos", "docs"])
@pytest.mark.cases(2)
def test_datasets_come_back_from_arrow(name: str, tmp_path: Path, docs: Path) -> None:
    if name == "photos":
        with lading.writer(tmp_path / "photos", format="webdataset") as writer:
            for i in range(3):
                writer.write({"__key__": str(i), "png": Image.new("RGB", (i + 1, 2)), "json": {"n": i, "t": ["x"]}})
    ds = lading.open(tmp_path / "photos" if name == "photos" else docs)
    assert lading.digest(ds.to_arrow(media="bytes")) == lading.digest(ds)
    assert lading.digest(ds.to_reader(media="bytes")) == lading.digest(ds)


def test_verify_reads_rows() -> None:
    frame = pd.DataFrame({"a": [1, 2]})
    assert lading.verify(frame).ok
    assert lading.verify(lading.concat([frame, frame])).samples == 4


def test_features_of_hugging_face_stay() -> None:
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"]),
                                  "grid": datasets.Array2D((2, 2), "float32")})  # fmt: skip
    images = [Image.new("RGB", (3, 2), colour) for colour in ("red", "blue")]
    rows = {"image": images, "label": [1, 0], "grid": [[[1, 2], [3, 4]]] * 2}
    ds = lading.open(datasets.Dataset.from_dict(rows, features=features))
    assert ds[1]["image"].getpixel((0, 0)) == (0, 0, 255)
    np.testing.assert_array_equal(ds[0]["grid"], [[1, 2], [3, 4]])
    assert ds.where("label == 'dog'").where("image.width == 3")[0]["label"] == 1


@pytest.mark.soak  # the library needs seconds
def test_streams_of_hugging_face() -> None:
    some = _ROWS[:20]
    assert list(lading.open(datasets.Dataset.from_list(some).to_iterable_dataset())) == some
    bare = datasets.IterableDataset.from_generator(lambda: iter(some))
    assert bare.features is None
    assert list(lading.open(bare)) == some


def test_dicts_are_samples_as_a_writer_takes_them() -> None:
    ds = lading.open({"__key__": str(i), "jpg": Image.new("RGB", (i + 1, 1)), "json": {"n": i}} for i in range(3))
    assert [(sample["__key__"], sample["jpg"].size, sample["json"]) for sample in ds.where("json.n > 0")] == [
        ("1", (2, 1), {"n": 1}), ("2", (3, 1), {"n": 2}),
    ]  # fmt: skip
    assert lading.open([{"a": 1}, {"a": None}], schema=pa.schema({"a": pa.int8()})).schema.field("a").type == pa.int8()


def test_dictionaries_of_a_stream_may_change() -> None:
    batches = [pa.record_batch({"c": pa.array([f"v{i}", None]).dictionary_encode()}) for i in range(3)]
    ds = lading.open(pa.RecordBatchReader.from_batches(batches[0].schema, batches))
    assert [ds[i]["c"] for i in (4, 0, 3)] == ["v2", "v0", None]
    frame = pl.DataFrame({"c": ["x", "y"], "e": ["y", "x"]}, {"c": pl.Categorical, "e": pl.Enum(["x", "y"])})
    assert list(lading.open(frame)) == frame.to_dicts()


def test_large_rows_are_parts_of_bounded_size() -> None:
    table = pa.table({"a": [b"x" * 300_000] * 40, "b": range(40)}).combine_chunks()
    ds = lading.open(table)
    with pa.ipc.open_stream(ds.query.source.names) as stream:
        assert max(batch.nbytes for batch in stream) <= 4 << 20
    assert lading.open(table.slice(0, 0)).schema == table.schema


def test_a_stream_is_read_in_batches() -> None:
    alive: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(50):
            alive.append(pa.total_allocated_bytes())
            yield pa.record_batch({"a": [b"x" * 200_000] * 10})

    assert len(lading.open(batches())) == 500
    assert max(alive) - min(alive) < 20_000_000  # of 100 MB


def test_the_file_lives_as_long_as_a_dataset_of_its_rows() -> None:
    ds = lading.open(_TABLE)
    behind, file, copy = ds.where("id == 7"), ds.query.source.names, pickle.dumps(ds)
    del ds
    assert [sample["id"] for sample in behind] == [7]
    assert pickle.loads(copy)[7] == _ROWS[7]
    assert lading.concat([behind, behind])[1] == _ROWS[7]
    del behind
    assert not os.path.exists(file)
    with pytest.raises(SourceNotFound, match=r"pyarrow\.Table: the rows are gone.*a file first"):
        pickle.loads(copy)


@pytest.mark.soak
def test_a_forked_child_leaves_the_file() -> None:
    ds = lading.open(_TABLE)
    if not (child := os.fork()):
        del ds
        os._exit(0)
    os.waitpid(child, 0)
    assert ds[7] == _ROWS[7]


@pytest.mark.parametrize(
    "given, message",
    [
        (None, "no source of samples; expected names of files, a table or data frame, or dicts, found NoneType"),
        (3, "no source of samples.*found int"),
        ([3], "no source of samples.*found int"),
        ({}, "no source of samples.*found dict"),
        ({"a": 1}, r"dict: these rows make no Arrow table"),
        (io.StringIO("text"), r"StringIO: the stream gives text.* binary mode"),
        (datasets.DatasetDict({"train": datasets.Dataset.from_dict({"a": [1]})}), r"Open one of its values: \['train'"),
        (pl.LazyFrame({"a": [1]}), r"found polars\.LazyFrame\. Collect its rows first: \.collect\(\)"),
        (pl.Series([1]), r"polars\.Series: these rows make no Arrow table"),
        (pd.DataFrame({"a": [1, "x"]}), r"pandas\.DataFrame: these rows make no .* for column a .* of one type"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), r"Duplicate column names.* of different names"),
        ([{"a": 1}, 3], r"dicts of a list\.arrow row 1: a sample is a dict; found int"),
        ([{"a": 1}, {"a": "x"}], "row 1 column 'a': the values of one field are of several kinds"),
    ],
)
@pytest.mark.cases(13)
def test_what_makes_no_samples_is_refused(given: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        lading.open(given)


def test_tables_that_do_not_fit_each_other_are_refused() -> None:
    tables = [pa.table({"a": [1, 2]}), pa.table({"a": ["x"]})]
    with pytest.raises(SchemaMismatch, match=r"tables of a list\.arrow row 2: .* expected a: int64, found a: string"):
        lading.open(tables)


def test_columns_of_one_name_are_refused() -> None:
    with pytest.raises(DuplicateField, match=r"^pyarrow\.Table\.arrow column 'a': several columns"):
        lading.open(pa.table([[1], ["x"]], names=["a", "a"]))


def test_errors_of_bytes_name_what_was_given() -> None:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("a.txt"))
        tar.addfile(tarfile.TarInfo("b.txt"))
    with pytest.raises(CorruptShard, match=r"^\S*BytesIO @ 512: .*Write the bytes to a file") as raised:
        lading.open(io.BytesIO(body.getvalue()[:700]))
    assert "/" not in str(raised.value)


def test_rows_have_no_options_of_files() -> None:
    for option in ({"format": "parquet"}, {"split": "train"}, {"config": "en"}):
        [(name, _)] = option.items()
        with pytest.raises(UsageError, match=rf"pyarrow\.Table: this source has no {name}; found {name}="):
            lading.open(_TABLE, **option)


def test_no_other_run_reads_rows_again(tmp_path: Path) -> None:
    for source in (_TABLE, lading.open(_TABLE).limit(3), lading.concat([_TABLE, _TABLE])):
        for option in ({"resume": True}, {"rank": 0, "world_size": 2}):
            with pytest.raises(UsageError, match=r"another run cannot read these rows again.*a file first"):
                lading.convert(source, tmp_path / "out", format="parquet", **option)


def test_workers_and_a_loader_read_rows(tmp_path: Path) -> None:
    assert lading.convert(_TABLE, tmp_path / "out", format="parquet", rows_per_shard=500, **by_tasks(2)).shards == 3
    assert sum(len(batch["id"]) for batch in lading.loader(_TABLE, 100, decode=False)) == 1200


def test_an_error_of_a_generator_is_its_own(tmp_path: Path) -> None:
    def broken() -> Iterator[dict[str, int]]:
        yield {"a": 1}
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        lading.open(broken())
    assert not [name for _, _, names in os.walk(tmp_path) for name in names if name.endswith(".arrow")]
