"""Datasets one after another equal a chain of their samples."""

from __future__ import annotations

import json
import pickle
import random
import tarfile
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from in_process import by_tasks
from lading._core.arrow.references import is_ref
from lading._core.storage.base import write_file
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import DataError, SchemaMismatch, UsageError
from lading.testing import CountingStore
from tars import tar_of

_BYTES = b"\xff\xd8\xff"


@pytest.fixture
def parts(tmp_path: Path) -> list[lading.Dataset]:
    """Two tars whose samples have fields of their own, a table behind a condition, and lines."""
    for first in (0, 6):
        members = [(f"t{n:02}.txt", b"caption %d" % n) for n in range(first, first + 6)]
        more = [("t99.bin", _BYTES), ("t99.txt", b"caption 12")] if first else []
        (tmp_path / f"{first}.tar").write_bytes(tar_of(*members, *more))
    table = {"txt": [f"row {n}" for n in range(7)], "score": [n / 2 for n in range(7)]}
    pq.write_table(pa.table(table), tmp_path / "more.parquet")
    lines = (json.dumps({"txt": f"line {n}", "n": n}) + "\n" for n in range(4))
    (tmp_path / "lines.jsonl").write_text("".join(lines))
    return [
        lading.open(str(tmp_path / "*.tar")),
        lading.open(tmp_path / "more.parquet").where("score > 1"),
        lading.open(tmp_path / "lines.jsonl"),
    ]


TEXTS = [*(f"caption {n}" for n in range(13)), *(f"row {n}" for n in range(3, 7)), *(f"line {n}" for n in range(4))]


def test_samples_are_those_of_the_parts_in_order(parts: list[lading.Dataset]) -> None:
    ds = lading.concat(parts)
    chained, found = (
        [{name: value for name, value in s.items() if name != "__key__" and value is not None} for s in samples]
        for samples in (chain(*parts), ds)
    )
    assert found == chained
    assert [s["txt"] for s in ds] == TEXTS
    assert len(ds) == len(TEXTS)
    assert [ds[n]["txt"] for n in (0, 12, 13, -1)] == ["caption 0", "caption 12", "row 3", "line 3"]
    taken = ds.take([18, 0, 14, 0], ["txt", "score"]).to_pylist()
    assert [(row["txt"], row["score"]) for row in taken] == [
        ("line 1", None), ("caption 0", None), ("row 4", 2.0), ("caption 0", None),
    ]  # fmt: skip
    assert [s["txt"] for s in parts[0].concat(*parts[1:])] == TEXTS
    assert len(pickle.loads(pickle.dumps(ds))) == len(TEXTS)


def test_steps_run_over_all_parts(parts: list[lading.Dataset]) -> None:
    ds = lading.concat(parts)
    assert [s["txt"] for s in ds.where("score >= 2 or n == 3")] == ["row 4", "row 5", "row 6", "line 3"]
    assert sorted(s["txt"] for s in ds.shuffle(seed=1)) == sorted(TEXTS)
    assert [s["txt"] for s in ds.shuffle(seed=1)] != TEXTS
    assert [s["txt"] for s in ds[10:14]] == TEXTS[10:14]
    assert [s["txt"] for s in lading.concat([ds[:2], ds[-1:]])] == ["caption 0", "caption 1", "line 3"]


@pytest.mark.soak
@pytest.mark.parametrize(
    "target, options", [("parquet", {}), ("webdataset", {}), ("arrow", {}), ("mds", {"nulls": "mask"})]
)
def test_what_is_written_has_the_digest_of_the_concatenation(
    target: str, options: dict[str, Any], parts: list[lading.Dataset], tmp_path: Path
) -> None:
    ds = lading.concat(parts)
    done = ds.write(tmp_path / "out", format=target, options=options, verify=True, **by_tasks(2))
    assert (done.samples, done.digest) == (len(TEXTS), lading.digest(ds).ordered)
    assert any("bin" in difference for difference in done.differences)
    back = lading.open(tmp_path / "out")
    assert [s["txt"] for s in back] == TEXTS


