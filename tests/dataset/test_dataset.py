"""Datasets opened: what is read for what is asked, random access, and iteration."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import tarfile
from contextlib import suppress
from datetime import time
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from faults import file_size_limit
from golden_cases import Golden
from lading._core.api.opening import open_dataset
from lading._core.arrow.align import align_table
from lading._core.arrow.references import is_ref, make_refs
from lading._core.dataset.query import open_shards
from lading._core.dataset.shards.iteration import materialise_parts
from lading._core.features.items import INTERLEAVED_SCHEMA, lineage_of
from lading._core.features.types import Json, with_feature
from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import (
    BadReference,
    DataError,
    LadingError,
    SchemaMismatch,
    SidecarMismatch,
    UnknownFormat,
    UsageError,
)
from lading.testing import CountingStore
from registered import NamedType
from tars import tar_of

COUNT = 20_000


@pytest.fixture(scope="module")
def many() -> MemoryStore:
    """20,000 samples in several tars, written by lading, in memory."""
    store = MemoryStore()
    rng = np.random.default_rng(3)
    with lading.writer("box://many", shard_size="4mb", stores=Stores({"box://": store})) as writer:
        for at in range(0, COUNT, 2000):
            values = [rng.bytes(int(n)) for n in rng.integers(200, 1500, 2000)]
            keys = [f"{i:06d}" for i in range(at, at + 2000)]
            writer.write_batch(pa.table({"__key__": keys, "jpg": pa.array(values, pa.large_binary())}))
    return store


@pytest.mark.soak
def test_take_asks_for_the_ranges_of_its_samples_only(many: MemoryStore) -> None:
    counting = CountingStore(many)
    wanted = np.random.default_rng(4).permutation(COUNT)[:1000]
    with open_dataset("box://many", stores=Stores({"box://": counting})) as dataset:
        assert len(dataset) == COUNT
        assert len(dataset.shards) > 3
        counting.reset()
        table = dataset.take(wanted)
        payload = sum(map(len, table.column("jpg").to_pylist()))
        assert table.column("__key__").to_pylist() == [f"{i:06d}" for i in wanted]
        tars = {path: ranges for path, ranges in counting.ranges.items() if path.endswith(".tar")}
        heads = sum(length for ranges in tars.values() for offset, length in ranges if offset == 0)
        asked = sum(length for ranges in tars.values() for _, length in ranges) - heads
        # Near neighbours are one request; tar headers between them are all that comes besides.
        assert payload <= asked < sum(many.head(p).size_bytes for p in tars)
        assert sum(map(len, tars.values())) <= 1000 + 2 * len(tars)


def test_views_are_of_the_mapped_files_and_hold_nothing(tmp_path: Path) -> None:
    values = [bytes([i]) * 5000 for i in range(50)]
    for fmt in ("webdataset", "mds"):
        with lading.writer(tmp_path / fmt, format=fmt) as writer:
            writer.write_batch(pa.table({"__key__": [f"{i:02}" for i in range(50)], "jpg": values}))
        with lading.open(tmp_path / fmt) as dataset:
            before = pa.total_allocated_bytes()
            found = dataset.take([7, 3, 7], views=True)
            assert found.schema.field("jpg").type == pa.binary_view()
            assert pa.total_allocated_bytes() - before < 5000
            assert found.column("jpg").to_pylist() == [values[7], values[3], values[7]]
            assert found.column("__key__").to_pylist() == ["07", "03", "07"]


def test_take_far_apart_reads_nothing_between(many: MemoryStore) -> None:
    counting = CountingStore(many)
    with open_dataset("box://many", stores=Stores({"box://": counting})) as dataset:
        assert len(dataset) == COUNT
        first = dataset.take([0, 199])
        counting.reset()
        again = dataset.take([0, 199, 0])
        assert again.column("jpg").to_pylist()[:2] == first.column("jpg").to_pylist()
        read = sum(length for ranges in counting.ranges.values() for _, length in ranges)
        assert read == sum(map(len, first.column("jpg").to_pylist()))


@pytest.mark.parametrize("fmt", ["webdataset", "parquet"])
@pytest.mark.parametrize("columns", [None, ["text_content"]])
def test_documents_of_several_shards_in_any_order_and_again(
    fmt: str, columns: list[str] | None, tmp_path: Path
) -> None:
    for shard in range(2):
        rows = [(f"s{shard}-{i}", p, f"{shard}/{i}/{p}") for i in range(4) for p in range(i + 1)]
        items = {"sample_id": [r[0] for r in rows], "position": pa.array([r[1] for r in rows], pa.int32()),
                 "modality": ["text"] * len(rows), "text_content": [r[2] for r in rows]}  # fmt: skip
        with lading.writer(tmp_path / f"{shard}", format=fmt, view="interleaved") as writer:
            writer.write_batch(align_table(pa.table(items), INTERLEAVED_SCHEMA))
    files = sorted(str(p) for p in tmp_path.glob("*/shard-*"))
    wanted = [0, 7, 0, 0, 3, 6, 7]
    with lading.open(files, view="interleaved") as dataset:
        taken = dataset.take(wanted, columns)
    expected = [f"{n // 4}/{n % 4}/{p}" for n in wanted for p in range(n % 4 + 1)]
    # A document in a tar has a row of its own beside its texts.
    assert [text for text in taken.column("text_content").to_pylist() if text is not None] == expected


def test_opening_and_the_head_read_little(many: MemoryStore) -> None:
    counting = CountingStore(many)
    with open_dataset("box://many", stores=Stores({"box://": counting})) as dataset:
        assert [s["__key__"] for s in dataset.with_decode(False).head(3)] == ["000000", "000001", "000002"]
    total = sum(i.size_bytes for i in many.walk("box://many"))
    assert counting.bytes_read < total / 10


@pytest.mark.soak
def test_lazy_batches_read_no_payload(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out") as writer:
        for i in range(30):
            writer.write({"__key__": f"{i:03d}", "bin": bytes([i]) * 4_000_000})
    counting = CountingStore(LocalStore())
    with open_dataset(tmp_path / "out", stores=Stores({"": counting})) as dataset:
        batches = list(dataset.batches(lazy=True))
        assert sum(b.num_rows for b in batches) == 30
        assert is_ref(batches[0].schema.field("bin").type)
    assert counting.bytes_read < 30 * 4_000_000 / 10


def test_indexes_of_others_are_kept_in_the_cache(
    tmp_path: Path, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LADING_CACHE", str(tmp_path / "cache"))
    folder = golden("wds") / "shards"
    before = sorted(p.name for p in folder.iterdir())
    summary = lading.index(folder)
    assert (summary.shards, summary.kept, summary.unkept, summary.samples) == (4, 4, 0, 20)
    assert len(list((tmp_path / "cache").iterdir())) == 4
    want = list(lading.open(folder).with_decode(False))[13]
    with lading.open(folder).with_decode(False) as dataset:
        assert dataset[13]["__key__"] == want["__key__"]
        assert dataset.by_key(want["__key__"])["json"] == want["json"]
        with pytest.raises(KeyError):
            dataset.by_key("nobody")
        with pytest.raises(IndexError):
            dataset[20]
    assert sorted(p.name for p in folder.iterdir()) == before


def test_a_sample_that_is_not_there_is_named_as_it_was_asked_for(docs: Path) -> None:
    with lading.open(docs) as dataset:
        count = len(dataset)
        for index in (count, -count - 1):
            with pytest.raises(IndexError, match=f"sample {index} of {count}"):
                dataset[index]


def test_no_columns_are_refused(docs: Path) -> None:
    with lading.open(docs, view="samples") as dataset:
        with pytest.raises(UsageError, match="no column is selected"):
            dataset.take([0], [])
        with pytest.raises(UsageError, match="no column is selected"):
            next(dataset.batches(columns=[]))


@pytest.mark.parametrize("view", ["samples", "interleaved"])
def test_to_take_nothing_gives_the_columns(view: str) -> None:
    tar = str(resources.files("lading._core.data") / "docs-00000.tar")
    with lading.open(tar, view=view) as dataset:
        for columns in (None, ["md.json"] if view == "samples" else ["text_content", "binary_content"]):
            assert dataset.take([], columns).schema.equals(dataset.take([0], columns).schema)


def _unlike(folder: Path, kind: str) -> None:
    """Three shards of two samples: `a` in all, `b` in the first, `c` in the others."""
    for number in range(3):
        other = "c" if number else "b"
        table = pa.table({"a": [b"%d" % number] * 2, other: [b"x", b"y"]})
        path = folder / f"{number}.{kind}"
        if kind == "parquet":
            pq.write_table(table, path)
        elif kind == "arrow":
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table)
        else:
            members = [(f"{i}.{name}", value) for i, row in enumerate(table.to_pylist()) for name, value in row.items()]
            path.write_bytes(tar_of(*members))


@pytest.mark.parametrize("kind", ["parquet", "arrow", "tar"])
def test_columns_that_only_some_shards_have(kind: str, tmp_path: Path) -> None:
    _unlike(tmp_path, kind)
    with lading.open(tmp_path, view="samples") as dataset:
        assert dataset.take([0, 2], ["b"]).to_pydict() == {"b": [b"x", None]}
        none = dataset.take([2, 5], ["b"])
        assert (none.to_pydict(), none.schema.field("b").type) == (
            {"b": [None, None]}, dataset.take([0], ["b"]).schema.field("b").type
        )  # fmt: skip
        assert dataset.take([2, 5], ["b", "a"]).to_pydict() == {"b": [None, None], "a": [b"1", b"2"]}
        assert dataset.take([5, 0], ["c", "a"]).to_pydict() == {"c": [b"y", None], "a": [b"2", b"0"]}
        for rows, name in (([0, 1], "c"), ([3, 0], "zzz"), ([], "zzz")):
            with pytest.raises(UsageError, match=rf"no such column.*a, b.*'{name}'"):
                dataset.take(rows, ["a", name])


def test_indexes_of_one_file_cost_one_look_at_it_and_a_shard_costs_no_other() -> None:
    memory = MemoryStore()
    counting = CountingStore(memory)
    stores = Stores({"box://": counting})
    with lading.writer("box://out", shard_size="2kb", stores=stores) as writer:
        for i in range(20):
            writer.write({"__key__": f"{i:02}", "txt": "x" * 700})
    shards = sum(info.path.endswith(".tar") for info in memory.walk("box://out"))
    assert shards > 5
    with open_dataset("box://out", stores=stores) as dataset:
        assert dataset.take(range(20)).num_rows == 20
    assert len(counting.ranges["box://out/_lading/index-000000.arrow"]) == 1
    counting.reset()
    with open_dataset("box://out/*.tar", stores=stores) as dataset:
        assert dataset.shards[3][0]["txt"] == "x" * 700
    assert set(counting.ranges) <= {"box://out/shard-000000.tar", "box://out/shard-000003.tar"}


@pytest.mark.parametrize("fmt", ["arrow", "csv", "jsonl", "mds", "parquet", "webdataset"])
def test_who_reads_from_a_shard_goes_on_while_another_thread_ends_a_pass_over_it(fmt: str, tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out", format=fmt) as writer:
        for number in range(3):
            writer.write({"__key__": f"{number}", "txt": f"text {number}"})
    with lading.open(tmp_path / "out") as dataset:
        view = dataset._rows.shards.counted_shard(0)  # as `take` has it
        assert sum(batch.num_rows for batch in dataset.batches()) == 3
        assert view.read(np.array([2, 0])).num_rows == 2
        assert str(dataset[1]["txt"]) == "text 1"


@pytest.mark.parametrize("fmt", ["arrow", "csv", "jsonl", "mds", "parquet", "webdataset"])
def test_columns_come_as_they_are_asked_for_or_not_at_all(fmt: str, tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out", format=fmt) as writer:
        for number in range(3):
            writer.write({"__key__": f"{number}", "a": "x", "b": "y"})
    sources: list[Any] = [tmp_path / "out"]
    if fmt != "mds":  # without its manifest
        sources.append(
            [path for path in (tmp_path / "out").iterdir() if path.is_file() and path.suffix not in (".json", ".yaml")]
        )
    for source in sources:
        with lading.open(source) as dataset:
            for asked in (["b", "a"], ["a", "b"], ["b"]):
                assert [batch.schema.names for batch in dataset.batches(columns=asked)] == [asked]
            for unknown in (["zz"], ["a", "zz"]):
                if fmt != "webdataset" or source is sources[0]:  # a later sample of a tar may have it
                    with pytest.raises(UsageError, match=r"no such column.*'zz'"):
                        next(dataset.batches(columns=unknown))


def test_where_there_are_no_rows_no_column_is_missed(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of())
    (tmp_path / "a.jsonl").write_bytes(b"")
    for name in ("a.tar", "a.jsonl"):
        with lading.open(tmp_path / name) as dataset:
            assert list(dataset.batches(columns=["jpg"])) == []


def test_a_column_that_only_the_shards_tell_is_one(tmp_path: Path) -> None:
    """Tars have keys, also where their manifest tells of rows that had none."""
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "a.parquet")
    lading.convert(tmp_path / "a.parquet", tmp_path / "out", format="webdataset")
    with lading.open(tmp_path / "out") as dataset:
        assert "__key__" not in dataset.schema.names
        [batch] = dataset.batches(columns=["__key__"])
        assert batch.column("__key__").to_pylist() == ["000000000", "000000001"]


def test_a_column_that_a_later_shard_has_is_one(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": [2], "b": [3]}), tmp_path / "1.parquet")
    with lading.open(tmp_path) as dataset:
        assert [batch.to_pydict() for batch in dataset.batches(columns=["b", "a"])] == [
            {"a": [1]},
            {"b": [3], "a": [2]},
        ]


@pytest.mark.parametrize("wrong", [0, -1, "3", 1.5, None])
def test_batches_of_no_number_of_rows_are_refused(wrong: Any, tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out", format="parquet") as writer:
        writer.write({"a": 1})
    with lading.open(tmp_path / "out") as dataset, pytest.raises(UsageError, match="number of rows"):
        next(dataset.batches(max_rows=wrong))


def test_a_generator_of_sources(tmp_path: Path) -> None:
    for number in range(2):
        pq.write_table(pa.table({"a": [number]}), tmp_path / f"{number}.parquet")
    with lading.open(path for path in sorted(tmp_path.iterdir())) as dataset:  # type: ignore[arg-type] # `glob` is one
        assert [row["a"] for row in dataset] == [0, 1]
        again = pickle.loads(pickle.dumps(dataset))
        assert [row["a"] for row in again] == [0, 1]


@pytest.mark.parametrize(
    "wrong", [{"limits": {"tar_name_bytes": 1}}, {"options": [1]}, {"roots": [5]}, {"roots": 5}, {"interleaved": {}}]
)
def test_arguments_of_other_types_are_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "0.parquet")
    with pytest.raises(UsageError, match=next(iter(wrong))):
        lading.open(tmp_path, **wrong)


@pytest.mark.parametrize("wrong", [[[0, 1]], np.zeros((2, 1), np.int64), True, 1.5, -1])
def test_samples_are_taken_by_one_list(wrong: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "0.parquet")
    with lading.open(tmp_path) as dataset, pytest.raises(UsageError, match=r"of whole|of samples"):
        dataset.take(wrong)


def test_one_number_takes_the_first_samples(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2, 3]}), tmp_path / "0.parquet")
    with lading.open(tmp_path) as dataset:
        for count in (0, 2, np.int32(3)):
            assert dataset.take(count).equals(dataset.take(range(count)))
            assert dataset.where("a > 1").take(min(count, 2)).equals(dataset.where("a > 1").take(range(min(count, 2))))
        with pytest.raises(IndexError):
            dataset.take(4)


@pytest.mark.parametrize(
    "keys", [pa.array(["a", "b"]), pa.array(["a", "b"]).dictionary_encode(), pa.array([b"a", b"b"]), pa.array([1, 2])]
)
def test_what_is_no_key_is_not_found(keys: pa.Array, tmp_path: Path) -> None:
    pq.write_table(pa.table({"__key__": keys, "n": [5, 6]}), tmp_path / "0.parquet")
    with lading.open(tmp_path) as dataset:
        for number, key in enumerate(["a", "b"] if keys.type != pa.int64() else [1, 2]):
            assert dataset.by_key(key)["n"] == 5 + number  # type: ignore[arg-type] # keys of others may be numbers
        for wrong in ("c", 3, "\ud800", None, 1 << 80, ["a"]):
            with pytest.raises(KeyError):
                dataset.by_key(wrong)  # type: ignore[arg-type] # what is not found


@pytest.mark.filterwarnings("ignore:.* members of a sample do not stand together")
@pytest.mark.parametrize(
    "options, members",
    [
        ({"regroup": True}, ["a.txt", "b.txt", "a.cls"]),
        ({"lower_case": False}, ["a.TXT", "a.txt"]),
        ({"on_duplicate": "keep_last"}, ["a.txt", "a.txt", "b.txt"]),
    ],
)
def test_an_index_made_with_options_is_not_that_of_others(
    options: dict[str, Any], members: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random access gives the samples that iteration gives."""
    monkeypatch.setenv("LADING_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "a.tar"
    path.write_bytes(tar_of(*((name, b"%d" % number) for number, name in enumerate(members))))
    for first, second in ((options, {}), ({}, options), ({"on_duplicate": "keep_first"}, options)):
        with suppress(LadingError):
            lading.index(path, options=first)
        with lading.open(path, options=second) as dataset:
            try:
                want = list(dataset)
            except LadingError as error:
                with pytest.raises(type(error)):
                    [dataset[i] for i in range(len(dataset))]
                continue
        with lading.open(path, options=second) as dataset:
            assert [dataset[i] for i in range(len(dataset))] == want


def test_indexes_that_were_forgotten_take_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(("a.json", b'{"texts": ["x"], "images": [null]}')))
    with open_shards(tmp_path / "a.tar", view="interleaved") as dataset:
        dataset.indexes.hold(0, dataset.open_shard(0).index())
        index = dataset.indexes.held(0)
        assert index is not None
        monkeypatch.setattr("lading._core.dataset.shards.shard_indexes._HELD_BYTES", index.nbytes)
        dataset.forget_shards()
        assert dataset.indexes.held(0) is None
        dataset.indexes.hold(0, dataset.open_shard(0).index())
        assert dataset.indexes.held(0) is not None


