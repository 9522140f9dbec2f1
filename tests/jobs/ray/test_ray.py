"""Conversions on a cluster of Ray, and datasets of Ray Data: one cluster for all, in a process of its own."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from lading._core.dataset.query import Query
from lading._core.jobs.convert.settle import settled
from lading._core.jobs.ray import sink as ray_sink
from lading._core.jobs.ray.sink import _Sink, _WriteJob
from lading._core.jobs.ray.source import _job_of, _pieces, _tables
from lading._core.manifest.values import own_version
from lading._core.storage.stores import Stores
from lading.errors import DataError, MissingExtra, SchemaMismatch, UsageError

ON_RAY = """
import json, os, signal, sys
import numpy as np, pyarrow as pa
import ray, lading
from lading.errors import CorruptShard, LadingError
from lading._core.jobs.convert import tasks
tasks.ALONE_BYTES = 0  # several tasks, as in the process of the test

folder = sys.argv[1]
source, photos, table, marker = (f"{folder}/{name}" for name in ("source", "photos", "table.parquet", "died"))
ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=80 << 20, log_to_driver=False)
context = ray.data.DataContext.get_current()
context.execution_options.preserve_order, context.enable_progress_bars = True, False
driver, told = os.getpid(), {}

def step(sample):
    if os.getpid() != driver and not os.path.exists(marker):
        open(marker, "x").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"seen": 1}

ds = lading.open(source, view="samples").map(step)
told["shards"] = ds.write(f"{folder}/out", "parquet", shard_size="150kb", executor="ray").shards
assert ray.is_initialized()  # who connected disconnects

def tensors(rows):
    width = pa.array(np.arange(2 * rows.num_rows, dtype=np.float32))
    return rows.append_column("size", pa.FixedSizeListArray.from_arrays(width, 2))

rows = lading.ray.to_ray(photos)
told["schema"] = str(rows.schema().base_schema)
told["count"] = rows.count()
done = lading.ray.write_ray(rows, f"{folder}/photos-back", format="parquet", shard_size="20kb")
told["written"] = done.shards, done.samples, done.source_format
told["chosen"] = lading.ray.to_ray(lading.open(photos).where("json.n >= 38").select("txt", "json")).take_all()

few = lading.ray.to_ray(table)  # bytes of its column "b" are damaged
told["one"] = few.select_columns(["a"]).sum("a"), few.count()
told["pruned"] = lading.ray.to_ray(lading.open(table).where("a < 10").select("a")).sum("a")
try:
    few.materialize()
except LadingError as error:
    told["damaged"] = isinstance(error, CorruptShard)

context.target_max_block_size = 1400 << 10  # several blocks a shard
items = lading.ray.to_ray(f"{folder}/documents")
told["blocks"] = [
    sorted({*ray.get(block)["sample_id"].to_pylist()}) for block in items.materialize().to_arrow_refs()
]
lading.ray.write_ray(items, f"{folder}/documents-back", format="webdataset", shard_size="50kb")
context.target_max_block_size = 4 << 10
try:
    lading.ray.to_ray(f"{folder}/documents").materialize()
except LadingError as error:
    told["large"] = str(error)

def other(rows):
    return {"a": rows["n"]} if rows["n"][0] < 20 else {"a": rows["n"], "b": rows["n"]}

rows = lading.ray.to_ray(lading.open(photos).map(lambda sample: {"n": sample["json"]["n"]}))
try:
    mapped = rows.map_batches(other, batch_size=None)
    lading.ray.write_ray(mapped, f"{folder}/mixed", format="parquet", shard_size="1kb")
except LadingError as error:
    told["mixed"] = type(error).__name__, str(error)

def shapes(rows):
    return {"grid": np.arange(6 * len(rows["n"]), dtype=np.float32).reshape(-1, 2, 3)}

lading.ray.write_ray(rows.map_batches(shapes), f"{folder}/grids", format="parquet")

def ragged(row):
    return {"ids": np.arange(row["n"] % 3)}