def test_peers_read_what_is_written(parts: list[lading.Dataset], tmp_path: Path) -> None:
    lading.concat(parts).write(tmp_path / "all.parquet")
    table = pd.read_parquet(tmp_path / "all.parquet")
    assert table["txt"].tolist() == TEXTS
    assert table["score"].dropna().tolist() == [1.5, 2.0, 2.5, 3.0]
    lading.concat(parts).write(tmp_path / "all.tar")
    with tarfile.open(tmp_path / "all.tar") as tar:
        found = [tar.extractfile(each).read().decode() for each in tar if each.name.endswith(".txt")]  # type: ignore[union-attr] # a file
    assert found == TEXTS


def test_repeated_keys_are_counted(parts: list[lading.Dataset], tmp_path: Path) -> None:
    repeated = "samples with a key that an earlier sample has"
    ds = lading.concat([parts[0], parts[1], parts[0]])
    for options in ({}, {"workers": 2}, {"dry_run": True}, {"options": {"compression": "gzip"}}):
        done = ds.write(tmp_path / "out", format="webdataset", overwrite=True, **options)
        assert done.counts[repeated] == 13
    few = ds.where("txt == 'caption 3' or txt == 'row 4'").write(tmp_path / "few" / "a.tar")
    assert few.counts[repeated] == 1
    assert repeated not in parts[0].concat(parts[1]).write(tmp_path / "once", "webdataset").counts


def test_counting_repeated_keys_reads_nothing_again() -> None:
    store = CountingStore(MemoryStore())
    for name in "ab":
        members = [(f"{name}{n:03}.txt", b"caption %d" % n) for n in range(300)]
        write_file(store, f"far://in/{name}.tar", [tar_of(*members)])
    stores = Stores({"far://": store})
    requests = []
    for name in ("parquet", "webdataset"):
        both = lading.concat([lading.open(f"far://in/{part}.tar", stores=stores) for part in "ab"])
        store.reset()
        both.write(f"far://{name}", format=name, progress=False)
        requests.append(sum(len(store.ranges[f"far://in/{part}.tar"]) for part in "ab"))
    assert requests[0] == requests[1]


def test_what_cannot_be_concatenated_is_refused(parts: list[lading.Dataset], docs: Path, tmp_path: Path) -> None:
    for wrong in ([], ["more.parquet"]):
        with pytest.raises(UsageError):
            lading.concat(wrong)  # type: ignore[arg-type] # what is refused
    with pytest.raises(UsageError, match="documents"):
        lading.concat([parts[0], lading.open(docs)])


def test_an_error_names_all_columns_that_do_not_fit(tmp_path: Path) -> None:
    for name, column in (("a", ["x", "y"]), ("b", [1, 2])):
        pq.write_table(pa.table({"txt": column, "n": column, "same": [1, 2]}), tmp_path / f"{name}.parquet")
    both = [lading.open(tmp_path / "a.parquet"), lading.open(tmp_path / "b.parquet")]
    with pytest.raises(SchemaMismatch, match=r"schema_overrides=\{'txt': pa.string\(\), 'n'"):
        lading.concat(both).schema  # noqa: B018 - what raises
    typed = lading.concat(both, types={"txt": pa.string(), "n": pa.string()})
    assert [sample["n"] for sample in typed] == ["x", "y", "1", "2"]
    with pytest.raises(UsageError, match="no such column"):
        lading.concat(both, types={"other": pa.string()}).schema  # noqa: B018 - what raises


