"""Each line of the table of Ray Data in `docs/coming-from.md`: both libraries, on one cluster for all tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import lading
from doc_tables import Table
from peers import import_peer

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

TABLE = Table("Ray Data")

COUNT = 20
ROWS = [{"id": i, "score": (7 * i) % COUNT / 8, "lang": ("de", "en")[i % 2]} for i in range(COUNT)]


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Ray, on two cores of this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("RAY_AUTH_MODE", "disabled")
        ray = import_peer("ray")
        import_peer("ray.data")
        ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=80 << 20, log_to_driver=False)
        context = ray.data.DataContext.get_current()
        context.execution_options.preserve_order, context.enable_progress_bars = True, False
        yield ray
        ray.shutdown()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Parquet file of the rows."""
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path)
    return path


@pytest.fixture(scope="module")
def theirs(ray: Any) -> Any:
    """The rows in Ray, in one block: each task of Ray takes long to start."""
    return ray.data.from_arrow(pa.Table.from_pylist(ROWS))


@pytest.fixture
def ds(table: Path) -> lading.Dataset:
    return lading.open(table)


def rows(found: Any) -> list[dict[str, Any]]:
    """Return samples as plain dicts, without the key that lading gives to rows."""
    return [{name: value for name, value in dict(sample).items() if name != "__key__"} for sample in found]


def picture(value: int) -> bytes:
    out = BytesIO()
    Image.new("RGB", (4, 3), (value, 2, 3)).save(out, format="PNG")
    return out.getvalue()


@TABLE.line("`read_webdataset`, `read_parquet`, `read_json`, `read_csv`, `read_images`")
@pytest.mark.soak
def test_readers(ray: Any, tmp_path: Path) -> None:
    data = pa.Table.from_pylist(ROWS)
    pq.write_table(data, tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "a.csv").write_text("id,lang\n" + "".join(f"{row['id']},{row['lang']}\n" for row in ROWS))
    for name, read in (("a.parquet", ray.data.read_parquet), ("a.jsonl", ray.data.read_json)):
        assert rows(lading.open(tmp_path / name)) == read(str(tmp_path / name)).take_all() == ROWS
    found = lading.open(tmp_path / "a.csv", options={"types": {"id": "int64"}})
    assert rows(found) == ray.data.read_csv(str(tmp_path / "a.csv")).take_all()
    with import_peer("webdataset").TarWriter(str(tmp_path / "a.tar")) as writer:
        for i in range(3):
            writer.write({"__key__": f"{i}", "png": picture(i), "json": {"i": i}, "txt": f"text {i}"})
    (tmp_path / "images").mkdir()
    for i in range(3):
        (tmp_path / "images" / f"{i}.png").write_bytes(picture(i))
    peer = ray.data.read_webdataset(str(tmp_path / "a.tar"), decoder=True).take_all()
    assert [
        (s["__key__"], np.asarray(s["png"]).tolist(), s["json"], s["txt"]) for s in lading.open(tmp_path / "a.tar")
    ] == [(s["__key__"], np.asarray(s["png"]).tolist(), s["json"], s["txt"]) for s in peer]
    images = [s["image"].tolist() for s in ray.data.read_images(str(tmp_path / "images")).take_all()]
    assert sorted(np.asarray(s["png"]).tolist() for s in lading.open(tmp_path / "images")) == sorted(images)


@TABLE.line("`ds.map(fn)`, `ds.filter(fn)`", '`ds.filter(expr="score > 0.5")`',
            '`ds.map_batches(fn, batch_format="pyarrow")`', '`ds.add_column("n", fn)`')  # fmt: skip
@pytest.mark.soak
def test_functions(theirs: Any, ds: lading.Dataset, tmp_path: Path) -> None:
    assert (
        rows(ds.map(lambda sample: {"n": 2 * sample["id"]}))
        == theirs.map(lambda row: {**row, "n": 2 * row["id"]}).take_all()
    )
    peer = theirs.filter(expr="score > 0.5").take_all()
    assert theirs.filter(lambda row: row["score"] > 0.5).take_all() == peer
    assert rows(ds.filter(lambda sample: sample["score"] > 0.5)) == rows(ds.where("score > 0.5")) == peer

    def fn(batch: Any) -> Any:
        return batch.append_column("n", pa.array([2 * each.as_py() for each in batch["id"]]))

    assert rows(ds.map_batches(fn)) == theirs.map_batches(fn, batch_format="pyarrow").take_all()
    added = theirs.add_column("n", lambda frame: frame["id"] + 1).take_all()
    assert rows(ds.map(lambda sample: {"n": sample["id"] + 1})) == added
    with lading.writer(tmp_path / "tars", format="webdataset") as writer:
        for row in ROWS:
            writer.write({"__key__": f"{row['id']:02}", "json": row, "png": picture(1)})
    tars = lading.open(tmp_path / "tars")
    assert [s["json"] for s in tars.where("json.lang == 'en'")] == [row for row in ROWS if row["lang"] == "en"]
    assert len([*tars.where("png.width == 4")]) == COUNT


@TABLE.line("`ds.select_columns`, `ds.drop_columns`, `ds.rename_columns`")
@pytest.mark.soak
def test_columns(theirs: Any, ds: lading.Dataset) -> None:
    assert rows(ds.select("id", "lang")) == theirs.select_columns(["id", "lang"]).take_all()
    assert rows(ds.drop("lang")) == theirs.drop_columns(["lang"]).take_all()
    assert rows(ds.rename({"lang": "l"})) == theirs.rename_columns({"lang": "l"}).take_all()


@TABLE.line("`ds.random_sample(0.01, seed=0)`",
            '`ds.random_shuffle(seed=0)`, `ds.sort("score", descending=True)`')  # fmt: skip