lading.ray.write_ray(rows.map(ragged), f"{folder}/ragged", format="parquet")
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def on_ray(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder with what was written by Ray, and what the process with Ray told."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    folder = tmp_path_factory.mktemp("ray")
    docs = str(resources.files("lading._core.data"))
    lading.convert(docs, folder / "source", format="webdataset", shard_size="150kb")
    lading.convert(docs, folder / "documents", format="parquet", shard_size="5MB")
    with lading.writer(folder / "photos", format="webdataset", shard_size="50kb") as writer:
        for n in range(40):
            writer.write({"__key__": f"{n:03}", "jpg": bytes([n]) * 4000, "txt": f"é {n}", "cls": n, "json": {"n": n}})
    pq.write_table(pa.table({"a": range(100), "b": [b"%d" % n * 50 for n in range(100)]}), folder / "table.parquet",
                   row_group_size=10, compression="none", use_dictionary=False)  # fmt: skip
    chunk = pq.read_metadata(folder / "table.parquet").row_group(5)
    data = bytearray((folder / "table.parquet").read_bytes())
    data[chunk.column(1).data_page_offset : chunk.column(1).data_page_offset + 40] = b"\xff" * 40
    (folder / "table.parquet").write_bytes(data)
    home = {"HOME": str(folder), "RAY_AUTH_MODE": "disabled"}
    done = subprocess.run([sys.executable, "-c", ON_RAY, str(folder)], env={**os.environ, **home}, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.soak
def test_the_same_bytes_on_ray_though_a_worker_dies(on_ray: tuple[Path, dict[str, Any]]) -> None:
    folder, told = on_ray
    assert told["shards"] > 3
    assert (folder / "died").exists()
    lading.open(folder / "source", view="samples").map(lambda _: {"seen": 1}).write(
        folder / "alone", "parquet", shard_size="150kb"
    )

    def contents(folder: Path) -> dict[str, bytes]:
        return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*.parquet")}

    assert contents(folder / "out") == contents(folder / "alone")


@pytest.mark.soak
def test_rows_go_through_ray_and_come_back(on_ray: tuple[Path, dict[str, Any]]) -> None:
    folder, told = on_ray
    assert told["count"] == 40
    schema = told["schema"]
    for each in ("__key__: string", "jpg: large_binary", "txt: string", "cls: int64", '{"kind":"image"}'):
        assert each in schema
    shards = len(lading.open(folder / "photos-back").shards)
    assert told["written"] == [shards, 40, "ray"]
    assert shards > 1
    assert lading.digest(folder / "photos-back") == lading.digest(folder / "photos")


@pytest.mark.soak
def test_documents_are_whole_in_blocks_and_come_back(on_ray: tuple[Path, dict[str, Any]]) -> None:
    folder, told = on_ray
    names = [name for block in told["blocks"] for name in block]
    assert len(told["blocks"]) > len(lading.open(folder / "documents").shards)
    assert len(names) == len({*names}) == len(lading.open(folder / "documents"))
    back = lading.open(folder / "documents-back")
    assert back.view == "interleaved"
    assert lading.digest(back) == lading.digest(folder / "documents")
    assert "a document is larger than half a block" in told["large"]


@pytest.mark.soak
def test_steps_and_columns_are_pushed_down(on_ray: tuple[Path, dict[str, Any]]) -> None:
    _, told = on_ray
    assert [(row["txt"], json.loads(row["json"])) for row in told["chosen"]] == [
        ("é 38", {"n": 38}),
        ("é 39", {"n": 39}),
    ]
    assert told["one"] == [sum(range(100)), 100]
    assert told["pruned"] == sum(range(10))
    assert told["damaged"]


@pytest.mark.soak
def test_a_failed_write_leaves_nothing(on_ray: tuple[Path, dict[str, Any]]) -> None:
    folder, told = on_ray
    kind, text = told["mixed"]
    assert kind == "SchemaMismatch"
    assert "column 'b'" in text
    assert not (folder / "mixed").exists()
    assert [path.name for path in folder.iterdir() if ".lading-" in path.name] == []


@pytest.mark.soak
def test_arrays_of_ray_become_lists(on_ray: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = on_ray
    [*rows] = (batch for batch in lading.open(folder / "grids").batches())
    assert rows[0]["grid"][1].as_py() == [[6, 7, 8], [9, 10, 11]]
    assert sum(batch.num_rows for batch in rows) == 40
    ids = [value for batch in lading.open(folder / "ragged").batches() for value in batch.column("ids").to_pylist()]
    assert sorted(map(tuple, ids)) == sorted(tuple(range(number % 3)) for number in range(40))


# The sink, without Ray


def _sink(folder: Path, **more: Any) -> _Sink:
    job = _WriteJob("parquet", "samples", {}, "samples", 1 << 20, Stores(), None, is_given=False, sender=("", ""))
    finds = more.pop("view", None) is None
    return _Sink(job, str(folder / "out"), Stores(), overwrite=False, finds_view=finds)


def _attempt(sink: _Sink, task: int, rows: pa.Table) -> ray_sink._Written:
    copy = pickle.loads(pickle.dumps(sink))  # as a worker gets it
    return ray_sink._write(copy._job, [rows], task)


def test_a_repeated_write_task_adds_nothing_twice(tmp_path: Path) -> None:
    tables = [pa.table({"n": range(10 * i, 10 * i + 10)}) for i in range(3)]
    sink = _sink(tmp_path)
    sink.on_write_start(tables[0].schema)
    _attempt(sink, 1, tables[1])  # its process dies before Ray has its answer
    done = [_attempt(sink, task, tables[task]) for task in (2, 0, 1)]
    late = _attempt(sink, 2, tables[2])
    sink.on_write_complete(SimpleNamespace(write_returns=done))
    assert late.folder != done[0].folder
    assert sink.summary.samples == sink.summary.rows == 30
    assert [row["n"] for row in lading.open(tmp_path / "out")] == list(range(30))
    assert len([*(tmp_path / "out").glob("*.parquet")]) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


ITEMS = {"modality": "text", "content_type": None, "text_content": "x", "binary_content": None, "source_ref": None,
         "materialize_error": None}  # fmt: skip


def _items(*places: tuple[str, int]) -> pa.Table:
    rows = [{"sample_id": name, "position": at, **ITEMS} for name, at in places]
    return pa.Table.from_pylist(rows, lading._core.features.items.INTERLEAVED_SCHEMA)


def test_a_document_may_be_in_two_blocks_of_a_task_and_not_in_two_tasks(tmp_path: Path) -> None:
    blocks = [_items(("a", 0), ("b", 0)), _items(("b", 1)), _items(("b", 2), ("c", 0))]
    sink = _sink(tmp_path)
    sink.on_write_start(blocks[0].schema)
    done = ray_sink._write(sink._job, blocks, 0)
    other = _attempt(sink, 1, _items(("c", 1), ("d", 0)))
    with pytest.raises(DataError, match=r"sample 'c': a document was cut.*batch_size=None"):
        sink.on_write_complete(SimpleNamespace(write_returns=[other, done]))
    sink.on_write_complete(SimpleNamespace(write_returns=[done]))
    found = lading.open(tmp_path / "out")
    assert found.view == "interleaved"
    assert [(sample["sample_id"], len(sample["items"])) for sample in found] == [("a", 1), ("b", 3), ("c", 1)]


@pytest.mark.parametrize(
    "tasks",
    [
        [[[("a", 0)], [("c", 0)]], [[("b", 0)], [("a", 1)]]],
        [[[("a", 0)], [("b", 0)], [("a", 1)]]],
        [[[("b", 0)], [("a", 1)]], [[("c", 0), ("a", 0)], [("d", 0)]]],
        [[[("a", 1)], [("b", 0)], [("a", 0)]]],
    ],
)
def test_a_document_in_blocks_that_are_apart_is_cut(tmp_path: Path, tasks: list[list[list[tuple[str, int]]]]) -> None:
    sink = _sink(tmp_path)
    sink.on_write_start(_items().schema)
    done = [ray_sink._write(sink._job, [_items(*block) for block in blocks], n) for n, blocks in enumerate(tasks)]
    with pytest.raises(DataError, match=r"sample 'a': a document was cut"):
        sink.on_write_complete(SimpleNamespace(write_returns=done))


def test_whole_documents_of_one_id_are_not_cut(tmp_path: Path) -> None:
    sink = _sink(tmp_path)
    blocks = [_items(("a", 0), ("a", 1)), _items(("b", 0)), _items(("a", 0)), _items(), _items(("a", 1))]
    sink.on_write_start(blocks[0].schema)
    sink.on_write_complete(SimpleNamespace(write_returns=[ray_sink._write(sink._job, blocks, 0)]))
    assert [len(sample["items"]) for sample in lading.open(tmp_path / "out")] == [2, 1, 2]


@pytest.mark.parametrize("blocks, shards", [(1, 1), (4, 1), (5, 1), (7, 2), (10, 2), (12, 3), (33, 8)])
def test_the_shards_of_a_write_task_are_about_equal(tmp_path: Path, blocks: int, shards: int) -> None:
    rng = np.random.default_rng(0)
    tables = [pa.table({"b": [rng.bytes(10_000) for _ in range(26)]}) for _ in range(blocks)]  # four make a shard
    sink = _sink(tmp_path)
    sink.on_write_start(tables[0].schema)
    done = ray_sink._write(sink._job, tables, 0)
    sink.on_write_complete(SimpleNamespace(write_returns=[done]))
    sizes = [path.stat().st_size for path in (tmp_path / "out").glob("*.parquet")]
    assert len(sizes) == shards
    assert max(sizes) < 1.35 * (1 << 20)
    assert min(sizes) > 0.7 * sum(sizes) / shards


@pytest.mark.parametrize("target", ["parquet", "webdataset"])
def test_a_schema_gives_blocks_types_and_features(tmp_path: Path, target: str) -> None:
    with lading.writer(tmp_path / "in", format="webdataset") as writer:
        writer.write({"__key__": "a", "jpg": b"\xff\xd8\xff", "txt": "é", "cls": 1, "json": {"n": [1, None]}})
    ds = lading.open(tmp_path / "in")
    job = _WriteJob(target, "samples", {}, "none", 1 << 20, Stores(), ds.schema, is_given=True, sender=("", ""))
    sink = _Sink(job, str(tmp_path / "out"), Stores(), overwrite=False, finds_view=True)
    sink.on_write_start()
    bare = pa.table({"cls": pa.array([1], pa.int8()), "__key__": pa.array(["a"], pa.large_string()),
                     "jpg": [b"\xff\xd8\xff"], "txt": ["é"], "json": ['{"n": [1, null]}']})  # fmt: skip
    with pytest.raises(SchemaMismatch, match=r"column 'x'"):
        ray_sink._write(sink._job, [bare.append_column("x", [[1]])], 0)
    sink.on_write_complete(SimpleNamespace(write_returns=[ray_sink._write(sink._job, [bare], 0)]))
    assert lading.digest(tmp_path / "out") == lading.digest(ds)
    assert str(lading.open(tmp_path / "out").schema) == str(ds.schema)


def test_no_rows_are_a_dataset_with_columns(tmp_path: Path) -> None:
    sink = _sink(tmp_path)
    sink.on_write_start(pa.schema({"n": pa.int64()}))
    sink.on_write_complete(
        SimpleNamespace(write_returns=[_attempt(sink, 0, pa.table({"n": pa.array([], pa.int64())}))])
    )
    assert lading.open(tmp_path / "out").schema.names == ["n"]
    assert len(lading.open(tmp_path / "out")) == 0


def test_write_tasks_that_were_told_no_columns_must_agree(tmp_path: Path) -> None:
    sink = _sink(tmp_path)
    sink.on_write_start()  # as versions of Ray before 2.54 do
    done = [_attempt(sink, 0, pa.table({"n": [1]})), _attempt(sink, 1, pa.table({"n": ["x"]}))]
    with pytest.raises(SchemaMismatch, match="blocks of one dataset differ in columns"):
        sink.on_write_complete(SimpleNamespace(write_returns=done))
    sink.on_write_failed(ValueError())
    assert [*tmp_path.iterdir()] == []


def test_what_a_write_task_is_sent_holds_no_writer_and_shows_no_secret(tmp_path: Path) -> None:
    stores = Stores.of(None, {"secret_access_key": "hush"})
    assert stores is not None
    job = _WriteJob("parquet", "samples", {}, "none", 1, stores, None, is_given=False, sender=(own_version(), "here"))
    sink = _Sink(job, str(tmp_path / "out"), stores, overwrite=False, finds_view=True)
    sink.on_write_start()
    assert "hush" not in repr(sink._job)
    assert vars(pickle.loads(pickle.dumps(sink))) == {"_job": sink._job}
    sink.abort()


@pytest.mark.parametrize("sender, tasks, found", [
    (("0.0.9", "other"), "{here}/tasks", "another version of lading"),
    ((own_version(), "other"), "{here}/gone/tasks", "does not see the destination.*the folder that other sees"),
])  # fmt: skip
def test_a_machine_of_another_kind_refuses_write_tasks(
    tmp_path: Path, sender: tuple[str, str], tasks: str, found: str
) -> None:
    job = _WriteJob("parquet", "samples", {}, "none", 1, Stores(), None, is_given=False, sender=sender,
                    tasks=tasks.format(here=tmp_path))  # fmt: skip
    with pytest.raises(UsageError, match=found):
        _Sink(job, "", Stores(), overwrite=False, finds_view=True).write([], SimpleNamespace(task_idx=0))


def test_small_shards_are_read_by_one_task_together(tmp_path: Path) -> None:
    for number in range(7):
        pq.write_table(pa.table({"n": range(10 ** min(number, 4))}), tmp_path / f"{number}.parquet")
    sizes = [path.stat().st_size for path in sorted(tmp_path.iterdir())]
    for asked in (1, 3, 7, 100, None):
        job = _job_of(Query.of(str(tmp_path)), 128 << 20)
        with job.query.open_shards() as shards:
            pieces = _pieces(shards, job, asked)
        paths = [shard["path"] for piece in pieces for shard in piece.shards]
        assert paths == [f"{tmp_path}/{number}.parquet" for number in range(7)]
        assert len(pieces) <= (asked or 7)
        assert len(pieces) >= min(asked or 7, 3)
        assert max(piece.size_bytes for piece in pieces) <= sum(sizes) / len(pieces) + max(sizes)
    with pytest.raises(UsageError, match="override_num_blocks=0"):
        lading.ray.to_ray(tmp_path, override_num_blocks=0)


@pytest.mark.parametrize("view", ["samples", "interleaved"])
def test_a_large_shard_is_read_by_several_tasks(docs: Path, tmp_path: Path, monkeypatch: Any, view: str) -> None:
    folder, rng = tmp_path / "in", np.random.default_rng(0)
    if view == "samples":
        how = {"options": {"row_group_bytes": 8000}}
        with lading.writer(folder, format="parquet", rows_per_shard=50, **how) as writer:
            writer.write_batch(pa.table({"n": range(120), "b": [rng.bytes(1000) for _ in range(120)]}))
    else:
        folder.mkdir()
        items = pa.Table.from_batches(lading.open(docs).batches(shards_per_batch=None))
        pq.write_table(items, folder / "0.parquet", row_group_size=20)
    monkeypatch.setattr("lading._core.jobs.convert.tasks.ALONE_BYTES", 0)
    monkeypatch.setattr("lading._core.jobs.ray.source._CUT_BYTES", 20_000)
    job = _job_of(Query.of(str(folder), view=view), 128 << 20)
    with job.query.open_shards() as shards:
        spec = settled(job, shards)
        for asked in (None, 2):
            pieces = _pieces(shards, job, asked)
            assert len(pieces) <= asked if asked else len(pieces) > len(shards.listing) + 2
            tables = [pa.concat_tables(_tables(spec.encode(), piece, None, 1 << 30)) for piece in pieces]
            if view == "samples":
                assert [piece.num_rows for piece in pieces] == [table.num_rows for table in tables]
                assert pa.concat_tables(tables)["n"].to_pylist() == [*range(120)]
            else:
                every = pa.concat_tables(tables).to_pylist()
                assert every == [row for batch in lading.open(folder).batches() for row in batch.to_pylist()]
                ids = [name for table in tables for name in {*table["sample_id"].to_pylist()}]
                assert len(ids) == len({*ids})


# Refusals, before Ray does anything


@pytest.mark.soak
def test_steps_that_need_all_samples_are_named(on_ray: tuple[Path, dict[str, Any]]) -> None:
    ds = lading.open(on_ray[0] / "photos")
    for made, advice in (
        (ds.limit(3), r"limit\(3\).*Use limit\(\)"),
        (ds.shuffle(1), "random_shuffle"),
        (ds[2:], "write"),
    ):
        with pytest.raises(UsageError, match=advice):
            lading.ray.to_ray(made)


def test_without_ray_the_error_says_what_to_install(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "ray.data", raising=False)
    for call in (
        lambda: lading.convert(docs, tmp_path / "out", format="parquet", executor="ray"),
        lambda: lading.ray.to_ray(docs),
        lambda: lading.ray.write_ray(None, tmp_path / "out", format="parquet"),
    ):
        with pytest.raises(MissingExtra, match=r"pip install 'lading\[ray\]'"):
            call()
    assert not (tmp_path / "out").exists()