def test_options_that_change_no_sample_find_the_same_index(
    tmp_path: Path, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LADING_CACHE", str(tmp_path / "cache"))
    for options in ({}, {"mmap": False}):
        lading.index(golden("wds") / "shards", options=options)
    assert len(list((tmp_path / "cache").iterdir())) == 4


def test_a_cache_that_cannot_be_written_is_said_once(
    tmp_path: Path, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("LADING_CACHE", str(blocked / "cache"))
    with pytest.warns(UserWarning, match="indexes are not kept") as said:
        summary = lading.index(golden("wds") / "shards")
    assert len(said) == 1
    assert (summary.kept, summary.unkept, summary.samples) == (0, 4, 20)


def test_a_cache_that_fills_its_disk_leaves_nothing(
    tmp_path: Path, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = golden("wds") / "shards"
    monkeypatch.setenv("LADING_CACHE", str(tmp_path / "cache"))
    with file_size_limit(1000), pytest.warns(UserWarning, match="indexes are not kept"):
        summary = lading.index(shards)
    assert (summary.kept, summary.samples) == (0, 20)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_shard_of_another_size_than_the_manifest_says(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out") as writer:
        writer.write({"__key__": "a", "txt": "x"})
    with (tmp_path / "out" / "shard-000000.tar").open("ab") as file:
        file.write(bytes(512))
    with lading.open(tmp_path / "out") as dataset, pytest.raises(SidecarMismatch, match=r"shard-000000\.tar"):
        list(dataset)


def test_fields_that_come_late_join_and_stay(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out") as writer:
        for i in range(30):
            writer.write({"__key__": f"{i:02d}", "txt": "t", **({"cls": b"1"} if i == 12 else {})})
    with lading.open(tmp_path / "out") as dataset:
        names = [b.schema.names for b in dataset.batches(max_rows=10)]
        assert names == [["__key__", "txt"], ["__key__", "txt", "cls"], ["__key__", "txt", "cls"]] or all(
            n == ["__key__", "txt", "cls"] for n in names[1:]
        )
        assert sum(s["cls"] is not None for s in dataset) == 1
    with pytest.raises(UsageError):
        lading.open(tmp_path / "out", view="sideways")


@pytest.mark.soak
def test_views_and_copies_hold_the_same(many: MemoryStore) -> None:
    stores = Stores({"box://": many})
    with open_dataset("box://many", stores=stores) as dataset:
        copies = [v for b in dataset.batches(max_rows=500) for v in b.column("jpg").to_pylist()]
        views = [v for b in dataset.batches(max_rows=700, views=True) for v in b.column("jpg").to_pylist()]
    assert copies == views
    assert len(copies) == COUNT


@pytest.mark.mechanism("fork after opening")
def test_a_process_may_fork_after_opening(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out") as writer:
        for i in range(20):
            writer.write({"__key__": f"{i:02d}", "txt": str(i)})
    dataset = lading.open(tmp_path / "out")
    want = dataset[7]
    child = os.fork()
    if child == 0:
        os._exit(0 if dataset[7] == want and len(list(dataset)) == 20 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("mmap", [True, False])
def test_samples_one_at_a_time_raw_or_decoded(mmap: bool, tmp_path: Path) -> None:
    want = [
        {"__key__": f"{i:02d}", "bin": bytes([i]) * (i * 1000), **({"cls": b"7"} if i % 3 else {})} for i in range(20)
    ]
    with lading.writer(tmp_path / "out") as writer:
        for sample in want:
            writer.write(sample)
    shutil.rmtree(tmp_path / "out" / "_lading")  # in any other tar bytes are what the names of members say
    with lading.open(tmp_path / "out", mmap=mmap) as dataset:
        assert list(dataset.samples(raw=True)) == want
        assert list(dataset) == [{**s, **({"cls": 7} if "cls" in s else {})} for s in want]


def small_shards(folder: Path, form: str) -> Path:
    """Five shards of two interleaved samples each; from the third on they have a field more, then of another type."""
    for i in range(5):
        for j in range(2):
            more = {"own": i if i < 3 else str(i)} if i > 1 else {}
            document = {"sample_id": f"{i}{j}", "texts": ["t"], "images": [f"{i}{j}.jpg"], **more}
            name = f"{i}{j}"
            (folder / f"{i}").mkdir(parents=True, exist_ok=True)
            (folder / f"{i}" / f"{name}.jpg").write_bytes(b"x" * 100)
            (folder / f"{i}" / f"{name}.json").write_text(json.dumps(document))
        with tarfile.open(folder / f"{i}.tar", "w") as tar:
            for file in sorted((folder / f"{i}").iterdir(), key=lambda f: f.suffix):
                tar.add(file, file.name)
        shutil.rmtree(folder / f"{i}")
    if form == "parquet":
        for i in range(5):
            lading.convert(folder / f"{i}.tar", folder / f"p{i}", format="parquet")
            (folder / f"p{i}" / "shard-000000.parquet").rename(folder / f"{i}.parquet")
            shutil.rmtree(folder / f"p{i}")
    return folder


@pytest.mark.soak
@pytest.mark.parametrize("form", ["tar", "parquet"])
@pytest.mark.parametrize("views", [False, True])
def test_small_shards_may_share_batches(form: str, views: bool, tmp_path: Path) -> None:
    small_shards(tmp_path, form)
    with open_dataset(str(tmp_path / f"[0-2].{form}")) as dataset:
        alone = [row for batch in dataset.batches() for row in batch.to_pylist()]
        for most, shards in ((1, [1, 1, 1]), (2, [2, 1]), (None, [3])):
            batches = [
                (b.to_pylist(), lineage_of(b.schema)) for b in dataset.batches(views=views, shards_per_batch=most)
            ]
            assert [len(files) for _, files in batches] == shards
            rows = [{"own": None, **row} for rows, _ in batches for row in rows]
            assert rows == [{"own": None, **row} for row in alone]
            assert [os.path.basename(f) for _, files in batches for f in files] == [f"{i}.{form}" for i in range(3)]
        sizes = [b.num_rows for b in dataset.batches(max_rows=7, shards_per_batch=None)]
        assert max(sizes) <= 7
        assert sum(sizes) == len(alone)


def test_shards_that_begin_with_the_id_the_last_ended_with_stay_apart(tmp_path: Path) -> None:
    rows = {"sample_id": ["a"], "position": pa.array([0], pa.int32()), "modality": ["text"], "text_content": ["t"]}
    for i in range(3):
        pq.write_table(pa.table(rows), tmp_path / f"{i}.parquet")
    with open_dataset(str(tmp_path / "*.parquet")) as dataset:
        assert [b.num_rows for b in dataset.batches(shards_per_batch=None)] == [1, 1, 1]


def test_shards_whose_columns_differ_in_type_stay_apart(tmp_path: Path) -> None:
    """Also where a shard without the column, or without values in it, lies between them."""
    columns = [pa.array([1]), pa.nulls(1), None, pa.array([2.5]), pa.array([3.5])]
    for i, column in enumerate(columns):
        more = {} if column is None else {"n": column}
        pq.write_table(pa.table({"__key__": [f"k{i}"], **more}), tmp_path / f"{i}.parquet")
    with open_dataset(str(tmp_path / "*.parquet")) as dataset:
        batches = list(dataset.batches(shards_per_batch=None))
    assert [b.num_rows for b in batches] == [3, 2]
    assert [b.column("n").to_pylist() for b in batches] == [[1, None, None], [2.5, 3.5]]


@pytest.mark.parametrize("views", [False, True])
def test_members_may_be_asked_for_as_text(views: bool, tmp_path: Path) -> None:
    with lading.writer(tmp_path / "a") as writer:
        for i, text in enumerate(["hällo", None, "", "x" * 2000]):
            writer.write({"__key__": f"k{i}", "cls": b"1", **({} if text is None else {"txt": text})})
    schema = pa.schema([("__key__", pa.string()), ("txt", pa.string())])
    with open_dataset(tmp_path / "a", schema=schema) as dataset:
        whole = pa.Table.from_batches(list(dataset.batches(views=views)))
        assert whole.schema.field("txt").type == pa.string()
        assert whole.column("txt").to_pylist() == ["hällo", None, "", "x" * 2000]
        assert dataset.take([3, 0]).column("txt").to_pylist() == ["x" * 2000, "hällo"]
    lading.convert(tmp_path / "a", tmp_path / "b", format="parquet", schema=schema, verify=views)
    [path] = (tmp_path / "b").glob("*.parquet")
    assert pq.read_schema(path).field("txt").type == pa.string()
    assert pq.read_table(path).column("txt").to_pylist() == ["hällo", None, "", "x" * 2000]


def test_members_that_are_no_text(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "a") as writer:
        writer.write({"__key__": "k", "txt": b"\xff\xfe"})
    schema = pa.schema([("__key__", pa.string()), ("txt", pa.string())])
    with open_dataset(tmp_path / "a", schema=schema) as dataset, pytest.raises(SchemaMismatch, match="txt"):
        list(dataset.batches())
    with pytest.raises(SchemaMismatch, match="txt"):
        lading.convert(tmp_path / "a", tmp_path / "b", format="parquet", schema=schema)


def test_a_value_that_cannot_be_decoded_names_its_shard(tmp_path: Path) -> None:
    good, bad = tar_of(("a.json", b"{}"), ("a.cls", b"1")), tar_of(("b.json", b"{1"), ("c.cls", b"x"))
    (tmp_path / "0.tar").write_bytes(good)
    (tmp_path / "1.tar").write_bytes(bad)
    named = r"1\.tar .*column 'json': broken JSON"
    with lading.open(tmp_path, view="samples") as dataset, pytest.raises(DataError, match=named):
        list(dataset.samples())
    with lading.open(tmp_path, view="samples") as dataset:
        with pytest.raises(DataError, match=named):
            dataset[1]
        with pytest.raises(DataError, match=r"1\.tar .*column 'cls': not a number"):
            dataset[2]


def test_a_value_that_python_cannot_have_names_its_shard(tmp_path: Path) -> None:
    far = pa.array([1 << 40], pa.int64()).cast(pa.timestamp("s"))
    pq.write_table(pa.table({"t": far}), tmp_path / "far.parquet")
    with lading.open(tmp_path) as dataset, pytest.raises(DataError, match=r"far\.parquet column 't'"):
        list(dataset.samples())


@pytest.mark.soak
def test_a_manifest_whose_files_are_damaged_anywhere(tmp_path: Path) -> None:
    """Whatever byte of an index or a list is another, nothing but an error comes of it, and never the process's end."""
    table = pa.table({"a": [1, 2, 3], "b": [b"x", None, b""]})
    with lading.writer(tmp_path / "out", format="webdataset") as writer:
        writer.write_batch(table)
    for name in ("index-000000.arrow", "shards.arrow"):
        path = tmp_path / "out/_lading" / name
        whole = path.read_bytes()
        for at in range(0, len(whole), 7):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
            with suppress(LadingError), lading.open(tmp_path / "out") as dataset:
                [dataset[i] for i in range(len(dataset))]
        path.write_bytes(whole)


def test_a_format_of_a_manifest_that_nobody_knows(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out", format="parquet") as writer:
        writer.write_batch(pa.table({"a": [1]}))
    path = tmp_path / "out/_lading/manifest.json"
    path.write_text(path.read_text().replace('"parquet"', '"nothing"'))
    with pytest.raises(UnknownFormat) as caught:
        lading.open(tmp_path / "out")
    assert caught.value.file == str(tmp_path / "out")


@pytest.mark.parametrize("target", ["parquet", "mds"])
def test_rows_that_are_no_items(tmp_path: Path, target: str) -> None:
    with lading.writer(tmp_path / "out", format=target) as writer:
        writer.write_batch(pa.table({"a": [1]}))
    with lading.open(tmp_path / "out", view="interleaved") as dataset:
        for take in (lambda: dataset[0], lambda: list(dataset.batches())):
            with pytest.raises(SchemaMismatch, match="items need this column"):
                take()


def test_broken_json_is_named_with_its_file(tmp_path: Path) -> None:
    rows = pa.table({"j": ["{"]}, schema=pa.schema([with_feature(pa.field("j", pa.string()), Json())]))
    pq.write_table(rows, tmp_path / "x.parquet")
    with lading.open(tmp_path / "x.parquet") as dataset, pytest.raises(DataError) as caught:
        dataset[0]
    assert (caught.value.file, caught.value.column) == (str(tmp_path / "x.parquet"), "j")


def test_pieces_are_joined_in_a_dataset_whose_manifest_counts_them(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(("a.jpg", b"1"), ("b.jpg", b"2"), ("a.txt", b"3")))
    with pytest.warns(UserWarning, match="members of a sample do not stand together"):
        lading.convert(tmp_path / "a.tar", tmp_path / "out", format="webdataset")
    assert len(lading.open(tmp_path / "out").with_decode(False)) == 3
    joined = lading.open(tmp_path / "out", options={"regroup": True}).with_decode(False)
    assert len(joined) == len(list(joined)) == 2
    assert joined[0] == {"__key__": "a", "jpg": b"1", "txt": "3"}


@pytest.mark.parametrize("names", [["text"], ["__key__", "text"], ["__key__"]])
def test_one_column_is_a_schema_too(names: list[str], tmp_path: Path) -> None:
    pq.write_table(pa.table({name: ["a", "b"] for name in names}), tmp_path / "a.parquet")
    with lading.open(tmp_path / "a.parquet") as dataset:
        assert dataset.schema.names == names
        assert len(dataset) == 2


@pytest.mark.parametrize("max_bytes", [1, 250, 1 << 20])
def test_a_reference_that_leads_nowhere_is_told_by_its_row_in_the_batch(max_bytes: int, tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(*((f"{i}.bin", bytes(100)) for i in range(6))))
    with lading.open(tmp_path / "a.tar") as dataset:
        [batch] = dataset.batches(lazy=True)
        offset = [512, 2048, 3584, 1 << 40, 6656, 8192]
        references = make_refs(np.array(offset), np.full(6, 100))
        broken = batch.set_column(batch.schema.get_field_index("bin"), batch.schema.field("bin"), references)
        with pytest.raises(BadReference) as raised:
            list(materialise_parts(dataset._rows.shards, broken, max_bytes))
    assert raised.value.row == 3


@pytest.mark.soak
@pytest.mark.parametrize("fmt, view", [
    ("webdataset", "samples"), ("webdataset", "interleaved"), ("parquet", "interleaved"), ("arrow", "interleaved"),
    ("mds", "interleaved"), ("media_archive", "interleaved"), ("parquet", "samples"),
])  # fmt: skip
def test_a_dataset_goes_to_other_processes(fmt: str, view: str, docs: Path, tmp_path: Path) -> None:
    """As a loader that spawns its workers sends it; also one with open shards and maps."""
    lading.convert(docs, tmp_path / "out", format=fmt, view=view)
    with lading.open(tmp_path / "out").with_decode(False) as dataset:
        fresh = pickle.dumps(dataset)
        expected = [repr(sample) for sample in dataset]
        dataset.take([0, 3])
        for sent in (fresh, pickle.dumps(dataset)):
            with pickle.loads(sent) as again:
                assert (again.view, len(again), again.schema) == (dataset.view, len(dataset), dataset.schema)
                assert [repr(sample) for sample in again] == expected


class _OddScalar(pa.ExtensionScalar):  # type: ignore[misc] # pyarrow has no type information
    """A value of a type that gives others than are stored."""

    def as_py(self, **_options: Any) -> str:
        return "odd"


class _OddArray(pa.ExtensionArray):  # type: ignore[misc]
    """A column of such values; as that of `datasets`, it has no way with nulls."""

    def to_pylist(self, **_options: Any) -> list[Any]:
        return ["odd" for _ in self]


class _OddType(NamedType):
    """A type of such values."""

    def __arrow_ext_class__(self) -> type[_OddArray]:
        return _OddArray

    def __arrow_ext_scalar_class__(self) -> type[_OddScalar]:
        return _OddScalar


@pytest.mark.parametrize("format", ["arrow", "parquet"])
@pytest.mark.parametrize("registered", [True, False])
def test_values_of_types_that_somebody_registered_are_the_stored_ones(
    format: str,  # noqa: A002 - the word users know
    registered: bool,
    tmp_path: Path,
) -> None:
    path, stored = tmp_path / f"a.{format}", pa.array([[1, 2], None, []], pa.list_(pa.int8()))
    table = pa.table({"n": [0, 1, 2], "a": pa.ExtensionArray.from_storage(_OddType(stored.type), stored)})
    if format == "arrow":
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    else:
        pq.write_table(table, path)
    if registered:
        pa.register_extension_type(_OddType(stored.type))
    try:
        with lading.open(path) as dataset:
            expected = [{"n": 0, "a": [1, 2]}, {"n": 1, "a": None}, {"n": 2, "a": []}]
            assert [dataset[row] for row in range(3)] == list(dataset) == dataset.head() == expected
    finally:
        if registered:
            pa.unregister_extension_type("tests.named")


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_times_of_a_day_are_not_cut_to_what_python_has(tmp_path: Path, form: str) -> None:
    # Python's time ends at microseconds; pyarrow's `as_py` leaves the rest out.
    times = pa.array([2000, 45_296_123_456_789]).cast(pa.time64("ns"))
    with lading.writer(tmp_path / "d", format=form) as writer:
        writer.write_batch(pa.table({"t": times}))
    with lading.open(tmp_path / "d") as dataset:
        assert dataset[0] == {"t": time(0, 0, 0, 2)}
        assert dataset.take([1])["t"].cast(pa.int64()).to_pylist() == [45_296_123_456_789]
        with pytest.raises(DataError, match=r"column 't': Python cannot hold this value"):
            dataset[1]
        with pytest.raises(DataError, match=r"column 't': Python cannot hold this value"):
            list(dataset)


def test_bytes_that_cannot_be_had_are_told_by_their_row_in_the_shard(tmp_path: Path) -> None:
    place = json.dumps({"path": "gone.jpg", "member": None, "byte_offset": None, "byte_size": None})
    table = pa.table({
        "sample_id": [f"s{row}" for row in range(1000)], "position": [0] * 1000, "modality": ["image"] * 1000,
        "source_ref": pa.array([place if row == 864 else None for row in range(1000)], pa.string()),
        "binary_content": pa.array([None if row == 864 else b"x" for row in range(1000)], pa.large_binary()),
    })  # fmt: skip
    pq.write_table(table.slice(0, 100), tmp_path / "a.parquet")
    pq.write_table(table, tmp_path / "b.parquet")
    where: list[tuple[str | None, int | None]] = []
    for most in (1, None):
        with lading.open(tmp_path) as dataset, pytest.raises(BadReference) as caught:
            list(dataset.batches(max_rows=500, shards_per_batch=most))
        where.append((caught.value.file, caught.value.row))
    # A batch of several shards does not know where each of its rows stood.
    assert where == [(str(tmp_path / "b.parquet"), 864), (str(tmp_path / "b.parquet"), None)]


def test_numbers_below_zero_count_from_the_end_with_and_without_steps(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"__key__": ["a", "b", "c"], "n": [1, 2, 3]}), tmp_path / "in" / "a.parquet")
    pq.write_table(pa.table({"__key__": ["d"], "n": [4]}), tmp_path / "in" / "b.parquet")
    dataset = lading.open(tmp_path / "in")
    values = np.array([1, 2, 3, 4])
    for ds in (dataset, dataset.where("n > 0"), dataset.limit(4)):
        for places in ([-1], [-4, 0, 3], [2, -2, 2]):
            assert ds.take(places).column("n").to_pylist() == values[places].tolist()
        for wrong in ([-5], [0, 4]):
            with pytest.raises(IndexError, match=f"sample {wrong[-1]} of 4"):
                ds.take(wrong)


@pytest.mark.parametrize("numbers, shards", [([0, 3], 2), ([0], 1), ([1, 0, 1], 1), (slice(-2, None), 2)])
def test_chosen_samples_count_the_shards_that_they_come_from(numbers: Any, shards: int, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"__key__": ["a", "b", "c"], "n": [1, 2, 3]}), tmp_path / "in" / "a.parquet")
    pq.write_table(pa.table({"__key__": ["d"], "n": [4]}), tmp_path / "in" / "b.parquet")
    chosen = lading.open(tmp_path / "in")[numbers]
    assert chosen.write(tmp_path / "out", format="jsonl").source_shards == shards
    assert chosen.sort("n").write(tmp_path / "sorted", format="jsonl").source_shards == shards


@pytest.mark.parametrize("name", ["webdataset", "parquet", "mds", "arrow", "jsonl"])
def test_many_samples_at_once_are_those_one_by_one(name: str, tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out", format=name, rows_per_shard=7) as writer:
        for i in range(20):
            writer.write({"__key__": f"{i:03}", "txt": f"text {i}", "json": {"i": i}, "number": i})
    ds = lading.open(tmp_path / "out")
    for each in (ds, ds[::-2], ds.with_decode(False), ds.map(lambda sample: {**sample, "number": 7})):
        numbers = [3, 0, 9, 9, len(each) - 1, -1]
        assert each.__getitems__(numbers) == [each[i] for i in numbers]
    assert ds.__getitems__([]) == []
    for wrong in ([0, 20], [0, -21], [20, 3, -1]):
        with pytest.raises(IndexError, match=f"sample {next(i for i in wrong if abs(i) > 19)} of 20"):
            ds.__getitems__(wrong)


def test_many_samples_at_once_of_tars_and_documents(docs: Path, tmp_path: Path) -> None:
    tar = tar_of(("a.txt", b"one"), ("a.json", b"1"), ("b.txt", b"two"))
    (tmp_path / "plain.tar").write_bytes(tar)
    for ds in (lading.open(tmp_path / "plain.tar"), lading.open(docs)):
        for numbers in ([1, 0, 1], [1, 1], [0]):
            for each in (ds, ds[::-1], ds.map(dict)):
                assert each.__getitems__(numbers) == [each[i] for i in numbers]


def test_a_broken_sample_among_many_names_its_place(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out", format="webdataset", rows_per_shard=2) as writer:
        for i in range(4):
            writer.write({"__key__": str(i), "jpg": b"no image"})
    with pytest.raises(DataError, match=r"shard-000001\.tar row 0 .*'jpg'"):  # the first of them in the files
        lading.open(tmp_path / "out").__getitems__([3, 2])