@pytest.mark.soak
def test_orders(theirs: Any, ds: lading.Dataset) -> None:
    assert {row["id"] for row in theirs.random_sample(0.5, seed=0).take_all()} < {*range(COUNT)}
    some = [row["id"] for row in ds.sample(0.5, seed=0)]
    assert some == [row["id"] for row in ds.sample(0.5, seed=0)]
    assert 0 < len(some) < COUNT
    assert len(ds.sample(7)) == 7
    peer = [row["id"] for row in theirs.random_shuffle(seed=0).take_all()]
    found = [row["id"] for row in ds.shuffle(seed=0)]
    assert sorted(found) == sorted(peer) == [*range(COUNT)] != found
    assert rows(ds.sort("score", descending=True)) == theirs.sort("score", descending=True).take_all()


@TABLE.line("`ds.train_test_split(0.1)`, `ds.split_proportionately([0.9])`")
@pytest.mark.soak
def test_splits(theirs: Any, ds: lading.Dataset) -> None:
    parts = [part.count() for part in theirs.train_test_split(0.1)]
    assert [part.count() for part in theirs.split_proportionately([0.9])] == parts
    assert [len(part) for part in ds.split({"train": 0.9, "test": 0.1}).values()] == parts == [18, 2]


@TABLE.line("`ds.limit(n)`, `ds.count()`, `ds.schema()`", "`ds.take(5)`, `ds.show(5)`", "`ds.union(other)`",
            '`ds.join(other, …, on=("id",))`')  # fmt: skip
@pytest.mark.soak
def test_counts_and_joins(ray: Any, theirs: Any, ds: lading.Dataset, tmp_path: Path) -> None:
    assert rows(ds.limit(7)) == theirs.limit(7).take_all()
    assert len(ds) == theirs.count()
    peer = theirs.schema()
    assert {name: ds.schema.field(name).type for name in peer.names} == dict(zip(peer.names, peer.types, strict=True))
    assert rows(ds.head(5)) == theirs.take(5)
    other = theirs.limit(3)
    assert rows(lading.concat([ds, ds.limit(3)])) == theirs.union(other).take_all()
    scores = pa.table({"id": [*range(COUNT)], "stars": [i % 5 for i in range(COUNT)]})
    pq.write_table(scores, tmp_path / "scores.parquet")
    joined = theirs.join(ray.data.from_arrow(scores), "inner", 2, on=("id",)).take_all()
    assert rows(ds.join(str(tmp_path / "scores.parquet"), on="id")) == sorted(joined, key=lambda row: row["id"])


@TABLE.line("`ds.repartition(16)`", '`ds.write_parquet("out")`, `ds.write_webdataset("out")`',
            '`ds.iter_batches(batch_size=64, batch_format="pyarrow")`')  # fmt: skip
@pytest.mark.soak
def test_shards_and_batches(theirs: Any, ds: lading.Dataset, tmp_path: Path) -> None:
    theirs.repartition(4).write_parquet(str(tmp_path / "theirs"))
    ds.repartition(num_shards=4).write(tmp_path / "out", format="parquet")
    assert len([*(tmp_path / "out").glob("*.parquet")]) == len([*(tmp_path / "theirs").glob("*.parquet")]) == 4
    ours = lading.open(tmp_path / "out")
    assert sorted(rows(ours), key=lambda row: row["id"]) == rows(ds)
    assert sorted(rows(lading.open(tmp_path / "theirs")), key=lambda row: row["id"]) == rows(ds)
    peer = [batch.to_pylist() for batch in theirs.iter_batches(batch_size=6, batch_format="pyarrow")]
    assert [batch.to_pylist() for batch in ds.batches(max_rows=6)] == peer
    assert [batch.num_rows for batch in ours.batches(max_rows=3)] == [3, 2] * 4
    assert [len(batch["id"]) for batch in lading.loader(ours, 6)] == [6, 6, 6, 2]
    texts = theirs.map(lambda row: {"__key__": f"{row['id']:02}", "txt": row["lang"]})
    texts.write_webdataset(str(tmp_path / "tars"))
    ds.map(lambda sample: {"__key__": f"{sample['id']:02}", "txt": sample["lang"]}).select("txt").write(
        tmp_path / "ours", format="webdataset"
    )
    assert rows(lading.open(tmp_path / "ours")) == [{"txt": row["lang"]} for row in ROWS]
    by_key = sorted(lading.open(tmp_path / "tars"), key=lambda sample: sample["__key__"])
    assert rows(by_key) == rows(lading.open(tmp_path / "ours"))


@TABLE.line("`ds.groupby(…)`, actors, GPU stages", "several machines")
@pytest.mark.soak
def test_what_needs_ray(theirs: Any, ds: lading.Dataset, tmp_path: Path) -> None:
    found = lading.ray.to_ray(ds).groupby("lang").count().take_all()
    assert sorted(found, key=str) == sorted(theirs.groupby("lang").count().take_all(), key=str)
    ds.write(tmp_path / "out", format="parquet", executor="ray", num_shards=2)
    assert rows(lading.open(tmp_path / "out")) == ROWS


@TABLE.line("several machines")
def test_ranks(ds: lading.Dataset, tmp_path: Path) -> None:
    ds.write(tmp_path / "out", format="parquet", num_shards=2)
    for rank in range(2):
        lading.open(tmp_path / "out").write(tmp_path / "ranks", format="parquet", rank=rank, world_size=2)
    lading.finish(tmp_path / "ranks")
    assert sorted(rows(lading.open(tmp_path / "ranks")), key=lambda row: row["id"]) == ROWS


def test_each_line_is_run() -> None:
    TABLE.check()