def test_numbers_with_line_ends_are_text(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(("0.cls", b"3\n"), ("1.cls", b"4\n")))
    pq.write_table(pa.table({"cls": [1, 2]}), tmp_path / "b.parquet")
    parts = [lading.open(tmp_path / "a.tar"), lading.open(tmp_path / "b.parquet")]
    with pytest.raises(SchemaMismatch, match="cls"):
        lading.concat(parts).schema  # noqa: B018 - what raises
    typed = lading.concat(parts, types={"cls": pa.string()})
    assert typed.take([0, 3], ["cls"])["cls"].to_pylist() == ["3\n", "2"]


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def large(tmp_path: Path) -> list[lading.Dataset]:
    """Three datasets of three formats, large enough for several tasks."""
    found = []
    for place, target in enumerate(("webdataset", "parquet", "mds")):
        with lading.writer(tmp_path / target, format=target, shard_size="8MB") as writer:
            for n in range(40):
                keyed = {"__key__": f"k{n}"} if target == "webdataset" else {"score": n / 2}
                writer.write({"jpg": _BYTES + random.Random(f"{place} {n}").randbytes(600_000), "txt": f"{n}", **keyed})
        found.append(lading.open(tmp_path / target).with_decode(False))
    return found


@pytest.mark.cases(1)
@pytest.mark.parametrize("target", ["parquet", "webdataset"])
def test_any_number_of_workers_writes_the_same_bytes(target: str, large: list[lading.Dataset], tmp_path: Path) -> None:
    odd = large[1].where("score != 3").map(lambda sample: {"txt": sample["txt"] + "!"})
    ds = lading.concat([large[0], odd, large[2].shuffle(seed=1)])
    written = []
    for workers in (1, 2, 3):
        place = tmp_path / f"out{workers}"
        done = ds.write(place, format=target, shard_size="8MB", **by_tasks(workers), verify=True)
        assert (done.samples, done.source_format) == (119, "webdataset + parquet + mds")
        written.append(_files(place))
    assert written[0] == written[1] == written[2]
    texts = [f"{n}" for n in range(40)] + [f"{n}!" for n in range(40) if n != 6]
    assert [sample["txt"] for sample in lading.open(tmp_path / "out2").with_decode(False)][:79] == texts


@pytest.mark.soak
def test_indexes_of_any_number_of_workers_are_the_same_bytes(large: list[lading.Dataset], tmp_path: Path) -> None:
    ds = lading.concat(large).where("txt != '3'").shuffle(seed=1)
    for workers in (1, 2):
        ds.write(tmp_path / f"out{workers}", format="webdataset", shard_size="8MB", workers=workers)
    one, two = _files(tmp_path / "out1"), _files(tmp_path / "out2")
    assert "_lading/index-000000.arrow" in one
    assert one == two


def test_shards_of_a_part_that_differ_have_the_columns_and_types_of_all(tmp_path: Path) -> None:
    for name, table in {
        "a/0": {"n": pa.array([1, 2], pa.int64()), "txt": ["a", "b"]},
        "a/1": {"n": pa.array([3], pa.int32())},
        "b/0": {"n": pa.array([4], pa.int64()), "txt": ["d"]},
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table(table), tmp_path / f"{name}.parquet")
    ds = lading.concat([lading.open(tmp_path / "a"), lading.open(tmp_path / "b")])
    expected = [{"n": 1, "txt": "a"}, {"n": 2, "txt": "b"}, {"n": 3, "txt": None}, {"n": 4, "txt": "d"}]
    assert list(ds) == [ds[n] for n in range(4)] == expected
    assert {batch.schema.field("n").type for batch in ds.batches()} == {pa.int64()}


def test_stores_of_the_parts_serve_what_is_written_too(parts: list[lading.Dataset]) -> None:
    store = MemoryStore()
    named = Stores({"kept://": store})
    places = ["kept://tars", "kept://table"]
    for place, part, target in zip(places, parts[:2], ("webdataset", "parquet"), strict=True):
        with lading.writer(place, format=target, stores=named) as writer:
            for sample in part:
                writer.write({"txt": sample["txt"]})
    ds = lading.concat([lading.open(place, stores=named) for place in places])
    ds.write("kept://all", format="webdataset")
    assert [sample["txt"] for sample in lading.open("kept://all", stores=named)] == TEXTS[:17]


