"""The columns of a dataset are those of all shards, as pyarrow's own union of their footers says them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

import lading
from lading._core.dataset.shards import whole_schema
from lading._core.storage.memory import MemoryStore
from tars import tar_of

_TABLES = [
    pa.table({"text": pa.array(["a"]), "n": pa.array([1], pa.int32()), "x": pa.nulls(1)}),
    pa.table({"text": pa.array(["b"]), "n": pa.array([2], pa.int64()), "x": ["late"], "url": ["u"]}),
    pa.table({"extra": pa.array([0.5])}),
]
_UNION = pa.unify_schemas([each.schema for each in _TABLES], promote_options="permissive")


def _arrow(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(path.with_suffix(".arrow"), table.schema) as writer:
        writer.write_table(table)


def _mds(table: pa.Table, path: Path) -> None:
    """Write a shard, and list it in the index of all: columns may differ between the shards of an index."""
    columns = [field.name for field in table.schema if not pa.types.is_null(field.type)]
    lading.convert(_saved(table.select(columns), path), path, format="mds")
    index = path.parent / "index.json"
    shards = json.loads(index.read_text())["shards"] if index.exists() else []
    for shard in json.loads((path / "index.json").read_text())["shards"]:
        (path / shard["raw_data"]["basename"]).rename(path.parent / f"{path.name}.mds")
        shards.append({**shard, "raw_data": {**shard["raw_data"], "basename": f"{path.name}.mds"}})
    index.write_text(json.dumps({"version": 2, "shards": shards}))
    shutil.rmtree(path)


def _saved(table: pa.Table, path: Path) -> Path:
    source = path.parent.parent / f"{path.name}.parquet"
    pq.write_table(table, source)
    return source


_WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "parquet": lambda table, path: pq.write_table(table, path.with_suffix(".parquet")),
    "arrow": _arrow,
    "mds": _mds,
}


@pytest.mark.cases(3)
@pytest.mark.parametrize("fmt", list(_WRITERS))
def test_schema_columns_info_and_repr_are_of_all_footers(fmt: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, table in enumerate(_TABLES):
        _WRITERS[fmt](table, tmp_path / "in" / f"{number}")
    with lading.open(tmp_path / "in") as ds:
        types = [pa.string() if kind == pa.large_string() else kind for kind in ds.schema.types]  # texts of MDS
        assert dict(zip(ds.columns, types, strict=True)) == dict(zip(_UNION.names, _UNION.types, strict=True))
        assert not ds.schema_is_partial
        assert [name for name, _, _ in lading.info(ds, progress=False).columns] == ds.columns
        assert not lading.info(ds, progress=False).schema_is_partial
        assert all(f"    {name}" in repr(ds) for name in _UNION.names)
        assert "first shard" not in repr(ds)
        found = {name for batch in ds.batches() for name in batch.schema.names}
        assert found == {*_UNION.names}
        assert ds.drop("url").columns == [name for name in ds.columns if name != "url"]
        assert ds.where("n == 2").columns == ds.columns


def test_a_manifest_says_the_columns(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out", format="webdataset", shard_size="20KB") as writer:
        for name in ("a", "b", "c"):
            rows = pa.table({"__key__": [f"{name}{i}" for i in range(30)], "txt": ["a"] * 30})
            writer.write_batch(rows if name < "c" else rows.append_column("url", rows["txt"]))
    with lading.open(tmp_path / "out") as ds:
        assert len(ds.shards) > 1
        assert not ds.schema_is_partial
        assert ds.columns == ["__key__", "txt", "url"]


def test_tars_and_many_footers_are_told_by_the_first_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tars").mkdir()
    for number, member in enumerate(["0.txt", "1.json", "2.txt"]):
        (tmp_path / "tars" / f"{number}.tar").write_bytes(tar_of((member, b"{}")))
        pq.write_table(_TABLES[number], tmp_path / f"{number}.parquet")
    monkeypatch.setattr(whole_schema, "MOST_FOOTERS", 2)
    for source, first in ((tmp_path / "tars", ["__key__", "txt"]), (tmp_path / "*.parquet", _TABLES[0].schema.names)):
        with lading.open(source) as ds:
            assert ds.columns == first
            assert ds.schema_is_partial
            assert "columns (first shard of 3)" in repr(ds)
            assert "(first shard of 3)" in ds._repr_html_()
            assert lading.info(ds, progress=False).schema_is_partial
    with lading.open(tmp_path / "tars" / "0.tar") as ds:
        assert not ds.schema_is_partial
        assert "first shard" not in repr(ds)


def test_types_that_no_type_holds_are_told(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": ["v"]}), tmp_path / "b.parquet")
    found = lading.info(tmp_path, progress=False)
    assert found.columns == [("x", "int64", "int64")]
    assert found.counts == {"column of several types: x (int64, string)": 1}


class _Counted(MemoryStore):
    requests = 0

    def get_ranges(self, *args: object, **kwargs: object) -> list[memoryview]:
        self.requests += 1
        return super().get_ranges(*args, **kwargs)  # type: ignore[arg-type]


def test_a_manifest_takes_no_further_request(tmp_path: Path) -> None:
    from lading._core.storage.stores import Stores

    store = _Counted()
    stores = Stores({"far://": store})
    with lading.writer("far://b/out", format="parquet", shard_size="1KB", stores=stores) as writer:
        for name in "abcde":
            writer.write_batch(pa.table({"__key__": [f"{name}{i}" for i in range(90)], "txt": [name] * 90}))
    with lading.open("far://b/out", stores=stores) as ds:
        assert len(ds.shards) == 3
        before = store.requests
        assert ds.columns == ["__key__", "txt"]
        assert not ds.schema_is_partial
        assert store.requests == before