@pytest.mark.soak
def test_payload_stays_references(large: list[lading.Dataset]) -> None:
    first = next(lading.concat(large).batches(lazy=True))
    assert is_ref(first.schema.field("jpg").type)


@pytest.mark.soak
def test_the_digest_is_that_of_the_parts_in_order(large: list[lading.Dataset], tmp_path: Path) -> None:
    tables = large[1:]
    for number, part in enumerate(tables):
        part.write(tmp_path / f"{number}.parquet")
    together = lading.open([tmp_path / "0.parquet", tmp_path / "1.parquet"])
    assert lading.digest(lading.concat(tables)).ordered == lading.digest(together).ordered


@pytest.mark.soak
@pytest.mark.parametrize("target", ["webdataset", "parquet", "mds"])
def test_documents_of_several_formats_are_one_dataset(target: str, tmp_path: Path) -> None:
    places = []
    for number in range(3):
        stories = [
            (f"d{number}-{n}", {"texts": ["a", None, f"b {n}"], "images": [None, "0", None], "n": n}) for n in range(5)
        ]
        members = [each for name, story in stories
                   for each in ((f"{name}.json", json.dumps(story).encode()), (f"{name}.jpg", _BYTES))]  # fmt: skip
        places.append(tmp_path / f"{number}.tar")
        places[-1].write_bytes(tar_of(*members))
    expected = lading.digest([str(place) for place in places]).ordered
    lading.convert(places[1], tmp_path / "rows", format="parquet")
    lading.convert(places[2], tmp_path / "packed", format="mds")
    ds = lading.concat([lading.open(places[0]), lading.open(tmp_path / "rows"), lading.open(tmp_path / "packed")])
    assert (ds.view, len(ds), lading.digest(ds).ordered) == ("interleaved", 15, expected)
    assert [ds[n]["sample_id"] for n in (0, 5, 14)] == ["d0-0", "d1-0", "d2-4"]
    done = ds.where("n >= 3", drop="sample").shuffle(seed=0).write(tmp_path / "out", format=target, verify=True)
    assert done.samples == 6
    assert ds.write(tmp_path / "all", format=target, verify=True).digest == expected


def test_columns_that_only_steps_look_at_are_not_given(docs: Path) -> None:
    few = lading.open(docs).where("n_words > 1")
    for both in (lading.concat([few, few]), lading.concat([few.image_bounds(max_aspect_ratio=9), few])):
        assert both.take([0], columns=["sample_id"]).column_names == ["sample_id", "position"]
        assert next(iter(both.batches(columns=["sample_id"]))).schema.names == ["sample_id", "position"]


def test_errors_name_the_file_and_row_of_a_part(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(
        tar_of(("0.cls", b"3"), *((f"{n}.cls", b"4") for n in range(1, 20)), ("20.cls", b"x"))
    )
    pq.write_table(pa.table({"cls": [1, 2]}), tmp_path / "b.parquet")
    ds = lading.concat([lading.open(tmp_path / "b.parquet"), lading.open(tmp_path / "a.tar")])
    with pytest.raises(DataError, match=r"a\.tar row 20 .*cls"):
        list(ds)


def test_numbers_that_a_tar_holds_as_text_join_numbers_of_a_table(tmp_path: Path) -> None:
    members = [member for n in range(4) for member in ((f"{n}.cls", b"%d" % n), (f"{n}.txt", b"t"))]
    (tmp_path / "a.tar").write_bytes(tar_of(*members))
    lading.open(tmp_path / "a.tar").write(tmp_path / "table", format="parquet")
    both = lading.concat([lading.open(tmp_path / "a.tar"), lading.open(tmp_path / "table")])
    assert [sample["cls"] for sample in both] == [*range(4), *range(4)]
    assert [sample["cls"] for sample in both[[5, 2]]] == [1, 2]
    both.write(tmp_path / "all", format="parquet", verify=True)
    assert pd.concat(map(pd.read_parquet, (tmp_path / "all").glob("*.parquet")))["cls"].tolist() == [*range(4)] * 2
